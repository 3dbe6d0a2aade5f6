//! Exports log records through the crate `opentelemetry-otlp`, over the HTTP client or gRPC channel of this module.

use std::collections::HashMap;

use opentelemetry_otlp::{
    Compression, Protocol, WithExportConfig, WithHttpConfig, WithTonicConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{LogBatch, LogExporter as _};
use tonic::metadata::MetadataMap;

use super::http_client::HttpClient;
use super::transport::{BuildError, channel, header_map};
use crate::config::{self, SignalConfig};
use crate::logs::QueuedLog;

#[derive(Debug)]
pub struct LogExporter(opentelemetry_otlp::LogExporter);

impl LogExporter {
    /// Creates the exporter. Must be called inside the runtime in which it exports.
    pub fn new(config: &SignalConfig, resource: &Resource) -> Result<Self, BuildError> {
        let mut exporter = match config.protocol {
            config::Protocol::HttpProtobuf => http(config)?,
            config::Protocol::Grpc => grpc(config)?,
        };
        exporter.set_resource(resource);
        Ok(Self(exporter))
    }

    pub async fn export(&self, records: Vec<QueuedLog>) -> Result<(), String> {
        let records: Vec<_> = records.iter().map(|(record, scope)| (record, scope)).collect();
        self.0.export(LogBatch::new(&records)).await.map_err(|error| error.to_string())
    }
}

fn http(config: &SignalConfig) -> Result<opentelemetry_otlp::LogExporter, BuildError> {
    // The headers are validated first, because the builder silently drops invalid headers.
    header_map(&config.headers)?;
    let headers: HashMap<String, String> = config.headers.0.iter().cloned().collect();
    let mut builder = opentelemetry_otlp::LogExporter::builder()
        .with_http()
        .with_http_client(HttpClient::new(&config.tls)?)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(config.endpoint.clone().unwrap_or_default())
        .with_timeout(config.timeout)
        .with_headers(headers);
    if config.gzip {
        builder = builder.with_compression(Compression::Gzip);
    }
    Ok(builder.build()?)
}

fn grpc(config: &SignalConfig) -> Result<opentelemetry_otlp::LogExporter, BuildError> {
    let mut builder = opentelemetry_otlp::LogExporter::builder()
        .with_tonic()
        .with_channel(channel(config)?)
        .with_timeout(config.timeout)
        .with_metadata(MetadataMap::from_headers(header_map(&config.headers)?));
    if config.gzip {
        builder = builder.with_compression(Compression::Gzip);
    }
    Ok(builder.build()?)
}
