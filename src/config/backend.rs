//! The engine behind an upstream, as the file has it: a part of `raw`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::deserialize::Field;
use super::value::Length;
use tokengauge_measure::engine;
use tokengauge_types::url::Page;

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Metrics {
    /// A path on the upstream's host, or a URL.
    pub(super) url: Field<Page>,
    /// Which engine it is.
    pub(super) engine: Field<Engine>,
    /// How often it is read.
    pub(super) interval: Field<Length>,
    /// How long all of an answer may take.
    pub(super) timeout: Field<Length>,
}

/// An engine, or that it is recognised by the names of its metrics.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Engine {
    Auto,
    Vllm,
    Sglang,
    Tgi,
    TensorrtLlm,
    LlamaCpp,
    Triton,
    Nim,
}

impl Engine {
    pub(super) const fn known(self) -> Option<engine::Engine> {
        match self {
            Self::Auto => None,
            Self::Vllm => Some(engine::Engine::Vllm),
            Self::Sglang => Some(engine::Engine::Sglang),
            Self::Tgi => Some(engine::Engine::Tgi),
            Self::TensorrtLlm => Some(engine::Engine::TensorrtLlm),
            Self::LlamaCpp => Some(engine::Engine::LlamaCpp),
            Self::Triton => Some(engine::Engine::Triton),
            Self::Nim => Some(engine::Engine::Nim),
        }
    }

    pub(super) const fn of(known: Option<engine::Engine>) -> Self {
        match known {
            None => Self::Auto,
            Some(engine::Engine::Vllm) => Self::Vllm,
            Some(engine::Engine::Sglang) => Self::Sglang,
            Some(engine::Engine::Tgi) => Self::Tgi,
            Some(engine::Engine::TensorrtLlm) => Self::TensorrtLlm,
            Some(engine::Engine::LlamaCpp) => Self::LlamaCpp,
            Some(engine::Engine::Triton) => Self::Triton,
            Some(engine::Engine::Nim) => Self::Nim,
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Warm {
    /// Without an exchange for so long it has to warm up again.
    pub(super) idle: Field<Length>,
    /// So many answers warm it up.
    #[schemars(range(min = 0, max = 1_000))]
    pub(super) exchanges: Field<usize>,
    /// So long after its start a process has not settled.
    pub(super) young: Field<Length>,
    /// An answer that says it loaded the model for so long found it not loaded.
    pub(super) load: Field<Length>,
}
