//! Certificates in PEM files, and TLS clients and servers that use them.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::within;

fn params() -> CertificateParams {
    CertificateParams::new(vec!["localhost".to_owned()]).unwrap()
}

/// A self-signed certificate for `localhost`, in PEM files.
pub struct Certificate {
    folder: tempfile::TempDir,
}

impl Certificate {
    pub fn new() -> Self {
        let certificate = Self { folder: tempfile::tempdir().unwrap() };
        certificate.rotate();
        certificate
    }

    /// Creates a certificate that was valid until 2001.
    pub fn expired() -> Self {
        let certificate = Self { folder: tempfile::tempdir().unwrap() };
        let mut params = params();
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        certificate.write(&params);
        certificate
    }

    /// Writes another certificate and key to the same files.
    pub fn rotate(&self) {
        self.write(&params());
    }

    fn write(&self, params: &CertificateParams) {
        let key = KeyPair::generate().unwrap();
        std::fs::write(self.file(), params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(self.key(), key.serialize_pem()).unwrap();
    }

    pub fn file(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    pub fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    pub fn acceptor(&self) -> TlsAcceptor {
        self.acceptor_of(&[])
    }

    /// Returns an acceptor that selects one of these protocols by ALPN.
    pub fn acceptor_of(&self, protocols: &[&str]) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = vec![CertificateDer::from_pem_file(self.file()).unwrap()];
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::from_pem_file(self.key()).unwrap())
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }

    pub async fn connect(&self, stream: TcpStream, alpn: &[&str]) -> TlsStream<TcpStream> {
        within("handshake", self.try_connect(stream, alpn)).await.unwrap()
    }

    /// Fails if the server has another certificate.
    pub async fn try_connect(
        &self,
        stream: TcpStream,
        alpn: &[&str],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.file()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }
}
