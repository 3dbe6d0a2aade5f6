//! Records samples and finished exchanges. (signatures)

use std::sync::Arc;
use std::time::Duration;

use crate::export::{Collector, Config, Readings};
use crate::label::{Gate, Limits};
use crate::load::{Lane, State};
use crate::measure::Sample;
use crate::record::{Record, Series};
use crate::wire::RouteFacts;

/// Every synchronous instrument.
#[derive(Debug)]
pub struct Instruments {}

/// The live instruments of one series, bound.
#[derive(Debug)]
pub struct Live {}

impl Instruments {
    /// `limits` are the gate's: they bound the number of series.
    pub fn new(_config: &Config, _limits: Limits, _readings: Readings) -> (Arc<Self>, Collector) {
        todo!()
    }

    /// Exports every combination that is known from the configuration as 0.
    pub fn prime(&self, _routes: &[Arc<RouteFacts>]) {}

    /// An exchange began.
    pub fn started(&self, _route: &RouteFacts) {}

    /// The handles for one series; made at the first call, shared afterwards. Keep it for the length of the stream.
    pub fn live(&self, _series: &Series) -> Arc<Live> {
        todo!()
    }

    /// Stream-seconds went by in `state` (waiting or streaming) …
    pub fn stream_time(&self, _lane: &Lane, _state: State, _time: Duration) {}

    /// … or with the client not reading.
    pub fn stream_blocked(&self, _lane: &Lane, _time: Duration) {}

    /// An exchange is over. Does not touch the counters of output tokens: those move only by [`Live::sample`], for
    /// whole answers too.
    pub fn finished(&self, _record: &Record, _gate: &Gate) {}
}

impl Live {
    /// Called for every sample of every chunk: no allocation, no hashing.
    pub fn sample(&self, _sample: Sample) {}
}
