//! A certificate from files, which somebody else renews: cert-manager, or whoever wrote the Secret.
//!
//! The files are read every two seconds and compared by content: kubelet replaces a mounted Secret by swapping a
//! symbolic link, of which watches on the files themselves hear nothing. Two files are not read at one instant, so a
//! pair that does not fit is looked at once more before it is refused.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::log;
use super::metrics::{CertificateChange, Metrics};
use super::resolver::{CertificateResolver, ServingCertificate, pair};
use super::validity::rfc3339;
use tokengauge_types::clock;

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(2);

/// The files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// What was read, or why not.
type Read = Result<(String, String), String>;

/// What was seen before.
#[derive(Debug, Default)]
struct Seen {
    last: Option<Read>,
    /// Whether it was taken or refused; if not, it is looked at once more.
    judged: bool,
}

/// What to do after a look.
#[derive(Debug)]
enum Step {
    Nothing,
    Show(ServingCertificate),
    Refuse(String),
}

impl Seen {
    fn look(&mut self, read: Read, now: u64) -> Step {
        let again = self.last.as_ref() == Some(&read);
        if again && self.judged {
            return Step::Nothing;
        }
        let usable = match &read {
            Ok((certificate, key)) => pair(certificate, key).and_then(|pair| holds(pair, now)),
            Err(problem) => Err(problem.clone()),
        };
        self.last = Some(read);
        self.judged = again || usable.is_ok();
        match usable {
            Ok(pair) => Step::Show(pair),
            Err(problem) if self.judged => Step::Refuse(problem),
            Err(_) => Step::Nothing,
        }
    }
}

fn holds(pair: ServingCertificate, now: u64) -> Result<ServingCertificate, String> {
    let until = pair.validity.until;
    if until <= now {
        return Err(format!("the certificate has ended at {}", rfc3339(until)));
    }
    Ok(pair)
}

/// Shows what the files hold, as long as this is polled.
pub async fn watch(
    files: CertificateFiles,
    serving: Arc<CertificateResolver>,
    metrics: Arc<Metrics>,
) {
    let mut seen = Seen::default();
    let mut turns = tokio::time::interval(INTERVAL);
    loop {
        turns.tick().await;
        let now = clock::wall_now().unix_nanos() / 1_000_000_000;
        match seen.look(read(&files), now) {
            Step::Nothing => {}
            Step::Show(pair) => {
                let until = rfc3339(pair.validity.until);
                serving.show(pair);
                metrics.changed(CertificateChange::Shown);
                log::CertificateShown { until: &until }.emit();
            }
            Step::Refuse(problem) => {
                metrics.changed(CertificateChange::Refused);
                let kept = serving.until().is_some();
                log::CertificateRefused { problem: &problem, kept }.emit();
            }
        }
    }
}

/// Both files are small, and on a node's own disk or memory.
fn read(files: &CertificateFiles) -> Read {
    let text = |path: &PathBuf| {
        std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    Ok((text(&files.certificate)?, text(&files.key)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn a_change_is_shown_once_and_a_broken_one_refused_at_the_second_look() {
        let (first, second) = (made(), made());
        let mut seen = Seen::default();
        let now = 1_795_366_800;
        assert!(matches!(seen.look(Ok(first.clone()), now), Step::Show(_)));
        assert!(matches!(seen.look(Ok(first.clone()), now), Step::Nothing));
        // Half of the new pair, then all of it: nothing is refused.
        let torn = (second.0.clone(), first.1.clone());
        assert!(matches!(seen.look(Ok(torn.clone()), now), Step::Nothing));
        assert!(matches!(seen.look(Ok(second), now), Step::Show(_)));
        // It stays broken: refused once.
        assert!(matches!(seen.look(Ok(torn.clone()), now), Step::Nothing));
        assert!(matches!(seen.look(Ok(torn.clone()), now), Step::Refuse(_)));
        assert!(matches!(seen.look(Ok(torn), now), Step::Nothing));
        let gone = || Err("cannot read".to_owned());
        assert!(matches!(seen.look(gone(), now), Step::Nothing));
        assert!(matches!(seen.look(gone(), now), Step::Refuse(_)));
        assert!(matches!(seen.look(Ok(first), now), Step::Show(_)));
    }

    #[test]
    fn what_has_ended_is_refused() {
        let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2026, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let ended = (params.self_signed(&key).unwrap().pem(), key.serialize_pem());
        let mut seen = Seen::default();
        assert!(matches!(seen.look(Ok(ended.clone()), 1_795_366_800), Step::Nothing));
        let refused = seen.look(Ok(ended), 1_795_366_800);
        let problem = "the certificate has ended at 2026-01-01T00:00:00Z";
        assert!(matches!(&refused, Step::Refuse(it) if it == problem), "{refused:?}");
    }
}
