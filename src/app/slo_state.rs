//! Keeps error budgets across restarts in a file. A thread writes the file periodically.
//!
//! The first line has a magic word, the version and the CRC-32 of the rest, which is the state as JSON. A new file gets
//! a temporary name and is then renamed, so that the file is always complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crate::config::Config;
use tokengauge_measure::slo::{CorruptState, Objective, Restored, Scope, SloState};
use tokengauge_observe::{InFlightRequests, Observer};
use tokengauge_telemetry::self_telemetry;
use tokengauge_types::clock;
use tokengauge_types::error::WithCauses;
use tokengauge_types::label::{Dimension, Label};

/// Interval between two writes. A crash loses the data of at most one interval, and a clean shutdown loses nothing.
/// Each write costs one `fsync`. It also blocks the observer while the counters are copied (16 KiB per objective).
const WRITE_INTERVAL: Duration = Duration::from_secs(30);

/// The start of the first line.
const MAGIC: &str = "tokengauge-slo-state";

/// Longer than any valid first line.
const MAX_FIRST_LINE: usize = 64;

/// Maximum size of the state file in bytes: 2,000 objectives of up to 30 KB. A larger file is not a state file.
const MAX_BYTES: u64 = 64 << 20;

/// Maximum number of rejected files that are kept. Each one is the result of a disk error or a user error, so more of
/// them need attention.
const MAX_REJECTED_FILES: usize = 100;

/// Permissions of the state file. Other users cannot read the file, because it contains names of models, routes and
/// tenants.
const MODE: u32 = 0o640;

/// The reason why the state file prevents the start of the proxy.
#[derive(Debug, thiserror::Error)]
pub enum SloStateError {
    #[error("slo_state: {0} is not a regular file; write the path of one")]
    NotAFile(PathBuf),
    #[error("slo_state: {0} is invalid ({reason}) and cannot be renamed: {2}; move it away", reason = WithCauses(.1))]
    CannotRename(PathBuf, Rejection, io::Error),
    #[error("slo_state: cannot write {0}")]
    Unwritable(PathBuf, #[source] io::Error),
    #[error("slo_state: cannot start the writer thread")]
    Thread(#[source] io::Error),
}

/// Why a file is rejected.
#[derive(Debug, thiserror::Error)]
pub enum Rejection {
    #[error("cannot read the file")]
    Unreadable(#[from] io::Error),
    #[error("larger than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("not written by this program")]
    Foreign,
    #[error("unsupported version {0}; this release reads version {version}", version = SloState::VERSION)]
    Version(String),
    #[error("wrong checksum; the file was truncated or modified")]
    Damaged,
    #[error("invalid content")]
    InvalidJson(#[from] serde_json::Error),
    #[error(transparent)]
    Malformed(#[from] CorruptState),
}

/// Reads the file at `path` into `requests`, if the file exists. Then writes the file, so that a missing permission is
/// found before there is data to lose.
pub(super) fn restore(path: &Path, requests: &mut InFlightRequests) -> Result<(), SloStateError> {
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(SloStateError::NotAFile(path.to_owned()));
    }
    match read_into(path, requests) {
        Ok(None) => {}
        Ok(Some(restored)) => self_telemetry::slo_state_restored(
            restored.objectives,
            restored.down,
            restored.set_back,
        ),
        Err(rejection) => match rename_rejected(path) {
            Ok(renamed) => self_telemetry::slo_state_rejected(&rejection, &renamed),
            Err(error) => {
                return Err(SloStateError::CannotRename(path.to_owned(), rejection, error));
            }
        },
    }
    let state = requests.slos().state(clock::now(), clock::wall_now());
    write(path, &state).map_err(|error| SloStateError::Unwritable(path.to_owned(), error))
}

fn read_into(path: &Path, requests: &mut InFlightRequests) -> Result<Option<Restored>, Rejection> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Rejection::TooLarge);
    }
    let state = decode(&bytes)?;
    let restored = requests.slos().restore(&state, clock::now(), clock::wall_now())?;
    Ok(Some(restored))
}

/// Decodes the state. Checks version and checksum first.
fn decode(bytes: &[u8]) -> Result<SloState, Rejection> {
    let end = memchr::memchr(b'\n', bytes.get(..MAX_FIRST_LINE).unwrap_or(bytes));
    let (line, rest) = end.and_then(|end| bytes.split_at_checked(end)).ok_or(Rejection::Foreign)?;
    let body = rest.get(1..).unwrap_or_default();
    let line = str::from_utf8(line).map_err(|_| Rejection::Foreign)?;
    let mut words = line.split(' ');
    let (Some(MAGIC), Some(version), Some(sum), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Rejection::Foreign);
    };
    if version != SloState::VERSION.to_string() {
        return Err(Rejection::Version(version.to_owned()));
    }
    if sum != checksum(body) {
        return Err(Rejection::Damaged);
    }
    Ok(serde_json::from_slice(body)?)
}

fn encode(state: &SloState) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(state)?;
    let line = format!("{MAGIC} {} {}\n", SloState::VERSION, checksum(&body));
    Ok([line.into_bytes(), body].concat())
}

fn checksum(body: &[u8]) -> String {
    format!("{:08x}", crc32fast::hash(body))
}

/// Replaces the file atomically, even if the machine loses power.
fn write(path: &Path, state: &SloState) -> io::Result<()> {
    let bytes = encode(state)?;
    let temporary = with_suffix(path, ".tmp");
    // A file that a crash has left there. If it is a symbolic link, only the link is removed.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // `create_new` does not follow a symbolic link.
    let mut options = OpenOptions::new();
    let mut file = options.create_new(true).write(true).mode(MODE).open(&temporary)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Renames the file to an unused name.
fn rename_rejected(path: &Path) -> io::Result<PathBuf> {
    for number in 1..=MAX_REJECTED_FILES {
        let renamed = with_suffix(path, &format!(".refused.{number}"));
        if !renamed.try_exists()? {
            fs::rename(path, &renamed)?;
            return Ok(renamed);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!("there are {MAX_REJECTED_FILES} rejected files already"),
    ))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Returns the models and tenants that objectives name without a wildcard. Their labels are reserved.
pub(super) fn reserved_labels(config: &Config) -> Vec<(Dimension, Label)> {
    let named = |objective: &Objective| {
        let Scope { model, tenant, .. } = objective.scope.clone();
        let of = |dimension| move |text| (dimension, text);
        let model = model.map(of(Dimension::Model));
        [model, tenant.map(of(Dimension::Tenant))]
    };
    let named = config.slos.iter().flat_map(named).flatten();
    named
        .filter(|(_, text)| !text.contains('*'))
        .map(|(dimension, text)| (dimension, Label::from_trusted(&text)))
        .collect()
}

/// The thread that writes the file.
#[derive(Debug)]
pub(super) struct SloStateWriter {
    /// Stop signal. Dropping the sender ends the thread after a last write.
    stop: SyncSender<()>,
    last_result: Receiver<io::Result<()>>,
}

impl SloStateWriter {
    pub(super) fn start(path: PathBuf, observer: Arc<Observer>) -> Result<Self, SloStateError> {
        let (stop, stop_receiver) = sync_channel(0);
        let (result_sender, last_result) = sync_channel(1);
        let run = move || {
            let mut is_failing = false;
            loop {
                let is_last = match stop_receiver.recv_timeout(WRITE_INTERVAL) {
                    Err(RecvTimeoutError::Timeout) => false,
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => true,
                };
                let state = observer.with_current_state(|requests, at| {
                    requests.slos().state(at, clock::wall_now())
                });
                let written = write(&path, &state);
                log_transition(&written, &mut is_failing);
                if is_last {
                    // Sending fails if the app was dropped without a shutdown, because there is no receiver.
                    drop(result_sender.send(written));
                    return;
                }
            }
        };
        let builder = thread::Builder::new().name("slo-state".into());
        builder.spawn(run).map_err(SloStateError::Thread)?;
        Ok(Self { stop, last_result })
    }

    /// Writes the state a last time and ends the thread. Returns whether the write succeeded within `timeout`.
    pub(super) fn stop(self, timeout: Duration) -> bool {
        drop(self.stop);
        matches!(self.last_result.recv_timeout(timeout), Ok(Ok(())))
    }
}

/// Logs the first failed write of the state file and the first successful write afterwards. Repeated failures are not
/// logged.
fn log_transition(written: &io::Result<()>, is_failing: &mut bool) {
    match (written, *is_failing) {
        (Err(error), false) => self_telemetry::slo_state_write_failed(error),
        (Ok(()), true) => self_telemetry::slo_state_write_recovered(),
        (Err(_), true) | (Ok(()), false) => {}
    }
    *is_failing = written.is_err();
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_measure::record::Verdict;
    use tokengauge_measure::slo::{CountingRules, Sli, SloTracker, WeightedVerdict};
    use tokengauge_types::clock::{MonotonicInstant, WallTime};

    fn ledger() -> SloTracker {
        let objective = Objective {
            name: Label::from_trusted("a"),
            indicator: Sli::Availability,
            target: 0.999,
            window: Duration::from_secs(86_400),
            scope: Scope::default(),
            counting: CountingRules::default(),
        };
        SloTracker::new(vec![objective])
    }

    fn state(bad: u64) -> SloState {
        let mut ledger = ledger();
        let judged = WeightedVerdict { verdict: Verdict::Bad, events: bad };
        let at = MonotonicInstant::from_secs(100);
        ledger.record(at, 0, judged);
        ledger.state(at, WallTime::from_unix_nanos(1))
    }

    #[test]
    fn reads_what_it_writes_and_leaves_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        for bad in [1, 2] {
            write(&path, &state(bad)).unwrap();
            let read = decode(&fs::read(&path).unwrap()).unwrap();
            assert_eq!(read, state(bad));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn does_not_write_through_a_link_at_the_temporary_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("victim"), "kept").unwrap();
        std::os::unix::fs::symlink(path("victim"), path("state.tmp")).unwrap();
        write(&path("state"), &state(1)).unwrap();
        assert_eq!(fs::read_to_string(path("victim")).unwrap(), "kept");
        assert!(fs::symlink_metadata(path("state")).unwrap().is_file());
    }

    #[test]
    fn detects_every_changed_byte() {
        let whole = encode(&state(7)).unwrap();
        for place in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[place] ^= 1;
            assert!(decode(&bytes).is_err(), "{place}");
            assert!(decode(&whole[..place]).is_err(), "cut at {place}");
        }
    }

    #[test]
    fn explains_why_a_file_is_rejected() {
        let message = |bytes: &[u8]| WithCauses(&decode(bytes).unwrap_err()).to_string();
        let text = String::from_utf8(encode(&state(7)).unwrap()).unwrap();
        assert!(message(b"").contains("not written by this program"));
        assert!(message(&vec![b'x'; 1_000]).contains("not written by this program"));
        assert!(message(b"tokengauge-slo-state 1\n{}").contains("not written by this program"));
        let later = text.replacen(" 1 ", " 2 ", 1);
        assert_eq!(
            message(later.as_bytes()),
            "unsupported version 2; this release reads version 1"
        );
        let changed = text.replacen(",7]", ",8]", 1);
        assert!(changed != text && message(changed.as_bytes()).contains("checksum"));
        let body = b"{\"books\":1}";
        let other = format!("{MAGIC} 1 {}\n{}", checksum(body), "{\"books\":1}");
        assert!(message(other.as_bytes()).contains("unknown field `books`"));
    }

    #[test]
    fn keeps_every_rejected_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        for number in 1..=2 {
            fs::write(&path, number.to_string()).unwrap();
            let renamed = rename_rejected(&path).unwrap();
            assert_eq!(renamed, folder.path().join(format!("state.refused.{number}")));
            assert!(!path.exists());
            assert_eq!(fs::read_to_string(renamed).unwrap(), number.to_string());
        }
    }

    #[test]
    fn reports_a_missing_folder() {
        let folder = tempfile::tempdir().unwrap();
        let error = write(&folder.path().join("no/state"), &state(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
