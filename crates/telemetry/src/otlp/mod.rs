//! Exports spans, metrics and log records over OTLP.
//!
//! Spans and metrics are encoded by this crate and sent over its own transport. Spans are encoded when they are
//! recorded, and metrics when they are collected. The SDK's exporters are not used for three reasons: they support
//! neither exemplars nor client certificates, they read environment variables themselves, and the SDK's span data and
//! exporter cost 11 times as much (ADR 6). Log records are few, so the crate `opentelemetry-otlp` exports them, over
//! connections of this crate.

pub mod http_client;
mod logs;
pub(crate) mod metrics;
mod transport;

use opentelemetry_sdk::Resource;

pub use self::logs::LogExporter;
pub use self::transport::BuildError;
use self::transport::Transport;
use crate::config::SignalConfig;
use crate::export_counters::Signal;
use crate::metrics_reader::MetricsSnapshot;
use crate::span::encoder::{EncodedSpan, TraceRequestEncoder};

#[derive(Debug)]
pub struct SpanExporter {
    transport: Transport,
    encoder: TraceRequestEncoder,
}

impl SpanExporter {
    /// Creates the exporter. Must be called inside the runtime in which it exports.
    pub fn new(config: &SignalConfig, resource: &Resource) -> Result<Self, BuildError> {
        Ok(Self {
            transport: Transport::new(Signal::Traces, config)?,
            encoder: TraceRequestEncoder::new(resource),
        })
    }

    pub async fn export(&self, spans: Vec<EncodedSpan>) -> Result<(), String> {
        let request = self.encoder.request(&spans);
        drop(spans);
        self.transport.send(request).await
    }
}

#[derive(Debug)]
pub struct MetricExporter(Transport);

impl MetricExporter {
    /// Creates the exporter. Must be called inside the runtime in which it exports.
    pub fn new(config: &SignalConfig) -> Result<Self, BuildError> {
        Transport::new(Signal::Metrics, config).map(Self)
    }

    pub async fn export(&self, snapshot: &MetricsSnapshot) -> Result<(), String> {
        self.0.send(metrics::request(snapshot)).await
    }
}
