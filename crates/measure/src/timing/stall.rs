//! Stall detection for one stream. A stall is reported as soon as it begins, and its duration when it ends.

use std::time::Duration;

use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::RouteFacts;
use tokengauge_types::label_enum;

/// Number of stalls per stream that are kept in detail; further stalls are only counted. A stream with more stalls is
/// slow instead of stuck, so its first stalls are enough as examples.
pub const MAX_STALL_DETAILS: usize = 16;

label_enum! {
    /// Token that a stream is waiting for.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub enum StallPhase {
        #[default]
        FirstToken = "first_token",
        NextToken = "next_token",
    }
}

label_enum! {
    /// Data that arrives during a stall.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub enum StallKind {
        /// No data.
        Silent = "silent",
        /// Pings, comments or events without a token arrive: the backend is alive but generates nothing.
        KeepAliveOnly = "keep_alive_only",
    }
}

/// A stall of one stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stall {
    pub phase: StallPhase,
    /// Kind of the stall when it was raised.
    pub kind: StallKind,
    /// Start of the stall: the time of the last token, or of the last progress of the request before the first token.
    pub begun: MonotonicInstant,
    /// When the silence reached the route's stall threshold.
    pub raised: MonotonicInstant,
    /// Time from `begun` to the end of the stall, minus delays by the client and this proxy. `None` while the stall
    /// lasts.
    pub lasted: Option<Duration>,
}

/// Stalls of one request.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Stalls {
    pub count: u32,
    pub total: Duration,
    /// The first [`MAX_STALL_DETAILS`] stalls.
    pub first: Vec<Stall>,
}

impl Stalls {
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Longest allowed silence of a stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StallThresholds {
    /// Threshold before the first token.
    pub first_token: Duration,
    /// Threshold after the first token.
    pub next_token: Duration,
}

impl StallThresholds {
    /// Factor for the first-token threshold of reasoning requests, because providers may not stream the reasoning.
    const REASONING_FACTOR: u32 = 10;

    /// Returns the stall thresholds for a request on `route`. `reasons` is true if the request asks for reasoning.
    pub const fn for_route(route: &RouteFacts, reasons: bool) -> Self {
        let factor = if reasons { Self::REASONING_FACTOR } else { 1 };
        Self {
            first_token: route.first_token_after.saturating_mul(factor),
            next_token: route.inter_token_after,
        }
    }

    const fn in_phase(self, phase: StallPhase) -> Duration {
        match phase {
            StallPhase::FirstToken => self.first_token,
            StallPhase::NextToken => self.next_token,
        }
    }

    fn shortest(self) -> Duration {
        self.first_token.min(self.next_token)
    }
}

/// Measures how long a stream has been without a token. The clock starts at admission, and restarts with each part of
/// the upload and at each token. It stops while the client does not read and while this process is paused.
#[derive(Clone, Debug, Default)]
pub struct StallClock {
    silence: Silence,
    /// A lower bound of both thresholds.
    min_threshold: Duration,
    current: Option<Stall>,
    stalls: Stalls,
}

/// The time since the last token or progress.
#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    phase: StallPhase,
    /// Time of the last token or progress. `None` while the clock is stopped.
    since: Option<MonotonicInstant>,
    /// Time since `since` in which the client did not read.
    blocked: Duration,
    /// Time for which the client has not read so far. It moves to `blocked` when the next data arrives.
    pending: Duration,
    /// Time since `since` during which this process was paused.
    paused: Duration,
    /// Arrivals without a token since `since`.
    arrivals: u32,
}

impl StallClock {
    /// Creates a clock for a stream whose thresholds will be `thresholds` or longer.
    pub fn new(thresholds: StallThresholds) -> Self {
        Self { min_threshold: thresholds.shortest(), ..Self::default() }
    }

    /// Returns the start of the silence.
    pub const fn since(&self) -> Option<MonotonicInstant> {
        self.silence.since
    }

    pub const fn is_stalled(&self) -> bool {
        self.current.is_some()
    }

    pub const fn phase(&self) -> StallPhase {
        self.silence.phase
    }

    /// Restarts the clock because the backend received or produced data. If the stream was stalled, returns the stall
    /// with its duration.
    pub fn restart(&mut self, at: MonotonicInstant, phase: StallPhase) -> Option<Stall> {
        let ended = self.stop(at);
        self.silence = Silence { phase, since: Some(at), ..Silence::default() };
        ended
    }

    /// Stops the clock because no further token is expected. If the stream was stalled, returns the stall with its
    /// duration.
    pub fn stop(&mut self, at: MonotonicInstant) -> Option<Stall> {
        let silence = std::mem::take(&mut self.silence);
        let current = self.current.take()?;
        let lasted = silence.idle(at);
        let stall = Stall { lasted, ..current };
        self.stalls.total += lasted.unwrap_or_default();
        if let Some(kept) = self
            .stalls
            .first
            .last_mut()
            .filter(|kept| kept.begun == stall.begun && kept.raised == stall.raised)
        {
            *kept = stall;
        }
        Some(stall)
    }

    /// Records an arrival without a token.
    pub const fn record_arrival(&mut self) {
        self.silence.arrivals = self.silence.arrivals.saturating_add(1);
    }

    /// Records that the client did not read for `time` before the next data arrived.
    pub fn record_blocked(&mut self, time: Duration) {
        self.silence.blocked += time;
        self.silence.pending = Duration::ZERO;
    }

    /// Checks for a stall at `at`. Returns a stall only once, when the silence crosses the threshold; its `raised` is
    /// the time of the crossing.
    ///
    /// `pending` is the time for which the client has not read and which
    /// [`record_blocked`](Self::record_blocked) has not recorded yet. `paused` is the time since
    /// [`since`](Self::since) in which this process was paused.
    pub fn check(
        &mut self,
        at: MonotonicInstant,
        pending: Duration,
        paused: Duration,
        thresholds: StallThresholds,
    ) -> Option<Stall> {
        let begun = self.since()?;
        (self.silence.pending, self.silence.paused) = (pending, paused);
        if self.is_stalled() {
            return None;
        }
        let phase = self.phase();
        // The first event of a response only acknowledges the request and is not a ping.
        let opening = u32::from(phase == StallPhase::FirstToken);
        let over = self.idle(at)?.checked_sub(thresholds.in_phase(phase))?;
        let stall = Stall {
            phase,
            kind: if self.silence.arrivals > opening {
                StallKind::KeepAliveOnly
            } else {
                StallKind::Silent
            },
            begun,
            raised: at.saturating_sub(over),
            lasted: None,
        };
        self.current = Some(stall);
        self.stalls.count = self.stalls.count.saturating_add(1);
        if self.stalls.first.len() < MAX_STALL_DETAILS {
            self.stalls.first.push(stall);
        }
        Some(stall)
    }

    /// Returns how long the backend has been silent at `at`, minus the delays by the client and this proxy known at the
    /// last check.
    pub fn idle(&self, at: MonotonicInstant) -> Option<Duration> {
        self.silence.idle(at)
    }

    /// Returns whether a stall lasts, or whether a check at `at` could find one.
    pub fn may_be_stalled(&self, at: MonotonicInstant) -> bool {
        self.is_stalled() || self.since().is_some_and(|since| at.since(since) >= self.min_threshold)
    }

    /// Returns the earliest time at which a check could find a new stall, after a check at `at`. Tokens that arrive in
    /// the meantime only postpone a stall.
    pub fn next_stall(
        &self,
        at: MonotonicInstant,
        thresholds: StallThresholds,
    ) -> MonotonicInstant {
        let after_restart = at + thresholds.shortest();
        match self.idle(at).filter(|_| !self.is_stalled()) {
            Some(idle) => {
                let left = thresholds.in_phase(self.phase()).saturating_sub(idle);
                after_restart.min(at + left)
            }
            None => after_restart,
        }
    }

    /// Returns the stalls of the finished request.
    pub fn into_stalls(self) -> Stalls {
        self.stalls
    }
}

impl Silence {
    fn idle(&self, at: MonotonicInstant) -> Option<Duration> {
        let excused = self.blocked + self.pending + self.paused;
        Some(at.since(self.since?).saturating_sub(excused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLDS: StallThresholds = StallThresholds {
        first_token: Duration::from_secs(30),
        next_token: Duration::from_secs(2),
    };

    fn at(millis: u64) -> MonotonicInstant {
        MonotonicInstant::from_millis(millis)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn check(clock: &mut StallClock, now: u64) -> Option<Stall> {
        clock.check(at(now), Duration::ZERO, Duration::ZERO, THRESHOLDS)
    }

    fn streaming(from: u64) -> StallClock {
        let mut clock = StallClock::default();
        assert_eq!(clock.restart(at(from), StallPhase::NextToken), None);
        clock
    }

    #[test]
    fn a_stall_is_reported_once_exactly_at_the_threshold() {
        let mut clock = streaming(1_000);
        assert_eq!(check(&mut clock, 2_999), None);
        let stall = check(&mut clock, 3_140).unwrap();
        assert_eq!((stall.begun, stall.raised), (at(1_000), at(3_000)));
        assert_eq!((stall.kind, stall.lasted), (StallKind::Silent, None));
        assert_eq!(check(&mut clock, 4_000), None, "reported once");
        let ended = clock.restart(at(6_500), StallPhase::NextToken).unwrap();
        assert_eq!(ended.lasted, Some(millis(5_500)));
        assert_eq!(check(&mut clock, 8_499), None);
        assert!(check(&mut clock, 8_500).is_some(), "the next one");
        clock.stop(at(9_000));
        let stalls = clock.into_stalls();
        assert_eq!((stalls.count, stalls.total), (2, millis(5_500 + 2_500)));
        assert_eq!(stalls.first[0].lasted, Some(millis(5_500)));
        assert_eq!(stalls.first[1].lasted, Some(millis(2_500)));
    }

    #[test]
    fn the_stall_clock_starts_with_the_progress_of_the_request() {
        let mut clock = StallClock::default();
        assert_eq!(check(&mut clock, 100_000), None);
        clock.restart(at(1_000), StallPhase::FirstToken);
        clock.restart(at(20_000), StallPhase::FirstToken);
        assert_eq!(check(&mut clock, 49_999), None);
        let stall = check(&mut clock, 50_000).unwrap();
        assert_eq!((stall.phase, stall.begun), (StallPhase::FirstToken, at(20_000)));
    }

    #[test]
    fn keep_alives_differ_from_silence_and_the_first_event_is_not_a_keep_alive() {
        let mut clock = StallClock::default();
        clock.restart(at(0), StallPhase::FirstToken);
        clock.record_arrival();
        assert_eq!(check(&mut clock, 30_000).unwrap().kind, StallKind::Silent);
        clock.restart(at(40_000), StallPhase::NextToken);
        clock.record_arrival();
        assert_eq!(check(&mut clock, 42_000).unwrap().kind, StallKind::KeepAliveOnly);
        clock.restart(at(43_000), StallPhase::NextToken);
        assert_eq!(check(&mut clock, 45_000).unwrap().kind, StallKind::Silent);
    }

    #[test]
    fn time_of_the_client_is_not_attributed_to_the_backend() {
        let mut clock = streaming(0);
        // The client has not read for 5 s, so the clock is paused.
        assert_eq!(clock.check(at(5_000), millis(4_990), Duration::ZERO, THRESHOLDS), None);
        assert_eq!(clock.idle(at(5_000)), Some(millis(10)));
        // The client reads again, and the next arrival reports how long it did not read.
        clock.record_blocked(millis(4_990));
        assert_eq!(check(&mut clock, 6_989), None);
        let stall = check(&mut clock, 7_000).unwrap();
        assert_eq!(stall.raised, at(6_990), "2 s of the backend's own");
        assert_eq!(clock.stop(at(8_000)).unwrap().lasted, Some(millis(3_010)));
    }

    #[test]
    fn pauses_of_this_process_are_not_attributed_to_the_backend() {
        let mut clock = streaming(0);
        assert_eq!(clock.check(at(60_000), Duration::ZERO, millis(59_000), THRESHOLDS), None);
        assert!(clock.check(at(61_000), Duration::ZERO, millis(59_000), THRESHOLDS).is_some());
    }

    #[test]
    fn the_next_stall_is_predicted_from_the_silence_and_the_shortest_threshold() {
        let mut clock = StallClock::new(THRESHOLDS);
        assert_eq!(clock.next_stall(at(0), THRESHOLDS), at(2_000), "a token can start the clock");
        clock.restart(at(0), StallPhase::FirstToken);
        assert_eq!(clock.next_stall(at(1_000), THRESHOLDS), at(3_000), "a token can come first");
        assert_eq!(clock.next_stall(at(29_500), THRESHOLDS), at(30_000));
        assert!(!clock.may_be_stalled(at(1_999)));
        assert!(clock.may_be_stalled(at(2_000)));
        clock.restart(at(40_000), StallPhase::NextToken);
        clock.check(at(41_000), millis(500), Duration::ZERO, THRESHOLDS);
        assert_eq!(clock.next_stall(at(41_000), THRESHOLDS), at(42_500), "0.5 s are the client's");
        assert!(check(&mut clock, 42_500).is_some());
        assert_eq!(clock.next_stall(at(42_500), THRESHOLDS), at(44_500), "a new one needs a token");
        assert!(clock.may_be_stalled(at(42_501)), "the stall lasts");
    }

    #[test]
    fn beyond_the_limit_stalls_are_only_counted() {
        let mut clock = streaming(0);
        for round in 1..=40 {
            assert!(check(&mut clock, round * 10_000).is_some());
            clock.restart(at(round * 10_000), StallPhase::NextToken);
        }
        let stalls = clock.into_stalls();
        assert_eq!((stalls.count, stalls.first.len()), (40, MAX_STALL_DETAILS));
        assert_eq!(stalls.total, Duration::from_secs(400));
        assert!(stalls.first.iter().all(|stall| stall.lasted == Some(Duration::from_secs(10))));
    }
}
