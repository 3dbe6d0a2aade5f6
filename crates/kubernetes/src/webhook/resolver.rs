//! The certificate for new TLS connections, which can change while the server runs.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use time::OffsetDateTime;

use super::validity::Validity;

/// A certificate chain with its private key, verified to match.
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

/// Holds the current serving certificate.
#[derive(Debug, Default)]
pub struct CertificateResolver(ArcSwapOption<ServingCertificate>);

impl CertificateResolver {
    /// Sets the certificate for new connections.
    pub fn set(&self, certificate: ServingCertificate) {
        self.0.store(Some(Arc::new(certificate)));
    }

    /// Returns the expiry time of the current certificate, or `None` without a certificate.
    pub fn expiry(&self) -> Option<OffsetDateTime> {
        self.0.load().as_ref().map(|certificate| certificate.validity.not_after)
    }

    /// Returns a TLS configuration that serves the current certificate.
    ///
    /// Sessions are never resumed, so every connection verifies the current certificate. An API server keeps its few
    /// connections open for long.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_mismatched_pairs_with_a_reason() {
        let generate = || rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap();
        let (one, two) = (generate(), generate());
        let (chain, key) = (one.cert.pem(), one.signing_key.serialize_pem());
        let resolver = CertificateResolver::default();
        assert_eq!(resolver.expiry(), None);
        let matching = ServingCertificate::from_pem(&chain, &key).unwrap();
        let expiry = matching.validity.not_after;
        resolver.set(matching);
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
}
