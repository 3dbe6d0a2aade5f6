//! In flight, queue depth, throughput windows: arithmetic only, `at` passed in.

use std::time::Duration;

use serde::Serialize;

use crate::label::Label;
use crate::wire::Vantage;

/// What an exchange in flight is doing.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Held back by our own admission limit.
    Queued,
    /// A stream that has not brought its first token.
    Waiting,
    /// A stream after its first token.
    Streaming,
    /// Anything that is not a streamed generation: whole answers, embeddings, plain HTTP. Outside queue depth.
    Unstreamed,
}

impl State {
    pub const ALL: [Self; 4] = [
        Self::Queued,
        Self::Waiting,
        Self::Streaming,
        Self::Unstreamed,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Waiting => "waiting",
            Self::Streaming => "streaming",
            Self::Unstreamed => "unstreamed",
        }
    }
}

/// What in-flight gauges are told apart by: what is known of an exchange when it begins.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Lane {
    pub route: Label,
    pub vantage: Vantage,
}

/// What throughput is told apart by.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Flow {
    pub provider: Label,
    pub model: Label,
    pub route: Label,
    pub vantage: Vantage,
}

/// Load at one moment: what gauges, `/streams` and the console show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    pub lanes: Vec<LaneReading>,
    pub flows: Vec<FlowReading>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LaneReading {
    pub lane: Lane,
    /// Exchanges in each state, in the order of [`State::ALL`].
    pub active: [u64; State::ALL.len()],
}

impl LaneReading {
    /// Queued here + awaiting their first token: an upper bound, since waiting includes prefill.
    pub const fn queue_depth(&self) -> u64 {
        let [queued, waiting, _, _] = self.active;
        queued + waiting
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct FlowReading {
    pub flow: Flow,
    pub input: Throughput,
    pub output: Throughput,
    /// Time to first token over the last 5 min; `None` where no stream had one.
    pub time_to_first_token: Option<Percentiles>,
    /// Output TPS of the streams that ended in the last 5 min, in tokens per second.
    pub output_rate: Option<Percentiles>,
    /// Exchanges that ended in the last 5 min, and those of them that did not end well by anybody's fault but the
    /// client's.
    pub finished: u64,
    pub failed: u64,
}

/// Tokens per second over windows that end at the reading's last full second. `None` before a window is covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Throughput {
    pub ten_seconds: Option<f64>,
    pub minute: Option<f64>,
    /// Also called *sustained*.
    pub five_minutes: Option<f64>,
    /// The highest 1 s slot of the last 5 min of streamed tokens.
    pub peak: Option<f64>,
}

/// In seconds or tokens per second, as the field that holds it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    pub p5: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub count: u64,
}

/// The longest window that is kept.
pub const LONGEST_WINDOW: Duration = Duration::from_secs(300);
