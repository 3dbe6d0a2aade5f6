//! Rolling windows of good and bad, and what follows from them: burn rates, the budget that is left, and for how long.

use std::time::Duration;

use crate::clock::Moment;
use crate::slots::Slots;

/// Into how many slots every window is cut, whatever its length. An event counts for at least the window's length and
/// at most a 120th (0.8 %) longer: 2.5 s for 5 min, 6 h for 30 d. The window always takes in the slot that is filling,
/// so that a burn shows at once.
pub(super) const SLOTS: u32 = 120;

/// Good and bad events. What is excluded is neither.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Counts {
    pub(super) good: u64,
    pub(super) bad: u64,
}

impl Counts {
    /// Share of bad events ÷ (1 − target): 1 spends the budget in exactly its window. `None` without events.
    pub(super) fn burn(self, target: f64) -> Option<f64> {
        let Self { good, bad } = self;
        let all = good + bad;
        (all > 0).then(|| bad as f64 / all as f64 / (1.0 - target))
    }

    /// 1 − bad ÷ ((1 − target) × all): the share of the bad events that these events allow which has not come.
    pub(super) fn budget(self, target: f64) -> Option<f64> {
        Some(1.0 - self.burn(target)?)
    }
}

/// One rolling window: 2 KiB.
#[derive(Clone, Debug)]
pub(super) struct Window {
    length: Duration,
    slots: Slots<Counts>,
}

impl Window {
    pub(super) fn new(length: Duration) -> Self {
        Self {
            length,
            slots: Slots::new(length / SLOTS, SLOTS as usize),
        }
    }

    pub(super) fn note(&mut self, at: Moment, counts: Counts) {
        let number = self.slots.number(at);
        if let Some(slot) = self.slots.slot(number) {
            slot.good += counts.good;
            slot.bad += counts.bad;
        }
    }

    pub(super) fn counts(&self, at: Moment) -> Counts {
        let now = self.slots.number(at);
        let mut sum = Counts::default();
        for slot in self.slots.range(now.saturating_sub(SLOTS.into())..now + 1) {
            sum.good += slot.good;
            sum.bad += slot.bad;
        }
        sum
    }

    pub(super) const fn length(&self) -> Duration {
        self.length
    }
}

/// How far a budget has got.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    /// The share that is left.
    pub(super) budget: f64,
    /// The burn rate that is taken to go on.
    pub(super) burn: f64,
    pub(super) window: Duration,
    /// How much of the window has been observed.
    pub(super) covered: Duration,
}

impl Course {
    /// When the budget will be spent, at even traffic.
    ///
    /// Of a whole window W with the share b left, a burn rate B takes b·W ÷ B: 30 d at 14.4 are 50 h. While only C of it
    /// is covered, each further event also adds to what may fail, and the budget ends after b·C ÷ (B − 1), if that is
    /// before the window is full, else after (W − (1 − b)·C) ÷ B; the three agree where they meet. Failures that will
    /// leave the window meanwhile are not given back, so this is the earliest.
    pub(super) fn exhaustion(self) -> Option<Duration> {
        let Self {
            budget,
            burn,
            window,
            covered,
        } = self;
        if budget <= 0.0 || burn <= 1.0 {
            return None;
        }
        let (window, covered) = (window.as_secs_f64(), covered.min(window).as_secs_f64());
        let filling = budget * covered / (burn - 1.0);
        let seconds = if covered + filling <= window {
            filling
        } else {
            (window - (1.0 - budget) * covered) / burn
        };
        Duration::try_from_secs_f64(seconds).ok()
    }
}
