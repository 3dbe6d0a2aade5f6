//! Timestamps of a request and its response, and the formulas derived from them.

pub mod edge;
pub mod pauses;
pub mod rates;
pub mod stall;
pub mod stream;
pub mod timestamps;

pub use edge::edge_wait;
pub use pauses::PauseDetector;
pub use rates::{OutputRateRange, Rates, Unrated, VOICE_RATE};
pub use stall::{Stall, StallClock, StallKind, StallPhase, StallThresholds, Stalls};
pub use stream::{LiveSample, StreamTiming};
pub use timestamps::{Stage, Stages, Timestamps};
