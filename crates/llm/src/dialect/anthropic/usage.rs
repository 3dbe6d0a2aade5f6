//! Token counts as a message reports them.

use serde::Deserialize;

use crate::dialect::json::Step;
use crate::dialect::json::Step::Key;
use crate::dialect::lenient::{Count, Object, Text};
use crate::dialect::tally::Tally;

/// A usage object of a stream's message.
///
/// What `iterations` lists is not added: the parts of it that are billed to this message are in the counts already.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct RawUsage<'a> {
    input_tokens: Count,
    output_tokens: Count,
    cache_read_input_tokens: Count,
    cache_creation_input_tokens: Count,
    cache_creation: Object<Creation>,
    output_tokens_details: Object<Details>,
    pub service_tier: Text<'a>,
}

/// What was written to the cache, by how long it is kept.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Creation {
    ephemeral_5m_input_tokens: Count,
    ephemeral_1h_input_tokens: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    thinking_tokens: Count,
}

impl RawUsage<'_> {
    pub fn tally(&self) -> Tally {
        let creation = self.cache_creation.0.as_ref();
        let written = creation.and_then(|creation| {
            let parts =
                [creation.ephemeral_5m_input_tokens.0, creation.ephemeral_1h_input_tokens.0];
            parts.into_iter().flatten().reduce(u64::saturating_add)
        });
        let details = self.output_tokens_details.0.as_ref();
        Tally {
            input: self.input_tokens.0,
            output: self.output_tokens.0,
            cache_read: self.cache_read_input_tokens.0,
            cache_write: self.cache_creation_input_tokens.0.or(written),
            reasoning: details.and_then(|details| details.thinking_tokens.0),
        }
    }
}

/// A usage object that is read piecemeal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    tally: Tally,
    /// What was written to the cache, as the sum of what was written for each time.
    written: Option<u64>,
}

impl Counts {
    /// Takes one number; `path` is the way to it from the usage object.
    pub fn set(&mut self, path: &[Step], number: u64) {
        let field = match path {
            [Key("input_tokens")] => &mut self.tally.input,
            [Key("output_tokens")] => &mut self.tally.output,
            [Key("cache_read_input_tokens")] => &mut self.tally.cache_read,
            [Key("cache_creation_input_tokens")] => &mut self.tally.cache_write,
            [Key("output_tokens_details"), Key("thinking_tokens")] => &mut self.tally.reasoning,
            [
                Key("cache_creation"),
                Key("ephemeral_5m_input_tokens" | "ephemeral_1h_input_tokens"),
            ] => {
                let written = self.written.get_or_insert(0);
                *written = written.saturating_add(number);
                return;
            }
            _ => return,
        };
        *field = Some(number);
    }

    pub fn tally(&self) -> Tally {
        Tally { cache_write: self.tally.cache_write.or(self.written), ..self.tally }
    }
}
