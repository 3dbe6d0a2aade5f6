//! Exports spans, metrics and log records over OTLP.
//!
//! Export requests are encoded by this crate and sent over its own transport. Spans are encoded when they are recorded,
//! metrics when they are collected, and log records when they are exported. The SDK's exporters are not used for four
//! reasons: they support neither exemplars nor client certificates, they do not count what a collector rejects, they
//! read environment variables themselves, and the SDK's span data and exporter cost 11 times as much (ADR 6).

pub mod http_client;
mod logs;
pub(crate) mod metrics;
mod transport;

use std::sync::Arc;

use bytes::Bytes;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::Resource;

use self::transport::Transport;
pub use self::transport::{BuildError, ExportError};
use crate::config::SignalConfig;
use crate::export_counters::{ExportCounters, Signal};
use crate::logs::QueuedLog;
use crate::metrics_reader::MetricsSnapshot;
use crate::span::encoder::{EncodedSpan, TraceRequestEncoder};

#[derive(Debug)]
pub struct SpanExporter {
    transport: Transport,
    encoder: TraceRequestEncoder,
}

impl SpanExporter {
    /// Creates the exporter. Must be called inside the runtime in which it exports.
    pub fn new(
        config: &SignalConfig,
        resource: &Resource,
        counters: &Arc<ExportCounters>,
    ) -> Result<Self, BuildError> {
        Ok(Self {
            transport: Transport::new(Signal::Traces, config, counters)?,
            encoder: TraceRequestEncoder::new(resource),
        })
    }

    pub async fn export(&self, spans: Vec<EncodedSpan>) -> Result<(), ExportError> {
        let request = self.encoder.request(&spans);
        drop(spans);
        self.transport.send(request.into()).await
    }
}

#[derive(Debug)]
pub struct MetricExporter(Transport);

impl MetricExporter {
    /// Creates the exporter. Must be called inside the runtime in which it exports.
    pub fn new(config: &SignalConfig, counters: &Arc<ExportCounters>) -> Result<Self, BuildError> {
        Transport::new(Signal::Metrics, config, counters).map(Self)
    }

    /// Encodes a collection, which can be sent more than once.
    pub fn encode(snapshot: &MetricsSnapshot) -> Bytes {
        metrics::request(snapshot).into()
    }

    pub async fn export(&self, collection: Bytes) -> Result<(), ExportError> {
        self.0.send(collection).await
    }
}

#[derive(Debug)]
pub struct LogExporter {
    transport: Transport,
    resource: ResourceAttributesWithSchema,
}

impl LogExporter {
    /// Must be called inside the runtime that exports.
    pub fn new(
        config: &SignalConfig,
        resource: &Resource,
        counters: &Arc<ExportCounters>,
    ) -> Result<Self, BuildError> {
        let transport = Transport::new(Signal::Logs, config, counters)?;
        Ok(Self { transport, resource: resource.into() })
    }

    pub async fn export(&self, records: Vec<QueuedLog>) -> Result<(), ExportError> {
        let request = logs::request(&records, &self.resource);
        drop(records);
        self.transport.send(request.into()).await
    }
}
