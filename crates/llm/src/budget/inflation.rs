//! Limits the decompressed bytes per second of all bodies together.
//!
//! `benches/inflate.rs` measures how fast one thread decompresses and parses. An AMD EPYC at 2.4 GHz reaches 68 MiB/s
//! for a stream with a flush per chunk, 93 MiB/s without flushes, and 125 MiB/s for one long text. The slowest body,
//! events without content, reaches 29 MiB/s.

use std::sync::atomic::{AtomicU64, Ordering};

use tokengauge_types::clock::MonotonicInstant;

/// Limit on the decompressed bytes per second of bodies with a usual compression ratio. One thread parses only slightly
/// more of a stream with a flush per chunk. Observation is designed for about half of this rate, 100,000 chunks of 300
/// bytes per second.
const ORDINARY_RATE: Rate = Rate { per_second: 64 << 20, burst: 64 << 20 };

/// Limit on the decompressed bytes per second of bodies that expand unusually much. The slowest of these bodies use
/// about a quarter of the thread, and half a second for a burst. The response of a model that repeats itself can also
/// expand this much. A stream of 16,000 tokens takes 4 MiB.
const EXCESSIVE_RATE: Rate = Rate { per_second: 8 << 20, burst: 16 << 20 };

/// Minimum time in nanoseconds between two refills of a bucket. A shorter time would round to few bytes.
const REFILL_NANOS: u64 = 1_000_000;

/// How far a body has grown by decompression.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Expansion {
    /// The body grows as text usually does.
    Ordinary,
    /// The body expands more than text usually does: repetitive text or a decompression bomb.
    Excessive,
}

/// Token buckets that limit the decompressed bytes per second. Ordinary and excessive bodies have separate buckets, so
/// that decompression bombs do not use the budget of ordinary traffic.
#[derive(Debug)]
pub(crate) struct InflationBudget {
    ordinary: Bucket,
    excessive: Bucket,
    /// Time of the last refill in nanoseconds.
    refilled: AtomicU64,
    is_limited: bool,
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    per_second: u64,
    burst: u64,
}

#[derive(Debug)]
struct Bucket {
    rate: Rate,
    left: AtomicU64,
}

impl InflationBudget {
    pub(crate) fn unlimited() -> Self {
        Self { is_limited: false, ..Self::default() }
    }

    /// Takes `bytes`. Returns `false` if fewer are left.
    pub(crate) fn take(&self, bytes: u64, expansion: Expansion) -> bool {
        let bucket = match expansion {
            Expansion::Ordinary => &self.ordinary,
            Expansion::Excessive => &self.excessive,
        };
        !self.is_limited || bucket.take(bytes)
    }

    /// Refills the buckets for the time up to `to`.
    pub(crate) fn advance(&self, to: MonotonicInstant) {
        let passed = to.nanos().saturating_sub(self.refilled.load(Ordering::Relaxed));
        if passed >= REFILL_NANOS {
            self.refilled.store(to.nanos(), Ordering::Relaxed);
            self.ordinary.refill(passed);
            self.excessive.refill(passed);
        }
    }
}

impl Default for InflationBudget {
    fn default() -> Self {
        Self {
            ordinary: Bucket::full(ORDINARY_RATE),
            excessive: Bucket::full(EXCESSIVE_RATE),
            refilled: AtomicU64::new(0),
            is_limited: true,
        }
    }
}

impl Bucket {
    const fn full(rate: Rate) -> Self {
        Self { rate, left: AtomicU64::new(rate.burst) }
    }

    fn take(&self, bytes: u64) -> bool {
        let pay = |left: u64| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay).is_ok()
    }

    fn refill(&self, nanos: u64) {
        let earned = u128::from(self.rate.per_second) * u128::from(nanos) / 1_000_000_000;
        let earned = u64::try_from(earned).unwrap_or(u64::MAX);
        let left = self.left.load(Ordering::Relaxed).saturating_add(earned);
        self.left.store(left.min(self.rate.burst), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> MonotonicInstant {
        MonotonicInstant::from_millis(millis)
    }

    #[test]
    fn bombs_take_nothing_from_ordinary_bodies() {
        let budget = InflationBudget::default();
        assert!(budget.take(EXCESSIVE_RATE.burst, Expansion::Excessive));
        assert!(!budget.take(1, Expansion::Excessive));
        assert!(budget.take(ORDINARY_RATE.burst, Expansion::Ordinary));
        assert!(!budget.take(1, Expansion::Ordinary));
    }

    #[test]
    fn time_refills_the_buckets_up_to_the_burst() {
        let budget = InflationBudget::default();
        let takes = |bytes| budget.take(bytes, Expansion::Excessive);
        budget.advance(at(1_000));
        assert!(takes(EXCESSIVE_RATE.burst));
        for millis in (1_000..=1_500).step_by(10) {
            budget.advance(at(millis));
            budget.advance(at(millis - 100));
        }
        assert!(takes(EXCESSIVE_RATE.per_second / 2 - 100), "half a second");
        assert!(!takes(10_000));
        budget.advance(at(3_600_000));
        assert!(takes(EXCESSIVE_RATE.burst) && !takes(1));
    }

    #[test]
    fn without_a_clock_nothing_is_limited() {
        assert!(InflationBudget::unlimited().take(u64::MAX, Expansion::Excessive));
    }
}
