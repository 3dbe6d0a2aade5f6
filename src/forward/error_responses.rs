//! Decides when error responses of an upstream are logged: one line when it starts to fail, and one when it has
//! recovered.
//!
//! An upstream fails if, over at least 10 s, at least 5 responses and half of all responses are errors of one kind. It has
//! recovered if, over at least 10 s, less than a tenth of the responses are errors of this kind. Single errors are
//! normal, and metrics count them. Responses are the only clock: without traffic, nothing starts and nothing ends.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;

use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::sync::lock;

/// Minimum time over which responses are counted.
const WINDOW: Duration = Duration::from_secs(10);

const MIN_ERRORS: u64 = 5;

/// Kinds of error responses. They have different causes, so each kind has lines of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ErrorKind {
    /// Status 500 to 599.
    ServerError,
    /// Status 429.
    RateLimited,
    /// A response that ended before its body was complete.
    BrokenBody,
}

impl ErrorKind {
    const ALL: [Self; 3] = [Self::ServerError, Self::RateLimited, Self::BrokenBody];

    const fn of(status: StatusCode) -> Option<Self> {
        match status.as_u16() {
            429 => Some(Self::RateLimited),
            500..=599 => Some(Self::ServerError),
            _ => None,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ServerError => "5xx",
            Self::RateLimited => "429",
            Self::BrokenBody => "broken",
        }
    }
}

/// A line to log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Transition {
    pub kind: ErrorKind,
    /// Whether the upstream has recovered.
    pub is_end: bool,
    /// Time since the first error.
    pub duration: Duration,
    /// Errors and responses since the first error.
    pub errors: u64,
    pub responses: u64,
}

/// The error responses of one upstream.
#[derive(Debug, Default)]
pub struct ErrorResponses {
    responses: AtomicU64,
    /// Whether an episode is open. Atomic, because every response reads this flag.
    is_failing: AtomicBool,
    episodes: Mutex<[Episode; ErrorKind::ALL.len()]>,
}

/// The errors of one kind.
#[derive(Debug, Default)]
struct Episode {
    /// Set while the upstream fails: all errors since the first one.
    failing: Option<Counts>,
    window: Option<Counts>,
}

/// Counts since `start`.
#[derive(Clone, Copy, Debug)]
struct Counts {
    start: MonotonicInstant,
    errors: u64,
    /// Number of responses before `start`.
    responses_before: u64,
}

impl ErrorResponses {
    /// Records a response. Reads the clock only for errors, and for all responses while the upstream fails. Returns at
    /// most one line per kind.
    pub fn record(
        &self,
        status: StatusCode,
        now: impl FnOnce() -> MonotonicInstant,
    ) -> impl Iterator<Item = Transition> {
        let before = self.responses.fetch_add(1, Ordering::Relaxed);
        let kind = ErrorKind::of(status);
        let must_count = kind.is_some() || self.is_failing.load(Ordering::Relaxed);
        let transitions = must_count.then(|| self.count(kind, now(), before));
        transitions.into_iter().flatten().flatten()
    }

    /// Records that a response ended before its body was complete. [`record`](Self::record) has counted its status.
    pub fn record_broken_body(&self, at: MonotonicInstant) -> impl Iterator<Item = Transition> {
        let before = self.responses.load(Ordering::Relaxed).saturating_sub(1);
        self.count(Some(ErrorKind::BrokenBody), at, before).into_iter().flatten()
    }

    fn count(
        &self,
        error: Option<ErrorKind>,
        at: MonotonicInstant,
        responses_before: u64,
    ) -> [Option<Transition>; ErrorKind::ALL.len()] {
        let mut episodes = lock(&self.episodes);
        let mut transitions = [None; ErrorKind::ALL.len()];
        let episodes_of_kinds = ErrorKind::ALL.into_iter().zip(episodes.iter_mut());
        for ((kind, episode), transition) in episodes_of_kinds.zip(&mut transitions) {
            let change = episode.record(error == Some(kind), at, responses_before);
            *transition = change.map(|(is_end, counts)| Transition {
                kind,
                is_end,
                duration: at - counts.start,
                errors: counts.errors,
                responses: responses_before + 1 - counts.responses_before,
            });
        }
        let is_failing = episodes.iter().any(|episode| episode.failing.is_some());
        self.is_failing.store(is_failing, Ordering::Relaxed);
        transitions
    }
}

impl Episode {
    /// Records a response. At a start or an end, returns the counts since the first error, and whether it is an end.
    fn record(
        &mut self,
        is_error: bool,
        at: MonotonicInstant,
        responses_before: u64,
    ) -> Option<(bool, Counts)> {
        if !is_error && self.failing.is_none() {
            return None;
        }
        let empty = Counts { start: at, errors: 0, responses_before };
        let window = self.window.get_or_insert(empty);
        for counts in self.failing.iter_mut().chain([&mut *window]) {
            counts.errors += u64::from(is_error);
        }
        if at - window.start < WINDOW {
            return None;
        }
        // Threads take the lock in another order than they count responses, so the difference can be too small.
        let responses = (responses_before + 1).saturating_sub(window.responses_before);
        let responses = responses.max(window.errors);
        match self.failing {
            None if window.errors * 2 < responses => {
                *window = Counts { errors: 1, ..empty };
                None
            }
            // A window with few responses grows until it is clear whether the upstream fails.
            None if window.errors < MIN_ERRORS => None,
            None => {
                self.failing = self.window.take();
                self.failing.map(|counts| (false, counts))
            }
            Some(_) => {
                let has_recovered = window.errors * 10 < responses;
                self.window = None;
                if !has_recovered {
                    return None;
                }
                self.failing.take().map(|counts| (true, counts))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends one response per entry: the time in seconds and the status. Returns the lines.
    fn lines(responses: impl IntoIterator<Item = (u64, u16)>) -> Vec<(u64, Transition)> {
        let log = ErrorResponses::default();
        let record = |(second, status): (u64, u16)| {
            let status = StatusCode::from_u16(status).unwrap();
            let at = MonotonicInstant::from_secs(second);
            log.record(status, || at).map(move |line| (second, line)).collect::<Vec<_>>()
        };
        responses.into_iter().flat_map(record).collect()
    }

    fn line(is_end: bool, seconds: u64, errors: u64, responses: u64) -> Transition {
        let duration = Duration::from_secs(seconds);
        Transition { kind: ErrorKind::ServerError, is_end, duration, errors, responses }
    }

    #[test]
    fn an_outage_of_47_minutes_has_two_lines() {
        let failing = (0..2_820).map(|second| (second, 503));
        let healthy = (2_820..2_900).map(|second| (second, 200));
        let lines = lines(failing.chain(healthy));
        let [start, (_, end)] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!(*start, (10, line(false, 10, 11, 11)));
        assert_eq!((end.is_end, end.errors), (true, 2_820));
        assert!((2_830..2_850).contains(&end.duration.as_secs()), "{end:?}");
    }

    #[test]
    fn a_slow_client_needs_five_errors() {
        let lines = lines((0..8).map(|call| (call * 30, 500)));
        assert_eq!(lines, [(120, line(false, 120, 5, 5))]);
    }

    #[test]
    fn few_or_short_errors_have_no_line() {
        let every_tenth =
            |second: u64| (second / 10, if second.is_multiple_of(10) { 500 } else { 200 });
        assert_eq!(lines((0..20_000).map(every_tenth)), []);
        let burst = (0..9).map(|second| (second, 503)).chain((9..60).map(|second| (second, 200)));
        assert_eq!(lines(burst.chain([(61, 503)])), []);
    }

    #[test]
    fn half_of_the_responses_are_enough_and_a_tenth_continue() {
        let half = |second: u64| (second, if second.is_multiple_of(2) { 502 } else { 200 });
        let lines_of_half = lines((0..600).map(half));
        assert_eq!(lines_of_half, [(10, line(false, 10, 6, 11))]);
        let fifth = |second: u64| (second, if second.is_multiple_of(5) { 502 } else { 200 });
        assert_eq!(lines((0..600).map(half).chain((600..1_200).map(fifth))), lines_of_half);
    }

    #[test]
    fn broken_bodies_have_lines_although_their_status_is_200() {
        let log = ErrorResponses::default();
        let mut lines = Vec::new();
        for second in 0..600 {
            let at = MonotonicInstant::from_secs(second);
            lines.extend(log.record(StatusCode::OK, || at));
            if (100..400).contains(&second) {
                lines.extend(log.record_broken_body(at));
            }
        }
        let [start, end] = lines.as_slice() else { panic!("{lines:?}") };
        let expected = Transition { kind: ErrorKind::BrokenBody, ..line(false, 10, 11, 11) };
        assert_eq!(*start, expected);
        assert_eq!((end.kind, end.is_end, end.errors), (ErrorKind::BrokenBody, true, 300));
    }

    #[test]
    fn each_kind_has_its_own_lines() {
        let limited = (0..60).map(|second| (second, 429));
        let broken = (60..120).map(|second| (second, 500));
        let healthy = (120..200).map(|second| (second, 404));
        let lines = lines(limited.chain(broken).chain(healthy));
        let kinds: Vec<_> = lines.iter().map(|(_, line)| (line.kind, line.is_end)).collect();
        let (limited, broken) = (ErrorKind::RateLimited, ErrorKind::ServerError);
        let expected = [(limited, false), (broken, false), (limited, true), (broken, true)];
        assert_eq!(kinds.len(), expected.len(), "{kinds:?}");
        assert!(expected.iter().all(|line| kinds.contains(line)), "{kinds:?}");
    }
}
