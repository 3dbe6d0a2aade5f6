//! Exporters of spans, metrics and log records.
//!
//! Spans and metrics use the transport of this crate. The SDK's exporter supports neither exemplars nor client
//! certificates, reads the environment itself, and takes five times as long per span. Spans are encoded when they are
//! recorded, and metrics when they are collected. Log records are few, so `opentelemetry-otlp` exports them, over
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
    /// Must be called inside the runtime that exports.
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
    /// Must be called inside the runtime that exports.
    pub fn new(config: &SignalConfig) -> Result<Self, BuildError> {
        Transport::new(Signal::Metrics, config).map(Self)
    }

    pub async fn export(&self, snapshot: &MetricsSnapshot) -> Result<(), String> {
        self.0.send(metrics::request(snapshot)).await
    }
}
