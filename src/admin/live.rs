//! Pushes the state of the process to the viewers of the console, once a second, as server-sent events.
//!
//! One task computes the state for all viewers. The task runs while there is a viewer.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokengauge_console::document::{Delta, Snapshot};
use tokengauge_types::sync::lock;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// Maximum number of viewers: the people of a team during an incident.
pub const MAX_VIEWERS: usize = 32;

/// Interval between two events.
const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum age, in intervals, of a state that is shown while the observer is busy. The state contains its time.
const MAX_AGE: u32 = 60;

/// Number of events that wait for a viewer that reads slowly. A viewer that is further behind is disconnected, and then
/// connects again. An event of a busy process has up to 2 MB.
const MAX_WAITING_EVENTS: usize = 4;

/// Computes the state of the process. `None` if the observer is too busy.
pub type ReadState = Box<dyn Fn() -> Option<Snapshot> + Send + Sync>;

/// The viewers and the state that they have.
#[expect(missing_debug_implementations, reason = "closures have no Debug")]
pub struct LiveFeed {
    read: ReadState,
    /// False while the process drains. The feed is closed then, so that viewers move to another replica.
    ready: Arc<AtomicBool>,
    viewers: Mutex<Viewers>,
    /// The latest state and when it was read, for requests while the observer is busy. One document, of up to 2 MB.
    latest: Mutex<Option<(Instant, Arc<Snapshot>)>>,
    /// Notified when a viewer waits for its first event.
    joined: Notify,
    /// [`INTERVAL`], or less in tests.
    interval: Duration,
}

#[derive(Debug, Default)]
struct Viewers {
    list: Vec<Viewer>,
    /// The state that the viewers have. `None` if no task runs.
    state: Option<Arc<Snapshot>>,
    is_running: bool,
}

#[derive(Debug)]
struct Viewer {
    events: mpsc::Sender<Bytes>,
    has_snapshot: bool,
}

/// Why a viewer cannot connect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    TooManyViewers,
    Draining,
}

impl LiveFeed {
    pub fn new(read: ReadState, ready: Arc<AtomicBool>) -> Self {
        let (viewers, latest, joined) = (Mutex::default(), Mutex::default(), Notify::new());
        Self { read, ready, viewers, latest, joined, interval: INTERVAL }
    }

    /// Returns the current state: the one that the viewers have, or a new one if there are none. If the observer is too
    /// busy, returns the latest state, unless it is older than a minute.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        let known = lock(&self.viewers).state.clone();
        known.or_else(|| self.read_state()).or_else(|| {
            let latest = lock(&self.latest).clone();
            let is_recent = |at: Instant| at.elapsed() <= MAX_AGE * self.interval;
            latest.filter(|(at, _)| is_recent(*at)).map(|(_, state)| state)
        })
    }

    fn read_state(&self) -> Option<Arc<Snapshot>> {
        let state = Arc::new((self.read)()?);
        *lock(&self.latest) = Some((Instant::now(), Arc::clone(&state)));
        Some(state)
    }

    /// Adds a viewer. Returns its events.
    pub fn connect(self: Arc<Self>) -> Result<EventStream, Refusal> {
        if !self.is_open() {
            return Err(Refusal::Draining);
        }
        let (events, stream) = mpsc::channel(MAX_WAITING_EVENTS);
        let mut viewers = lock(&self.viewers);
        viewers.list.retain(|viewer| !viewer.events.is_closed());
        if viewers.list.len() >= MAX_VIEWERS {
            return Err(Refusal::TooManyViewers);
        }
        viewers.list.push(Viewer { events, has_snapshot: false });
        if !std::mem::replace(&mut viewers.is_running, true) {
            tokio::spawn(Arc::clone(&self).run());
        }
        drop(viewers);
        self.joined.notify_one();
        Ok(EventStream(stream))
    }

    fn is_open(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Serves the viewers until the last one has left, or until the process drains.
    async fn run(self: Arc<Self>) {
        let mut next = Instant::now();
        while self.has_viewers() {
            let is_due = Instant::now() >= next;
            let feed = Arc::clone(&self);
            let served = tokio::task::spawn_blocking(move || match is_due {
                true => feed.send_change(),
                false => feed.send_snapshots(),
            });
            if served.await.is_err() {
                // After a panic, the viewers connect again.
                *lock(&self.viewers) = Viewers::default();
                return;
            }
            if is_due {
                next = Instant::now() + self.interval;
            }
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                () = self.joined.notified() => {}
            }
        }
    }

    /// Returns whether the task must go on. Otherwise ends all streams, and forgets the state.
    fn has_viewers(&self) -> bool {
        let mut viewers = lock(&self.viewers);
        viewers.list.retain(|viewer| !viewer.events.is_closed());
        let goes_on = self.is_open() && !viewers.list.is_empty();
        if !goes_on {
            *viewers = Viewers::default();
        }
        goes_on
    }

    /// Computes the state, and sends its changes. Only the task calls this method, so that no other event comes in
    /// between.
    fn send_change(&self) {
        let Some(new) = self.read_state() else { return };
        let former = lock(&self.viewers).state.clone();
        if former.as_ref().is_some_and(|it| it.history.last_interval > new.history.last_interval) {
            // The clock was set back, which no change can express. The viewers connect again.
            *lock(&self.viewers) = Viewers { is_running: true, ..Viewers::default() };
            return;
        }
        let delta = former.map(|former| event("delta", &Delta::between(&former, &new)));
        let mut viewers = lock(&self.viewers);
        viewers.state = Some(new);
        if let Some(delta) = delta {
            viewers.list.retain(|viewer| !viewer.has_snapshot || viewer.send(&delta));
        }
        drop(viewers);
        self.send_snapshots();
    }

    /// Sends the whole state to each viewer that has none.
    fn send_snapshots(&self) {
        let viewers = lock(&self.viewers);
        let waiting = viewers.list.iter().any(|viewer| !viewer.has_snapshot);
        let Some(state) = viewers.state.clone().filter(|_| waiting) else { return };
        drop(viewers);
        let snapshot = event("snapshot", &*state);
        let mut viewers = lock(&self.viewers);
        viewers.list.retain_mut(|viewer| {
            std::mem::replace(&mut viewer.has_snapshot, true) || viewer.send(&snapshot)
        });
    }
}

impl Viewer {
    /// Sends an event. Returns whether the viewer keeps up.
    fn send(&self, event: &Bytes) -> bool {
        self.events.try_send(Bytes::clone(event)).is_ok()
    }
}

/// Formats a server-sent event. JSON has no line breaks outside of strings, and escapes those inside.
fn event(name: &str, data: &impl serde::Serialize) -> Bytes {
    let mut text = format!("event: {name}\ndata: ").into_bytes();
    // Plain structs, strings and numbers always serialise.
    drop(serde_json::to_writer(&mut text, data));
    text.extend_from_slice(b"\n\n");
    text.into()
}

/// The body of a response with server-sent events.
#[derive(Debug)]
pub struct EventStream(mpsc::Receiver<Bytes>);

impl Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|event| Some(Ok(Frame::data(event?))))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use http_body_util::BodyExt;

    use super::*;

    /// A feed that counts its computations in the sequence number.
    fn feed() -> (Arc<LiveFeed>, Arc<AtomicU64>, Arc<AtomicBool>) {
        let computed = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&computed);
        let ready = Arc::new(AtomicBool::new(true));
        let read: ReadState = Box::new(move || {
            let sequence = count.fetch_add(1, Ordering::Relaxed) + 1;
            Some(Snapshot { sequence, ..Snapshot::default() })
        });
        let feed = LiveFeed::new(read, Arc::clone(&ready));
        let interval = Duration::from_millis(200);
        (Arc::new(LiveFeed { interval, ..feed }), computed, ready)
    }

    async fn next(stream: &mut EventStream) -> Option<(String, serde_json::Value)> {
        let frame = stream.frame().await?.unwrap();
        let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
        let (name, data) = text.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
        let data = data.strip_suffix("\n\n").unwrap();
        assert!(!data.contains('\n'));
        Some((name.to_owned(), serde_json::from_str(data).unwrap()))
    }

    #[tokio::test]
    async fn all_viewers_share_one_computation_per_interval() {
        let (feed, computed, _) = feed();
        let mut viewers: Vec<_> =
            (0..MAX_VIEWERS).map(|_| Arc::clone(&feed).connect().unwrap()).collect();
        assert_eq!(Arc::clone(&feed).connect().unwrap_err(), Refusal::TooManyViewers);
        let mut seen = Vec::new();
        for viewer in &mut viewers {
            let (name, state) = next(viewer).await.unwrap();
            assert_eq!(name, "snapshot");
            seen.push(state["sequence"].as_u64().unwrap());
        }
        for _ in 0..3 {
            for (viewer, seen) in viewers.iter_mut().zip(&mut seen) {
                let (name, state) = next(viewer).await.unwrap();
                assert_eq!((&*name, state["sequence"].as_u64().unwrap()), ("delta", *seen + 1));
                *seen += 1;
            }
        }
        let computed = computed.load(Ordering::Relaxed);
        assert!(computed <= seen.iter().max().unwrap() + MAX_WAITING_EVENTS as u64 + 1);
        viewers.pop();
        let mut late = Arc::clone(&feed).connect().unwrap();
        let (name, state) = next(&mut late).await.unwrap();
        assert_eq!(name, "snapshot");
        let (_, after) = next(&mut late).await.unwrap();
        assert_eq!(after["sequence"].as_u64(), state["sequence"].as_u64().map(|it| it + 1));
    }

    #[tokio::test]
    async fn nothing_is_computed_without_viewers() {
        let (feed, computed, _) = feed();
        assert_eq!(computed.load(Ordering::Relaxed), 0);
        let mut viewer = Arc::clone(&feed).connect().unwrap();
        next(&mut viewer).await.unwrap();
        drop(viewer);
        while lock(&feed.viewers).is_running {
            tokio::time::sleep(feed.interval).await;
        }
        let before = computed.load(Ordering::Relaxed);
        tokio::time::sleep(5 * feed.interval).await;
        assert_eq!(computed.load(Ordering::Relaxed), before);
        assert!(lock(&feed.viewers).state.is_none(), "no state is kept");
    }

    #[tokio::test]
    async fn a_busy_observer_is_shown_by_its_latest_state() {
        let computed = AtomicU64::new(0);
        let read: ReadState = Box::new(move || {
            let is_first = computed.fetch_add(1, Ordering::Relaxed) == 0;
            is_first.then(|| Snapshot { sequence: 7, ..Snapshot::default() })
        });
        let mut feed = LiveFeed::new(read, Arc::new(AtomicBool::new(true)));
        for _ in 0..2 {
            assert_eq!(feed.snapshot().unwrap().sequence, 7);
        }
        feed.interval = Duration::ZERO;
        assert!(feed.snapshot().is_none(), "too old");
    }

    #[tokio::test]
    async fn a_slow_viewer_is_disconnected_and_its_events_are_bounded() {
        let (feed, _, _) = feed();
        let mut slow = Arc::clone(&feed).connect().unwrap();
        let mut quick = Arc::clone(&feed).connect().unwrap();
        for _ in 0..20 {
            next(&mut quick).await.unwrap();
        }
        let mut events = 0;
        while next(&mut slow).await.is_some() {
            events += 1;
        }
        assert_eq!(events, MAX_WAITING_EVENTS);
        next(&mut quick).await.unwrap();
    }

    #[tokio::test]
    async fn streams_end_when_the_process_drains() {
        let (feed, _, ready) = feed();
        let mut viewer = Arc::clone(&feed).connect().unwrap();
        next(&mut viewer).await.unwrap();
        ready.store(false, Ordering::Release);
        while next(&mut viewer).await.is_some() {}
        assert_eq!(Arc::clone(&feed).connect().unwrap_err(), Refusal::Draining);
    }
}
