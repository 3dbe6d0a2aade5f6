//! What one indicator says of one exchange.

use std::time::Duration;

use crate::record::{Call, Complete, Outcome, Record, Verdict};
use crate::slo::Indicator;
use crate::wire::{Ending, Fault};

/// Too many requests: the one status below 500 by which a backend says that it cannot keep up.
const TOO_MANY_REQUESTS: u16 = 429;

impl Indicator {
    /// `None` where the indicator is not about such exchanges at all: what is no stream has no first token and no
    /// output rate.
    pub(super) fn judge(self, record: &Record, call: &Call) -> Option<Verdict> {
        match self {
            Self::Availability => Some(availability(record)),
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
