//! What the engine behind an upstream says of itself, and whether it has warmed up. Pure: bytes and instants come in.
//!
//! [`read`] makes numbers of what a metrics endpoint answered, whichever engine wrote it; [`Backends`] keeps the last of
//! them for each upstream, lets them age, and has a [`warm::Machine`] for each upstream that is asked about. Who asks the
//! endpoint is `scrape`.

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

/// An engine whose metrics are known: which name of which engine is read is in `names.rs`, and in
/// `docs/engine-metrics.md`.
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

impl Engine {
    /// In the order in which they are recognised: Triton's page may hold that of the engine inside it, and NIM's names
    /// have no prefix.
    pub const ALL: [Self; 7] = [
        Self::Vllm,
        Self::Sglang,
        Self::Tgi,
        Self::TensorrtLlm,
        Self::LlamaCpp,
        Self::Triton,
        Self::Nim,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::Tgi => "tgi",
            Self::TensorrtLlm => "tensorrt_llm",
            Self::LlamaCpp => "llama_cpp",
            Self::Triton => "triton",
            Self::Nim => "nim",
        }
    }
}

/// How one asking ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ScrapeResult {
    Ok,
    /// No connection: the name, the address, TLS, or it was closed before the end of the answer.
    Unreachable,
    /// Not all of it came in time.
    Timeout,
    /// Redirects are not followed: credentials or numbers of another server would be read for this one's.
    Redirect,
    /// Any other status but 2xx.
    Status,
    /// More than [`LARGEST_BODY`].
    TooLarge,
    /// Nothing in it is a sample.
    Content,
    /// Samples, but none that is known of the engine.
    Unknown,
}

impl ScrapeResult {
    pub const ALL: [Self; 8] = [
        Self::Ok,
        Self::Unreachable,
        Self::Timeout,
        Self::Redirect,
        Self::Status,
        Self::TooLarge,
        Self::Content,
        Self::Unknown,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Redirect => "redirect",
            Self::Status => "status",
            Self::TooLarge => "too_large",
            Self::Content => "content",
            Self::Unknown => "unknown",
        }
    }
}

/// What a metrics endpoint may answer with, in bytes. vLLM with all of its histograms writes 200 KiB for each rank, Triton
/// about as much for each model: room for 40 of them. What is larger is something else.
pub const LARGEST_BODY: usize = 8 << 20;
