//! TLS with a certificate that the backend generates at its start.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use rustls::crypto::ring::default_provider;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The name in the certificate.
pub const SERVER_NAME: &str = "localhost";

/// Generates a certificate for the loopback interface, and writes it as PEM to `file`. Returns one acceptor per protocol.
pub fn acceptors<const N: usize>(
    file: &Path,
    protocols: [&str; N],
) -> anyhow::Result<[TlsAcceptor; N]> {
    let generated =
        rcgen::generate_simple_self_signed(vec![SERVER_NAME.to_owned(), "127.0.0.1".to_owned()])?;
    std::fs::write(file, generated.cert.pem())
        .with_context(|| format!("cannot write {}", file.display()))?;
    let key = PrivateKeyDer::try_from(generated.signing_key.serialize_der())
        .map_err(anyhow::Error::msg)?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![generated.cert.der().clone()], key)?;
    Ok(protocols.map(|protocol| {
        let mut config = config.clone();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }))
}

/// Returns a connector that trusts the certificate in `file` and offers one protocol.
pub fn connector(file: &Path, protocol: &str) -> anyhow::Result<TlsConnector> {
    let certificate = CertificateDer::from_pem_file(file)
        .with_context(|| format!("no certificate in {}", file.display()))?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
