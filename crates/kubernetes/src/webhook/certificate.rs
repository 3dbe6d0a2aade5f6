//! The TLS certificate of the webhook, which can be replaced while the server runs. This module also watches
//! certificate files that another program renews, such as cert-manager.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use time::OffsetDateTime;

use super::metrics::{CERTIFICATES, Metrics};
use tokengauge_listen::validity::{Validity, now, rfc3339};

/// A certificate chain and its private key. Both were checked to belong together.
#[derive(Clone, Debug)]
pub struct ServingCertificate {
    key: Arc<CertifiedKey>,
    pub validity: Validity,
}

impl ServingCertificate {
    /// Parses a certificate chain and its private key.
    ///
    /// # Errors
    /// Fails with a description of the problem if the files are malformed or do not match.
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, String> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| format!("the certificate is not valid PEM: {error}"))?;
        let leaf = chain.first().ok_or("the certificate file contains no certificate")?;
        let validity = Validity::from_der(leaf).ok_or("the certificate is malformed")?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|error| format!("the private key is not valid PEM: {error}"))?;
        let provider = rustls::crypto::ring::default_provider();
        let key = CertifiedKey::from_der(chain, key, &provider)
            .map_err(|error| format!("cannot use the certificate with its key: {error}"))?;
        Ok(Self { key: Arc::new(key), validity })
    }
}

#[derive(Debug, Default)]
pub struct CertificateResolver(ArcSwapOption<ServingCertificate>);

impl CertificateResolver {
    /// Serves the certificate on all new connections.
    pub fn set(&self, certificate: ServingCertificate, metrics: &Metrics) {
        let until = rfc3339(certificate.validity.not_after);
        self.0.store(Some(Arc::new(certificate)));
        metrics.count(&CERTIFICATES, "shown");
        tracing::info!(until, "certificate in use");
    }

    /// Returns the expiry time of the current certificate, or `None` without a certificate.
    pub fn expiry(&self) -> Option<OffsetDateTime> {
        self.0.load().as_ref().map(|certificate| certificate.validity.not_after)
    }

    /// Returns a TLS configuration that uses the current certificate for each new connection.
    ///
    /// TLS sessions are never resumed, so the client checks the current certificate on every connection. The cost is
    /// low, because an API server opens few connections and keeps them open for a long time.
    pub fn tls(self: &Arc<Self>) -> Result<ServerConfig, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load().as_ref().map(|certificate| Arc::clone(&certificate.key))
    }
}

const READ_INTERVAL: Duration = Duration::from_secs(2);

/// Paths of the certificate chain and the private key (PEM).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Text of the certificate file and of the key file, or the reason why the files cannot be read.
type Content = Result<(String, String), String>;

/// Content of the certificate files at the last read.
#[derive(Debug, Default)]
struct Watcher {
    last: Option<Content>,
    /// Whether the last content was already accepted or rejected. Content with an error is rejected only if the next
    /// read gives the same content.
    decided: bool,
}

impl Watcher {
    /// Returns a new certificate, or the reason for rejecting the content. Returns `None` for unchanged files, or if
    /// the next read decides.
    fn update(
        &mut self,
        content: Content,
        now: OffsetDateTime,
    ) -> Option<Result<ServingCertificate, String>> {
        let unchanged = self.last.as_ref() == Some(&content);
        if unchanged && self.decided {
            return None;
        }
        let certificate = content.clone().and_then(|(chain, key)| {
            let certificate = ServingCertificate::from_pem(&chain, &key)?;
            let expiry = certificate.validity.not_after;
            if expiry <= now {
                return Err(format!("the certificate expired at {}", rfc3339(expiry)));
            }
            Ok(certificate)
        });
        self.last = Some(content);
        self.decided = unchanged || certificate.is_ok();
        self.decided.then_some(certificate)
    }
}

/// Serves the certificate in `files` until the returned future is dropped.
///
/// The task reads both files every two seconds. It does not use file watches, because the kubelet updates a mounted
/// Secret by replacing a symbolic link. One file may be renewed just before the other. A pair that does not match is
/// therefore read again before it is rejected.
pub async fn watch(
    files: CertificateFiles,
    resolver: Arc<CertificateResolver>,
    metrics: Arc<Metrics>,
) {
    let mut watcher = Watcher::default();
    let mut interval = tokio::time::interval(READ_INTERVAL);
    loop {
        interval.tick().await;
        match watcher.update(read(&files), now()) {
            None => {}
            Some(Ok(certificate)) => resolver.set(certificate, &metrics),
            Some(Err(problem)) => {
                metrics.count(&CERTIFICATES, "refused");
                if resolver.expiry().is_some() {
                    tracing::error!(problem, "new certificate rejected, the old one stays in use");
                } else {
                    tracing::error!(problem, "no usable certificate, cannot serve reviews");
                }
            }
        }
    }
}

/// Reads both files. A blocking read is acceptable here, because the files are small and local.
fn read(files: &CertificateFiles) -> Content {
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    Ok((read(&files.certificate)?, read(&files.key)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_mismatched_pairs_with_a_reason() {
        let generate_pair = || rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap();
        let (one, two) = (generate_pair(), generate_pair());
        let (chain, key) = (one.cert.pem(), one.signing_key.serialize_pem());
        let resolver = CertificateResolver::default();
        assert_eq!(resolver.expiry(), None);
        let matching = ServingCertificate::from_pem(&chain, &key).unwrap();
        let expiry = matching.validity.not_after;
        resolver.set(matching, &Metrics::default());
        assert_eq!(resolver.expiry(), Some(expiry));
        for (chain, key, problem) in [
            (chain.as_str(), two.signing_key.serialize_pem().as_str(), "cannot use"),
            ("", &key, "no certificate"),
            (&key, &key, "no certificate"),
            (&chain, "", "key is not valid PEM"),
            (&chain, &chain, "key is not valid PEM"),
            ("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n", &key, "malformed"),
            (chain.get(..chain.len() - 30).unwrap(), &key, "certificate"),
        ] {
            let error = ServingCertificate::from_pem(chain, key).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
    }

    fn now() -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_795_366_800).unwrap()
    }

    fn generate() -> (String, String) {
        let generated = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap();
        (generated.cert.pem(), generated.signing_key.serialize_pem())
    }

    #[test]
    fn uses_a_change_at_once_and_rejects_a_mismatch_at_the_second_read() {
        let (first, second) = (generate(), generate());
        let mut watcher = Watcher::default();
        let mut update = |content| watcher.update(content, now());
        assert!(matches!(update(Ok(first.clone())), Some(Ok(_))));
        assert!(update(Ok(first.clone())).is_none());
        // The first read finds only one file of the new pair. The next read finds both, and nothing is
        // rejected.
        let mismatch = (second.0.clone(), first.1.clone());
        assert!(update(Ok(mismatch.clone())).is_none());
        assert!(matches!(update(Ok(second)), Some(Ok(_))));
        // A mismatch that lasts is rejected exactly once.
        assert!(update(Ok(mismatch.clone())).is_none());
        assert!(matches!(update(Ok(mismatch.clone())), Some(Err(_))));
        assert!(update(Ok(mismatch)).is_none());
        let missing = || Err("cannot read".to_owned());
        assert!(update(missing()).is_none());
        assert!(matches!(update(missing()), Some(Err(_))));
        assert!(matches!(update(Ok(first)), Some(Ok(_))));
    }

    #[test]
    fn rejects_expired_certificates() {
        let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2026, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let expired = (params.self_signed(&key).unwrap().pem(), key.serialize_pem());
        let mut watcher = Watcher::default();
        assert!(watcher.update(Ok(expired.clone()), now()).is_none());
        let action = watcher.update(Ok(expired), now());
        let problem = "the certificate expired at 2026-01-01T00:00:00Z";
        assert!(matches!(&action, Some(Err(it)) if it == problem), "{action:?}");
    }
}
