//! Token counts in Amazon's spellings.

use std::time::Duration;

use serde::Deserialize;

use crate::dialect::Timings;
use crate::dialect::json::Step;
use crate::dialect::json::Step::Key;
use crate::dialect::lenient::Count;
use crate::dialect::tally::Tally;

/// What a message of a stream reports: Converse's usage, or the metrics that Bedrock adds to the last message of
/// whatever model it serves.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RawUsage {
    input_tokens: Count,
    output_tokens: Count,
    cache_read_input_tokens: Count,
    cache_write_input_tokens: Count,
    // Of Nova and of the metrics. Converse gives those of the cache in both spellings.
    input_token_count: Count,
    output_token_count: Count,
    cache_read_input_token_count: Count,
    cache_write_input_token_count: Count,
    /// Milliseconds, of the metrics.
    invocation_latency: Count,
}

impl RawUsage {
    pub fn tally(&self) -> Tally {
        let either = |one: Count, other: Count| one.0.or(other.0);
        Tally {
            input: either(self.input_tokens, self.input_token_count),
            output: either(self.output_tokens, self.output_token_count),
            cache_read: either(self.cache_read_input_tokens, self.cache_read_input_token_count),
            cache_write: either(self.cache_write_input_tokens, self.cache_write_input_token_count),
            reasoning: None,
        }
    }

    /// How long the call took by Bedrock's clock.
    pub fn timings(&self) -> Option<Timings> {
        self.invocation_latency.0.map(took)
    }
}

/// What is told of a call that took so many milliseconds. The latency of the first byte, which the metrics have too, is
/// that of waiting and of reading the prompt together, and so neither.
pub fn took(milliseconds: u64) -> Timings {
    Timings { total: Some(Duration::from_millis(milliseconds)), ..Timings::default() }
}

/// Takes one number of a usage object that is read piecemeal; `path` is the way to it from that object.
pub fn set(tally: &mut Tally, path: &[Step], number: u64) {
    let field = match path {
        [Key("inputTokens")] => &mut tally.input,
        [Key("outputTokens")] => &mut tally.output,
        [Key("cacheReadInputTokens" | "cacheReadInputTokenCount")] => &mut tally.cache_read,
        [Key("cacheWriteInputTokens" | "cacheWriteInputTokenCount")] => &mut tally.cache_write,
        _ => return,
    };
    *field = Some(number);
}
