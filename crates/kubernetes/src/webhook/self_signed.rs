//! The injector's own certificates: what is made, how long it holds, when something new is made. Pure: the time is an
//! argument, and what is kept comes and goes as a Secret's JSON.
//!
//! - An **authority** of its own, 10 years: it is trusted for one service's name by one webhook, and its key never leaves
//!   the Secret. A new one is made when less than 180 days of it are left, which is two lives of what it signs.
//! - A **certificate** for `SERVICE.NAMESPACE.svc` (what the API server asks for) and `….svc.cluster.local`, 90 days,
//!   renewed after two thirds of it: a cluster that was off for a month finds it valid.
//! - A new authority stands *before* the old one in the bundle, which stays until it ends: replicas that still show the
//!   old certificate are trusted. More than two are never kept.
//! - ECDSA P-256: the one kind that every API server and FIPS build accepts.
//! - All valid from an hour ago, for clocks that differ.
//!
//! What was kept is judged by rustls as the API server will: signed by the bundle, for these names, now. What does not
//! hold (edited by hand, another service's, ended) is replaced.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::server::ParsedCertificate;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::{Value, json};

use super::validity::Validity;

const DAY: u64 = 86_400;
const AUTHORITY_LASTS: u64 = 3_650 * DAY;
const AUTHORITY_ENDS_SOON: u64 = 180 * DAY;
const CERTIFICATE_LASTS: u64 = 90 * DAY;
/// How far clocks may differ.
const EARLIER: u64 = 3_600;
const MOST_AUTHORITIES: usize = 2;

/// Whom the certificate is for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServiceName {
    pub service: String,
    pub namespace: String,
}

impl ServiceName {
    fn all(&self) -> Vec<String> {
        let Self { service, namespace } = self;
        let short = format!("{service}.{namespace}.svc");
        vec![short.clone(), format!("{short}.cluster.local"), format!("{service}.{namespace}")]
    }

    /// What the API server asks for.
    fn asked(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }

    fn authority(&self) -> String {
        // At most 64 characters, says X.520; Go and rustls compare bytes, whatever their number.
        format!("tokengauge injector {}", self.namespace)
    }
}

/// What the Secret holds, as PEM.
#[derive(Clone, Eq, PartialEq)]
pub struct StoredCertificates {
    /// The newest first.
    pub authorities: String,
    authority_key: String,
    pub certificate: String,
    pub key: String,
}

impl std::fmt::Debug for StoredCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredCertificates").finish_non_exhaustive()
    }
}

/// RenewalReason a certificate cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("a certificate cannot be made: {0}")]
pub struct Error(#[from] rcgen::Error);

/// What is to be done with what is kept.
#[derive(Debug, Eq, PartialEq)]
pub enum Plan {
    /// It holds, and for long enough.
    Keep(StoredCertificates),
    Write(StoredCertificates, RenewalReason),
}

/// RenewalReason something new was made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RenewalReason {
    /// Nothing was kept yet.
    Nothing,
    /// What was kept does not hold for this service.
    Unusable,
    /// The certificate is in its last third.
    Due,
    /// The authority ends soon.
    AuthorityDue,
}

impl RenewalReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing was kept yet",
            Self::Unusable => "what was kept does not hold for this service",
            Self::Due => "the certificate is in its last third",
            Self::AuthorityDue => "the authority ends soon",
        }
    }
}

/// Keeps what is kept, or makes what is needed at `now` (seconds since 1970).
pub fn plan(
    kept: Option<StoredCertificates>,
    names: &ServiceName,
    now: u64,
) -> Result<Plan, Error> {
    let Some(kept) = kept else {
        return Ok(Plan::Write(renewed(names, None, now)?, RenewalReason::Nothing));
    };
    if !kept.holds(names, now) {
        return Ok(Plan::Write(renewed(names, Some(&kept), now)?, RenewalReason::Unusable));
    }
    let ends = |pem: &str| first(pem).and_then(|der| Validity::of(&der));
    let soon = |it: Validity| it.until < now + AUTHORITY_ENDS_SOON;
    if ends(&kept.authorities).is_none_or(soon) {
        let new = renewed(names, Some(&kept), now)?;
        return Ok(Plan::Write(new, RenewalReason::AuthorityDue));
    }
    if ends(&kept.certificate).is_none_or(|it| it.is_due(now)) {
        let Ok(authority_key) = KeyPair::from_pem(&kept.authority_key) else {
            let new = renewed(names, Some(&kept), now)?;
            return Ok(Plan::Write(new, RenewalReason::Unusable));
        };
        let (certificate, key) = certificate(names, authority_key, now)?;
        let new = StoredCertificates { certificate, key, ..kept };
        // The key in the Secret may be another's than the authority's: then what it signed does not hold.
        if !new.holds(names, now) {
            let new = renewed(names, Some(&new), now)?;
            return Ok(Plan::Write(new, RenewalReason::Unusable));
        }
        return Ok(Plan::Write(new, RenewalReason::Due));
    }
    Ok(Plan::Keep(kept))
}

/// A new authority and what it signs; those of `before` that have not ended stay in the bundle.
fn renewed(
    names: &ServiceName,
    before: Option<&StoredCertificates>,
    now: u64,
) -> Result<StoredCertificates, Error> {
    let authority_key = KeyPair::generate()?;
    let made = authority(names, now)?.self_signed(&authority_key)?;
    let mut authorities = made.pem();
    let older = before.map_or("", |kept| kept.authorities.as_str());
    let mut kept = 1;
    for der in all(older).unwrap_or_default() {
        let goes_on = Validity::of(&der).is_some_and(|it| it.until > now);
        if goes_on && kept < MOST_AUTHORITIES {
            authorities.push_str(&pem("CERTIFICATE", &der));
            kept += 1;
        }
    }
    let authority_pem = authority_key.serialize_pem();
    let (certificate, key) = certificate(names, authority_key, now)?;
    Ok(StoredCertificates { authorities, authority_key: authority_pem, certificate, key })
}

fn authority(names: &ServiceName, now: u64) -> Result<CertificateParams, Error> {
    let mut params = lasting(Vec::new(), now, AUTHORITY_LASTS)?;
    params.distinguished_name.push(DnType::CommonName, names.authority());
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn certificate(
    names: &ServiceName,
    authority_key: KeyPair,
    now: u64,
) -> Result<(String, String), Error> {
    let mut params = lasting(names.all(), now, CERTIFICATE_LASTS)?;
    params.distinguished_name.push(DnType::CommonName, "tokengauge injector");
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    // The issuer is known by its name and its key, both as they were when it was made.
    let issuer = Issuer::new(authority(names, now)?, authority_key);
    let made = params.signed_by(&key, &issuer)?;
    Ok((made.pem(), key.serialize_pem()))
}

fn lasting(names: Vec<String>, now: u64, seconds: u64) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    let at = |second| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(second);
    params.not_before = at(now.saturating_sub(EARLIER));
    params.not_after = at(now.saturating_add(seconds));
    Ok(params)
}

impl StoredCertificates {
    /// Of a Secret as the API server gives it; `None` where a part is missing or no text.
    pub fn of(secret: &Value) -> Option<Self> {
        let text = |key: &str| {
            let encoded = secret.get("data")?.get(key)?.as_str()?;
            String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
        };
        Some(Self {
            authorities: text("ca.crt")?,
            authority_key: text("ca.key")?,
            certificate: text("tls.crt")?,
            key: text("tls.key")?,
        })
    }

    /// The Secret that holds it. `version` is the `resourceVersion` that it replaces.
    pub fn secret(&self, namespace: &str, name: &str, version: Option<&str>) -> Value {
        let mut secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {
                    "app.kubernetes.io/name": "tokengauge",
                    "app.kubernetes.io/component": "injector",
                    "app.kubernetes.io/managed-by": "tokengauge-injector",
                },
            },
            "data": {
                "ca.crt": STANDARD.encode(&self.authorities),
                "ca.key": STANDARD.encode(&self.authority_key),
                "tls.crt": STANDARD.encode(&self.certificate),
                "tls.key": STANDARD.encode(&self.key),
            },
        });
        let metadata = secret.get_mut("metadata").and_then(Value::as_object_mut);
        if let (Some(version), Some(metadata)) = (version, metadata) {
            metadata.insert("resourceVersion".to_owned(), version.into());
        }
        secret
    }

    /// As `caBundle` holds it.
    pub fn bundle(&self) -> String {
        STANDARD.encode(&self.authorities)
    }

    fn holds(&self, names: &ServiceName, now: u64) -> bool {
        trusts(&self.authorities, &self.certificate, names, now)
            && super::resolver::pair(&self.certificate, &self.key).is_ok()
    }
}

/// Judges as a client does.
fn trusts(authorities: &str, certificate: &str, names: &ServiceName, now: u64) -> bool {
    let Some(authorities) = all(authorities) else {
        return false;
    };
    let mut roots = RootCertStore::empty();
    let (_, unusable) = roots.add_parsable_certificates(authorities);
    let Some(der) = first(certificate) else {
        return false;
    };
    let (Ok(parsed), Ok(name)) =
        (ParsedCertificate::try_from(&der), ServerName::try_from(names.asked()))
    else {
        return false;
    };
    let at = UnixTime::since_unix_epoch(Duration::from_secs(now));
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms.all;
    unusable == 0
        && verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], at, algorithms).is_ok()
        && verify_server_name(&parsed, &name).is_ok()
}

fn all(pem: &str) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().ok()
}

fn first(pem: &str) -> Option<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(pem.as_bytes()).ok()
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at_checked(64).unwrap_or((rest, ""));
        pem.extend([line, "\n"]);
        rest = after;
    }
    pem + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-22T17:00:00Z.
    const NOW: u64 = 1_795_366_800;

    impl StoredCertificates {
        fn is_trusted_by(&self, bundle: &str, names: &ServiceName, now: u64) -> bool {
            let authorities = String::from_utf8(STANDARD.decode(bundle).unwrap()).unwrap();
            trusts(&authorities, &self.certificate, names, now)
        }
    }

    fn names() -> ServiceName {
        ServiceName {
            service: "tokengauge-injector".to_owned(),
            namespace: "tokengauge".to_owned(),
        }
    }

    fn made(at: u64) -> StoredCertificates {
        let Plan::Write(kept, RenewalReason::Nothing) = plan(None, &names(), at).unwrap() else {
            unreachable!("nothing was kept")
        };
        kept
    }

    fn written(kept: &StoredCertificates, at: u64) -> (StoredCertificates, RenewalReason) {
        match plan(Some(kept.clone()), &names(), at).unwrap() {
            Plan::Write(new, why) => (new, why),
            Plan::Keep(_) => panic!("kept at {at}"),
        }
    }

    #[test]
    fn what_is_made_holds_at_once_and_for_its_names_alone() {
        let kept = made(NOW);
        assert!(kept.holds(&names(), NOW) && kept.holds(&names(), NOW - EARLIER));
        assert!(!kept.holds(&names(), NOW - EARLIER - 1));
        let another = ServiceName { service: "another".to_owned(), ..names() };
        assert!(!kept.holds(&another, NOW));
        assert!(kept.is_trusted_by(&kept.bundle(), &names(), NOW));
        assert!(!kept.is_trusted_by(&made(NOW).bundle(), &names(), NOW));
        assert!(!kept.is_trusted_by("", &names(), NOW));
    }

    #[test]
    fn it_is_kept_for_two_thirds_and_then_renewed_under_the_same_authority() {
        let kept = made(NOW);
        let due = NOW + CERTIFICATE_LASTS - (CERTIFICATE_LASTS + EARLIER) / 3;
        for at in [NOW, due - 1] {
            let plan = plan(Some(kept.clone()), &names(), at).unwrap();
            assert_eq!(plan, Plan::Keep(kept.clone()));
        }
        let (new, why) = written(&kept, due);
        assert_eq!(why, RenewalReason::Due);
        assert_eq!(new.authorities, kept.authorities);
        assert!(new.certificate != kept.certificate && new.key != kept.key);
        assert!(new.is_trusted_by(&kept.bundle(), &names(), due));
    }

    #[test]
    fn a_new_authority_leaves_the_old_one_in_the_bundle_until_it_ends() {
        let mut kept = made(NOW);
        let soon = NOW + AUTHORITY_LASTS - AUTHORITY_ENDS_SOON;
        // The certificate of that time.
        let key = KeyPair::from_pem(&kept.authority_key).unwrap();
        (kept.certificate, kept.key) = certificate(&names(), key, soon - DAY).unwrap();
        let plan = plan(Some(kept.clone()), &names(), soon).unwrap();
        assert_eq!(plan, Plan::Keep(kept.clone()));
        let (new, why) = written(&kept, soon + 1);
        assert_eq!(why, RenewalReason::AuthorityDue);
        assert!(new.is_trusted_by(&new.bundle(), &names(), soon + 1));
        assert!(kept.is_trusted_by(&new.bundle(), &names(), soon + 1));
        assert!(!new.is_trusted_by(&kept.bundle(), &names(), soon + 1));
        assert_eq!(all(&new.authorities).unwrap().len(), 2);
        let (later, why) = written(&new, NOW + AUTHORITY_LASTS + 1);
        assert_eq!(why, RenewalReason::Unusable);
        assert_eq!(all(&later.authorities).unwrap().len(), 2);
        // The first has ended and is gone, the second stands behind the third.
        assert_eq!(all(&later.authorities).unwrap()[1], first(&new.authorities).unwrap());
    }

    #[test]
    fn what_was_tampered_with_is_replaced() {
        let kept = made(NOW);
        let other = made(NOW);
        let broken = [
            StoredCertificates { key: other.key.clone(), ..kept.clone() },
            StoredCertificates {
                certificate: other.certificate.clone(),
                key: other.key,
                ..kept.clone()
            },
            StoredCertificates { certificate: "nothing".to_owned(), ..kept.clone() },
            StoredCertificates { authorities: String::new(), ..kept.clone() },
            StoredCertificates {
                authorities: "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"
                    .to_owned(),
                ..kept.clone()
            },
        ];
        for wrong in broken {
            let (new, why) = written(&wrong, NOW);
            assert_eq!(why, RenewalReason::Unusable);
            assert!(new.holds(&names(), NOW));
        }
        let due = NOW + CERTIFICATE_LASTS - DAY;
        for authority_key in ["nothing".to_owned(), other.authority_key] {
            let wrong = StoredCertificates { authority_key, ..kept.clone() };
            let (new, why) = written(&wrong, due);
            assert_eq!(why, RenewalReason::Unusable);
            assert!(new.holds(&names(), due));
            assert!(kept.is_trusted_by(&new.bundle(), &names(), due));
        }
    }

    #[test]
    fn a_secret_gives_back_what_was_put_into_it() {
        let kept = made(NOW);
        let secret = kept.secret("tokengauge", "certificate", Some("17"));
        assert_eq!(StoredCertificates::of(&secret), Some(kept.clone()));
        assert_eq!(secret["metadata"]["resourceVersion"], "17");
        let secret = kept.secret("tokengauge", "certificate", None);
        assert_eq!(secret["metadata"].get("resourceVersion"), None);
        assert!(!format!("{kept:?}").contains("BEGIN"));
        for key in ["ca.crt", "ca.key", "tls.crt", "tls.key"] {
            let mut without = secret.clone();
            without["data"][key] = 7.into();
            assert_eq!(StoredCertificates::of(&without), None, "{key}");
            without["data"][key] = "!".into();
            assert_eq!(StoredCertificates::of(&without), None, "{key}");
        }
        assert_eq!(StoredCertificates::of(&json!({"data": null})), None);
    }
}
