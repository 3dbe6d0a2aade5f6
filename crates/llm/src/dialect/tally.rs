//! Token counts of formats in which the input leaves out what was read from the cache and written to it.

use super::Usage;

/// Counts as the provider reports them, which may be in parts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Tally {
    /// Without what the cache was read or written for.
    pub input: Option<u64>,
    pub output: Option<u64>,
    pub cache_read: Option<u64>,
    pub cache_write: Option<u64>,
    /// Part of `output`.
    pub reasoning: Option<u64>,
}

impl Tally {
    /// Takes over every field that `later` has. But no prompt is empty: an input of nothing is a field that a gateway
    /// fills with zero, and replaces no count.
    pub fn merge(&mut self, later: Self) {
        let filled = later.prompt() == Some(0) && self.prompt().is_some();
        if !filled {
            self.input = later.input.or(self.input);
            self.cache_read = later.cache_read.or(self.cache_read);
            self.cache_write = later.cache_write.or(self.cache_write);
        }
        self.output = later.output.or(self.output);
        self.reasoning = later.reasoning.or(self.reasoning);
    }

    /// The counts by the standard's meaning; `None` where there are none.
    pub fn usage(&self) -> Option<Usage> {
        let usage = Usage {
            input: self.prompt(),
            output: self.output,
            cache_read: self.cache_read,
            cache_write: self.cache_write,
            reasoning: self.reasoning,
            ..Usage::default()
        };
        (usage != Usage::default()).then_some(usage)
    }

    /// All of the input; unknown without the part that every report has.
    fn prompt(&self) -> Option<u64> {
        let read = self.cache_read.unwrap_or(0);
        let written = self.cache_write.unwrap_or(0);
        Some(self.input?.saturating_add(read).saturating_add(written))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(input: u64, cache_read: u64, output: u64) -> Tally {
        Tally {
            input: Some(input),
            cache_read: Some(cache_read),
            output: Some(output),
            ..Tally::default()
        }
    }

    #[test]
    fn the_input_includes_the_cache_and_the_later_report_holds() {
        let mut known = Tally { cache_write: Some(3), ..tally(2, 10, 1) };
        assert_eq!(known.usage().unwrap().input, Some(15));
        known.merge(tally(6, 0, 40));
        let usage = known.usage().unwrap();
        let counts = (usage.input, usage.cache_read, usage.cache_write);
        assert_eq!((counts, usage.output), ((Some(9), Some(0), Some(3)), Some(40)));
        known.merge(Tally { output: Some(41), ..Tally::default() });
        assert_eq!(known.usage(), Some(Usage { output: Some(41), ..usage }));
    }

    #[test]
    fn zero_is_a_count_only_where_there_was_none() {
        let mut known = Tally::default();
        assert_eq!(known.usage(), None);
        known.merge(tally(0, 0, 0));
        assert_eq!(known.usage().unwrap().input, Some(0));
        known.merge(tally(17, 0, 1));
        known.merge(tally(0, 0, 9));
        let usage = known.usage().unwrap();
        assert_eq!((usage.input, usage.output), (Some(17), Some(9)));
    }

    #[test]
    fn counts_beyond_all_measure_do_not_overflow() {
        let known = tally(u64::MAX, u64::MAX, u64::MAX);
        assert_eq!(known.usage().unwrap().input, Some(u64::MAX));
    }
}
