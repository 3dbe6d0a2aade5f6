//! Compares the pages `/slo`, `/stats` and `/drift` with the request log of the same exchanges.
//!
//! The real program runs in front of the simulated backend.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;
use tokengauge_simulator::{Ledger, Profile};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::admin_fields::{documented, fields};
use crate::support::process::{CALL, Process};
use crate::support::{Raw, within};

/// Text that is in every prompt, header and query and must not appear in any page.
const PLANTED: &str = "planted-secret";

pub struct Rig {
    pub process: Process,
    folder: TempDir,
}

impl Rig {
    pub async fn start(profiles: &[&str], config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let process = before(simulator(profiles).await, folder.path(), config).await;
        Self { process, folder }
    }

    pub async fn page(&self, path: &str) -> Value {
        let (head, body) = self.process.page(path).await;
        assert!(head.contains("content-type: application/json"), "{head}");
        assert!(!body.contains("planted"), "{body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
    }

    /// Waits until the request log has `count` lines, and returns them.
    pub async fn logged(&self, count: usize) -> Vec<Value> {
        let path = self.folder.path().join("log");
        let wait = async {
            loop {
                let text = fs::read_to_string(&path).unwrap_or_default();
                let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
                match lines {
                    Ok(lines) if lines.len() >= count => break lines,
                    _ => tokio::task::yield_now().await,
                }
            }
        };
        within("lines of the request log", wait).await
    }
}

async fn simulator(profiles: &[&str]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let models: Vec<Profile> = profiles.iter().map(|it| it.parse().unwrap()).collect();
    let config = tokengauge_simulator::Config { models, seed: 1 };
    let ledger = Arc::new(Ledger::default());
    tokio::spawn(tokengauge_simulator::serve(listener, config, ledger, std::future::pending()));
    address
}

async fn before(upstream: SocketAddr, folder: &Path, config: &str) -> Process {
    let path = folder.join("config.yaml");
    let log = folder.join("log");
    let text = format!(
        "version: 1\nupstreams: {{sim: {{url: \"http://{upstream}\"}}}}\nrequest_log: {{path: {}}}\n{config}\n",
        log.display()
    );
    fs::write(&path, text).unwrap();
    Process::start(&["--config", path.to_str().unwrap()], &[]).await
}

pub async fn call(proxy: SocketAddr, model: &str, stream: bool, words: u64) {
    ask(proxy, model, stream, "", words).await;
}

async fn ask(proxy: SocketAddr, model: &str, stream: bool, own: &str, words: u64) {
    let prompt = format!("{PLANTED}{own}{}", " word".repeat(usize::try_from(words).unwrap()));
    let body = format!(
        "{{\"model\":\"{model}\",\"stream\":{stream},\"messages\":[{{\"role\":\"user\",\"content\":\"{prompt}\"}}]}}"
    );
    let length = body.len();
    let mut client = Raw::connect(proxy).await;
    client
        .write(format!(
            "POST {CALL}?key={PLANTED} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {PLANTED}\r\n\
             Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
        .await;
    assert!(client.read_to_end().await.starts_with(b"HTTP/1.1 "));
}

/// Requests 200 non-streaming responses to prompts of `words` to `words` + 49 words.
///
/// Every request is unique, because the simulated backend gives the same response to equal requests.
async fn prompts(process: &Process, round: u64, words: u64) {
    for n in 0..200 {
        let own = format!("{:06}", 1_000 * round + n);
        ask(process.address, "at-once", false, &own, words + n % 50).await;
    }
}

/// Returns a percentile by the nearest-rank method.
pub fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (percent * values.len()).div_ceil(100);
    values[rank.max(1) - 1]
}

/// Asserts that `reported` has the percentiles of `values`. The tolerance is 1 % plus half of `unit`, the resolution in
/// which the program stores values.
fn agree(reported: &Value, mut values: Vec<f64>, unit: f64) {
    assert_eq!(reported["count"], values.len(), "{reported}");
    for (name, percent) in [("p5", 5), ("p50", 50), ("p95", 95), ("p99", 99)] {
        let exact = percentile(&mut values, percent);
        let reported = reported[name].as_f64().unwrap();
        let off = (reported - exact).abs();
        assert!(off <= 0.01 * exact + unit / 2.0, "{name}: {reported} for {exact}");
    }
}

/// Returns `/stats` and the request log after 25 calls.
///
/// The calls are 18 streams and 6 non-streaming responses of the model `steady`, and one 503.
async fn after_25_calls() -> (Value, Vec<Value>) {
    let (rig, lines) = rig_after_25_calls().await;
    (rig.page("/stats").await, lines)
}

/// Returns the process and the request log after the 25 calls.
pub async fn rig_after_25_calls() -> (Rig, Vec<Value>) {
    let steady =
        "steady:prefill-ms=60,step-ms=5,batch-ms=0.2,jitter=0.3,tokens=30-60,chunk-tokens=1";
    let rig = Rig::start(&[steady, "failing:fail=1,status=503"], "").await;
    let mut calls = JoinSet::new();
    for n in 0..24 {
        calls.spawn(call(rig.process.address, "steady", n % 4 != 0, n));
    }
    calls.join_all().await;
    call(rig.process.address, "failing", true, 1).await;
    let lines = rig.logged(25).await;
    (rig, lines)
}

#[tokio::test]
async fn percentiles_and_counts_equal_the_request_log() {
    let (stats, mut lines) = after_25_calls().await;
    assert_documented("/stats", &stats);
    lines.retain(|line| line["call"]["labels"]["model"] == "steady");
    let models = stats["models"].as_array().unwrap();
    let model = models.iter().find(|model| model["model"] == "steady").unwrap();
    let recent = &model["last_five_minutes"];
    assert_eq!((&recent["finished"], &recent["failed"]), (&24.into(), &0.into()));
    let values = |pointer: &str| -> Vec<f64> {
        let value = |line: &Value| line.pointer(pointer)?.as_f64();
        lines.iter().filter_map(value).collect()
    };
    let rates = values("/call/rates/output");
    assert!(!rates.is_empty());
    assert_eq!(values("/times/first_token").len(), 18, "non-streaming responses have no value");
    for (field, pointer, unit) in [
        ("time_to_first_token_seconds", "/times/first_token", 0.000_1),
        ("output_tokens_per_second", "/call/rates/output", 0.01),
        ("time_per_output_token_seconds", "/call/rates/time_per_output_token", 0.000_001),
        ("duration_seconds", "/times/end", 0.000_1),
    ] {
        agree(&recent[field], values(pointer), unit);
    }
    let bands = &recent["output_rate_ranges"];
    for (band, from, to) in [
        ("<5", 0.0, 5.0),
        ("5-15", 5.0, 15.0),
        ("15-30", 15.0, 30.0),
        ("30-60", 30.0, 60.0),
        (">=60", 60.0, f64::MAX),
        ("voice", 100.0, f64::MAX),
    ] {
        let within = rates.iter().filter(|rate| (from..to).contains(*rate));
        assert_eq!(bands[band], within.count(), "{band} of {bands}");
    }
}

#[tokio::test]
async fn the_total_includes_every_model_and_the_page_identifies_the_process() {
    let (stats, lines) = after_25_calls().await;
    let total = &stats["total"]["last_five_minutes"];
    assert_eq!((&total["finished"], &total["failed"]), (&25.into(), &1.into()));
    assert_eq!(total["duration_seconds"]["count"], 24, "a 503 has no duration in the statistics");
    assert_eq!(total["time_to_first_token_seconds"]["count"], 18);
    let throughput = &stats["total"]["throughput_tokens_per_second"];
    assert_eq!(throughput["total"]["5m"], Value::Null, "not covered");
    let route = &stats["routes"][0];
    assert_eq!((&route["route"], &route["queue_depth"]), (&"sim".into(), &0.into()));
    assert_eq!(route["in_flight"]["streaming"], 0);
    let process = &stats["process"];
    assert_eq!(process["version"], env!("CARGO_PKG_VERSION"));
    assert!(process["uptime_seconds"].as_f64() > Some(0.0));
    assert!(process["started"].as_str() < lines[0]["time"].as_str(), "{process}");
}

#[tokio::test]
async fn reports_the_peak_after_the_first_full_second() {
    let rig = Rig::start(&["sim-fast"], "").await;
    call(rig.process.address, "sim-fast", true, 1).await;
    let told = async {
        loop {
            let mut stats = rig.page("/stats").await;
            let throughput = stats["total"]["throughput_tokens_per_second"].take();
            if throughput["output"]["peak"].as_f64() > Some(0.0) {
                break (throughput, stats);
            }
        }
    };
    let (throughput, stats) = within("a peak", told).await;
    assert_eq!(throughput["input"]["peak"], Value::Null, "no stream");
    assert_eq!(throughput["total"]["peak"], Value::Null, "no total of the two");
    let model = &stats["models"][0]["throughput_tokens_per_second"];
    assert_eq!(model["output"]["peak"], throughput["output"]["peak"]);
}

#[tokio::test]
async fn reports_requests_in_flight_by_phase() {
    let rig = Rig::start(&["slow:prefill-ms=600000"], "").await;
    let body = "{\"model\":\"slow\",\"stream\":true,\"messages\":[]}";
    let mut client = rig.process.client().await;
    let length = body.len();
    client
        .write(format!("POST {CALL} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"))
        .await;
    let waits = async {
        loop {
            let stats = rig.page("/stats").await;
            if stats["routes"][0]["in_flight"]["waiting"] == 1 {
                break stats;
            }
        }
    };
    let stats = within("a waiting stream", waits).await;
    assert_eq!(stats["routes"][0]["queue_depth"], 1);
    // The model is listed once the observer has counted its stream.
    for model in stats["models"].as_array().unwrap() {
        assert_eq!(model["last_five_minutes"]["finished"], 0, "{model}");
    }
    drop(client);
}

/// Fails if a page has a field that the examples in the admin API lack.
pub fn assert_documented(page: &str, value: &Value) {
    let found = fields(value);
    assert!(found.len() > 3, "{page}: {value}");
    let documented = documented();
    let missing: Vec<_> = found
        .iter()
        .map(|field| format!("{page}:{field}"))
        .filter(|it| !documented.contains(it))
        .collect();
    assert!(missing.is_empty(), "not in the examples of docs/reference/admin-api.md: {missing:?}");
}

#[tokio::test]
async fn reports_slos_with_their_definition() {
    let objectives = "slos:\n\
        - {name: up, sli: availability, target: 99.5%}\n\
        - {name: quick, sli: ttft, threshold: 250ms, target: 0.9, window: 7d, scope: {route: sim, model: s*}}\n\
        - {name: steady, sli: output_rate, threshold: 15, target: 0.5}\n";
    let rig = Rig::start(&["sim-fast"], objectives).await;
    call(rig.process.address, "sim-fast", false, 1).await;
    rig.logged(1).await;
    let page = rig.page("/slo").await;
    assert_documented("/slo", &page);
    let [up, quick, steady] = page.as_array().unwrap().as_slice() else {
        panic!("{page}");
    };
    assert_eq!((&up["sli"], &up["threshold"]), (&"availability".into(), &Value::Null));
    assert_eq!(
        (&up["good"], &up["bad"], &up["error_budget_remaining"]),
        (&1.into(), &0.into(), &1.0.into())
    );
    assert_eq!(up["window_seconds"], 30 * 86_400);
    assert_eq!(quick["target"], 0.9);
    assert_eq!(quick["sli"], "ttft");
    let threshold = serde_json::json!({"value": 0.25, "unit": "s", "good": "up to"});
    assert_eq!(quick["threshold"], threshold);
    assert_eq!(quick["scope"], serde_json::json!({"route": "sim", "model": "s*"}));
    assert_eq!((&quick["good"], &quick["error_budget_remaining"]), (&0.into(), &Value::Null));
    let threshold = serde_json::json!({"value": 15.0, "unit": "{token}/s", "good": "from"});
    assert_eq!(steady["threshold"], threshold);
    let burn = up["burn_rate"].as_object().unwrap();
    assert_eq!(burn.len(), 7);
    assert!(burn.values().all(Value::is_null), "no window is fully covered: {up}");
}

#[tokio::test]
async fn longer_prompts_are_drift_unless_a_saved_baseline_has_them() {
    const AT_ONCE: &str =
        "at-once:prefill-ms=0,prefill-us-per-token=0,step-ms=0,batch-ms=0,tokens=1-40";
    let rig = Rig::start(&[AT_ONCE], "workload_drift: {sample_size: 200}").await;
    prompts(&rig.process, 1, 1).await;
    let drift = rig.page("/stats").await["drift"].take();
    let input = &drift[0]["input"];
    assert_eq!((&input["baseline"], &input["current"]), (&200.into(), &0.into()));
    assert_eq!(input["index"], Value::Null);
    assert_eq!(rig.process.count(&["workload_drift"]).await, 0, "not reported");

    prompts(&rig.process, 2, 1).await;
    let drift = rig.page("/stats").await["drift"].take();
    for direction in ["input", "output"] {
        let lengths = &drift[0][direction];
        assert!(lengths["index"].as_f64() < Some(0.25), "{drift}");
        assert_eq!(lengths["by_chance"], 0.09, "{drift}");
        assert_eq!(lengths["bins"], 10);
    }

    prompts(&rig.process, 3, 200).await;
    let drift = rig.page("/stats").await["drift"].take();
    assert!(drift[0]["input"]["index"].as_f64() > Some(0.25), "{drift}");
    assert!(drift[0]["output"]["index"].as_f64() < Some(0.25), "{drift}");
    let exported = ["tokengauge_workload_drift_ratio{", "type=\"input\"", "model=\"at-once\""];
    assert!(rig.process.seconds(&exported).await > 0.25);

    assert_documented("/stats", &rig.page("/stats").await);
    assert_documented("/drift", &rig.page("/drift").await);
    let (_, saved) = rig.process.page("/drift").await;
    assert!(!saved.contains("planted"), "{saved}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("baseline.json");
    fs::write(&file, saved).unwrap();
    let config = format!("workload_drift: {{sample_size: 200, baseline: {}}}", file.display());
    let later = Rig::start(&[AT_ONCE], &config).await;
    prompts(&later.process, 4, 200).await;
    let drift = later.page("/stats").await["drift"].take();
    let input = &drift[0]["input"];
    assert_eq!((&input["baseline"], &input["current"]), (&200.into(), &200.into()));
    assert!(input["index"].as_f64() < Some(0.1), "no drift for the same prompts: {drift}");
    prompts(&later.process, 5, 1).await;
    let drift = later.page("/stats").await["drift"].take();
    assert!(drift[0]["input"]["index"].as_f64() > Some(0.25), "{drift}");
}

#[tokio::test]
async fn without_drift_no_lengths_are_kept() {
    let rig =
        Rig::start(&["at-once:prefill-ms=0,step-ms=0,tokens=1"], "workload_drift: {baseline: off}")
            .await;
    call(rig.process.address, "at-once", false, 1).await;
    assert_eq!(rig.page("/stats").await["drift"], Value::Array(Vec::new()));
    assert_eq!(rig.page("/drift").await["models"], Value::Array(Vec::new()));
}

#[tokio::test]
async fn the_pages_require_the_same_access_as_streams() {
    let upstream = simulator(&["m"]).await;
    let arguments = ["--upstream", &format!("http://{upstream}")];
    let environment = [("TOKENGAUGE_ADMIN_TOKEN", "open-sesame")];
    let process = Process::start(&arguments, &environment).await;
    for page in ["/streams", "/slo", "/stats", "/drift"] {
        let (closed, body) = process.page(page).await;
        assert!(closed.starts_with("HTTP/1.1 401"), "{page}: {closed}");
        assert!(body.contains("admin token"), "{body}");
        let header = "Authorization: Bearer open-sesame\r\n";
        let (open, _) = process.page_with(page, header).await;
        assert!(open.starts_with("HTTP/1.1 200"), "{page}: {open}");
    }
    // The links of alerts work without a token.
    let (head, runbook) = process.page("/runbooks/LLMProviderDown").await;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/markdown"), "{head}");
    assert!(runbook.starts_with("# LLMProviderDown"), "{runbook}");
    let (missing, body) = process.page("/runbooks/nope").await;
    assert!(missing.starts_with("HTTP/1.1 404") && body.contains("/runbooks/"), "{missing} {body}");
}
