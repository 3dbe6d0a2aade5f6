//! What sends metrics and spans, and the count of what was delivered.
//!
//! Both signals are sent by our own transport, and not by the SDK's stock exporter: that one has no exemplars, no client
//! certificates, reads the environment by itself, and takes five times as long for a span. Spans, of which there are
//! two for each exchange, are encoded when they are made; metrics when they are collected.

pub(crate) mod metrics;
pub mod tls;
mod transport;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry_sdk::Resource;

use crate::config::{ExportHeaders, SignalConfig};
use crate::export_counters::Signal;
use crate::metrics_reader::MetricsSnapshot;
use crate::otlp::tls::TlsError;
use crate::otlp::transport::Transport;
use crate::span::encoder::{EncodedSpan, TraceRequestEncoder};

/// Why an exporter could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("`{0}` is no HTTP header")]
    Header(String),
    #[error(transparent)]
    Endpoint(#[from] http::uri::InvalidUri),
    #[error(transparent)]
    Grpc(#[from] tonic::transport::Error),
}

/// Sends spans.
#[derive(Debug)]
pub struct SpanExporter {
    transport: Transport,
    envelope: TraceRequestEncoder,
}

impl SpanExporter {
    /// Must be called inside the runtime that will export.
    pub fn new(signal: &SignalConfig, resource: &Resource) -> Result<Self, BuildError> {
        Ok(Self {
            transport: Transport::new(Signal::Traces, signal)?,
            envelope: TraceRequestEncoder::new(resource),
        })
    }

    pub async fn export(&self, spans: Vec<EncodedSpan>) -> Result<(), String> {
        let request = self.envelope.request(&spans);
        drop(spans);
        self.transport.send(request).await
    }
}

/// Sends metrics.
#[derive(Debug)]
pub struct MetricExporter(Transport);

impl MetricExporter {
    /// Must be called inside the runtime that will export.
    pub fn new(signal: &SignalConfig) -> Result<Self, BuildError> {
        Transport::new(Signal::Metrics, signal).map(Self)
    }

    pub async fn export(&self, picture: &MetricsSnapshot) -> Result<(), String> {
        self.0.send(metrics::request(picture)).await
    }
}

pub(super) fn header_map(headers: &ExportHeaders) -> Result<HeaderMap, BuildError> {
    let mut map = HeaderMap::new();
    for (name, value) in &headers.0 {
        let header = HeaderName::try_from(name.as_str())
            .ok()
            .zip(HeaderValue::try_from(value.as_str()).ok());
        let (key, value) = header.ok_or_else(|| BuildError::Header(name.clone()))?;
        map.insert(key, value);
    }
    Ok(map)
}
