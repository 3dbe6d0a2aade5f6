//! The certificate that is shown to new connections, and how it is changed while connections come in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::validity::Validity;

/// A certificate chain with its key, of which it is known that they fit.
#[derive(Clone, Debug)]
pub struct ServingCertificate {
    key: Arc<CertifiedKey>,
    pub validity: Validity,
}

/// Reads a chain and a key (PEM); what is wrong with them where they cannot be used.
pub fn pair(chain: &str, key: &str) -> Result<ServingCertificate, String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| format!("the certificate is no PEM: {error}"))?;
    let first = chain.first().ok_or("there is no certificate in the certificate's file")?;
    let validity = Validity::of(first).ok_or("the certificate is malformed")?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| format!("the key is no PEM: {error}"))?;
    let provider = rustls::crypto::ring::default_provider();
    let key = CertifiedKey::from_der(chain, key, &provider)
        .map_err(|error| format!("certificate and key cannot be used: {error}"))?;
    Ok(ServingCertificate { key: Arc::new(key), validity })
}

/// What is shown.
#[derive(Debug, Default)]
pub struct CertificateResolver {
    shown: ArcSwapOption<CertifiedKey>,
    until: AtomicU64,
}

impl CertificateResolver {
    /// Connections that are opened from here on get this.
    pub fn show(&self, pair: ServingCertificate) {
        self.until.store(pair.validity.until, Ordering::Relaxed);
        self.shown.store(Some(pair.key));
    }

    /// When what is shown ends, in seconds since 1970; `None` where nothing is shown yet.
    pub fn until(&self) -> Option<u64> {
        let shows = self.shown.load().is_some();
        shows.then(|| self.until.load(Ordering::Relaxed))
    }

    /// TLS as it is spoken with the API server. No session is resumed: each connection proves itself by the certificate of
    /// now, and an API server keeps its few connections for long.
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
        self.shown.load_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_that_does_not_fit_is_refused_with_a_reason() {
        let made = || rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap();
        let (one, two) = (made(), made());
        let (chain, key) = (one.cert.pem(), one.signing_key.serialize_pem());
        let serving = CertificateResolver::default();
        assert_eq!(serving.until(), None);
        let fits = pair(&chain, &key).unwrap();
        let until = fits.validity.until;
        serving.show(fits);
        assert_eq!(serving.until(), Some(until));
        for (chain, key, problem) in [
            (chain.as_str(), two.signing_key.serialize_pem().as_str(), "cannot be used"),
            ("", &key, "no certificate"),
            (&key, &key, "no certificate"),
            (&chain, "", "the key is no PEM"),
            (&chain, &chain, "the key is no PEM"),
            ("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n", &key, "malformed"),
            (chain.get(..chain.len() - 30).unwrap(), &key, "no"),
        ] {
            let error = pair(chain, key).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
    }
}
