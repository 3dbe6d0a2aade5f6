//! Token counts of Anthropic's messages.

use serde::Deserialize;

use crate::dialect::event::sum;
use crate::dialect::lenient::{List, Object, Text};
use crate::dialect::token_count::TokenCount;
use crate::dialect::usage::UncachedUsage;

/// Token counts of a message, or of one iteration: one run of a model for the message.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct RawUsage<'a> {
    /// Type of an iteration.
    #[serde(rename = "type")]
    kind: Text<'a>,
    input_tokens: TokenCount,
    output_tokens: TokenCount,
    cache_read_input_tokens: TokenCount,
    cache_creation_input_tokens: TokenCount,
    cache_creation: Object<CacheCreation>,
    /// Sum of all tokens, from gateways. Anthropic does not report it.
    total_tokens: TokenCount,
    output_tokens_details: Object<OutputDetails>,
    pub service_tier: Text<'a>,
    iterations: List<Box<RawUsage<'a>>>,
}

/// Cache writes by lifetime.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CacheCreation {
    ephemeral_5m_input_tokens: TokenCount,
    ephemeral_1h_input_tokens: TokenCount,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    thinking_tokens: TokenCount,
}

impl RawUsage<'_> {
    /// Returns the billed counts.
    ///
    /// The counts of the message exclude compaction: a run of the same model that summarizes the conversation before
    /// the answer. Anthropic bills the sum of the iterations `compaction` and `message`. An `advisor_message` is a run
    /// of another model with its own price, so it is not added. After a `fallback_message`, the counts of the message
    /// are those of the model that answered, and nothing is added.
    pub fn counts(&self) -> UncachedUsage {
        let has = |kind| self.iterations.iter().any(|iteration| iteration.kind.0 == kind);
        if !has("compaction") || has("fallback_message") {
            return self.own();
        }
        let of_kind = |kind| {
            let runs = self.iterations.iter().filter(move |run| run.kind.0 == kind);
            runs.map(|run| run.own()).reduce(add).unwrap_or_default()
        };
        let compaction = of_kind("compaction");
        UncachedUsage {
            reasoning: self.own().reasoning,
            compaction: compaction.output,
            ..add(compaction, of_kind("message"))
        }
    }

    /// Returns the counts without those of the iterations.
    fn own(&self) -> UncachedUsage {
        let creation = self.cache_creation.0.as_ref();
        let short = creation.and_then(|creation| creation.ephemeral_5m_input_tokens.0);
        let long = creation.and_then(|creation| creation.ephemeral_1h_input_tokens.0);
        let details = self.output_tokens_details.0.as_ref();
        UncachedUsage {
            input: self.input_tokens.0,
            output: self.output_tokens.0,
            cache_read: self.cache_read_input_tokens.0,
            cache_write: self.cache_creation_input_tokens.0.or(sum((short, long))),
            cache_write_5m: short,
            cache_write_1h: long,
            reasoning: details.and_then(|details| details.thinking_tokens.0),
            compaction: None,
            total: self.total_tokens.0,
        }
    }
}

/// Returns the sum of the counts of two runs. A total covers only one run, so it is left out.
fn add(one: UncachedUsage, other: UncachedUsage) -> UncachedUsage {
    UncachedUsage {
        input: sum((one.input, other.input)),
        output: sum((one.output, other.output)),
        cache_read: sum((one.cache_read, other.cache_read)),
        cache_write: sum((one.cache_write, other.cache_write)),
        cache_write_5m: sum((one.cache_write_5m, other.cache_write_5m)),
        cache_write_1h: sum((one.cache_write_1h, other.cache_write_1h)),
        ..UncachedUsage::default()
    }
}
