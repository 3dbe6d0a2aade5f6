//! The HTTP client for OTLP/HTTP, and the TLS configuration for both OTLP transports.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::config::{SignalConfig, TlsFiles};
use crate::otlp::dialer::Dialer;

/// Maximum length of a collector's response in bytes. The response to an export normally has a few bytes. Only error
/// pages are longer, and their content is not needed.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// Why TLS to the collector cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path}")]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{path}: no usable PEM certificate or key: {problem}")]
    Malformed { path: PathBuf, problem: String },
    #[error(
        "a client certificate needs its key and a key its certificate; set both OTEL_EXPORTER_OTLP_CLIENT_KEY and OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"
    )]
    IncompleteIdentity,
    #[error("unusable client certificate or key")]
    Identity(#[from] rustls::Error),
}

/// Sends requests to the collector and reads complete responses. Must be used inside the telemetry thread's runtime.
#[derive(Debug)]
pub struct HttpClient(Client<HttpsConnector<Dialer>, Full<Bytes>>);

impl HttpClient {
    pub fn new(config: &SignalConfig) -> Result<Self, TlsError> {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(client_config(&config.tls)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(Dialer::new(config, config.uses_tls()));
        Ok(Self(Client::builder(TokioExecutor::new()).build(connector)))
    }

    pub async fn send(
        &self,
        request: http::Request<Bytes>,
    ) -> Result<http::Response<Bytes>, Box<dyn Error + Send + Sync>> {
        let response = self.0.request(request.map(Full::new)).await?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await?.to_bytes();
        Ok(http::Response::from_parts(head, body))
    }
}

/// Checks whether the files can be used.
///
/// # Errors
/// Fails if a file cannot be read or parsed, or if certificate and key do not belong together.
pub fn check_tls_files(tls: &TlsFiles) -> Result<(), TlsError> {
    client_config(tls).map(drop)
}

/// Returns the TLS configuration of a gRPC channel to the collector.
pub(super) fn tonic_config(tls: &TlsFiles) -> Result<ClientTlsConfig, TlsError> {
    let mut config = ClientTlsConfig::new();
    config = match &tls.certificate {
        Some(path) => config.ca_certificate(Certificate::from_pem(read(path)?)),
        None => config.trust_anchors(system_roots().roots),
    };
    if let Some((certificate, key)) = identity(tls)? {
        config = config.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    Ok(config)
}

fn client_config(tls: &TlsFiles) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = match &tls.certificate {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| malformed(path, &error))?;
            }
            roots
        }
        None => system_roots(),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    Ok(match identity(tls)? {
        Some((certificate, key)) => {
            let private = PrivateKeyDer::from_pem_slice(&read(key)?);
            let private = private.map_err(|error| malformed(key, &error))?;
            builder.with_client_auth_cert(certificates(certificate)?, private)?
        }
        None => builder.with_no_client_auth(),
    })
}

/// Returns the paths of the client certificate and its key, or `None` if no client certificate is configured.
fn identity(tls: &TlsFiles) -> Result<Option<(&Path, &Path)>, TlsError> {
    match (&tls.client_certificate, &tls.client_key) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => Err(TlsError::IncompleteIdentity),
    }
}

/// Returns the system's trusted root certificates. If the system has none, as in a minimal container, returns Mozilla's
/// root certificates.
fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|error| malformed(path, &error))?;
    if certificates.is_empty() {
        return Err(malformed(path, &"no certificate found"));
    }
    Ok(certificates)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })
}

fn malformed(path: &Path, problem: &impl ToString) -> TlsError {
    TlsError::Malformed { path: path.to_owned(), problem: problem.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_unusable_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let tls = TlsFiles { certificate: Some(path.clone()), ..TlsFiles::default() };
        assert!(matches!(check_tls_files(&tls), Err(TlsError::Unreadable { .. })));
        std::fs::write(&path, "not a certificate").unwrap();
        let error = check_tls_files(&tls).unwrap_err();
        assert!(matches!(error, TlsError::Malformed { .. }));
        assert!(error.to_string().contains("ca.pem"));
    }

    #[test]
    fn rejects_a_client_key_without_certificate_on_both_transports() {
        let tls = TlsFiles { client_key: Some("/key.pem".into()), ..TlsFiles::default() };
        assert!(matches!(check_tls_files(&tls), Err(TlsError::IncompleteIdentity)));
        assert!(matches!(tonic_config(&tls), Err(TlsError::IncompleteIdentity)));
    }
}
