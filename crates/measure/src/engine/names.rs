//! Metric names of each engine and their meanings.

use crate::engine::Engine;

/// Meaning of a metric.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Meaning {
    /// Requests that wait in the engine's queue.
    Waiting,
    /// Requests that the engine is processing.
    Running,
    /// Used fraction of the KV cache, from 0 to 1.
    KvCache,
    /// Counter of prefix cache queries, in tokens or blocks.
    Queries,
    /// Counter of prefix cache hits.
    Hits,
    /// Counter of prefix cache misses, for engines that report hits and misses instead of queries.
    Misses,
    /// Hit ratio of the prefix cache as the engine computes it, from 0 to 1.
    PrefixShare,
    /// 1 if the engine is awake, 0 if it sleeps.
    Awake,
}

/// One metric name of one engine. If several names have the same meaning, the first one that is present in the page is
/// used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    pub(super) engine: Engine,
    pub(super) meaning: Meaning,
    pub(super) name: &'static str,
    /// Label name and value that select the series to use. `None` if all series of the metric are used.
    pub(super) only: Option<(&'static str, &'static str)>,
}

/// Process start time in seconds since 1970. The Prometheus client libraries export this metric for any engine.
pub(super) const PROCESS_START: &str = "process_start_time_seconds";

/// Labels that number parallel ranks of one model. Each rank reports the whole work, so the ranks must not be summed.
pub(super) const REPLICA_LABELS: [&str; 3] = ["tp_rank", "pp_rank", "moe_ep_rank"];

/// Label that splits a total into parts. The series with an empty label is the total, so the other series must not be
/// added to it.
pub(super) const BREAKDOWN_LABEL: &str = "priority";

const fn name(engine: Engine, meaning: Meaning, name: &'static str) -> Name {
    Name { engine, meaning, name, only: None }
}

const fn with_label(name: Name, label: &'static str, value: &'static str) -> Name {
    Name { only: Some((label, value)), ..name }
}

use Engine::{LlamaCpp, Nim, Sglang, TensorrtLlm, Tgi, Triton, Vllm};
use Meaning::{Awake, Hits, KvCache, Misses, PrefixShare, Queries, Running, Waiting};

/// All known metric names. Despite the suffix `_perc`, vLLM and NIM report ratios: 1 means full.
pub(super) const NAMES: &[Name] = &[
    name(Vllm, Waiting, "vllm:num_requests_waiting"),
    name(Vllm, Running, "vllm:num_requests_running"),
    name(Vllm, KvCache, "vllm:kv_cache_usage_perc"),
    name(Vllm, KvCache, "vllm:gpu_cache_usage_perc"),
    name(Vllm, Queries, "vllm:prefix_cache_queries_total"),
    name(Vllm, Queries, "vllm:gpu_prefix_cache_queries_total"),
    name(Vllm, Hits, "vllm:prefix_cache_hits_total"),
    name(Vllm, Hits, "vllm:gpu_prefix_cache_hits_total"),
    name(Vllm, PrefixShare, "vllm:gpu_prefix_cache_hit_rate"),
    with_label(name(Vllm, Awake, "vllm:engine_sleep_state"), "sleep_state", "awake"),
    name(Sglang, Waiting, "sglang:num_queue_reqs"),
    name(Sglang, Running, "sglang:num_running_reqs"),
    name(Sglang, KvCache, "sglang:token_usage"),
    name(Sglang, PrefixShare, "sglang:cache_hit_rate"),
    name(Tgi, Waiting, "tgi_queue_size"),
    name(Tgi, Running, "tgi_batch_current_size"),
    name(TensorrtLlm, Waiting, "trtllm_num_requests_waiting"),
    name(TensorrtLlm, Running, "trtllm_num_requests_running"),
    name(TensorrtLlm, KvCache, "trtllm_kv_cache_utilization"),
    name(TensorrtLlm, Hits, "trtllm_kv_cache_reused_blocks_total"),
    name(TensorrtLlm, Misses, "trtllm_kv_cache_missed_blocks_total"),
    name(TensorrtLlm, PrefixShare, "trtllm_kv_cache_hit_rate"),
    name(LlamaCpp, Waiting, "llamacpp:requests_deferred"),
    name(LlamaCpp, Running, "llamacpp:requests_processing"),
    name(LlamaCpp, KvCache, "llamacpp:kv_cache_usage_ratio"),
    name(LlamaCpp, Hits, "llamacpp:prompt_tokens_cached_total"),
    name(LlamaCpp, Misses, "llamacpp:prompt_tokens_total"),
    with_label(name(Triton, Waiting, "nv_trt_llm_request_metrics"), "request_type", "waiting"),
    name(Triton, Waiting, "nv_inference_pending_request_count"),
    with_label(name(Triton, Running, "nv_trt_llm_request_metrics"), "request_type", "scheduled"),
    with_label(
        name(Triton, KvCache, "nv_trt_llm_kv_cache_block_metrics"),
        "kv_cache_block_type",
        "fraction",
    ),
    name(Nim, Waiting, "num_requests_waiting"),
    name(Nim, Running, "num_requests_running"),
    name(Nim, KvCache, "gpu_cache_usage_perc"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_is_known_and_the_page_lists_every_name() {
        let page = include_str!("../../../../docs/reference/engine-metrics.md");
        for engine in Engine::ALL {
            let has_meaning =
                |meaning| move |row: &&Name| row.engine == engine && row.meaning == meaning;
            assert!(NAMES.iter().any(|row| has_meaning(Waiting)(&row)), "{engine:?}");
            let written = format!("`{}`", engine.as_str());
            assert!(page.contains(&written), "{written}");
        }
        for row in NAMES {
            assert!(page.contains(row.name), "{}", row.name);
        }
    }
}
