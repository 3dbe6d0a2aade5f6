//! The input of a snapshot.

use crate::document::Stream;
use crate::recorder::RecorderReading;
use tokengauge_measure::load;
use tokengauge_measure::slo;

/// Everything that a snapshot shows, read at one instant.
#[derive(Debug)]
pub struct Readings {
    pub recorded: RecorderReading,
    pub load: load::Reading,
    pub slos: Vec<slo::Reading>,
    /// The objects of `/slo`, in the order of `slos`.
    pub slo_objects: Vec<serde_json::Map<String, serde_json::Value>>,
    /// The objects of `backends` in `/stats`.
    pub engines: Vec<serde_json::Value>,
    pub streams: Vec<Stream>,
}
