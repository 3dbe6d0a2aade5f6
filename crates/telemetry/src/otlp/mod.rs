//! Exports spans, metrics and log records over OTLP.
//!
//! Export requests are encoded by this crate and sent over its own transport. Spans are encoded when they are recorded,
//! metrics when they are collected, and log records when they are exported. The SDK's exporters are not used for four
//! reasons: they support neither exemplars nor client certificates, they do not count what a collector rejects, they
//! read environment variables themselves, and the SDK's span data and exporter cost 11 times as much (ADR 6).

pub(crate) mod batch;
mod dialer;
mod http_client;
pub(crate) mod logs;
pub(crate) mod metrics;
mod transport;

pub use self::http_client::check_tls_files;
pub use self::transport::{BuildError, ExportError, Transport};
