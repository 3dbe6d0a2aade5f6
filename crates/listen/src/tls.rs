//! TLS for client connections, with HTTP/2 and HTTP/1.1 negotiated by ALPN.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::Tls;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {0}: {1}")]
    Read(String, pem::Error),
    #[error("certificate and key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

pub(super) fn acceptor(tls: &Tls) -> Result<TlsAcceptor, Error> {
    let Tls { certificate, key } = tls;
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(certificate, error))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn unreadable(path: &Path, error: pem::Error) -> Error {
    Error::Read(path.display().to_string(), error)
}
