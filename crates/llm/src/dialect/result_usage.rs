//! Usage that each result of a response reports for itself.

use std::collections::BTreeMap;

use super::emit::emit_usage;
use super::{Event, RequestFacts, Usage};

/// The most results whose counts are kept separately, more than any client requests.
const MOST_RESULTS: usize = 128;

#[derive(Debug, Default)]
pub struct ResultUsage {
    by_result: BTreeMap<u32, Usage>,
    /// Results per prompt. Each of them reports the whole prompt.
    per_prompt: u64,
}

impl ResultUsage {
    pub fn new(request: &RequestFacts) -> Self {
        let choices = request.choices.and_then(|choices| u64::try_from(choices).ok());
        Self { by_result: BTreeMap::new(), per_prompt: choices.unwrap_or(1).max(1) }
    }

    /// Replaces the counts of one result and emits those of the response.
    pub fn add(&mut self, result: u32, usage: Usage, out: &mut impl FnMut(Event<'_>)) {
        if usage == Usage::default() {
            return;
        }
        if self.by_result.len() < MOST_RESULTS || self.by_result.contains_key(&result) {
            self.by_result.insert(result, usage);
        }
        let sum = |field: fn(&Usage) -> Option<u64>| {
            let counts = self.by_result.values().filter_map(field);
            counts.reduce(u64::saturating_add)
        };
        let repeats = self.per_prompt.min(self.by_result.len() as u64).max(1);
        let of_prompts = |sum: Option<u64>| sum.map(|sum| sum / repeats);
        let usage = Usage {
            input: of_prompts(sum(|usage| usage.input)),
            output: sum(|usage| usage.output),
            cache_read: of_prompts(sum(|usage| usage.cache_read)),
            cache_write: of_prompts(sum(|usage| usage.cache_write)),
            reasoning: sum(|usage| usage.reasoning),
            ..Usage::default()
        };
        emit_usage(usage, out);
    }
}
