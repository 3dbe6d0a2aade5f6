//! What one indicator says of one exchange.

use std::time::Duration;

use crate::record::{Call, Complete, Outcome, Record, Verdict};
use crate::slo::Indicator;
use crate::wire::{Ending, Fault};

/// Too many requests: the one status below 500 by which a backend says that it cannot keep up.
const TOO_MANY_REQUESTS: u16 = 429;

impl Indicator {
    /// `None` where the indicator is not about such exchanges at all: what is no stream has no first token and no
    /// output rate, and how long a session lasts is its client's choice.
    pub(super) fn judge(self, record: &Record, call: &Call) -> Option<Verdict> {
        match self {
            Self::Availability => Some(availability(record)),
            Self::Duration(_) if record.websocket.is_some() => None,
            Self::Duration(limit) => Some(duration(record, limit)),
            Self::TimeToFirstToken(limit) => {
                is_stream(call).then(|| time_to_first_token(record, call, limit))
            }
            Self::OutputRate(floor) => is_stream(call).then(|| output_rate(call, floor)),
        }
    }
}

/// A stream by its answer, or by its request where the answer was an error instead.
fn is_stream(call: &Call) -> bool {
    call.series.operation.generates() && (call.streamed || call.request.stream == Some(true))
}

fn availability(record: &Record) -> Verdict {
    match Standing::of(record) {
        Standing::Served => Verdict::Good,
        Standing::Failed => Verdict::Bad,
        Standing::Excused => Verdict::Excluded,
    }
}

fn duration(record: &Record, limit: Duration) -> Verdict {
    let Some(took) = record.points.duration() else {
        return Verdict::Excluded;
    };
    match Standing::of(record) {
        Standing::Served if took <= limit => Verdict::Good,
        // It would have been over in time, had the client read.
        Standing::Served if took.saturating_sub(record.blocked) <= limit => Verdict::Excluded,
        Standing::Served | Standing::Failed => Verdict::Bad,
        Standing::Excused => Verdict::Excluded,
    }
}

fn time_to_first_token(record: &Record, call: &Call, limit: Duration) -> Verdict {
    let unobserved = call.complete == Complete::Unobserved;
    match record.points.time_to_first_token() {
        Some(time) if time <= limit => Verdict::Good,
        // The first token may have been in what the observer lost: too late is not proven.
        Some(_) if unobserved => Verdict::Excluded,
        Some(_) => Verdict::Bad,
        None => match Standing::of(record) {
            Standing::Failed => Verdict::Bad,
            Standing::Excused if !unobserved && gave_up_after(record, limit) => Verdict::Bad,
            Standing::Served | Standing::Excused => Verdict::Excluded,
        },
    }
}

/// The client left when the promise was already broken: its leaving does not mend it.
fn gave_up_after(record: &Record, limit: Duration) -> bool {
    record.ending == Ending::ClientGone
        && record
            .points
            .duration()
            .is_some_and(|waited| waited > limit)
}

fn output_rate(call: &Call, floor: f64) -> Verdict {
    match call.rates.output {
        Some(rate) if rate >= floor => Verdict::Good,
        Some(_) => Verdict::Bad,
        None => Verdict::Excluded,
    }
}

/// Whom an exchange speaks for or against.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Standing {
    Served,
    /// It failed, and not by the client's fault: the backend's, the network's, or this proxy's own. The promise is
    /// made to the client, who does not care which of them it was.
    Failed,
    /// The client left, or asked for what cannot be had.
    Excused,
}

impl Standing {
    fn of(record: &Record) -> Self {
        let excused = match record.outcome {
            Outcome::Ok => return Self::Served,
            Outcome::Cancelled => true,
            Outcome::Error => refused_the_request(record),
            Outcome::Timeout | Outcome::Truncated | Outcome::Rejected => {
                record.fault == Fault::Client
            }
        };
        if excused { Self::Excused } else { Self::Failed }
    }
}

fn refused_the_request(record: &Record) -> bool {
    match record.http.status {
        Some(TOO_MANY_REQUESTS) => false,
        Some(400..=499) => true,
        Some(_) | None => record.fault == Fault::Client,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Operation;
    use crate::slo::example::{at, stream};
    use crate::wire::{Failure, Limit, Refusal};

    const GOOD: Option<Verdict> = Some(Verdict::Good);
    const BAD: Option<Verdict> = Some(Verdict::Bad);
    const EXCLUDED: Option<Verdict> = Some(Verdict::Excluded);

    const FIRST_TOKEN: Indicator = Indicator::TimeToFirstToken(Duration::from_millis(500));
    const RATE: Indicator = Indicator::OutputRate(30.0);
    const DURATION: Indicator = Indicator::Duration(Duration::from_secs(10));

    fn judge(indicator: Indicator, record: &Record) -> Option<Verdict> {
        indicator.judge(record, record.call.as_ref().unwrap())
    }

    /// Availability, first token, rate, duration.
    fn verdicts(record: &Record) -> [Option<Verdict>; 4] {
        [Indicator::Availability, FIRST_TOKEN, RATE, DURATION]
            .map(|indicator| judge(indicator, record))
    }

    fn call(record: &mut Record) -> &mut Call {
        record.call.as_mut().unwrap()
    }

    fn ended(outcome: Outcome, ending: Ending) -> Record {
        Record {
            outcome,
            ending,
            fault: ending.fault(),
            ..stream()
        }
    }

    /// Ended before its first token, `millis` after accept.
    fn tokenless(mut record: Record, millis: u64) -> Record {
        record.points.token = None;
        record.points.last = None;
        record.points.end = Some(at(millis));
        call(&mut record).rates = Default::default();
        record
    }

    fn refused(status: u16) -> Record {
        let mut record = tokenless(ended(Outcome::Error, Ending::Complete), 20);
        record.http.status = Some(status);
        call(&mut record).streamed = false;
        record
    }

    #[test]
    fn a_stream_that_went_well_is_good_for_all() {
        assert_eq!(verdicts(&stream()), [GOOD; 4]);
    }

    #[test]
    fn a_threshold_itself_is_still_good() {
        let mut record = stream();
        record.points.token = Some(at(500));
        record.points.end = Some(at(10_000));
        call(&mut record).rates.output = Some(30.0);
        assert_eq!(verdicts(&record), [GOOD; 4]);
        record.points.token = Some(at(500) + Duration::from_nanos(1));
        record.points.end = Some(at(10_000) + Duration::from_nanos(1));
        call(&mut record).rates.output = Some(29.999);
        assert_eq!(verdicts(&record), [GOOD, BAD, BAD, BAD]);
    }

    #[test]
    fn a_request_that_cannot_be_served_is_the_clients() {
        for status in [400, 401, 403, 404, 408, 413, 422, 499] {
            assert_eq!(verdicts(&refused(status)), [EXCLUDED; 4], "{status}");
        }
    }

    #[test]
    fn a_backend_that_cannot_keep_up_or_fails_is_bad() {
        for status in [429, 500, 502, 503, 504, 529] {
            assert_eq!(
                verdicts(&refused(status)),
                [BAD, BAD, EXCLUDED, BAD],
                "{status}"
            );
        }
    }

    #[test]
    fn an_error_inside_a_stream_is_bad_whatever_the_status() {
        let record = ended(Outcome::Error, Ending::Complete);
        assert_eq!(verdicts(&record), [BAD, GOOD, GOOD, BAD]);
        let blamed = Record {
            fault: Fault::Client,
            ..record
        };
        assert_eq!(verdicts(&blamed), [EXCLUDED, GOOD, GOOD, EXCLUDED]);
    }

    #[test]
    fn whoever_but_the_client_broke_it_it_is_broken() {
        for (outcome, ending) in [
            (Outcome::Error, Ending::UpstreamFailed(Failure::MidBody)),
            (Outcome::Timeout, Ending::TimedOut(Limit::Idle)),
            (Outcome::Truncated, Ending::Complete),
            (Outcome::Truncated, Ending::Drained),
            (Outcome::Rejected, Ending::Rejected(Refusal::Overload)),
            (Outcome::Rejected, Ending::Rejected(Refusal::Draining)),
        ] {
            let record = ended(outcome, ending);
            assert_eq!(verdicts(&record), [BAD, GOOD, GOOD, BAD], "{ending:?}");
            let record = tokenless(record, 20);
            assert_eq!(verdicts(&record), [BAD, BAD, EXCLUDED, BAD], "{ending:?}");
        }
        let record = ended(Outcome::Rejected, Ending::Rejected(Refusal::BadRequest));
        assert_eq!(verdicts(&tokenless(record, 20)), [EXCLUDED; 4]);
    }

    #[test]
    fn a_client_that_leaves_takes_back_only_what_was_still_open() {
        let left = || ended(Outcome::Cancelled, Ending::ClientGone);
        assert_eq!(verdicts(&left()), [EXCLUDED, GOOD, GOOD, EXCLUDED]);
        let in_time = tokenless(left(), 500);
        assert_eq!(verdicts(&in_time), [EXCLUDED; 4]);
        let too_late = tokenless(left(), 501);
        assert_eq!(verdicts(&too_late), [EXCLUDED, BAD, EXCLUDED, EXCLUDED]);
        let broke = ended(Outcome::Cancelled, Ending::ClientBroke);
        assert_eq!(verdicts(&tokenless(broke, 501)), [EXCLUDED; 4]);
    }

    #[test]
    fn what_the_observer_lost_is_not_held_against_anybody() {
        let mut record = stream();
        call(&mut record).complete = Complete::Unobserved;
        assert_eq!(judge(FIRST_TOKEN, &record), GOOD, "early enough even so");
        record.points.token = Some(at(501));
        assert_eq!(judge(FIRST_TOKEN, &record), EXCLUDED);
        record.outcome = Outcome::Cancelled;
        record.ending = Ending::ClientGone;
        assert_eq!(judge(FIRST_TOKEN, &tokenless(record, 900)), EXCLUDED);
    }

    #[test]
    fn a_stream_without_a_token_or_a_rate_has_no_such_verdict() {
        assert_eq!(
            verdicts(&tokenless(stream(), 2_000)),
            [GOOD, EXCLUDED, EXCLUDED, GOOD]
        );
    }

    #[test]
    fn what_is_no_stream_has_availability_and_duration_only() {
        let mut whole = tokenless(stream(), 2_000);
        call(&mut whole).streamed = false;
        call(&mut whole).request.stream = None;
        assert_eq!(verdicts(&whole), [GOOD, None, None, GOOD]);
        let mut embeddings = tokenless(stream(), 2_000);
        call(&mut embeddings).series.operation = Operation::Embeddings;
        assert_eq!(verdicts(&embeddings), [GOOD, None, None, GOOD]);
    }

    #[test]
    fn time_that_the_client_did_not_read_is_excused() {
        let mut record = stream();
        record.points.end = Some(at(15_000));
        assert_eq!(judge(DURATION, &record), BAD);
        record.blocked = Duration::from_secs(5);
        assert_eq!(judge(DURATION, &record), EXCLUDED);
        record.blocked = Duration::from_millis(4_999);
        assert_eq!(judge(DURATION, &record), BAD);
    }
}
