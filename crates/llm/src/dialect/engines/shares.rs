//! Usage that each result of an answer reports for itself.

use std::collections::BTreeMap;

use crate::dialect::lenient::Count;
use crate::dialect::{Event, RequestFacts, Usage};

/// The most results whose usage is told apart; more than anyone asks for.
const MOST_RESULTS: usize = 128;

#[derive(Debug, Default)]
pub struct Shares {
    by_result: BTreeMap<u32, Usage>,
    /// How many results each prompt has: each of them reports the whole prompt.
    by_prompt: u64,
}

impl Shares {
    pub fn new(asked: &RequestFacts) -> Self {
        let choices = asked.choices.and_then(|choices| u64::try_from(choices).ok());
        Self { by_result: BTreeMap::new(), by_prompt: choices.unwrap_or(1).max(1) }
    }

    /// Says what the counts of one result, read from its input, output and cache, make of the answer's.
    pub fn tell(&mut self, result: u32, counts: [Count; 3], out: &mut impl FnMut(Event<'_>)) {
        let [input, output, cached] = counts;
        let usage =
            Usage { input: input.0, output: output.0, cache_read: cached.0, ..Usage::default() };
        if usage != Usage::default() {
            let usage = self.with(result, usage);
            out(Event::Usage(usage));
        }
    }

    /// The usage of the answer, now that this is known of one of its results.
    fn with(&mut self, result: u32, usage: Usage) -> Usage {
        if self.by_result.len() < MOST_RESULTS || self.by_result.contains_key(&result) {
            self.by_result.insert(result, usage);
        }
        let sum = |field: fn(&Usage) -> Option<u64>| {
            let counts = self.by_result.values().filter_map(field);
            counts.reduce(u64::saturating_add)
        };
        let prompts = self.by_prompt.min(self.by_result.len() as u64);
        let of_prompts = |sum: Option<u64>| sum.map(|sum| sum / prompts.max(1));
        Usage {
            input: of_prompts(sum(|usage| usage.input)),
            output: sum(|usage| usage.output),
            cache_read: of_prompts(sum(|usage| usage.cache_read)),
            ..Usage::default()
        }
    }
}
