//! Objectives, budgets, burn rates: arithmetic only, `at` passed in.

use std::time::Duration;

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
