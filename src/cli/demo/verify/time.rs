//! Is the time to first token what it really was?

use std::time::Duration;

use super::{Check, Complaints, Exchange};

/// How far the reported time to first token may be from the truth.
pub const TOLERANCE: Duration = Duration::from_millis(5);

/// Where fewer exchanges than this share show it on their own, the run says nothing of how exact the times are.
const LEAST_SHOWN: f64 = 0.1;

/// Time to first token, which no single witness knows.
///
/// The proxy's value is token − accept on its own clock. The backend knows when the first token was handed to the
/// socket and the client when it came, and both stamps bracket the proxy's; so do asking and receiving the request:
/// written − received ≤ token − accept ≤ came − asked. Outside of that bracket by more than the tolerance the value is
/// wrong. Inside, `error` says how far it can be at most from written − accept: on an idle machine that is well below
/// the tolerance, on a busy one it also holds the time in which processes waited for a processor.
pub fn first_token(exchanges: &[Exchange<'_>]) -> Check {
    let mut complaints = Complaints::default();
    let mut errors = Vec::new();
    for exchange in exchanges.iter().filter(|it| it.receipt.stream) {
        let (Some(entry), Some(span)) = (exchange.entry, exchange.client_span()) else {
            continue;
        };
        let Some(written) = entry.first_token else {
            continue;
        };
        let Some(claimed) = span.time_to_token else {
            if exchange.is_complete() {
                complaints.add(|| format!("{}: no time to first token", exchange.name()));
            }
            continue;
        };
        let Ok(claimed) = Duration::try_from_secs_f64(claimed) else {
            complaints.add(|| format!("{}: {claimed} s is no time", exchange.name()));
            continue;
        };
        let least = written.since(entry.received);
        let asked = exchange.receipt.asked;
        let most = exchange.receipt.first_token.map(|came| came.since(asked));
        let too_long = most.is_some_and(|most| claimed > most + TOLERANCE);
        if claimed + TOLERANCE < least || too_long {
            complaints.add(|| {
                format!("{}: {claimed:?}, but {least:?} to {most:?} passed", exchange.name())
            });
        }
        errors.push(claimed.abs_diff(least).max(claimed.abs_diff(written.since(asked))));
    }
    errors.sort_unstable();
    let shown = errors.partition_point(|error| *error <= TOLERANCE);
    // Not wrong: each value stood the test above. Only how exact it is could not be seen.
    let busy = if ratio(shown, errors.len()) < LEAST_SHOWN {
        " (the machine was too busy to show how exact they are)"
    } else {
        ""
    };
    let finding = format!(
        "all {} within what backend and client saw; error at most p50 {}, p99 {}, max {}; {shown} within {} ms{busy}",
        errors.len(),
        millis(percentile(&errors, 0.5)),
        millis(percentile(&errors, 0.99)),
        millis(errors.last().copied()),
        TOLERANCE.as_millis()
    );
    Check { question: "time to first token", finding, complaints }
}

/// Zero of nothing.
#[expect(clippy::cast_precision_loss, reason = "counts of the demo stay far below 2^52")]
fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The smallest value that at least this share of the sorted values do not exceed.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index below the length, which stays far below 2^52"
)]
fn percentile(sorted: &[Duration], share: f64) -> Option<Duration> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

fn millis(time: Option<Duration>) -> String {
    time.map_or("–".to_owned(), |time| format!("{:.2} ms", time.as_secs_f64() * 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let sorted: Vec<_> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&sorted, 0.5), Some(Duration::from_millis(50)));
        assert_eq!(percentile(&sorted, 0.99), Some(Duration::from_millis(99)));
        assert_eq!(percentile(&[], 0.5), None);
    }
}
