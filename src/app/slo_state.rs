//! Error budgets over a restart: a file that is read at the start, and written now and then by a thread of its own.
//!
//! The file is one line that says what it is, its version and the CRC-32 of the rest, and then the books as JSON. It is
//! written beside its place and moved there, so that there is a whole one at any time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crate::config::Config;
use tokengauge_measure::slo::{Malformed, Objective, Restored, Scope, State};
use tokengauge_observe::{InFlightRequests, Observer};
use tokengauge_telemetry::self_telemetry;
use tokengauge_types::clock;
use tokengauge_types::label::{Dimension, Label};

/// Between two writings. A crash loses as much; an orderly end loses nothing. Each costs a lock of the requests for as long
/// as its counters take to copy (16 KiB for each objective), and one `fsync`.
const EVERY: Duration = Duration::from_secs(30);

/// What the first line begins with.
const MARK: &str = "tokengauge-slo-state";

/// Longer than any first line that this program writes.
const LONGEST_MARK: usize = 64;

/// An objective that is busy in each slot takes some 30 KB: this is two thousand of them. Whatever is larger is some
/// other file.
const LARGEST: u64 = 64 << 20;

/// Refused files that are kept aside. One is put there for each fault of a disk or a hand, so more than a few are a fault
/// that somebody has to look at.
const MOST_ASIDE: usize = 100;

/// For its owner and for a group that looks after it: names of models, routes and tenants are in it.
const MODE: u32 = 0o640;

/// Why the proxy cannot start with the file that is named.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("slo_state: {0} is no regular file; write the path of one")]
    NoFile(PathBuf),
    #[error("slo_state: {0} is refused ({1}) and cannot be put aside: {2}; move it away")]
    InTheWay(PathBuf, Refused, io::Error),
    #[error("slo_state: {0} cannot be written: {1}")]
    Unwritable(PathBuf, io::Error),
    #[error("slo_state: its thread cannot be started: {0}")]
    Thread(io::Error),
}

/// Why a file is not taken up.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("it is larger than {LARGEST} bytes")]
    TooLarge,
    #[error("it is no file of this program's")]
    Foreign,
    #[error("it is of version {0}, and this program reads version {version}", version = State::VERSION)]
    Version(String),
    #[error("its checksum is wrong: it was cut off or changed")]
    Damaged,
    #[error("its content cannot be read: {0}")]
    Unlike(#[from] serde_json::Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Reads the file at `path`, if there is one, into `requests`, and writes it anew: what cannot be written is told before
/// there is anything to lose.
pub(super) fn take_up(path: &Path, requests: &mut InFlightRequests) -> Result<(), Error> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(Error::NoFile(path.to_owned()));
    }
    match read_into(path, requests) {
        Ok(None) => {}
        Ok(Some(restored)) => self_telemetry::slo_state_restored(
            restored.objectives,
            restored.down,
            restored.set_back,
        ),
        Err(refused) => match put_aside(path) {
            Ok(aside) => self_telemetry::slo_state_rejected(&refused, &aside),
            Err(error) => return Err(Error::InTheWay(path.to_owned(), refused, error)),
        },
    }
    let state = requests.slo_state(clock::now(), clock::wall_now());
    write(path, &state).map_err(|error| Error::Unwritable(path.to_owned(), error))
}

fn read_into(path: &Path, requests: &mut InFlightRequests) -> Result<Option<Restored>, Refused> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(Refused::TooLarge);
    }
    let state = decode(&bytes)?;
    let restored = requests.restore_slo_state(&state, clock::now(), clock::wall_now())?;
    Ok(Some(restored))
}

/// The file's own bytes are checked before they are parsed, and its version before its content.
fn decode(bytes: &[u8]) -> Result<State, Refused> {
    let end = memchr::memchr(b'\n', bytes.get(..LONGEST_MARK).unwrap_or(bytes));
    let (line, rest) = end.and_then(|end| bytes.split_at_checked(end)).ok_or(Refused::Foreign)?;
    let body = rest.get(1..).unwrap_or_default();
    let line = str::from_utf8(line).map_err(|_| Refused::Foreign)?;
    let mut words = line.split(' ');
    let (Some(MARK), Some(version), Some(sum), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Refused::Foreign);
    };
    if version != State::VERSION.to_string() {
        return Err(Refused::Version(version.to_owned()));
    }
    if sum != checksum(body) {
        return Err(Refused::Damaged);
    }
    Ok(serde_json::from_slice(body)?)
}

fn encode(state: &State) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(state)?;
    let line = format!("{MARK} {} {}\n", State::VERSION, checksum(&body));
    Ok([line.into_bytes(), body].concat())
}

fn checksum(body: &[u8]) -> String {
    format!("{:08x}", crc32fast::hash(body))
}

/// Whole or not at all, also when the machine loses power.
fn write(path: &Path, state: &State) -> io::Result<()> {
    let bytes = encode(state)?;
    let beside = with_ending(path, ".tmp");
    let mut options = OpenOptions::new();
    let mut file = options.create(true).write(true).truncate(true).mode(MODE).open(&beside)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Moves the file to a name that nothing has.
fn put_aside(path: &Path) -> io::Result<PathBuf> {
    for number in 1..=MOST_ASIDE {
        let aside = with_ending(path, &format!(".refused.{number}"));
        if !aside.try_exists()? {
            fs::rename(path, &aside)?;
            return Ok(aside);
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{MOST_ASIDE} were put aside before")))
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Models and tenants that objectives name without a pattern have their label whatever else arrives.
pub(super) fn reserved(config: &Config) -> Vec<(Dimension, Label)> {
    let named = |objective: &Objective| {
        let Scope { model, tenant, .. } = objective.scope.clone();
        let of = |dimension| move |text| (dimension, text);
        let model = model.map(of(Dimension::Model));
        [model, tenant.map(of(Dimension::Tenant))]
    };
    let named = config.objectives.iter().flat_map(named).flatten();
    named
        .filter(|(_, text)| !text.contains('*'))
        .map(|(dimension, text)| (dimension, Label::known(&text)))
        .collect()
}

/// The thread that writes.
#[derive(Debug)]
pub(super) struct SloStateWriter {
    /// Dropped, it has the thread write once more and end.
    stop: SyncSender<()>,
    ended: Receiver<io::Result<()>>,
}

impl SloStateWriter {
    pub(super) fn start(path: PathBuf, observer: Arc<Observer>) -> Result<Self, Error> {
        let (stop, stopping) = sync_channel(0);
        let (end, ended) = sync_channel(1);
        let keep = move || {
            let mut fails = false;
            loop {
                let last = match stopping.recv_timeout(EVERY) {
                    Err(RecvTimeoutError::Timeout) => false,
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => true,
                };
                let state = observer
                    .with_current_state(|requests, at| requests.slo_state(at, clock::wall_now()));
                let written = write(&path, &state);
                tell(&written, &mut fails);
                if last {
                    // Nobody waits for it where the app was dropped without a shutdown.
                    drop(end.send(written));
                    return;
                }
            }
        };
        let builder = thread::Builder::new().name("slo-state".into());
        builder.spawn(keep).map_err(Error::Thread)?;
        Ok(Self { stop, ended })
    }

    /// Writes once more, for at most `bound`, and ends the thread. True where it was written.
    pub(super) fn stop(self, bound: Duration) -> bool {
        drop(self.stop);
        matches!(self.ended.recv_timeout(bound), Ok(Ok(())))
    }
}

/// Said when writing begins to fail and when it works again, not at every attempt in between.
fn tell(written: &io::Result<()>, fails: &mut bool) {
    match (written, *fails) {
        (Err(error), false) => self_telemetry::slo_state_write_failed(error),
        (Ok(()), true) => self_telemetry::slo_state_write_recovered(),
        (Err(_), true) | (Ok(()), false) => {}
    }
    *fails = written.is_err();
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_measure::record::Verdict;
    use tokengauge_measure::slo::{Counting, Indicator, Judged, Ledger};
    use tokengauge_types::clock::{Moment, Wall};

    fn ledger() -> Ledger {
        let objective = Objective {
            name: Label::known("a"),
            indicator: Indicator::Availability,
            target: 0.999,
            window: Duration::from_secs(86_400),
            scope: Scope::default(),
            counting: Counting::default(),
        };
        Ledger::new(vec![objective])
    }

    fn state(bad: u64) -> State {
        let mut ledger = ledger();
        let judged = Judged { verdict: Verdict::Bad, events: bad };
        let at = Moment::from_secs(100);
        ledger.note(at, 0, judged);
        ledger.state(at, Wall::from_unix_nanos(1))
    }

    #[test]
    fn what_is_written_is_read_again_and_nothing_is_left_beside_it() {
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
    fn every_change_of_a_byte_is_noticed() {
        let whole = encode(&state(7)).unwrap();
        for place in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[place] ^= 1;
            assert!(decode(&bytes).is_err(), "{place}");
            assert!(decode(&whole[..place]).is_err(), "cut at {place}");
        }
    }

    #[test]
    fn why_it_is_refused_is_said() {
        let told = |bytes: &[u8]| decode(bytes).unwrap_err().to_string();
        let text = String::from_utf8(encode(&state(7)).unwrap()).unwrap();
        assert!(told(b"").contains("no file of this program's"));
        assert!(told(&vec![b'x'; 1_000]).contains("no file of this program's"));
        assert!(told(b"tokengauge-slo-state 1\n{}").contains("no file of this program's"));
        let later = text.replacen(" 1 ", " 2 ", 1);
        assert_eq!(told(later.as_bytes()), "it is of version 2, and this program reads version 1");
        let changed = text.replacen(",7]", ",8]", 1);
        assert!(changed != text && told(changed.as_bytes()).contains("checksum"));
        let body = b"{\"books\":1}";
        let other = format!("{MARK} 1 {}\n{}", checksum(body), "{\"books\":1}");
        assert!(told(other.as_bytes()).contains("unknown field `books`"));
    }

    #[test]
    fn what_is_refused_is_put_aside_and_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        for number in 1..=2 {
            fs::write(&path, number.to_string()).unwrap();
            let aside = put_aside(&path).unwrap();
            assert_eq!(aside, folder.path().join(format!("state.refused.{number}")));
            assert!(!path.exists());
            assert_eq!(fs::read_to_string(aside).unwrap(), number.to_string());
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let told = write(&folder.path().join("no/state"), &state(1)).unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::NotFound);
    }
}
