//! Tests with the metrics pages in `tests/fixtures/engines`. The pages follow the documentation and the source code of
//! each engine.

use crate::engine::{Engine, EngineMetrics, PrefixCacheUsage, read};
use tokengauge_types::clock::WallTime;

fn page(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/engines");
    std::fs::read(format!("{folder}/{name}.prom")).unwrap()
}

/// Parses a page twice: once for the given engine and once with engine detection. Checks that the two results are
/// equal.
fn metrics_of(name: &str, engine: Engine) -> EngineMetrics {
    let page = page(name);
    let reading = read(&page, None).unwrap();
    assert_eq!((reading.engine, reading.implausible), (engine, 0), "{name}");
    assert_eq!(read(&page, Some(engine)), Ok(reading));
    reading.metrics
}

fn requests(waiting: u64, running: u64) -> EngineMetrics {
    EngineMetrics { waiting: Some(waiting), running: Some(running), ..EngineMetrics::default() }
}

fn started(millis: u64) -> Option<WallTime> {
    Some(WallTime::from_unix_nanos(millis * 1_000_000))
}

#[test]
fn vllm() {
    let expected = EngineMetrics {
        kv_cache: Some(0.837_104_072_398_190_1),
        prefix: Some(PrefixCacheUsage::Counted { queries: 1_500_000.0, hits: 600_000.0 }),
        started: started(1_763_820_134_240),
        asleep: Some(false),
        ..requests(3, 21)
    };
    let metrics = metrics_of("vllm", Engine::Vllm);
    // Seconds since 1970 as a 64-bit float have a resolution of about 0.2 µs.
    let apart = |a: Option<WallTime>, b: Option<WallTime>| {
        a.unwrap().unix_nanos().abs_diff(b.unwrap().unix_nanos())
    };
    assert!(apart(metrics.started, expected.started) < 1_000);
    let started = expected.started;
    assert_eq!(EngineMetrics { started, ..metrics }, expected);
}

#[test]
fn vllm_before_version_1() {
    let metrics = metrics_of("vllm_v0", Engine::Vllm);
    assert_eq!((metrics.waiting, metrics.running), (Some(1), Some(4)));
    assert_eq!(metrics.kv_cache, Some(0.145_027_092_125_225_78));
    assert_eq!(metrics.prefix, None, "-1 says that there is none");
}

#[test]
fn sglang() {
    let expected = EngineMetrics {
        kv_cache: Some(0.31),
        prefix: Some(PrefixCacheUsage::Share(0.5)),
        ..requests(3, 25)
    };
    assert_eq!(metrics_of("sglang", Engine::Sglang), expected);
}

#[test]
fn tgi() {
    assert_eq!(metrics_of("tgi", Engine::Tgi), requests(6, 14));
}

#[test]
fn tensorrt_llm() {
    let expected = EngineMetrics {
        kv_cache: Some(0.515_625),
        prefix: Some(PrefixCacheUsage::Counted { queries: 10_000.0, hits: 4_000.0 }),
        started: started(1_763_820_000_000),
        ..requests(5, 31)
    };
    assert_eq!(metrics_of("tensorrt_llm", Engine::TensorrtLlm), expected);
}

#[test]
fn nim() {
    let metrics = metrics_of("nim", Engine::Nim);
    assert_eq!((metrics.waiting, metrics.running), (Some(2), Some(7)));
    assert_eq!(metrics.kv_cache, Some(0.0625));
    assert!(metrics.started.is_some());
}

#[test]
fn triton_with_and_without_the_tensorrt_llm_backend() {
    let expected = EngineMetrics { kv_cache: Some(0.4875), ..requests(4, 16) };
    assert_eq!(metrics_of("triton", Engine::Triton), expected);
    let plain = metrics_of("triton_plain", Engine::Triton);
    assert_eq!((plain.waiting, plain.running), (Some(5), None));
}

#[test]
fn llama_cpp_new_and_old() {
    assert_eq!(metrics_of("llama_cpp", Engine::LlamaCpp), requests(46, 4));
    let older = EngineMetrics { kv_cache: Some(0.375), ..requests(0, 1) };
    assert_eq!(metrics_of("llama_cpp_older", Engine::LlamaCpp), older);
}

#[test]
fn openmetrics_yields_the_same_values() {
    let expected = EngineMetrics {
        prefix: Some(PrefixCacheUsage::Counted { queries: 100.0, hits: 25.0 }),
        ..requests(0, 2)
    };
    assert_eq!(metrics_of("openmetrics", Engine::Vllm), expected);
}
