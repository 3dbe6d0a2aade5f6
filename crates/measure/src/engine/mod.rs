//! Metrics of the inference engine behind an upstream, and warm-up detection. No I/O: bytes and instants are arguments.
//!
//! [`read`] parses the metrics page of any supported engine. [`Backends`] keeps the last reading of each upstream,
//! marks old readings as stale, and holds a [`warm::Machine`] for each upstream with warm-up detection. `scrape` makes
//! the HTTP requests.

mod backends;
pub mod exposition;
mod names;
mod numbers;
pub mod warm;

#[cfg(test)]
mod fixtures;

pub use backends::{Backend, Backends, Reading};
pub use numbers::{EngineMetrics, EngineReading, PrefixCacheUsage, read};

use serde::{Deserialize, Serialize};

use tokengauge_types::label_values;

/// An engine whose metrics are known: which name of which engine is read is in `names.rs`, and in
/// `docs/reference/engine-metrics.md`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    Vllm,
    Sglang,
    Tgi,
    TensorrtLlm,
    LlamaCpp,
    Triton,
    Nim,
}

// Engines in detection order. Triton's page may contain the metrics of the engine inside it, and NIM's names have
// no prefix.
label_values!(Engine {
    Vllm = "vllm",
    Sglang = "sglang",
    Tgi = "tgi",
    TensorrtLlm = "tensorrt_llm",
    LlamaCpp = "llama_cpp",
    Triton = "triton",
    Nim = "nim",
});

/// Result of one scrape.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ScrapeResult {
    Ok,
    /// The connection failed: DNS, address or TLS, or the connection closed before the end of the response.
    Unreachable,
    /// The response was incomplete when the time limit expired.
    Timeout,
    /// The endpoint sent a redirect. Redirects are not followed: they could leak credentials or return another server's
    /// metrics.
    Redirect,
    /// A status other than 2xx that is not a redirect.
    Status,
    /// The body is larger than [`LARGEST_BODY`].
    TooLarge,
    /// The body contains no sample.
    Content,
    /// The body contains samples, but none with a known name of the engine.
    Unknown,
}

label_values!(ScrapeResult {
    Ok = "ok",
    Unreachable = "unreachable",
    Timeout = "timeout",
    Redirect = "redirect",
    Status = "status",
    TooLarge = "too_large",
    Content = "content",
    Unknown = "unknown",
});

/// Largest accepted metrics page in bytes. vLLM with all of its histograms writes 200 KiB for each rank, and Triton
/// about as much for each model. The limit leaves room for 40 of them; a larger body is not a metrics page.
pub const LARGEST_BODY: usize = 8 << 20;
