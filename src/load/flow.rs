//! One flow: its tokens by the second, and what its latest exchanges were like.

use std::time::Duration;

use crate::clock::Moment;
use crate::load::recent::Recent;
use crate::load::{Ended, Flow, FlowReading, LONGEST_WINDOW, Throughput};
use crate::slots::Slots;

const SECOND: Duration = Duration::from_secs(1);

/// The slots of the longest window.
const FULL_SLOTS: u64 = LONGEST_WINDOW.as_secs();

/// Three windows of 300 slots: 7 KiB, beside what [`Recent`] takes.
#[derive(Debug)]
pub(super) struct Track {
    /// Output that was counted chunk by chunk: only this has a peak that means something.
    streamed: Slots<f64>,
    /// Output that came whole, spread over the time it took.
    whole: Slots<f64>,
    input: Slots<f64>,
    recent: Recent,
    /// The latest moment that anything was recorded of.
    latest: Moment,
}

impl Track {
    pub(super) fn new() -> Self {
        let slots = || Slots::new(SECOND, FULL_SLOTS.try_into().unwrap_or(usize::MAX));
        Self {
            streamed: slots(),
            whole: slots(),
            input: slots(),
            recent: Recent::new(),
            latest: Moment::ZERO,
        }
    }

    pub(super) fn output(&mut self, at: Moment, tokens: u64) {
        self.latest = self.latest.max(at);
        let number = self.streamed.number(at);
        if let Some(slot) = self.streamed.slot(number) {
            *slot += tokens as f64;
        }
    }

    pub(super) fn output_spread(&mut self, from: Moment, to: Moment, tokens: u64) {
        self.latest = self.latest.max(to);
        spread(&mut self.whole, from, to, tokens as f64);
    }

    pub(super) fn input_spread(&mut self, from: Moment, to: Moment, tokens: u64) {
        self.latest = self.latest.max(to);
        spread(&mut self.input, from, to, tokens as f64);
    }

    pub(super) fn ended(&mut self, at: Moment, ended: Ended) {
        self.latest = self.latest.max(at);
        self.recent.ended(at, ended);
    }

    /// Whether nothing was recorded for so long that every window is empty.
    pub(super) fn is_idle(&self, at: Moment) -> bool {
        let now = self.streamed.number(at);
        now.saturating_sub(self.streamed.number(self.latest)) > FULL_SLOTS
    }

    pub(super) fn reading(&self, at: Moment, flow: &Flow) -> FlowReading {
        let now = self.streamed.number(at);
        let output = |seconds| sum(&self.streamed, now, seconds) + sum(&self.whole, now, seconds);
        let input = |seconds| sum(&self.input, now, seconds);
        let recent = self.recent.reading(at);
        FlowReading {
            flow: flow.clone(),
            input: throughput(now, None, input),
            output: throughput(now, peak(&self.streamed, now), output),
            time_to_first_token: recent.time_to_first_token,
            output_rate: recent.output_rate,
            finished: recent.finished,
            failed: recent.failed,
        }
    }
}

/// Lays `tokens` evenly over `from`…`to`. What falls before the oldest slot that is kept is cut off, not squeezed into
/// those that are.
fn spread(slots: &mut Slots<f64>, from: Moment, to: Moment, tokens: f64) {
    let last = slots.number(to);
    let length = to.since(from);
    if length.is_zero() {
        if let Some(slot) = slots.slot(last) {
            *slot += tokens;
        }
        return;
    }
    let per_second = tokens / length.as_secs_f64();
    let first = slots.number(from).max(last.saturating_sub(FULL_SLOTS));
    for number in first..=last {
        let begin = Moment::from_secs(number);
        let share = to.min(begin + SECOND).since(from.max(begin));
        if let Some(slot) = slots.slot(number) {
            *slot += per_second * share.as_secs_f64();
        }
    }
}

/// Each window ends at the last full second: `now` is the slot that is still filling.
fn throughput(now: u64, peak: Option<f64>, sum: impl Fn(u64) -> f64) -> Throughput {
    let mean = |seconds: u64| (now >= seconds).then(|| sum(seconds) / seconds as f64);
    Throughput {
        ten_seconds: mean(10),
        minute: mean(60),
        five_minutes: mean(FULL_SLOTS),
        peak,
    }
}

fn sum(slots: &Slots<f64>, now: u64, seconds: u64) -> f64 {
    slots.range(now.saturating_sub(seconds)..now).sum()
}

/// Told from the first full second on: the highest slot so far is true of what was seen, where a mean over part of a
/// window would not be one over the window.
fn peak(slots: &Slots<f64>, now: u64) -> Option<f64> {
    let full = slots.range(now.saturating_sub(FULL_SLOTS)..now);
    (now > 0).then(|| full.copied().fold(0.0, f64::max))
}
