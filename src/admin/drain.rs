//! Drains the proxy: clients move to other replicas, while every request is still served.
//!
//! 1. `/readyz` fails. Connections stay open for the time `delay`, so that load balancers can notice this.
//! 2. Each connection closes after its current or next response. New connections are still accepted.
//! 3. After the time `quiet` without a request in flight, idle connections are closed. If no new request arrives then,
//!    the drain is complete. The proxy continues to serve until the process is stopped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::config::value::DurationValue;
use tokengauge_listen::ConnectionDrain;
use tokengauge_observe::tee::ObservationChannel;
use tokengauge_telemetry::self_telemetry;

/// Maximum number of concurrent requests to start a drain. Callers are on this machine or have the token, so the limit
/// is enough for the hook of a pod and a few people. A separate limit applies to connections that wait for a drain.
const MAX_DRAIN_REQUESTS: usize = 8;

/// Maximum time that `/drained` waits for a drain to start. The stop hooks of a pod's containers run concurrently, so a
/// hook may wait before another hook starts the drain. On a busy node, that takes seconds. If only the engine restarts,
/// this wait delays its stop.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval at which the drain checks the number of requests in flight. It is short compared with the stop of a pod.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum value of `delay` and of `quiet`, 1 hour. A longer delay would block a deployment.
const MAX_DELAY: Duration = Duration::from_secs(3_600);

/// Maximum time that a caller waits. Longer values are reduced to this one.
const MAX_WAIT: Duration = Duration::from_secs(7 * 24 * 3_600);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct DrainOptions {
    /// Time for which connections stay open, so that load balancers can notice that the proxy is not ready.
    delay: Duration,
    /// Time without a request in flight after which the proxy counts as idle.
    quiet: Duration,
    /// Maximum time that the caller waits. The drain itself has no time limit.
    within: Duration,
}

impl Default for DrainOptions {
    /// Returns the default options. Kubernetes needs the default delay to remove the endpoint from every node.
    fn default() -> Self {
        Self { delay: Duration::from_secs(5), quiet: Duration::ZERO, within: MAX_WAIT }
    }
}

impl DrainOptions {
    /// Parses a query such as `delay=5s&quiet=0s&within=7d`.
    ///
    /// # Errors
    /// Returns a message for the caller.
    fn parse(query: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (field, max) = match key {
                "delay" => (&mut options.delay, Some(MAX_DELAY)),
                "quiet" => (&mut options.quiet, Some(MAX_DELAY)),
                "within" => (&mut options.within, None),
                _ => {
                    let hint =
                        "expected delay, quiet or within, such as ?delay=5s&quiet=0s&within=300s";
                    return Err(format!("unknown parameter \"{key}\"; {hint}"));
                }
            };
            let DurationValue(length) = value.parse().map_err(|error| format!("{key}: {error}"))?;
            if let Some(max) = max.filter(|max| length > *max) {
                return Err(format!("{key}: too long; write up to {}", DurationValue(max)));
            }
            *field = length.min(MAX_WAIT);
        }
        Ok(options)
    }
}

/// Time at which the drain started. Empty before the drain.
#[derive(Clone, Debug, Default)]
pub struct DrainStart(Arc<OnceLock<Instant>>);

impl DrainStart {
    /// Time since the start of the drain, or zero.
    pub fn elapsed(&self) -> Duration {
        self.0.get().map(Instant::elapsed).unwrap_or_default()
    }
}

/// The parts that a drain controls.
#[derive(Clone, Debug)]
pub struct DrainTarget {
    pub ready: Arc<AtomicBool>,
    pub start: DrainStart,
    pub channel: Arc<ObservationChannel>,
    pub connections: Arc<[ConnectionDrain]>,
}

/// Progress of the drain. The stage never moves back.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
enum DrainStage {
    #[default]
    None,
    Draining,
    /// No request was in flight for the time `quiet`, and idle connections are closed.
    Drained,
}

/// The result of waiting for a drain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum DrainOutcome {
    Drained,
    NotDraining,
    /// The caller's time limit has expired while the drain was still running.
    Overdue,
    TooManyRequests,
    InvalidQuery(String),
}

/// The drain of this process. `start` must be called on a tokio runtime.
#[derive(Debug)]
pub struct Drain {
    target: DrainTarget,
    stage: watch::Sender<DrainStage>,
    requests: Semaphore,
    /// The latest of all callers' time limits. `None` until there is a caller.
    deadline: watch::Sender<Option<Instant>>,
}

impl Drain {
    pub fn new(target: DrainTarget) -> Self {
        Self {
            target,
            stage: watch::Sender::new(DrainStage::None),
            requests: Semaphore::new(MAX_DRAIN_REQUESTS),
            deadline: watch::Sender::new(None),
        }
    }

    /// Starts the drain, or joins the drain in progress, and waits for the end. The query string contains the options.
    /// The drain continues if the caller disconnects.
    pub(super) async fn start(&self, query: &str) -> DrainOutcome {
        let options = match DrainOptions::parse(query) {
            Ok(options) => options,
            Err(message) => return DrainOutcome::InvalidQuery(message),
        };
        let is_first = self.stage.send_if_modified(|stage| {
            let is_first = *stage == DrainStage::None;
            *stage = (*stage).max(DrainStage::Draining);
            is_first
        });
        if is_first {
            self.target.ready.store(false, Ordering::Release);
            self.target.start.0.get_or_init(Instant::now);
            tokio::spawn(run(self.target.clone(), options, self.stage.clone()));
        }
        let deadline = Instant::now() + options.within;
        self.deadline.send_modify(|latest| *latest = (*latest).max(Some(deadline)));
        let Ok(_permit) = self.requests.try_acquire() else {
            return DrainOutcome::TooManyRequests;
        };
        let drained = self.wait_for_stage(DrainStage::Drained);
        match tokio::time::timeout_at(deadline, drained).await {
            Ok(()) => DrainOutcome::Drained,
            Err(_) => DrainOutcome::Overdue,
        }
    }

    /// Waits until the drain ends, or until the time limits of all callers of [`start`](Self::start) have expired.
    /// Returns earlier if no drain starts within [`START_TIMEOUT`].
    pub(super) async fn wait(&self) -> DrainOutcome {
        let started = self.wait_for_stage(DrainStage::Draining);
        if tokio::time::timeout(START_TIMEOUT, started).await.is_err() {
            return DrainOutcome::NotDraining;
        }
        tokio::select! {
            biased;
            () = self.wait_for_stage(DrainStage::Drained) => DrainOutcome::Drained,
            () = self.passes_deadline() => DrainOutcome::Overdue,
        }
    }

    /// Waits until the time limits of all callers of [`start`](Self::start) have expired.
    async fn passes_deadline(&self) {
        let mut latest = self.deadline.subscribe();
        loop {
            let deadline = *latest.borrow_and_update();
            let passed = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = passed => return,
                // The channel cannot be closed, because `self` holds the sender. So this event is a later deadline.
                _ = latest.changed() => {}
            }
        }
    }

    async fn wait_for_stage(&self, stage: DrainStage) {
        // Waiting cannot fail, because `self` holds the sender.
        drop(self.stage.subscribe().wait_for(|reached| *reached >= stage).await);
    }
}

async fn run(target: DrainTarget, options: DrainOptions, stage: watch::Sender<DrainStage>) {
    let DrainTarget { channel, connections, .. } = target;
    let DrainOptions { delay, quiet, within } = options;
    let start = Instant::now();
    self_telemetry::drain_started(channel.open_exchanges(), delay, quiet);
    tokio::time::sleep(delay).await;
    connections.iter().for_each(ConnectionDrain::close_after_exchange);
    self_telemetry::drain_closing_connections(channel.open_exchanges());
    let mut idle = IdlePeriod::default();
    let (mut closing_idle, mut is_overdue) = (false, false);
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        if !is_overdue && start.elapsed() >= within {
            is_overdue = true;
            self_telemetry::drain_timed_out(channel.open_exchanges(), within);
        }
        if !idle.has_lasted(channel.open_exchanges(), channel.opened(), quiet, Instant::now()) {
            continue;
        }
        if closing_idle {
            break;
        }
        connections.iter().for_each(ConnectionDrain::close_idle);
        closing_idle = true;
    }
    stage.send_replace(DrainStage::Drained);
    self_telemetry::drain_completed(start.elapsed());
}

/// Tracks how long no request has been in flight.
#[derive(Default)]
struct IdlePeriod {
    since: Option<Instant>,
    /// Number of requests that were opened before `since`.
    opened: u64,
}

impl IdlePeriod {
    /// Returns whether no request has been in flight for the time `quiet`. `open` requests are in flight now. `opened`
    /// requests have started so far. If `opened` changes between two polls, a short request was in flight, and the time
    /// starts again.
    fn has_lasted(&mut self, open: u64, opened: u64, quiet: Duration, now: Instant) -> bool {
        if open > 0 {
            self.since = None;
            return false;
        }
        let since = match self.since {
            Some(since) if opened == self.opened => since,
            Some(_) | None => now,
        };
        (self.since, self.opened) = (Some(since), opened);
        now.duration_since(since) >= quiet
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Waker};

    use super::*;
    use tokengauge_observe::tee;

    #[test]
    fn parses_queries_and_reports_errors() {
        let options = |delay, quiet| {
            let (delay, quiet) = (Duration::from_millis(delay), Duration::from_millis(quiet));
            Ok(DrainOptions { delay, quiet, within: MAX_WAIT })
        };
        let within = |query| DrainOptions::parse(query).unwrap().within;
        assert_eq!(within("within=300s"), Duration::from_secs(300));
        assert_eq!(within("within=30d"), MAX_WAIT);
        assert_eq!(DrainOptions::parse(""), options(5_000, 0));
        assert_eq!(DrainOptions::parse("quiet=250ms"), options(5_000, 250));
        assert_eq!(DrainOptions::parse("delay=0s&quiet=1h"), options(0, 3_600_000));
        for (query, expected) in [
            ("delay=5", "delay: \"5\" is missing a time unit; write a whole number and a unit"),
            ("quiet", "quiet: \"\" is n"),
            ("delay=2h", "delay: too long; write up to 1h"),
            ("dealy=5s", "unknown parameter \"dealy\"; expected delay, quiet or within"),
        ] {
            let error = DrainOptions::parse(query).unwrap_err();
            assert!(error.starts_with(expected), "{query}: {error}");
        }
    }

    #[test]
    fn open_and_finished_exchanges_end_an_idle_period() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let quiet = Duration::from_secs(5);
        let mut idle = IdlePeriod::default();
        assert!(!idle.has_lasted(1, 7, quiet, at(0)));
        assert!(!idle.has_lasted(0, 7, quiet, at(1)));
        assert!(!idle.has_lasted(0, 7, quiet, at(5)));
        assert!(idle.has_lasted(0, 7, quiet, at(6)));
        assert!(!idle.has_lasted(0, 8, quiet, at(7)), "an exchange opened and ended");
        assert!(!idle.has_lasted(0, 8, quiet, at(11)));
        assert!(!idle.has_lasted(2, 10, quiet, at(12)));
        assert!(idle.has_lasted(0, 10, Duration::ZERO, at(13)));
    }

    fn is_waiting(waiting: Pin<&mut impl Future<Output = DrainOutcome>>) -> bool {
        waiting.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[tokio::test]
    async fn drained_waits_as_long_as_the_last_drain_request() {
        let drain = Drain::new(DrainTarget {
            ready: Arc::default(),
            start: DrainStart::default(),
            channel: Arc::new(ObservationChannel::new(tee::ChannelConfig::default())),
            connections: Arc::default(),
        });
        let (started, waited) = tokio::join!(drain.start("delay=1h&within=0s"), drain.wait());
        assert_eq!((started, waited), (DrainOutcome::Overdue, DrainOutcome::Overdue));
        assert_eq!(drain.wait().await, DrainOutcome::Overdue, "a later call returns at once, too");
        let mut more = pin!(drain.start("within=1h"));
        assert!(is_waiting(more.as_mut()));
        assert_eq!(drain.start("delay=1h&within=0s").await, DrainOutcome::Overdue);
        let mut waiting = pin!(drain.wait());
        assert!(is_waiting(waiting.as_mut()), "another request still waits");
        drain.stage.send_replace(DrainStage::Drained);
        assert_eq!(more.await, DrainOutcome::Drained);
        assert_eq!(waiting.await, DrainOutcome::Drained);
    }
}
