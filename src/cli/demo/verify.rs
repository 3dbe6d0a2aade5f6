//! Compares the telemetry that the demo received with the traffic that was sent.
//!
//! Each request has three sources: the backend's record (the ledger), the client's record, and the spans received over
//! OTLP.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use crate::cli::demo::load::{ClientRecord, ClientRecords, Outcome, to_hex};
use crate::cli::demo::receiver::{ReceivedTelemetry, Span};

/// Maximum number of mismatches that each check prints.
const MAX_MISMATCHES: usize = 5;

/// The data of the three sources.
#[derive(Debug)]
pub struct Observations<'a> {
    pub records: &'a ClientRecords,
    pub ledger: &'a [tokengauge_simulator::Entry],
    /// Number of entries that the backend's ledger dropped to limit memory.
    pub dropped: u64,
    pub telemetry: &'a ReceivedTelemetry,
}

/// The result of the comparison.
#[derive(Debug, Default)]
pub struct Report {
    checks: Vec<Check>,
}

#[derive(Debug)]
struct Check {
    name: &'static str,
    /// A summary of the result in numbers.
    summary: String,
    mismatches: Mismatches,
}

#[derive(Debug, Default)]
struct Mismatches {
    first: Vec<String>,
    count: usize,
}

impl Report {
    pub fn from_observations(observations: &Observations<'_>) -> Self {
        let exchanges = observations.exchanges();
        Self {
            checks: vec![
                check_spans(observations, &exchanges),
                check_counters(observations),
                check_counted_tokens(&exchanges),
                check_reported_usage(&exchanges),
                check_first_token(&exchanges),
            ],
        }
    }

    /// Returns whether all checks succeeded. A run without any request fails.
    pub fn agrees(&self) -> bool {
        self.checks.iter().all(|check| check.mismatches.count == 0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.checks {
            let verdict = if check.mismatches.count == 0 { "ok    " } else { "FAILED" };
            writeln!(f, "  {verdict} {:<22} {}", check.name, check.summary)?;
            for mismatch in &check.mismatches.first {
                writeln!(f, "           {mismatch}")?;
            }
            let more = check.mismatches.count.saturating_sub(check.mismatches.first.len());
            if more > 0 {
                writeln!(f, "           and {more} more")?;
            }
        }
        Ok(())
    }
}

impl Mismatches {
    fn add(&mut self, mismatch: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < MAX_MISMATCHES {
            self.first.push(mismatch());
        }
    }
}

/// One request and its response, with the data from all sources.
struct Exchange<'a> {
    record: &'a ClientRecord,
    entry: Option<&'a tokengauge_simulator::Entry>,
    spans: &'a [Span],
}

impl Observations<'_> {
    /// Returns the requests of the demo's clients, except requests that could not be sent.
    fn exchanges(&self) -> Vec<Exchange<'_>> {
        let ids = self.ledger.iter().map(|entry| (entry.request_id.as_str(), entry));
        let entries: HashMap<&str, &tokengauge_simulator::Entry> = ids.collect();
        let sent = self.records.kept.iter().filter(|record| record.outcome != Outcome::Unsent);
        sent.map(|record| Exchange {
            record,
            entry: entries.get(to_hex(&record.trace_id).as_str()).copied(),
            spans: self.telemetry.spans(&record.trace_id),
        })
        .collect()
    }

    /// Returns whether a source dropped data. If so, a missing request is not an error.
    const fn has_gaps(&self) -> bool {
        self.records.dropped + self.dropped + self.telemetry.dropped > 0
    }
}

impl Exchange<'_> {
    /// Returns the ledger entry and the CLIENT span, or `None` if one is missing.
    fn compared(&self) -> Option<(&tokengauge_simulator::Entry, &Span)> {
        self.entry.zip(self.spans.iter().find(|span| !span.server))
    }

    /// Returns whether the backend sent the complete response and the client received it completely.
    fn is_complete(&self) -> bool {
        let sent = self
            .entry
            .is_some_and(|entry| entry.ended == tokengauge_simulator::ResponseEnd::Complete);
        sent && self.record.outcome == Outcome::Complete
    }

    fn name(&self) -> String {
        format!("{} {}", self.record.scenario, to_hex(&self.record.trace_id))
    }
}

/// Checks that each request has one SERVER and one CLIENT span, and that the ledger contains each request with status
/// 200.
fn check_spans(observations: &Observations<'_>, exchanges: &[Exchange<'_>]) -> Check {
    let mut mismatches = Mismatches::default();
    let gaps = observations.has_gaps();
    let mut skipped = 0_usize;
    for exchange in exchanges {
        let servers = exchange.spans.iter().filter(|span| span.server).count();
        let clients = exchange.spans.len() - servers;
        let unknown = exchange.entry.is_none() && exchange.record.status == Some(200);
        if gaps && (unknown || exchange.spans.is_empty()) {
            skipped += 1;
        } else if (servers, clients) != (1, 1) {
            mismatches.add(|| {
                format!("{}: {servers} SERVER and {clients} CLIENT spans", exchange.name())
            });
        } else if unknown {
            mismatches.add(|| {
                format!("{}: has a response, but is not in the backend's ledger", exchange.name())
            });
        }
    }
    if exchanges.is_empty() {
        mismatches.add(|| "there were no exchanges".to_owned());
    }
    let count =
        |ended| observations.records.kept.iter().filter(|record| record.outcome == ended).count();
    let summary = format!(
        "{} exchanges: {} complete, {} aborted by the client, {} truncated{}{}",
        exchanges.len(),
        count(Outcome::Complete),
        count(Outcome::Disconnected),
        count(Outcome::Truncated),
        note(count(Outcome::Unsent), "could not connect"),
        note(skipped, "too old to be checked")
    );
    Check { name: "spans, once each", summary, mismatches }
}

fn note(count: usize, what: &str) -> String {
    if count == 0 { String::new() } else { format!(", {count} {what}") }
}

/// Checks that the counters agree with the number of SERVER spans. Both include requests of other clients.
fn check_counters(observations: &Observations<'_>) -> Check {
    let mut mismatches = Mismatches::default();
    #[expect(clippy::cast_precision_loss, reason = "a count of the demo stays far below 2^52")]
    let spans = observations.telemetry.server_spans as f64;
    for metric in ["tokengauge.requests.started", "tokengauge.requests.finished"] {
        match observations.telemetry.sum(metric) {
            Some(total) if (total - spans).abs() < 0.5 => {}
            Some(total) => {
                mismatches.add(|| format!("{metric} = {total}, but {spans} SERVER spans"))
            }
            None => mismatches.add(|| format!("{metric} was not received")),
        }
    }
    let summary =
        format!("requests.started and requests.finished compared with {spans} SERVER spans");
    Check { name: "counters", summary, mismatches }
}

/// Checks that the proxy counted the tokens that the backend sent. For a truncated response, the count must be between
/// the tokens that the client received and those that the backend sent.
fn check_counted_tokens(exchanges: &[Exchange<'_>]) -> Check {
    let mut mismatches = Mismatches::default();
    let (mut whole, mut cut, mut tokens) = (0, 0, 0);
    for exchange in exchanges {
        let Some((entry, span)) = exchange.compared() else {
            continue;
        };
        let counted = span.counted.unwrap_or_default();
        let least = if exchange.is_complete() { entry.tokens } else { exchange.record.tokens };
        if exchange.is_complete() {
            whole += 1
        } else {
            cut += 1
        }
        tokens += counted;
        if !(least..=entry.tokens).contains(&counted) {
            let (received, sent) = (exchange.record.tokens, entry.tokens);
            mismatches.add(|| {
                format!("{}: counted {counted}, sent {sent}, received {received}", exchange.name())
            });
        }
    }
    if tokens == 0 {
        mismatches.add(|| "no token was counted".to_owned());
    }
    let summary = format!(
        "{tokens} tokens; equal in {whole} complete responses, within bounds in {cut} others"
    );
    Check { name: "tokens counted", summary, mismatches }
}

/// Checks that the span reports the same token usage as the backend's response.
fn check_reported_usage(exchanges: &[Exchange<'_>]) -> Check {
    let mut mismatches = Mismatches::default();
    let mut with_usage = 0_usize;
    for exchange in exchanges.iter().filter(|record| record.is_complete()) {
        let Some((entry, span)) = exchange.compared() else {
            continue;
        };
        let sent = entry.reported.map(|usage| usage.output).filter(|output| *output > 0);
        with_usage += usize::from(sent.is_some());
        if span.reported.filter(|output| *output > 0) != sent {
            mismatches.add(|| {
                format!("{}: {:?} on the span, {sent:?} sent", exchange.name(), span.reported)
            });
        }
    }
    let summary = format!("equal in {with_usage} responses that reported usage");
    Check { name: "usage reported", summary, mismatches }
}

/// Maximum error of the time to first token that the proxy reports.
const TOLERANCE: Duration = Duration::from_millis(5);

/// If fewer than 1 in 10 requests are within the tolerance, the machine was too busy to show the accuracy.
const MIN_ACCURATE: usize = 10;

/// Checks the time to first token that the proxy reports. No source knows the exact value, but two sources bound it.
///
/// The proxy measures the time from accepting the request to observing the first token, T. The backend measures the
/// time from receiving the request to writing the first token, which cannot be longer than T. The client measures the
/// time from sending the request to receiving the first token, which cannot be shorter than T. A value outside of these
/// bounds by more than the tolerance is wrong.
///
/// For a value inside the bounds, `error` is the largest possible deviation from the time between accept and the
/// backend's write. The time of accept is only known to be between the client's send and the backend's receive. On an
/// idle machine, `error` is much smaller than the tolerance. On a busy machine, it includes waiting for a CPU.
fn check_first_token(exchanges: &[Exchange<'_>]) -> Check {
    let mut mismatches = Mismatches::default();
    let mut errors = Vec::new();
    for exchange in exchanges.iter().filter(|record| record.record.stream) {
        let Some((entry, span)) = exchange.compared() else {
            continue;
        };
        let Some(written) = entry.first_token else {
            continue;
        };
        let Some(claimed) = span.time_to_first_token else {
            if exchange.is_complete() {
                mismatches.add(|| format!("{}: no time to first token", exchange.name()));
            }
            continue;
        };
        let Ok(claimed) = Duration::try_from_secs_f64(claimed) else {
            mismatches.add(|| format!("{}: {claimed} s is not a valid time", exchange.name()));
            continue;
        };
        let least = written.since(entry.received);
        let sent_at = exchange.record.sent_at;
        let most = exchange.record.first_token.map(|came| came.since(sent_at));
        let too_long = most.is_some_and(|most| claimed > most + TOLERANCE);
        if claimed + TOLERANCE < least || too_long {
            mismatches.add(|| {
                format!("{}: {claimed:?}, but {least:?} to {most:?} passed", exchange.name())
            });
        }
        errors.push(claimed.abs_diff(least).max(claimed.abs_diff(written.since(sent_at))));
    }
    errors.sort_unstable();
    let shown = errors.partition_point(|error| *error <= TOLERANCE);
    // This is not an error: each value is within its bounds, and only the accuracy is unknown.
    let busy = if shown == 0 || shown * MIN_ACCURATE < errors.len() {
        " (the machine was too busy to show the accuracy)"
    } else {
        ""
    };
    let summary = format!(
        "all {} within the bounds of backend and client; error at most p50 {}, p99 {}, max {}; {shown} within {} ms{busy}",
        errors.len(),
        millis(percentile(&errors, 0.5)),
        millis(percentile(&errors, 0.99)),
        millis(errors.last().copied()),
        TOLERANCE.as_millis()
    );
    Check { name: "time to first token", summary, mismatches }
}

/// Returns a percentile: the smallest value that the ratio `share` of the sorted values does not exceed.
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
    use tokengauge_types::clock::MonotonicInstant;
    use tokengauge_types::label::Name;

    const TRACE: [u8; 16] = [7; 16];

    fn at(millis: u64) -> MonotonicInstant {
        MonotonicInstant::from_millis(millis)
    }

    /// One request. The client sends it at 100 ms, and the backend receives it at 101 ms. The backend writes the first
    /// token at 150 ms, and the client receives it at 152 ms. The response has 40 tokens.
    struct Case {
        record: ClientRecord,
        entry: Option<tokengauge_simulator::Entry>,
        spans: Vec<Span>,
        finished: f64,
    }

    fn good() -> Case {
        let client = Span {
            server: false,
            counted: Some(40),
            reported: Some(40),
            time_to_first_token: Some(0.0505),
        };
        Case {
            record: ClientRecord {
                trace_id: TRACE,
                scenario: "stream",
                stream: true,
                sent_at: at(100),
                first_token: Some(at(152)),
                tokens: 40,
                status: Some(200),
                outcome: Outcome::Complete,
            },
            entry: Some(tokengauge_simulator::Entry {
                request_id: Name::new(&to_hex(&TRACE)).unwrap(),
                model: Name::new("m"),
                stream: true,
                tokens: 40,
                reported: Some(tokengauge_simulator::Usage { input: 5, output: 40, reasoning: 0 }),
                received: at(101),
                head: Some(at(101)),
                first_token: Some(at(150)),
                last_token: Some(at(400)),
                end: at(401),
                ended: tokengauge_simulator::ResponseEnd::Complete,
            }),
            spans: vec![Span { server: true, ..Span::default() }, client],
            finished: 1.0,
        }
    }

    /// Returns the report about a valid case after `spoil` has changed the case. `None` if all sources still agree.
    fn wrong(spoil: impl FnOnce(&mut Case)) -> Option<String> {
        let mut case = good();
        spoil(&mut case);
        let sums =
            [("tokengauge.requests.started", 1.0), ("tokengauge.requests.finished", case.finished)];
        let telemetry =
            ReceivedTelemetry::from_parts(case.spans.into_iter().map(|span| (TRACE, span)), sums);
        let records = ClientRecords { kept: [case.record].into(), dropped: 0 };
        let ledger: Vec<_> = case.entry.into_iter().collect();
        let report = Report::from_observations(&Observations {
            records: &records,
            ledger: &ledger,
            dropped: 0,
            telemetry: &telemetry,
        });
        (!report.agrees()).then(|| report.to_string())
    }

    fn reports(text: &str, spoil: impl FnOnce(&mut Case)) {
        let found = wrong(spoil).unwrap_or_default();
        assert!(found.contains("FAILED") && found.contains(text), "{text}: {found}");
    }

    #[test]
    fn accepts_matching_data() {
        assert_eq!(wrong(|_| ()), None);
    }

    #[test]
    fn detects_a_wrong_token_count() {
        reports("counted 39, sent 40", |case| case.spans[1].counted = Some(39));
        reports("counted 41, sent 40", |case| case.spans[1].counted = Some(41));
        reports("counted 0, sent 40", |case| case.spans[1].counted = None);
    }

    #[test]
    fn accepts_counts_between_received_and_sent_for_truncated_responses() {
        let left = |counted| {
            move |case: &mut Case| {
                case.record.outcome = Outcome::Disconnected;
                case.record.tokens = 12;
                case.entry.as_mut().unwrap().ended = tokengauge_simulator::ResponseEnd::ClientGone;
                case.entry.as_mut().unwrap().tokens = 15;
                case.entry.as_mut().unwrap().reported = None;
                case.spans[1].counted = Some(counted);
            }
        };
        assert!([12, 13, 15].into_iter().all(|counted| wrong(left(counted)).is_none()));
        reports("counted 11", left(11));
        reports("counted 16", left(16));
    }

    #[test]
    fn detects_wrong_usage() {
        reports("on the span", |case| case.spans[1].reported = None);
        reports("on the span", |case| case.entry.as_mut().unwrap().reported = None);
        reports("on the span", |case| case.spans[1].reported = Some(41));
    }

    #[test]
    fn detects_missing_and_duplicate_spans() {
        reports("0 SERVER and 0 CLIENT", |case| case.spans.clear());
        reports("1 SERVER and 2 CLIENT", |case| case.spans.push(case.spans[1].clone()));
        reports("not in the backend's ledger", |case| case.entry = None);
        reports("requests.finished = 2", |case| case.finished = 2.0);
    }

    #[test]
    fn detects_a_wrong_time_to_first_token() {
        reports("passed", |case| case.spans[1].time_to_first_token = Some(0.043));
        reports("passed", |case| case.spans[1].time_to_first_token = Some(0.058));
        reports("no time to first token", |case| case.spans[1].time_to_first_token = None);
        reports("is not a valid time", |case| case.spans[1].time_to_first_token = Some(-1.0));
        assert_eq!(wrong(|case| case.spans[1].time_to_first_token = Some(0.0519)), None);
    }

    #[test]
    fn accepts_delays_of_a_busy_machine() {
        // The backend wrote the token at 150 ms, and the client received it at 190 ms. The proxy can have observed it
        // at any time between.
        let found = wrong(|case| {
            case.record.first_token = Some(at(190));
            case.spans[1].time_to_first_token = Some(0.080);
        });
        assert_eq!(found, None);
    }

    #[test]
    fn fails_without_exchanges() {
        let records = ClientRecords::default();
        let telemetry = ReceivedTelemetry::from_parts([], []);
        let report = Report::from_observations(&Observations {
            records: &records,
            ledger: &[],
            dropped: 0,
            telemetry: &telemetry,
        });
        assert!(!report.agrees());
    }

    #[test]
    fn percentiles_are_observed_values() {
        let sorted: Vec<_> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&sorted, 0.5), Some(Duration::from_millis(50)));
        assert_eq!(percentile(&sorted, 0.99), Some(Duration::from_millis(99)));
        assert_eq!(percentile(&[], 0.5), None);
    }
}
