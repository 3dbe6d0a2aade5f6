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
use super::validity::Validity;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {0}")]
    Read(String, #[source] pem::Error),
    #[error("{0} is not a regular file")]
    NotAFile(String),
    #[error("{0} contains no {1} in PEM format; check the path and the content of the file")]
    Empty(String, &'static str),
    #[error(
        "{file} contains a {found} but no {expected}; if the two files are swapped, exchange their paths"
    )]
    Swapped { file: String, found: &'static str, expected: &'static str },
    #[error("the certificate {certificate} and the key {key} cannot be used")]
    Unusable { certificate: String, key: String, source: rustls::Error },
}

impl TlsError {
    /// Returns the path of the file that causes the error. For a key that does not match its certificate, returns the
    /// path of the key.
    pub fn file(&self) -> &str {
        match self {
            Self::Read(file, _)
            | Self::NotAFile(file)
            | Self::Empty(file, _)
            | Self::Swapped { file, .. }
            | Self::Unusable { key: file, .. } => file,
        }
    }
}

impl Tls {
    /// Reads both files as a listener does, and returns the period in which the server's certificate is valid. `None` if
    /// the certificate does not have the form of RFC 5280.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or if the key does not match the certificate.
    pub fn check(&self) -> Result<Option<Validity>, TlsError> {
        read(self)?;
        let chain = read_chain(&self.certificate)?;
        Ok(chain.first().and_then(|certificate| Validity::from_der(certificate)))
    }
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
    /// The file with the certificate chain.
    pub fn certificate(&self) -> &Path {
        &self.files.certificate
    }

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
    let chain = read_chain(certificate)?;
    let private_key = read_key(key)?;
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

const CERTIFICATE: &str = "certificate";
const PRIVATE_KEY: &str = "private key";

fn read_chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_reader_iter(open(file)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| TlsError::Read(name(file), error))?;
    if !chain.is_empty() {
        return Ok(chain);
    }
    let is_key = PrivateKeyDer::from_pem_reader(open(file)?).is_ok();
    Err(without(CERTIFICATE, file, is_key.then_some(PRIVATE_KEY)))
}

fn read_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    match PrivateKeyDer::from_pem_reader(open(file)?) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => {
            let is_certificate = CertificateDer::from_pem_reader(open(file)?).is_ok();
            Err(without(PRIVATE_KEY, file, is_certificate.then_some(CERTIFICATE)))
        }
        Err(error) => Err(TlsError::Read(name(file), error)),
    }
}

/// Returns the error for a file that does not contain what is `expected`, but possibly something else.
fn without(expected: &'static str, file: &Path, found: Option<&'static str>) -> TlsError {
    match found {
        Some(found) => TlsError::Swapped { file: name(file), found, expected },
        None => TlsError::Empty(name(file), expected),
    }
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
    fn swapped_files_and_the_key_of_another_certificate_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key, other] =
            ["cert.pem", "key.pem", "other.pem"].map(|name| folder.path().join(name));
        let generate = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let signed = generate();
        std::fs::write(&certificate, signed.cert.pem()).unwrap();
        std::fs::write(&key, signed.signing_key.serialize_pem()).unwrap();
        std::fs::write(&other, generate().signing_key.serialize_pem()).unwrap();
        let check = |certificate: &Path, key: &Path| {
            Tls { certificate: certificate.to_owned(), key: key.to_owned() }.check()
        };
        assert!(check(&certificate, &key).unwrap().is_some());
        for (certificate, key, file, expected) in [
            (&key, &certificate, &key, "contains a private key but no certificate"),
            (&certificate, &certificate, &certificate, "contains a certificate but no private key"),
            (&certificate, &other, &other, "cannot be used"),
        ] {
            let error = check(certificate, key).unwrap_err();
            assert_eq!(Path::new(error.file()), file);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn a_device_is_rejected() {
        let [certificate, key] = ["/dev/zero", "/dev/null"].map(Into::into);
        let message = read(&Tls { certificate, key }).unwrap_err().to_string();
        assert_eq!(message, "/dev/zero is not a regular file");
    }
}
