//! Metrics, spans, log records and the request log of tokengauge, over OTLP and as Prometheus text.
//!
//! [`catalog`] lists every metric and attribute. [`Instruments`] records samples; the OpenTelemetry SDK aggregates them,
//! and [`exemplars`] keeps links to traces beside it. [`MetricsReader`] takes one snapshot of all metrics, which [`otlp`]
//! sends and [`prometheus`] renders, so that names are the same both ways. [`span`] encodes the spans of a record.
//! [`Telemetry`] owns the thread that exports: a collector that hangs slows nothing else. [`RequestLog`] writes each
//! record as a JSON line, on a separate thread.

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
