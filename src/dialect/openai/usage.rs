//! Token counts in all the places where providers of this format put them.

use serde::Deserialize;

use crate::dialect::Usage;
use crate::dialect::json::Step;
use crate::dialect::lenient::{Count, Object};

/// A usage object as it stands in a message.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct RawUsage {
    prompt_tokens: Count,
    completion_tokens: Count,
    total_tokens: Count,
    /// Moonshot, Hugging Face.
    cached_tokens: Count,
    /// GitHub Copilot.
    reasoning_tokens: Count,
    /// DeepSeek.
    prompt_cache_hit_tokens: Count,
    /// Databricks, Doubleword, Venice.
    cache_read_input_tokens: Count,
    cache_creation_input_tokens: Count,
    prompt_tokens_details: Object<PromptDetails>,
    completion_tokens_details: Object<CompletionDetails>,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Count,
    /// OpenRouter, Bedrock.
    cache_write_tokens: Count,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
struct CompletionDetails {
    reasoning_tokens: Count,
}

impl RawUsage {
    /// Takes one number of a usage object that is read piecemeal; `path` is the way to it from that object.
    pub fn set(&mut self, path: &[Step], number: u64) {
        use Step::Key;
        let field = match path {
            [Key("prompt_tokens")] => &mut self.prompt_tokens,
            [Key("completion_tokens")] => &mut self.completion_tokens,
            [Key("total_tokens")] => &mut self.total_tokens,
            [Key("cached_tokens")] => &mut self.cached_tokens,
            [Key("reasoning_tokens")] => &mut self.reasoning_tokens,
            [Key("prompt_cache_hit_tokens")] => &mut self.prompt_cache_hit_tokens,
            [Key("cache_read_input_tokens")] => &mut self.cache_read_input_tokens,
            [Key("cache_creation_input_tokens")] => &mut self.cache_creation_input_tokens,
            [Key("prompt_tokens_details"), Key("cached_tokens")] => {
                let details = &mut self.prompt_tokens_details.0;
                &mut details.get_or_insert_default().cached_tokens
            }
            [Key("prompt_tokens_details"), Key("cache_write_tokens")] => {
                let details = &mut self.prompt_tokens_details.0;
                &mut details.get_or_insert_default().cache_write_tokens
            }
            [Key("completion_tokens_details"), Key("reasoning_tokens")] => {
                let details = &mut self.completion_tokens_details.0;
                &mut details.get_or_insert_default().reasoning_tokens
            }
            _ => return,
        };
        *field = Count(Some(number));
    }

    /// The counts by the standard's meaning; `None` where there are none.
    ///
    /// xAI's chat format leaves reasoning out of the completion. No field says so, but the sum does: then the total is
    /// prompt + completion + reasoning, where everyone else's is prompt + completion.
    pub fn harmonised(&self) -> Option<Usage> {
        let prompt_details = self.prompt_tokens_details.0.as_ref();
        let completion_details = self.completion_tokens_details.0.as_ref();
        let reasoning = largest([
            completion_details.and_then(|details| details.reasoning_tokens.0),
            self.reasoning_tokens.0,
        ]);
        let mut output = self.completion_tokens.0;
        if let (Some(input), Some(visible), Some(reasoning), Some(total)) =
            (self.prompt_tokens.0, output, reasoning, self.total_tokens.0)
            && reasoning > 0
            && input.checked_add(visible)?.checked_add(reasoning)? == total
        {
            output = Some(visible + reasoning);
        }
        let usage = Usage {
            input: self.prompt_tokens.0,
            output,
            cache_read: largest([
                prompt_details.and_then(|details| details.cached_tokens.0),
                self.cached_tokens.0,
                self.prompt_cache_hit_tokens.0,
                self.cache_read_input_tokens.0,
            ]),
            cache_write: largest([
                prompt_details.and_then(|details| details.cache_write_tokens.0),
                self.cache_creation_input_tokens.0,
            ]),
            reasoning,
        };
        (usage != Usage::default()).then_some(usage)
    }
}

/// One number that stands in several places: some providers leave zero in all but one.
fn largest<const N: usize>(places: [Option<u64>; N]) -> Option<u64> {
    places.into_iter().flatten().max()
}
