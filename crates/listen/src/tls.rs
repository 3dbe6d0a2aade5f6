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
    #[error("{0} contains no {1} in PEM format; check the path and the content of the file")]
    Empty(String, &'static str),
    #[error("certificate and key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

pub(super) fn acceptor(tls: &Tls) -> Result<TlsAcceptor, Error> {
    let Tls { certificate, key } = tls;
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(certificate, error))?;
    if chain.is_empty() {
        return Err(Error::Empty(certificate.display().to_string(), "certificate"));
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| {
        if matches!(error, pem::Error::NoItemsFound) {
            return Error::Empty(key.display().to_string(), "private key");
        }
        unreadable(key, error)
    })?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_pem_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
        std::fs::write(&certificate, "").unwrap();
        std::fs::write(&key, "").unwrap();
        let error =
            acceptor(&Tls { certificate: certificate.clone(), key: key.clone() }).err().unwrap();
        let message = error.to_string();
        assert!(message.contains("cert.pem contains no certificate in PEM format"), "{message}");
        let any = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&certificate, any.cert.pem()).unwrap();
        let message = acceptor(&Tls { certificate, key }).err().unwrap().to_string();
        assert!(message.contains("key.pem contains no private key in PEM format"), "{message}");
    }
}
