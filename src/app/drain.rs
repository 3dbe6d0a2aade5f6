//! Draining: clients move to other replicas while every request is still served.
//!
//! 1. `/readyz` fails at once. For `delay`, connections are handled as before, until load balancers have noticed.
//! 2. Each connection closes after its current or next exchange. New connections are still accepted.
//! 3. When nothing has been in flight for `quiet`, idle connections are closed. If no request arrives during
//!    that, the proxy is drained. It continues to serve until it is stopped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::admin::{self, DrainStage};
use crate::config::value::DurationValue;
use tokengauge_listen::ConnectionDrain;
use tokengauge_observe::tee::ObservationChannel;
use tokengauge_telemetry::self_telemetry;

/// Polling interval of the number of open exchanges. Small compared with the time that stopping a pod takes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A longer delay would block a deployment.
const MAX_DELAY: Duration = Duration::from_secs(3_600);

/// Longer waits are cut to this.
const MAX_WAIT: Duration = Duration::from_secs(7 * 24 * 3_600);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct DrainOptions {
    /// How long connections are kept as before, until load balancers have noticed that the proxy is not ready.
    delay: Duration,
    /// How long nothing must have been in flight.
    quiet: Duration,
    /// How long the caller waits. The drain continues after that.
    within: Duration,
}

impl Default for DrainOptions {
    /// Kubernetes removes an endpoint from every node within a few seconds.
    fn default() -> Self {
        Self { delay: Duration::from_secs(5), quiet: Duration::ZERO, within: MAX_WAIT }
    }
}

impl DrainOptions {
    /// Parses a query such as `delay=5s&quiet=0s&within=7d`. The error is a message for the caller.
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

/// When the drain started, if it has.
#[derive(Clone, Debug, Default)]
pub(super) struct DrainStart(Arc<OnceLock<Instant>>);

impl DrainStart {
    /// Zero before the drain.
    pub(super) fn elapsed(&self) -> Duration {
        self.0.get().map(Instant::elapsed).unwrap_or_default()
    }
}

/// What a drain acts on.
#[derive(Clone, Debug)]
pub(super) struct DrainTarget {
    pub(super) ready: Arc<AtomicBool>,
    pub(super) start: DrainStart,
    pub(super) channel: Arc<ObservationChannel>,
    pub(super) connections: Arc<[ConnectionDrain]>,
}

/// The drain endpoint of the admin port. Starting a drain needs a tokio runtime.
pub(super) fn drain(target: DrainTarget) -> admin::Drain {
    let stage = watch::Sender::new(DrainStage::None);
    let stage_receiver = stage.subscribe();
    let start = move |query: &str| {
        let options = DrainOptions::parse(query)?;
        let is_first = stage.send_if_modified(|stage| {
            let is_first = *stage == DrainStage::None;
            if is_first {
                *stage = DrainStage::Draining;
            }
            is_first
        });
        if is_first {
            target.ready.store(false, Ordering::Release);
            target.start.0.get_or_init(Instant::now);
            tokio::spawn(run(target.clone(), options, stage.clone()));
        }
        Ok(options.within)
    };
    admin::Drain::new(Box::new(start), stage_receiver)
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

/// The time since which nothing has been in flight.
#[derive(Default)]
struct IdlePeriod {
    since: Option<Instant>,
    /// Number of exchanges opened before `since`.
    opened: u64,
}

impl IdlePeriod {
    /// Whether the period has lasted for `quiet`. `open` exchanges are in flight, and `opened` were opened so far: an
    /// exchange that came and went between two polls ends the period as well.
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
    use super::*;

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
            ("delay=5", "delay: \"5\" has no unit of time; write a whole number and a unit"),
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
        assert!(!idle.has_lasted(0, 8, quiet, at(7)), "one came and went");
        assert!(!idle.has_lasted(0, 8, quiet, at(11)));
        assert!(!idle.has_lasted(2, 10, quiet, at(12)));
        assert!(idle.has_lasted(0, 10, Duration::ZERO, at(13)));
    }
}
