//! What leaves the process: names, metrics, spans, OTLP, Prometheus text.
//!
//! [`names`] is the registry of everything that is emitted. [`Instruments`] takes samples and records; the
//! OpenTelemetry SDK aggregates them, and [`exemplars`] keeps beside it what leads from a number to a trace; a
//! [`Collector`] takes one picture of all of it, which [`otlp`] sends and [`prometheus`] writes, so that names come out
//! equal on both ways. [`span`] writes the spans of a record as the bytes that are sent. [`Telemetry`] is the thread on
//! which all sending happens: a collector that hangs can slow nothing else. [`RequestLog`] writes each record as a line,
//! on a thread of its own.

pub mod client;
pub mod collector;
pub mod config;
mod encode;
pub mod exemplars;
pub mod instruments;
mod metrics;
pub mod names;
pub mod otlp;
pub mod process;
pub mod prometheus;
pub mod request_log;
pub mod sampling;
pub mod self_telemetry;
pub mod snapshot;
pub mod span;
pub mod telemetry;
#[cfg(test)]
mod testing;
mod transport;

pub use collector::Collector;
pub use config::{Config, Problem};
pub use instruments::{Instruments, Live, Part};
pub use request_log::RequestLog;
pub use sampling::{Kept, Sampler};
pub use snapshot::{BudgetReading, Losses, Readings, Snapshot};
pub use telemetry::Telemetry;
