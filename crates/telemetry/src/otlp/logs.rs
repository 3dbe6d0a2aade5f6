//! Exports log records with OpenTelemetry's `LogExporter`.
//!
//! The exporter encodes the records and passes each request to its HTTP client. This client is the transport that the
//! other signals use, too. It sends the request over HTTP or gRPC, because both protocols send the same bytes, and counts
//! the records that the collector rejects. The exporter's own gRPC client is not used: no layer can wrap its channel, so
//! the response could not be read (ADR 6).

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{LogExporter, Protocol, RetryPolicy, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{LogBatch, LogExporter as _};
use tokio::sync::Mutex;

use crate::logs::QueuedLog;
use crate::otlp::{BuildError, ExportError, Transport};

/// Exports log records. Must be used inside the telemetry thread's runtime.
#[derive(Debug)]
pub struct LogRecordExporter {
    exporter: LogExporter,
    client: Arc<TransportClient>,
}

impl LogRecordExporter {
    /// # Errors
    /// Fails if the exporter rejects the URL of the collector.
    pub fn new(transport: Transport, resource: &Resource) -> Result<Self, BuildError> {
        let builder = LogExporter::builder()
            .with_http()
            // The exporter would otherwise read these settings from the environment.
            .with_endpoint(transport.url())
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(transport.limit)
            // The transport retries and limits the size of a request. Retries of the exporter would block the thread.
            .with_retry_policy(RetryPolicy::disabled())
            .with_max_request_body_size(usize::MAX);
        let client = Arc::new(TransportClient {
            transport: Mutex::new(transport),
            failure: Mutex::default(),
        });
        let mut exporter = builder.with_shared_http_client(Arc::clone(&client) as _).build()?;
        exporter.set_resource(resource);
        Ok(Self { exporter, client })
    }

    /// Exports the records in one request.
    ///
    /// # Errors
    /// Fails if the request is too large, or if the collector does not accept it.
    pub async fn export(&self, records: &[QueuedLog]) -> Result<(), ExportError> {
        let records: Vec<_> = records.iter().map(|(record, scope)| (record, scope)).collect();
        let exported = self.exporter.export(LogBatch::new(&records)).await;
        match self.client.failure.lock().await.take() {
            Some(failure) => Err(failure),
            None => exported.map_err(|error| ExportError::permanent(error.to_string())),
        }
    }
}

/// Sends the exporter's requests through the transport.
#[derive(Debug)]
struct TransportClient {
    transport: Mutex<Transport>,
    /// Why the last request failed. The exporter's error has only a text.
    failure: Mutex<Option<ExportError>>,
}

#[async_trait]
impl HttpClient for TransportClient {
    /// Sends the body of a request. Headers and URL are those of the transport, because the exporter adds headers from
    /// the environment.
    async fn send_bytes(
        &self,
        request: http::Request<Bytes>,
    ) -> Result<http::Response<Bytes>, HttpError> {
        match self.transport.lock().await.export(request.into_body()).await {
            Ok(()) => Ok(http::Response::default()),
            Err(failure) => {
                let message = failure.to_string();
                *self.failure.lock().await = Some(failure);
                Err(message.into())
            }
        }
    }
}
