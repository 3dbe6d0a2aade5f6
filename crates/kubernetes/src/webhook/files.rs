//! A certificate in files that another program renews, such as cert-manager.
//!
//! The files are read every two seconds and compared by content. The kubelet updates a mounted Secret by replacing a
//! symbolic link, which file watches do not report. Two files cannot be read at the same instant, so a pair that does
//! not match is read again before it is rejected.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;

use super::log;
use super::metrics::{CertificateChange, Metrics};
use super::resolver::{CertificateResolver, ServingCertificate};
use super::validity::{now, rfc3339};

const INTERVAL: Duration = Duration::from_secs(2);

/// Paths of the certificate chain and the private key (PEM).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Content of both files, or why they cannot be read.
type Content = Result<(String, String), String>;

/// Content of the last read.
#[derive(Debug, Default)]
struct Watcher {
    last: Option<Content>,
    /// Whether the content was accepted or rejected. Otherwise, the next read decides.
    decided: bool,
}

#[derive(Debug)]
enum Action {
    None,
    Use(ServingCertificate),
    Reject(String),
}

impl Watcher {
    fn update(&mut self, content: Content, now: OffsetDateTime) -> Action {
        let unchanged = self.last.as_ref() == Some(&content);
        if unchanged && self.decided {
            return Action::None;
        }
        let certificate = match &content {
            Ok((chain, key)) => unexpired_certificate(chain, key, now),
            Err(problem) => Err(problem.clone()),
        };
        self.last = Some(content);
        self.decided = unchanged || certificate.is_ok();
        match certificate {
            Ok(certificate) => Action::Use(certificate),
            Err(problem) if self.decided => Action::Reject(problem),
            Err(_) => Action::None,
        }
    }
}

fn unexpired_certificate(
    chain: &str,
    key: &str,
    now: OffsetDateTime,
) -> Result<ServingCertificate, String> {
    let certificate = ServingCertificate::from_pem(chain, key)?;
    let expiry = certificate.validity.not_after;
    if expiry <= now {
        return Err(format!("the certificate expired at {}", rfc3339(expiry)));
    }
    Ok(certificate)
}

/// Serves the certificate in the files until it is dropped.
pub async fn watch(
    files: CertificateFiles,
    resolver: Arc<CertificateResolver>,
    metrics: Arc<Metrics>,
) {
    let mut watcher = Watcher::default();
    let mut interval = tokio::time::interval(INTERVAL);
    loop {
        interval.tick().await;
        match watcher.update(read(&files), now()) {
            Action::None => {}
            Action::Use(certificate) => {
                let until = rfc3339(certificate.validity.not_after);
                resolver.set(certificate);
                metrics.record_certificate_change(CertificateChange::Shown);
                log::CertificateInUse { until: &until }.emit();
            }
            Action::Reject(problem) => {
                metrics.record_certificate_change(CertificateChange::Refused);
                let kept = resolver.expiry().is_some();
                log::CertificateRejected { problem: &problem, kept }.emit();
            }
        }
    }
}

/// Reads both files. They are small and on the node's own disk or in memory, so this may block.
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
        assert!(matches!(update(Ok(first.clone())), Action::Use(_)));
        assert!(matches!(update(Ok(first.clone())), Action::None));
        // One file of the new pair, then both: nothing is rejected.
        let mismatch = (second.0.clone(), first.1.clone());
        assert!(matches!(update(Ok(mismatch.clone())), Action::None));
        assert!(matches!(update(Ok(second)), Action::Use(_)));
        // A lasting mismatch is rejected once.
        assert!(matches!(update(Ok(mismatch.clone())), Action::None));
        assert!(matches!(update(Ok(mismatch.clone())), Action::Reject(_)));
        assert!(matches!(update(Ok(mismatch)), Action::None));
        let missing = || Err("cannot read".to_owned());
        assert!(matches!(update(missing()), Action::None));
        assert!(matches!(update(missing()), Action::Reject(_)));
        assert!(matches!(update(Ok(first)), Action::Use(_)));
    }

    #[test]
    fn rejects_expired_certificates() {
        let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2026, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let expired = (params.self_signed(&key).unwrap().pem(), key.serialize_pem());
        let mut watcher = Watcher::default();
        assert!(matches!(watcher.update(Ok(expired.clone()), now()), Action::None));
        let action = watcher.update(Ok(expired), now());
        let problem = "the certificate expired at 2026-01-01T00:00:00Z";
        assert!(matches!(&action, Action::Reject(it) if it == problem), "{action:?}");
    }
}
