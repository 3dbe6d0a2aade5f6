//! Timestamps of a request and its response, and the formulas derived from them.

pub mod edge;
pub mod pauses;
pub mod points;
pub mod rates;
pub mod stall;
pub mod stream;

pub use edge::edge_wait;
pub use pauses::PauseDetector;
pub use points::{Stage, Stages, Timestamps};
pub use rates::{OutputRateRange, Rates, Unrated, VOICE_RATE};
pub use stall::{Stall, StallClock, StallKind, StallPhase, StallThresholds, Stalls};
pub use stream::{LiveSample, StreamTiming};
