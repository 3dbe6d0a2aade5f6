//! Observed part of a window: the time since the start, minus the gaps (periods in which the proxy did not run).

use std::time::Duration;

use tokengauge_types::clock::MonotonicInstant;

/// Maximum number of stored gaps. Beyond this limit, the two gaps closest to each other merge, so that coverage is at
/// most understated. Only a process with more restarts in a window loses precision.
const MAX_GAPS: usize = 64;

/// Divisor of a window's length: a window counts as covered if the gaps take at most a tenth of it. No event is
/// missing, because the proxy served nothing during a gap. But what clients experienced during a gap is unknown.
const GAP_DIVISOR: u32 = 10;

/// Periods in which an SLO was observed, on the timeline of its windows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Coverage {
    since: MonotonicInstant,
    /// Start and end of each gap (unobserved period), oldest first. Gaps do not overlap.
    gaps: Vec<(MonotonicInstant, MonotonicInstant)>,
}

impl Coverage {
    pub(super) const fn since(since: MonotonicInstant) -> Self {
        Self { since, gaps: Vec::new() }
    }

    /// Restores saved coverage. `None` if the data is invalid: a time after `now`, gaps out of order, or too many gaps.
    pub(super) fn restored(
        since: MonotonicInstant,
        gaps: Vec<(MonotonicInstant, MonotonicInstant)>,
        now: MonotonicInstant,
    ) -> Option<Self> {
        let mut before = since;
        for &(from, to) in &gaps {
            if from < before || to < from {
                return None;
            }
            before = to;
        }
        (before <= now && gaps.len() <= MAX_GAPS).then_some(Self { since, gaps })
    }

    pub(super) const fn start(&self) -> MonotonicInstant {
        self.since
    }

    pub(super) fn gaps(&self) -> &[(MonotonicInstant, MonotonicInstant)] {
        &self.gaps
    }

    /// Records a gap: nothing was observed between `from` and `to`. Both instants must lie after all previous gaps.
    pub(super) fn add_gap(&mut self, from: MonotonicInstant, to: MonotonicInstant) {
        let from = self.gaps.last().map_or(from, |(_, end)| from.max(*end));
        if from >= to {
            return;
        }
        self.gaps.push((from, to));
        if self.gaps.len() > MAX_GAPS {
            self.merge_nearest_gaps();
        }
    }

    /// Returns the observed part of the `length` before `at`.
    pub(super) fn observed(&self, at: MonotonicInstant, length: Duration) -> Duration {
        let begin = at.saturating_sub(length).max(self.since);
        at.since(begin).saturating_sub(self.gap_time(begin, at))
    }

    /// Returns whether gaps take at most a tenth of the window of this length that ends at `at`.
    pub(super) fn covers(&self, at: MonotonicInstant, length: Duration) -> bool {
        let begin = at.saturating_sub(length);
        at.since(self.since) >= length && self.gap_time(begin, at) <= length / GAP_DIVISOR
    }

    fn gap_time(&self, begin: MonotonicInstant, end: MonotonicInstant) -> Duration {
        let within =
            |&(from, to): &(MonotonicInstant, MonotonicInstant)| to.min(end).since(from.max(begin));
        self.gaps.iter().map(within).sum()
    }

    fn merge_nearest_gaps(&mut self) {
        let between = |pair: &[(MonotonicInstant, MonotonicInstant)]| match pair {
            [(_, end), (begin, _)] => begin.since(*end),
            _ => Duration::MAX,
        };
        let pairs = self.gaps.windows(2).map(between).enumerate();
        let Some((nearest, _)) = pairs.min_by_key(|(_, length)| *length) else {
            return;
        };
        let (_, to) = self.gaps.remove(nearest + 1);
        if let Some((_, end)) = self.gaps.get_mut(nearest) {
            *end = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> MonotonicInstant {
        MonotonicInstant::from_secs(secs)
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn without_gaps_a_window_is_covered_from_its_beginning() {
        let coverage = Coverage::since(at(100));
        assert_eq!(coverage.observed(at(50), secs(300)), secs(0));
        assert_eq!(coverage.observed(at(399), secs(300)), secs(299));
        assert!(!coverage.covers(at(399), secs(300)));
        assert!(coverage.covers(at(400), secs(300)));
        assert_eq!(coverage.observed(at(999), secs(300)), secs(300));
    }

    #[test]
    fn a_gap_of_a_tenth_is_tolerated_and_a_longer_gap_once_it_has_moved_out() {
        let mut coverage = Coverage::since(at(0));
        coverage.add_gap(at(1_000), at(1_030));
        assert!(coverage.covers(at(1_030), secs(300)));
        assert_eq!(coverage.observed(at(1_030), secs(300)), secs(270));
        coverage.add_gap(at(1_050), at(1_051));
        assert!(!coverage.covers(at(1_051), secs(300)));
        assert!(!coverage.covers(at(1_300), secs(300)));
        assert!(coverage.covers(at(1_301), secs(300)), "a second has left");
        assert_eq!(coverage.observed(at(9_999), secs(300)), secs(300));
        assert!(coverage.covers(at(1_051), secs(1_000)), "half a minute of it");
    }

    #[test]
    fn gaps_are_in_order_and_do_not_overlap() {
        let mut coverage = Coverage::since(at(0));
        coverage.add_gap(at(10), at(20));
        coverage.add_gap(at(15), at(30));
        coverage.add_gap(at(25), at(28));
        assert_eq!(coverage.gaps(), [(at(10), at(20)), (at(20), at(30))]);
        assert_eq!(coverage.observed(at(40), secs(40)), secs(20));
    }

    #[test]
    fn many_gaps_use_bounded_memory_and_never_count_as_observed() {
        let mut coverage = Coverage::since(at(0));
        let mut observed = 0;
        for gap in 1..=1_000 {
            coverage.add_gap(at(gap * 10), at(gap * 10 + 1));
            observed += 9;
            assert!(coverage.observed(at(gap * 10 + 1), secs(90_000)) <= secs(observed + 1));
        }
        assert_eq!(coverage.gaps().len(), MAX_GAPS);
    }

    #[test]
    fn saved_coverage_is_restored_if_it_is_complete() {
        let restored = |gaps: &[(u64, u64)]| {
            let gaps = gaps.iter().map(|(from, to)| (at(*from), at(*to)));
            Coverage::restored(at(5), gaps.collect(), at(50)).is_some()
        };
        assert!(restored(&[]) && restored(&[(5, 10), (10, 50)]));
        assert!(!restored(&[(4, 10)]), "before it began");
        assert!(!restored(&[(10, 9)]) && !restored(&[(10, 20), (15, 30)]));
        assert!(!restored(&[(10, 51)]), "after it was saved");
        assert!(!restored(&[(6, 7); 65]));
    }
}
