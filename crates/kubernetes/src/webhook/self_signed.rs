//! Self-signed certificates: decides when to issue new ones, and stores them in a Secret.
//!
//! - The CA is valid for 10 years. Its key is stored only in the Secret. A new CA is created when less than 180 days
//!   are left, which is twice the lifetime of a certificate.
//! - The certificate for `SERVICE.NAMESPACE.svc` is valid for 90 days and is renewed after two thirds of that time. A
//!   cluster that was off for a month therefore still has a valid certificate.
//! - The bundle lists a new CA before the old CA, and keeps the old CA until it expires. Replicas that still serve the
//!   old certificate therefore stay trusted. The bundle never holds more than two CAs.
//! - Keys are ECDSA P-256, the only type that every API server and every FIPS build accepts.
//!
//! rustls verifies stored certificates in the same way as the API server. They must be signed by a CA in the
//! bundle, match the service's name, and be valid now. Certificates that fail are replaced.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::server::ParsedCertificate;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::certificate::ServingCertificate;
use tokengauge_listen::validity::Validity;

const CA_LIFETIME: Duration = Duration::days(3_650);
const CA_RENEWAL_MARGIN: Duration = Duration::days(180);
const CERTIFICATE_LIFETIME: Duration = Duration::days(90);

/// A new certificate is already valid this long before its issue, so that a client whose clock is late accepts it.
const MAX_CLOCK_SKEW: Duration = Duration::hours(1);

const MAX_BUNDLED_CAS: usize = 2;

/// Name and namespace of the Service through which the API server reaches the webhook.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServiceName {
    pub service: String,
    pub namespace: String,
}

impl ServiceName {
    /// Returns the host name to which the API server connects, such as `injector.tokengauge.svc`.
    fn dns_name(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }
}

/// Content of the Secret, as PEM.
#[derive(Clone, Eq, PartialEq)]
pub struct StoredCertificates {
    /// CA certificates in PEM, the newest first.
    cas: String,
    ca_key: String,
    pub certificate: String,
    pub key: String,
}

/// Formats the certificates without the private keys.
impl std::fmt::Debug for StoredCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredCertificates").finish_non_exhaustive()
    }
}

/// Reason why a certificate cannot be issued.
#[derive(Debug, thiserror::Error)]
#[error("cannot issue a certificate")]
pub struct Error(#[from] rcgen::Error);

/// Reason for issuing new certificates.
pub type RenewalReason = &'static str;

const NOT_STORED: RenewalReason = "no certificate stored";
const INVALID: RenewalReason = "stored certificate not valid for this service";
const CERTIFICATE_EXPIRES: RenewalReason = "certificate expires soon";
const CA_EXPIRES: RenewalReason = "CA expires soon";

/// Returns the certificates to use. If the stored certificates are unusable or expire soon, issues new ones and
/// returns the reason.
///
/// # Errors
/// Fails if key generation or signing fails.
pub fn renew(
    stored: Option<&StoredCertificates>,
    service: &ServiceName,
    now: OffsetDateTime,
) -> Result<(StoredCertificates, Option<RenewalReason>), Error> {
    let replace_all = |reason| Ok((issue_all(service, stored, now)?, Some(reason)));
    let Some(current) = stored else { return replace_all(NOT_STORED) };
    let validity = |pem: &str| first_certificate(pem).and_then(|der| Validity::from_der(&der));
    let validities = validity(&current.cas).zip(validity(&current.certificate));
    let Some((ca, certificate)) = validities.filter(|_| current.is_valid(service, now)) else {
        return replace_all(INVALID);
    };
    if ca.not_after < now + CA_RENEWAL_MARGIN {
        return replace_all(CA_EXPIRES);
    }
    if !certificate.is_renewal_due(now) {
        return Ok((current.clone(), None));
    }
    // The stored CA key can be malformed or belong to another CA. In that case, the renewed certificate is not
    // valid.
    match current.renew_certificate(service, now)? {
        Some(renewed) if renewed.is_valid(service, now) => Ok((renewed, Some(CERTIFICATE_EXPIRES))),
        _ => replace_all(INVALID),
    }
}

/// Issues a new CA, and a certificate that the new CA signs. An unexpired CA of `previous` stays trusted.
fn issue_all(
    service: &ServiceName,
    previous: Option<&StoredCertificates>,
    now: OffsetDateTime,
) -> Result<StoredCertificates, Error> {
    let ca_key = KeyPair::generate()?;
    let mut cas = ca_params(service, now)?.self_signed(&ca_key)?.pem();
    let previous = previous.and_then(|stored| certificates(&stored.cas)).unwrap_or_default();
    let unexpired = previous
        .iter()
        .filter(|der| Validity::from_der(der).is_some_and(|validity| validity.not_after > now));
    for der in unexpired.take(MAX_BUNDLED_CAS - 1) {
        let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
        cas += &pem::encode_config(&Pem::new("CERTIFICATE", der.to_vec()), config);
    }
    let ca_key_pem = ca_key.serialize_pem();
    let (certificate, key) = issue_certificate(service, ca_key, now)?;
    Ok(StoredCertificates { cas, ca_key: ca_key_pem, certificate, key })
}

fn ca_params(service: &ServiceName, now: OffsetDateTime) -> Result<CertificateParams, Error> {
    // X.520 limits common names to 64 characters, but Go and rustls accept and compare names of any length.
    let name = format!("tokengauge injector {}", service.namespace);
    let mut params = params(Vec::new(), &name, now, CA_LIFETIME)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// Returns a certificate and its private key, as PEM.
fn issue_certificate(
    service: &ServiceName,
    ca_key: KeyPair,
    now: OffsetDateTime,
) -> Result<(String, String), Error> {
    let name = service.dns_name();
    let full_name = format!("{name}.cluster.local");
    let names = vec![name, full_name, format!("{}.{}", service.service, service.namespace)];
    let mut params = params(names, "tokengauge injector", now, CERTIFICATE_LIFETIME)?;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    // An issuer is identified by its name and key. Its other parameters may differ from those of the stored CA.
    let issuer = Issuer::new(ca_params(service, now)?, ca_key);
    let certificate = params.signed_by(&key, &issuer)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn params(
    dns_names: Vec<String>,
    common_name: &str,
    now: OffsetDateTime,
    lifetime: Duration,
) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(dns_names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = now - MAX_CLOCK_SKEW;
    params.not_after = now + lifetime;
    Ok(params)
}

impl StoredCertificates {
    /// Reads the certificates from a Secret. Returns `None` if an entry is missing or is not text.
    pub fn from_secret(secret: &Value) -> Option<Self> {
        let text = |key: &str| {
            let encoded = secret.get("data")?.get(key)?.as_str()?;
            String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
        };
        Some(Self {
            cas: text("ca.crt")?,
            ca_key: text("ca.key")?,
            certificate: text("tls.crt")?,
            key: text("tls.key")?,
        })
    }

    /// Returns the Secret that stores these certificates.
    ///
    /// `existing` is the current Secret. Its metadata is kept, because other controllers may have added labels and
    /// annotations. Its type is kept, because the type is immutable.
    pub fn to_secret(&self, namespace: &str, name: &str, existing: Option<&Value>) -> Value {
        let metadata = json!({
            "name": name,
            "namespace": namespace,
            "labels": {
                "app.kubernetes.io/name": "tokengauge",
                "app.kubernetes.io/component": "injector",
                "app.kubernetes.io/managed-by": "tokengauge-injector",
            },
        });
        let existing = |key: &str| existing.and_then(|secret| secret.get(key)).cloned();
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": existing("type").unwrap_or_else(|| "kubernetes.io/tls".into()),
            "metadata": existing("metadata").unwrap_or(metadata),
            "data": {
                "ca.crt": STANDARD.encode(&self.cas),
                "ca.key": STANDARD.encode(&self.ca_key),
                "tls.crt": STANDARD.encode(&self.certificate),
                "tls.key": STANDARD.encode(&self.key),
            },
        })
    }

    /// Returns the CA certificates in the encoding of `caBundle`.
    pub fn ca_bundle(&self) -> String {
        STANDARD.encode(&self.cas)
    }

    fn is_valid(&self, service: &ServiceName, now: OffsetDateTime) -> bool {
        is_trusted(&self.cas, &self.certificate, service, now)
            && ServingCertificate::from_pem(&self.certificate, &self.key).is_ok()
    }

    /// Issues a new certificate that the stored CA signs. Returns `None` if the private key of the CA is malformed.
    fn renew_certificate(
        &self,
        service: &ServiceName,
        now: OffsetDateTime,
    ) -> Result<Option<Self>, Error> {
        let Ok(ca_key) = KeyPair::from_pem(&self.ca_key) else { return Ok(None) };
        let (certificate, key) = issue_certificate(service, ca_key, now)?;
        Ok(Some(Self { certificate, key, ..self.clone() }))
    }
}

/// Returns whether a client that connects to the Service and trusts `cas` accepts the certificate.
fn is_trusted(cas: &str, certificate: &str, service: &ServiceName, now: OffsetDateTime) -> bool {
    let (Some(cas), Some(der)) = (certificates(cas), first_certificate(certificate)) else {
        return false;
    };
    let mut roots = RootCertStore::empty();
    let (_, unusable) = roots.add_parsable_certificates(cas);
    let (Ok(parsed), Ok(name), Ok(now)) = (
        ParsedCertificate::try_from(&der),
        ServerName::try_from(service.dns_name()),
        u64::try_from(now.unix_timestamp()),
    ) else {
        return false;
    };
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now));
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms.all;
    unusable == 0
        && verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], now, algorithms).is_ok()
        && verify_server_name(&parsed, &name).is_ok()
}

fn certificates(pem: &str) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().ok()
}

fn first_certificate(pem: &str) -> Option<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(pem.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::SECOND;

    /// Returns the fixed time 2026-11-22T17:00:00Z.
    fn now() -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_795_366_800).unwrap()
    }

    fn service() -> ServiceName {
        ServiceName {
            service: "tokengauge-injector".to_owned(),
            namespace: "tokengauge".to_owned(),
        }
    }

    fn is_trusted_by(bundle: &str, certificates: &StoredCertificates, now: OffsetDateTime) -> bool {
        let cas = String::from_utf8(STANDARD.decode(bundle).unwrap()).unwrap();
        is_trusted(&cas, &certificates.certificate, &service(), now)
    }

    fn issue(now: OffsetDateTime) -> StoredCertificates {
        let (certificates, reason) = renew(None, &service(), now).unwrap();
        assert_eq!(reason, Some(NOT_STORED));
        certificates
    }

    fn replace(
        stored: &StoredCertificates,
        now: OffsetDateTime,
    ) -> (StoredCertificates, RenewalReason) {
        let (certificates, reason) = renew(Some(stored), &service(), now).unwrap();
        (certificates, reason.unwrap_or_else(|| panic!("kept at {now}")))
    }

    #[test]
    fn certificates_are_valid_for_their_service_only() {
        let now = now();
        let stored = issue(now);
        assert!(stored.is_valid(&service(), now));
        assert!(stored.is_valid(&service(), now - MAX_CLOCK_SKEW));
        assert!(!stored.is_valid(&service(), now - MAX_CLOCK_SKEW - SECOND));
        let another = ServiceName { service: "another".to_owned(), ..service() };
        assert!(!stored.is_valid(&another, now));
        assert!(is_trusted_by(&stored.ca_bundle(), &stored, now));
        assert!(!is_trusted_by(&issue(now).ca_bundle(), &stored, now));
        assert!(!is_trusted_by("", &stored, now));
    }

    #[test]
    fn renews_the_certificate_after_two_thirds_under_the_same_ca() {
        let now = now();
        let stored = issue(now);
        let due = now + CERTIFICATE_LIFETIME - (CERTIFICATE_LIFETIME + MAX_CLOCK_SKEW) / 3;
        for at in [now, due - SECOND] {
            let kept = renew(Some(&stored), &service(), at).unwrap();
            assert_eq!(kept, (stored.clone(), None));
        }
        let (renewed, reason) = replace(&stored, due);
        assert_eq!(reason, CERTIFICATE_EXPIRES);
        assert_eq!(renewed.cas, stored.cas);
        assert!(renewed.certificate != stored.certificate && renewed.key != stored.key);
        assert!(is_trusted_by(&stored.ca_bundle(), &renewed, due));
    }

    #[test]
    fn keeps_the_old_ca_in_the_bundle_until_it_expires() {
        let now = now();
        let mut stored = issue(now);
        let due = now + CA_LIFETIME - CA_RENEWAL_MARGIN;
        let ca_key = KeyPair::from_pem(&stored.ca_key).unwrap();
        let issued = issue_certificate(&service(), ca_key, due - Duration::DAY).unwrap();
        (stored.certificate, stored.key) = issued;
        let kept = renew(Some(&stored), &service(), due).unwrap();
        assert_eq!(kept, (stored.clone(), None));
        let due = due + SECOND;
        let (renewed, reason) = replace(&stored, due);
        assert_eq!(reason, CA_EXPIRES);
        assert!(is_trusted_by(&renewed.ca_bundle(), &renewed, due));
        assert!(is_trusted_by(&renewed.ca_bundle(), &stored, due));
        assert!(!is_trusted_by(&stored.ca_bundle(), &renewed, due));
        assert_eq!(certificates(&renewed.cas).unwrap().len(), 2);
        let (later, reason) = replace(&renewed, now + CA_LIFETIME + SECOND);
        assert_eq!(reason, INVALID);
        // The first CA has expired and is gone. The bundle lists the third CA before the second.
        let cas = certificates(&later.cas).unwrap();
        assert_eq!(cas.len(), 2);
        assert_eq!(cas[1], first_certificate(&renewed.cas).unwrap());
    }

    #[test]
    fn replaces_invalid_certificates() {
        let now = now();
        let (stored, other) = (issue(now), issue(now));
        let malformed = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        let invalid = [
            StoredCertificates { key: other.key.clone(), ..stored.clone() },
            StoredCertificates {
                certificate: other.certificate.clone(),
                key: other.key,
                ..stored.clone()
            },
            StoredCertificates { certificate: "nothing".to_owned(), ..stored.clone() },
            StoredCertificates { cas: String::new(), ..stored.clone() },
            StoredCertificates { cas: malformed.to_owned(), ..stored.clone() },
        ];
        for invalid in invalid {
            let (new, reason) = replace(&invalid, now);
            assert_eq!(reason, INVALID);
            assert!(new.is_valid(&service(), now));
        }
        let due = now + CERTIFICATE_LIFETIME - Duration::DAY;
        for ca_key in ["nothing".to_owned(), other.ca_key] {
            let invalid = StoredCertificates { ca_key, ..stored.clone() };
            let (new, reason) = replace(&invalid, due);
            assert_eq!(reason, INVALID);
            assert!(new.is_valid(&service(), due));
            assert!(is_trusted_by(&new.ca_bundle(), &stored, due));
        }
    }

    #[test]
    fn secret_round_trips() {
        let stored = issue(now());
        let secret = stored.to_secret("tokengauge", "certificate", None);
        assert_eq!(StoredCertificates::from_secret(&secret), Some(stored.clone()));
        let existing = json!({"type": "Opaque", "metadata": {"resourceVersion": "17"}});
        let replacement = stored.to_secret("tokengauge", "certificate", Some(&existing));
        assert_eq!(replacement["metadata"], existing["metadata"]);
        assert_eq!(replacement["type"], "Opaque");
        assert_eq!(replacement["data"], secret["data"]);
        assert!(!format!("{stored:?}").contains("BEGIN"));
        for key in ["ca.crt", "ca.key", "tls.crt", "tls.key"] {
            let mut invalid = secret.clone();
            invalid["data"][key] = 7.into();
            assert_eq!(StoredCertificates::from_secret(&invalid), None, "{key}");
            invalid["data"][key] = "!".into();
            assert_eq!(StoredCertificates::from_secret(&invalid), None, "{key}");
        }
        assert_eq!(StoredCertificates::from_secret(&json!({"data": null})), None);
    }
}
