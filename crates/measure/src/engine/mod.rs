//! Metrics of the inference engine behind an upstream, and warm-up detection.
//!
//! [`read`] parses the metrics page of any supported engine. [`Backends`] keeps the latest metrics of each upstream and
//! ignores stale ones. Upstreams with warm-up detection also have a [`warm::WarmupTracker`]. This module does no I/O;
//! the module `scrape` makes the HTTP requests.

mod backends;
pub mod exposition;
mod names;
mod numbers;
pub mod warm;

pub use backends::{Backend, Backends, Reading};
pub use numbers::{EngineMetrics, EngineReading, PrefixCacheUsage, read};

use serde::{Deserialize, Serialize};

use tokengauge_types::label_enum;

label_enum! {
    /// An inference engine whose metrics the proxy can parse. `names.rs` and `docs/reference/engine-metrics.md` list
    /// the metric names of each engine.
    // Detection tries the engines in this order. Triton comes late because its page may also contain the metrics of the
    // engine that it runs. NIM comes late because its metric names have no prefix.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, schemars::JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Engine {
        Vllm = "vllm",
        Sglang = "sglang",
        Tgi = "tgi",
        TensorrtLlm = "tensorrt_llm",
        LlamaCpp = "llama_cpp",
        Triton = "triton",
        Nim = "nim",
    }
}

label_enum! {
    /// Result of one scrape.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub enum ScrapeResult {
        Ok = "ok",
        /// The connection failed: a DNS, address or TLS error, or a connection that was closed before the end of the
        /// response.
        Unreachable = "unreachable",
        /// The response was incomplete when the time limit expired.
        Timeout = "timeout",
        /// The endpoint sent a redirect. The proxy does not follow redirects, because a redirect could leak credentials
        /// or lead to another server's metrics.
        Redirect = "redirect",
        /// The response status is neither 2xx nor a redirect.
        HttpError = "http_error",
        /// The body is larger than [`MAX_PAGE_BYTES`].
        TooLarge = "too_large",
        /// The body contains no sample.
        NotMetrics = "not_metrics",
        /// The body contains metrics, but no known metric name of the engine.
        UnknownEngine = "unknown_engine",
    }
}

/// Maximum size of a metrics page in bytes. vLLM writes 200 KiB per rank with all of its histograms, and Triton about
/// as much per model. The limit leaves room for 40 ranks or models.
pub const MAX_PAGE_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests;
