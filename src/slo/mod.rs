//! Objectives, budgets, burn rates: arithmetic only, `at` passed in.
//!
//! An exchange is judged once, at its end, by every objective in whose scope it is; only good and bad verdicts go into
//! the books. `docs/slo.md` says what counts, and why.

mod budget;
#[cfg(test)]
pub(crate) mod example;
mod ledger;
mod scope;
mod verdict;

use std::time::Duration;

pub use ledger::Ledger;

use crate::label::Label;

/// A promise: so many of the exchanges in scope shall be good, over a rolling window.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    /// Unique; the value of the `tokengauge.slo` attribute.
    pub name: Label,
    pub indicator: Indicator,
    /// The share that shall be good, above 0 and below 1.
    pub target: f64,
    /// The rolling window of the budget: 1 h to 90 d.
    pub window: Duration,
    pub scope: Scope,
}

/// What makes an exchange good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Indicator {
    /// It succeeded, or failed by the client's own fault (which is excluded).
    Availability,
    /// The first token came within this time (streams only).
    TimeToFirstToken(Duration),
    /// Output TPS was at least this many tokens per second (rated streams only).
    OutputRate(f64),
    /// It was over within this time.
    Duration(Duration),
}

/// Which exchanges count. `None` is all of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    pub route: Option<Label>,
    /// A pattern over the model's name: `*` stands for any text.
    pub model: Option<String>,
}

/// The windows over which burn rates are told, shortest first.
pub const BURN_WINDOWS: [(&str, Duration); 7] = [
    ("5m", Duration::from_secs(300)),
    ("30m", Duration::from_secs(1_800)),
    ("1h", Duration::from_secs(3_600)),
    ("2h", Duration::from_secs(7_200)),
    ("6h", Duration::from_secs(21_600)),
    ("1d", Duration::from_secs(86_400)),
    ("3d", Duration::from_secs(259_200)),
];

/// One objective at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    pub objective: Objective,
    /// Events since the start, for counters that only rise.
    pub good: u64,
    pub bad: u64,
    /// The share of the window's budget that is left: 1 untouched, 0 spent, below 0 overspent. `None` without events.
    pub budget: Option<f64>,
    /// Burn rate = share of bad events in the window ÷ (1 − target), in the order of [`BURN_WINDOWS`]. `None` before
    /// the window is covered, and where it holds no event.
    pub burn: [Option<f64>; BURN_WINDOWS.len()],
    /// How much of the rolling window has been observed so far.
    pub covered: Duration,
    /// When the budget will be spent if it goes on burning as in the last hour (or what is covered of it). `None` where
    /// it does not burn faster than it is earned, or is spent already.
    pub exhaustion: Option<Duration>,
}
