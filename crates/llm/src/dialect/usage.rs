//! Computes token counts of formats in which one report does not cover the whole response.

use std::collections::BTreeMap;

use super::emit::emit_usage;
use super::{EventSink, RequestFacts, Usage};

/// Maximum number of results whose counts are kept separately. No client requests more.
const MAX_RESULTS: usize = 128;

/// Adds up the token counts of a response that reports usage separately for each result.
#[derive(Debug, Default)]
pub struct ResultUsage {
    by_result: BTreeMap<u32, Usage>,
    /// Number of results per prompt. Each result reports the whole prompt, so the input sum is divided by this number.
    per_prompt: u64,
}

impl ResultUsage {
    pub fn new(request: &RequestFacts) -> Self {
        let choices = request.choices.and_then(|choices| u64::try_from(choices).ok());
        Self { by_result: BTreeMap::new(), per_prompt: choices.unwrap_or(1).max(1) }
    }

    /// Replaces the counts of one result, and emits the counts of the whole response.
    pub fn add(&mut self, result: u32, usage: Usage, out: &mut impl EventSink) {
        if usage == Usage::default() {
            return;
        }
        if self.by_result.len() < MAX_RESULTS || self.by_result.contains_key(&result) {
            self.by_result.insert(result, usage);
        }
        let sum = self.by_result.values().copied().reduce(Usage::sum).unwrap_or_default();
        let repeats = self.per_prompt.min(self.by_result.len() as u64).max(1);
        let of_prompts = |sum: Option<u64>| sum.map(|sum| sum / repeats);
        let usage = Usage {
            input: of_prompts(sum.input),
            cache_read: of_prompts(sum.cache_read),
            cache_write: of_prompts(sum.cache_write),
            input_by: sum.input_by.map(of_prompts),
            ..sum
        };
        emit_usage(usage, out);
    }
}

/// Token counts of a format that reports input without cached tokens. The counts can arrive in several parts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct UncachedUsage {
    /// Input tokens without cache reads and cache writes.
    pub input: Option<u64>,
    pub output: Option<u64>,
    pub cache_read: Option<u64>,
    pub cache_write: Option<u64>,
    /// Reasoning tokens, which are part of `output`.
    pub reasoning: Option<u64>,
}

impl UncachedUsage {
    /// Overwrites the fields that `later` contains. A later input of 0 is ignored, because no prompt is empty and
    /// gateways fill in 0.
    pub fn merge(&mut self, later: Self) {
        let is_filler = later.prompt() == Some(0) && self.prompt().is_some();
        if !is_filler {
            self.input = later.input.or(self.input);
            self.cache_read = later.cache_read.or(self.cache_read);
            self.cache_write = later.cache_write.or(self.cache_write);
        }
        self.output = later.output.or(self.output);
        self.reasoning = later.reasoning.or(self.reasoning);
    }

    /// Returns the counts as OpenTelemetry defines them.
    pub fn usage(&self) -> Usage {
        Usage {
            input: self.prompt(),
            output: self.output,
            cache_read: self.cache_read,
            cache_write: self.cache_write,
            reasoning: self.reasoning,
            ..Usage::default()
        }
    }

    /// Returns all input tokens, including cached tokens. Returns `None` if the number of uncached tokens is unknown.
    fn prompt(&self) -> Option<u64> {
        let read = self.cache_read.unwrap_or(0);
        let written = self.cache_write.unwrap_or(0);
        Some(self.input?.saturating_add(read).saturating_add(written))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, cache_read: u64, output: u64) -> UncachedUsage {
        UncachedUsage {
            input: Some(input),
            cache_read: Some(cache_read),
            output: Some(output),
            ..UncachedUsage::default()
        }
    }

    #[test]
    fn adds_the_cache_and_overwrites_earlier_counts() {
        let mut known = UncachedUsage { cache_write: Some(3), ..usage(2, 10, 1) };
        assert_eq!(known.usage().input, Some(15));
        known.merge(usage(6, 0, 40));
        let usage = known.usage();
        let counts = (usage.input, usage.cache_read, usage.cache_write);
        assert_eq!((counts, usage.output), ((Some(9), Some(0), Some(3)), Some(40)));
        known.merge(UncachedUsage { output: Some(41), ..UncachedUsage::default() });
        assert_eq!(known.usage(), Usage { output: Some(41), ..usage });
    }

    #[test]
    fn ignores_a_zero_input_after_a_count() {
        let mut known = UncachedUsage::default();
        assert_eq!(known.usage(), Usage::default());
        known.merge(usage(0, 0, 0));
        assert_eq!(known.usage().input, Some(0));
        known.merge(usage(17, 0, 1));
        known.merge(usage(0, 0, 9));
        let usage = known.usage();
        assert_eq!((usage.input, usage.output), (Some(17), Some(9)));
    }

    #[test]
    fn saturates() {
        let known = usage(u64::MAX, u64::MAX, u64::MAX);
        assert_eq!(known.usage().input, Some(u64::MAX));
    }
}
