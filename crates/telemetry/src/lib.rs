//! What leaves the process: names, metrics, spans, OTLP, Prometheus text.
//!
//! [`names`] is the registry of everything that is emitted. [`Instruments`] takes samples and records; the
//! OpenTelemetry SDK aggregates them, and [`exemplars`] keeps beside it what leads from a number to a trace; a
//! [`MetricsReader`] takes one picture of all of it, which [`otlp`] sends and [`prometheus`] writes, so that names come out
//! equal on both ways. [`span`] writes the spans of a record as the bytes that are sent. [`Telemetry`] is the thread on
//! which all sending happens: a collector that hangs can slow nothing else. [`RequestLog`] writes each record as a line,
//! on a thread of its own.

mod attributes;
pub mod catalog;
pub mod config;
pub mod exemplars;
pub mod export_counters;
mod gauges;
pub mod instruments;
pub mod logs;
pub mod metrics_reader;
pub mod otlp;
pub mod process;
pub mod prometheus;
mod queue;
pub mod request_log;
pub mod sampling;
pub mod self_telemetry;
mod series_limits;
pub mod snapshot;
pub mod span;
pub mod telemetry;
#[cfg(test)]
mod testing;

pub use config::{Config, IgnoredSetting};
pub use instruments::{Component, Instruments, LiveInstruments};
pub use metrics_reader::MetricsReader;
pub use request_log::RequestLog;
pub use sampling::{Sampler, SamplingDecision};
pub use snapshot::{BudgetReading, ObserverLosses, SnapshotSource, StateSnapshot};
pub use telemetry::Telemetry;
