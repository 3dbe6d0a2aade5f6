//! Exports spans, metrics and log records over OTLP.
//!
//! Spans are encoded when they are recorded, metrics when they are collected, and log records when they are exported. One
//! transport sends all of them, so each signal has the same retries, limits and counts.
//!
//! Only log records use an exporter of OpenTelemetry. Its exporter of metrics supports no exemplars. The SDK's span data
//! and its exporter of spans cost 11 times as much as the encoder of this crate (ADR 6).

pub(crate) mod batch;
mod dialer;
mod http_client;
pub(crate) mod logs;
pub(crate) mod metrics;
mod transport;

pub use self::http_client::check_tls_files;
pub use self::transport::{BuildError, ExportError, Transport};
