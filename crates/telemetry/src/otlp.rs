//! What sends metrics and spans, and the count of what was delivered.
//!
//! Both signals are sent by our own transport, and not by the SDK's stock exporter: that one has no exemplars, no client
//! certificates, reads the environment by itself, and takes five times as long for a span. Spans, of which there are
//! two for each exchange, are encoded when they are made; metrics when they are collected.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use opentelemetry_sdk::Resource;

use crate::client::TlsError;
use crate::collector::Picture;
use crate::config::{Headers, Signal};
use crate::encode::{Encoded, Envelope};
use crate::metrics;
use crate::names::attributes as key;
use crate::names::health;
use crate::transport::Transport;

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
    envelope: Envelope,
}

impl SpanExporter {
    /// Must be called inside the runtime that will export.
    pub fn new(signal: &Signal, resource: &Resource) -> Result<Self, BuildError> {
        Ok(Self {
            transport: Transport::new(Exported::Traces, signal)?,
            envelope: Envelope::new(resource),
        })
    }

    pub async fn export(&self, spans: Vec<Encoded>) -> Result<(), String> {
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
    pub fn new(signal: &Signal) -> Result<Self, BuildError> {
        Transport::new(Exported::Metrics, signal).map(Self)
    }

    pub async fn export(&self, picture: &Picture) -> Result<(), String> {
        self.0.send(metrics::request(picture)).await
    }
}

pub(super) fn header_map(headers: &Headers) -> Result<HeaderMap, BuildError> {
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

/// What is exported, for counting.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exported {
    Metrics,
    Traces,
}

/// Why something was never delivered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lost {
    QueueFull,
    Failed,
    Shutdown,
}

/// What became of exports, by signal.
#[derive(Debug, Default)]
pub struct Deliveries {
    metrics: Outcomes,
    traces: Outcomes,
}

#[derive(Debug, Default)]
struct Outcomes {
    ok: AtomicU64,
    failed: AtomicU64,
    lost: [AtomicU64; Lost::ALL.len()],
}

impl Deliveries {
    /// One export request came to its end.
    pub fn ended(&self, signal: Exported, delivered: bool) {
        let outcomes = self.of(signal);
        let counter = if delivered { &outcomes.ok } else { &outcomes.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// So many spans, or collections of metrics, will never be delivered.
    pub fn lost(&self, signal: Exported, reason: Lost, items: usize) {
        self.of(signal).lost(reason).fetch_add(items as u64, Ordering::Relaxed);
    }

    pub fn lost_so_far(&self, signal: Exported, reason: Lost) -> u64 {
        self.of(signal).lost(reason).load(Ordering::Relaxed)
    }

    /// Shows the counts among the metrics.
    pub fn register(self: &Arc<Self>, meter: &Meter) {
        let deliveries = Arc::clone(self);
        health::SELF_EXPORTS.observe_counter(meter, move |counter| {
            for signal in Exported::ALL {
                let outcomes = deliveries.of(signal);
                for (result, count) in [("failed", &outcomes.failed), ("ok", &outcomes.ok)] {
                    let attributes = [
                        KeyValue::new(key::RESULT.key, result),
                        KeyValue::new(key::SIGNAL.key, signal.as_str()),
                    ];
                    counter.observe(count.load(Ordering::Relaxed), &attributes);
                }
            }
        });
        let deliveries = Arc::clone(self);
        health::SELF_DROPPED.observe_counter(meter, move |counter| {
            for signal in Exported::ALL {
                for reason in Lost::ALL {
                    let attributes = [
                        KeyValue::new(key::DROP_REASON.key, reason.as_str()),
                        KeyValue::new(key::SIGNAL.key, signal.as_str()),
                    ];
                    counter.observe(deliveries.lost_so_far(signal, reason), &attributes);
                }
            }
        });
    }

    const fn of(&self, signal: Exported) -> &Outcomes {
        match signal {
            Exported::Metrics => &self.metrics,
            Exported::Traces => &self.traces,
        }
    }
}

impl Outcomes {
    const fn lost(&self, reason: Lost) -> &AtomicU64 {
        let [queue_full, failed, shutdown] = &self.lost;
        match reason {
            Lost::QueueFull => queue_full,
            Lost::Failed => failed,
            Lost::Shutdown => shutdown,
        }
    }
}

impl Exported {
    pub const ALL: [Self; 2] = [Self::Metrics, Self::Traces];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Traces => "traces",
        }
    }
}

impl Lost {
    pub const ALL: [Self; 3] = [Self::QueueFull, Self::Failed, Self::Shutdown];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Failed => "failed",
            Self::Shutdown => "shutdown",
        }
    }
}
