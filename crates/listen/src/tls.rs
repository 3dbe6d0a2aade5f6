//! TLS for client connections. ALPN selects HTTP/2 or HTTP/1.1.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::Tls;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {0}: {1}")]
    Read(String, pem::Error),
    #[error("{0} is not a regular file")]
    NotAFile(String),
    #[error("{0} contains no {1} in PEM format; check the path and the content of the file")]
    Empty(String, &'static str),
    #[error("the certificate {certificate} and the key {key} cannot be used: {source}")]
    Unusable { certificate: String, key: String, source: rustls::Error },
}

/// The TLS configuration for new connections.
pub(super) struct Acceptor(RwLock<TlsAcceptor>);

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Acceptor")
    }
}

impl Acceptor {
    pub(super) fn new(config: ServerConfig) -> Arc<Self> {
        Arc::new(Self(RwLock::new(TlsAcceptor::from(Arc::new(config)))))
    }

    pub(super) fn current(&self) -> TlsAcceptor {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Reads a listener's certificate and key again after the files have changed.
#[derive(Clone, Debug)]
pub struct TlsReloader {
    pub(super) files: Tls,
    pub(super) acceptor: Arc<Acceptor>,
}

impl TlsReloader {
    /// Reads the files again and uses them for new connections. If this fails, the previous certificate stays in use.
    ///
    /// # Errors
    /// Returns an error if the files cannot be read, or if the key does not match the certificate.
    pub fn reload(&self) -> Result<(), TlsError> {
        let acceptor = TlsAcceptor::from(Arc::new(read(&self.files)?));
        *self.acceptor.0.write().unwrap_or_else(PoisonError::into_inner) = acceptor;
        Ok(())
    }
}

pub(super) fn read(files: &Tls) -> Result<ServerConfig, TlsError> {
    let Tls { certificate, key } = files;
    let chain = CertificateDer::pem_reader_iter(open(certificate)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| TlsError::Read(name(certificate), error))?;
    if chain.is_empty() {
        return Err(TlsError::Empty(name(certificate), "certificate"));
    }
    let private_key = PrivateKeyDer::from_pem_reader(open(key)?).map_err(|error| {
        if matches!(error, pem::Error::NoItemsFound) {
            return TlsError::Empty(name(key), "private key");
        }
        TlsError::Read(name(key), error)
    })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private_key));
    let mut config = config.map_err(|source| TlsError::Unusable {
        certificate: name(certificate),
        key: name(key),
        source,
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Opens a regular file. Other files are rejected, because opening a pipe could block forever.
fn open(path: &Path) -> Result<BufReader<File>, TlsError> {
    let unreadable = |error| TlsError::Read(name(path), pem::Error::Io(error));
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(TlsError::NotAFile(name(path)));
    }
    Ok(BufReader::new(File::open(path).map_err(unreadable)?))
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_pem_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
        std::fs::write(&certificate, "").unwrap();
        std::fs::write(&key, "").unwrap();
        let error = read(&Tls { certificate: certificate.clone(), key: key.clone() }).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("cert.pem contains no certificate in PEM format"), "{message}");
        let any = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&certificate, any.cert.pem()).unwrap();
        let message = read(&Tls { certificate, key }).unwrap_err().to_string();
        assert!(message.contains("key.pem contains no private key in PEM format"), "{message}");
    }

    #[test]
    fn a_device_is_rejected() {
        let [certificate, key] = ["/dev/zero", "/dev/null"].map(Into::into);
        let message = read(&Tls { certificate, key }).unwrap_err().to_string();
        assert_eq!(message, "/dev/zero is not a regular file");
    }
}
