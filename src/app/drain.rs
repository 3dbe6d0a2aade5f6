//! Being seen off: clients are sent elsewhere one by one, while everything that comes is still served.
//!
//! 1. Not ready at once. Everything is accepted as before for a while, in which others learn of it.
//! 2. Each connection ends with the exchange that it is at or that comes next. New ones are accepted.
//! 3. Once nothing has been in flight for as long as was asked for, connections that wait for a further exchange are
//!    closed; where nothing came meanwhile, the proxy is drained. It serves on until it is told to stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::admin::{self, DrainStage};
use crate::config::value::Length;
use tokengauge_listen::Ebb;
use tokengauge_observe::tee::ObservationChannel;
use tokengauge_telemetry::self_telemetry;

/// How often it is looked whether anything is in flight: a fraction of what a pod's end takes anyway.
const LOOK: Duration = Duration::from_millis(20);

/// Longer, and a deployment hangs on it.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Who waits for longer waits for so long.
const LONGEST_WAIT: Duration = Duration::from_secs(7 * 24 * 3_600);

/// How a drain goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct DrainOptions {
    /// How long connections are kept as before: what it takes until load balancers have learned that it is not ready.
    delay: Duration,
    /// How long nothing shall have been in flight.
    quiet: Duration,
    /// How long the one who asks waits. Nothing is ended by it: those who wait with it are told that it is over.
    within: Duration,
}

impl Default for DrainOptions {
    /// Endpoints are gone from every node within a few seconds.
    fn default() -> Self {
        Self { delay: Duration::from_secs(5), quiet: Duration::ZERO, within: LONGEST_WAIT }
    }
}

impl DrainOptions {
    /// Of `delay=5s&quiet=0s&within=7d`, where what is left out has its default.
    fn read(query: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (field, longest) = match key {
                "delay" => (&mut options.delay, Some(LONGEST)),
                "quiet" => (&mut options.quiet, Some(LONGEST)),
                "within" => (&mut options.within, None),
                _ => {
                    let known =
                        "a drain has delay, quiet and within; write ?delay=5s&quiet=0s&within=300s";
                    return Err(known.to_owned());
                }
            };
            let Length(length) = value.parse().map_err(|wrong| format!("{key}: {wrong}"))?;
            if let Some(longest) = longest.filter(|longest| length > *longest) {
                let longest = Length(longest);
                return Err(format!("{key}: this is too long; write up to {longest}"));
            }
            *field = length.min(LONGEST_WAIT);
        }
        Ok(options)
    }
}

/// When a drain was asked for, if so.
#[derive(Clone, Debug, Default)]
pub(super) struct Since(Arc<OnceLock<Instant>>);

impl Since {
    /// Zero while nobody has asked.
    pub(super) fn elapsed(&self) -> Duration {
        self.0.get().map(Instant::elapsed).unwrap_or_default()
    }
}

/// What a drain is about.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) ready: Arc<AtomicBool>,
    pub(super) since: Since,
    pub(super) channel: Arc<ObservationChannel>,
    pub(super) ebbs: Arc<[Ebb]>,
}

/// The drain that the admin port can be asked for. Needs a tokio runtime when it is.
pub(super) fn drain(parts: Parts) -> admin::Drain {
    let stage = watch::Sender::new(DrainStage::None);
    let told = stage.subscribe();
    let begin = move |query: &str| {
        let options = DrainOptions::read(query)?;
        let first = stage.send_if_modified(|stage| {
            let first = *stage == DrainStage::None;
            if first {
                *stage = DrainStage::Going;
            }
            first
        });
        if first {
            parts.ready.store(false, Ordering::Release);
            parts.since.0.get_or_init(Instant::now);
            tokio::spawn(go(parts.clone(), options, stage.clone()));
        }
        Ok(options.within)
    };
    admin::Drain::new(Box::new(begin), told)
}

async fn go(parts: Parts, options: DrainOptions, stage: watch::Sender<DrainStage>) {
    let DrainOptions { delay, quiet, within } = options;
    let begun = Instant::now();
    self_telemetry::drain_started(parts.channel.open_exchanges(), delay, quiet);
    tokio::time::sleep(delay).await;
    parts.ebbs.iter().for_each(Ebb::part);
    self_telemetry::drain_closing_connections(parts.channel.open_exchanges());
    let mut lull = Lull::new();
    let (mut leaving, mut overdue) = (false, false);
    loop {
        tokio::time::sleep(LOOK).await;
        let channel = &parts.channel;
        if !overdue && begun.elapsed() >= within {
            overdue = true;
            self_telemetry::drain_timed_out(channel.open_exchanges(), within);
        }
        if !lull.lasts(channel.open_exchanges(), channel.opened(), quiet, Instant::now()) {
            continue;
        }
        if leaving {
            break;
        }
        parts.ebbs.iter().for_each(Ebb::leave);
        leaving = true;
    }
    stage.send_replace(DrainStage::Done);
    self_telemetry::drain_completed(begun.elapsed());
}

/// Since when nothing has been in flight.
struct Lull {
    since: Option<Instant>,
    opened: u64,
}

impl Lull {
    const fn new() -> Self {
        Self { since: None, opened: 0 }
    }

    /// Whether it has lasted for `quiet` at `now`, with so many exchanges `open`, and `opened` so far: one that came and
    /// went between two looks ends it, too.
    fn lasts(&mut self, open: u64, opened: u64, quiet: Duration, now: Instant) -> bool {
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
    fn a_query_says_how_it_goes_and_nonsense_is_told() {
        let options = |delay, quiet| {
            let (delay, quiet) = (Duration::from_millis(delay), Duration::from_millis(quiet));
            Ok(DrainOptions { delay, quiet, within: LONGEST_WAIT })
        };
        let within = |query| DrainOptions::read(query).unwrap().within;
        assert_eq!(within("within=300s"), Duration::from_secs(300));
        assert_eq!(within("within=30d"), LONGEST_WAIT);
        assert_eq!(DrainOptions::read(""), options(5_000, 0));
        assert_eq!(DrainOptions::read("quiet=250ms"), options(5_000, 250));
        assert_eq!(DrainOptions::read("delay=0s&quiet=1h"), options(0, 3_600_000));
        for (query, told) in [
            ("delay=5", "delay: \"5\" has no unit of time; write a whole number and a unit"),
            ("quiet", "quiet: \"\" is no length of time"),
            ("delay=2h", "delay: this is too long; write up to 1h"),
            ("dealy=5s", "a drain has delay, quiet and within; write ?delay=5s"),
        ] {
            let wrong = DrainOptions::read(query).unwrap_err();
            assert!(wrong.starts_with(told), "{query}: {wrong}");
        }
    }

    #[test]
    fn a_lull_is_ended_by_what_is_open_and_by_what_came_and_went() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let quiet = Duration::from_secs(5);
        let mut lull = Lull::new();
        assert!(!lull.lasts(1, 7, quiet, at(0)));
        assert!(!lull.lasts(0, 7, quiet, at(1)));
        assert!(!lull.lasts(0, 7, quiet, at(5)));
        assert!(lull.lasts(0, 7, quiet, at(6)));
        assert!(!lull.lasts(0, 8, quiet, at(7)), "one came and went");
        assert!(!lull.lasts(0, 8, quiet, at(11)));
        assert!(!lull.lasts(2, 10, quiet, at(12)));
        assert!(lull.lasts(0, 10, Duration::ZERO, at(13)));
    }
}
