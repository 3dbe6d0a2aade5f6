//! Exports tokengauge's metrics, spans, log records and request log, over OTLP and as Prometheus text.
//!
//! - [`catalog`] lists every metric, with the function that reads its value, and every attribute.
//! - [`Instruments`] records values, and the OpenTelemetry SDK aggregates them. [`exemplars`] stores links from values
//!   to traces.
//! - [`MetricsReader`] takes a snapshot of all metrics. [`otlp`] exports the snapshot and [`prometheus`] renders it, so
//!   both have the same metrics.
//! - [`span`] encodes the spans of a finished request.
//! - [`Telemetry`] owns the thread that exports, so a collector that hangs does not delay any other part.
//! - [`RequestLog`] writes each finished request as a JSON line, and [`ProcessLog`] the log of the process, on separate
//!   threads.

mod attributes;
mod builders;
pub mod catalog;
pub mod config;
pub mod exemplars;
pub mod export_counters;
pub mod instruments;
mod line_writer;
pub mod logs;
pub mod metrics_reader;
pub mod otlp;
pub mod process;
mod process_log;
pub mod prometheus;
mod prometheus_names;
mod proxy;
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

pub use config::{SettingWarning, TelemetryConfig};
pub use instruments::{Component, Instruments, LiveInstruments};
pub use line_writer::{LineCounters, LineCounts};
pub use metrics_reader::{MetricsReader, MetricsSnapshot};
pub use process_log::ProcessLog;
pub use proxy::Proxy;
pub use request_log::RequestLog;
pub use sampling::{Sampler, SamplingDecision};
pub use series_limits::{ExpectedTraffic, MAX_CONFIGURED, PageEstimate, estimate};
pub use snapshot::{
    BudgetReading, CertificateReading, ClientLoad, ConfigReading, EnvoyCounts, ObserverHealth,
    SnapshotSource, StateSnapshot, UpstreamCounts,
};
pub use telemetry::Telemetry;
