//! Does the telemetry that arrived agree with what was really sent?
//!
//! Three witnesses are compared exchange by exchange: the backend's ledger, the client's receipt, and the spans that
//! came over OTLP. Pure arithmetic on their words.

use std::collections::HashMap;
use std::fmt;

use crate::cli::demo::load::{Ended, Receipt, Receipts, hexadecimal};
use crate::cli::demo::receiver::{Arrived, Span};

mod time;

/// Complaints kept per check; the rest are only counted.
const MOST_COMPLAINTS: usize = 5;

/// What the witnesses say.
#[derive(Debug)]
pub struct Evidence<'a> {
    pub receipts: &'a Receipts,
    pub ledger: &'a [tokengauge_simulator::Entry],
    /// Ledger entries that had to make room.
    pub forgotten: u64,
    pub arrived: &'a Arrived,
}

/// The outcome of the comparison.
#[derive(Debug, Default)]
pub struct Report {
    checks: Vec<Check>,
}

/// One question and its answer.
#[derive(Debug)]
struct Check {
    question: &'static str,
    /// What was found, in numbers.
    finding: String,
    complaints: Complaints,
}

#[derive(Debug, Default)]
struct Complaints {
    first: Vec<String>,
    count: usize,
}

impl Report {
    pub fn of(evidence: &Evidence<'_>) -> Self {
        let exchanges = evidence.exchanges();
        Self {
            checks: vec![
                accounting(evidence, &exchanges),
                totals(evidence),
                counted(&exchanges),
                reported(&exchanges),
                time::first_token(&exchanges),
            ],
        }
    }

    /// Whether everything agrees, and there was something to agree on.
    pub fn agrees(&self) -> bool {
        self.checks.iter().all(|check| check.complaints.count == 0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.checks {
            let verdict = if check.complaints.count == 0 { "ok    " } else { "FAILED" };
            writeln!(f, "  {verdict} {:<22} {}", check.question, check.finding)?;
            for complaint in &check.complaints.first {
                writeln!(f, "           {complaint}")?;
            }
            let more = check.complaints.count.saturating_sub(check.complaints.first.len());
            if more > 0 {
                writeln!(f, "           and {more} more")?;
            }
        }
        Ok(())
    }
}

impl Complaints {
    fn add(&mut self, complaint: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < MOST_COMPLAINTS {
            self.first.push(complaint());
        }
    }
}

/// One exchange and all that is known of it.
struct Exchange<'a> {
    receipt: &'a Receipt,
    entry: Option<&'a tokengauge_simulator::Entry>,
    spans: &'a [Span],
}

impl Evidence<'_> {
    /// Every exchange of the demo's clients that was sent at all.
    fn exchanges(&self) -> Vec<Exchange<'_>> {
        let ids = self.ledger.iter().map(|entry| (entry.request_id.as_str(), entry));
        let entries: HashMap<&str, &tokengauge_simulator::Entry> = ids.collect();
        let sent = self.receipts.kept.iter().filter(|receipt| receipt.ended != Ended::Unsent);
        sent.map(|receipt| Exchange {
            receipt,
            entry: entries.get(hexadecimal(&receipt.trace_id).as_str()).copied(),
            spans: self.arrived.spans(&receipt.trace_id),
        })
        .collect()
    }

    /// Whether some witness had to forget, so that a gap proves nothing.
    const fn has_gaps(&self) -> bool {
        self.receipts.forgotten + self.forgotten + self.arrived.dropped > 0
    }
}

impl Exchange<'_> {
    fn client_span(&self) -> Option<&Span> {
        self.spans.iter().find(|span| !span.server)
    }

    /// Whether backend and client both say that everything arrived.
    fn is_complete(&self) -> bool {
        let sent =
            self.entry.is_some_and(|entry| entry.ended == tokengauge_simulator::Ended::Complete);
        sent && self.receipt.ended == Ended::Complete
    }

    fn name(&self) -> String {
        format!("{} {}", self.receipt.scenario, hexadecimal(&self.receipt.trace_id))
    }
}

/// Each exchange has exactly one SERVER and one CLIENT span, and whatever was answered stands in the ledger.
fn accounting(evidence: &Evidence<'_>, exchanges: &[Exchange<'_>]) -> Check {
    let mut complaints = Complaints::default();
    let gaps = evidence.has_gaps();
    let mut skipped = 0_usize;
    for exchange in exchanges {
        let servers = exchange.spans.iter().filter(|span| span.server).count();
        let clients = exchange.spans.len() - servers;
        let unknown = exchange.entry.is_none() && exchange.receipt.status == Some(200);
        if gaps && (unknown || exchange.spans.is_empty()) {
            skipped += 1;
        } else if (servers, clients) != (1, 1) {
            complaints.add(|| {
                format!("{}: {servers} SERVER and {clients} CLIENT spans", exchange.name())
            });
        } else if unknown {
            complaints
                .add(|| format!("{}: answered, but not in the backend's ledger", exchange.name()));
        }
    }
    if exchanges.is_empty() {
        complaints.add(|| "no exchange took place".to_owned());
    }
    let count = |ended| evidence.receipts.kept.iter().filter(|it| it.ended == ended).count();
    let finding = format!(
        "{} exchanges: {} to the end, {} left by the client, {} broken off{}{}",
        exchanges.len(),
        count(Ended::Complete),
        count(Ended::Left),
        count(Ended::Broken),
        note(count(Ended::Unsent), "could not connect"),
        note(skipped, "too long ago to be checked")
    );
    Check { question: "spans, once each", finding, complaints }
}

fn note(count: usize, what: &str) -> String {
    if count == 0 { String::new() } else { format!(", {count} {what}") }
}

/// The counters agree with the spans, exchanges of other clients included.
fn totals(evidence: &Evidence<'_>) -> Check {
    let mut complaints = Complaints::default();
    #[expect(clippy::cast_precision_loss, reason = "a count of the demo stays far below 2^52")]
    let spans = evidence.arrived.server_spans as f64;
    for metric in ["tokengauge.requests.started", "tokengauge.requests.finished"] {
        match evidence.arrived.sum(metric) {
            Some(total) if (total - spans).abs() < 0.5 => {}
            Some(total) => {
                complaints.add(|| format!("{metric} = {total}, but {spans} SERVER spans"))
            }
            None => complaints.add(|| format!("{metric} never arrived")),
        }
    }
    let finding = format!("requests.started and requests.finished against {spans} SERVER spans");
    Check { question: "counters", finding, complaints }
}

/// Counted tokens are those that were sent; of an answer cut short, at least those received and at most those sent.
fn counted(exchanges: &[Exchange<'_>]) -> Check {
    let mut complaints = Complaints::default();
    let (mut whole, mut cut, mut tokens) = (0, 0, 0);
    for exchange in exchanges {
        let (Some(entry), Some(span)) = (exchange.entry, exchange.client_span()) else {
            continue;
        };
        let counted = span.counted.unwrap_or_default();
        let least = if exchange.is_complete() { entry.tokens } else { exchange.receipt.tokens };
        if exchange.is_complete() {
            whole += 1
        } else {
            cut += 1
        }
        tokens += counted;
        if !(least..=entry.tokens).contains(&counted) {
            let (received, sent) = (exchange.receipt.tokens, entry.tokens);
            complaints.add(|| {
                format!("{}: counted {counted}, sent {sent}, received {received}", exchange.name())
            });
        }
    }
    if tokens == 0 {
        complaints.add(|| "no token was counted".to_owned());
    }
    let finding = format!(
        "{tokens} tokens; equal in {whole} complete answers, within bounds in {cut} others"
    );
    Check { question: "tokens counted", finding, complaints }
}

/// Usage on the span is the usage that the backend reported.
fn reported(exchanges: &[Exchange<'_>]) -> Check {
    let mut complaints = Complaints::default();
    let mut with_usage = 0_usize;
    for exchange in exchanges.iter().filter(|it| it.is_complete()) {
        let (Some(entry), Some(span)) = (exchange.entry, exchange.client_span()) else {
            continue;
        };
        let sent = entry.reported.map(|usage| usage.output).filter(|output| *output > 0);
        with_usage += usize::from(sent.is_some());
        if span.reported.filter(|output| *output > 0) != sent {
            complaints.add(|| {
                format!("{}: {:?} on the span, {sent:?} sent", exchange.name(), span.reported)
            });
        }
    }
    let finding = format!("equal in {with_usage} answers that told their usage");
    Check { question: "usage reported", finding, complaints }
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

    /// Asked at 100, received by the backend at 101, first token written at 150, come at 152; 40 tokens.
    struct Case {
        receipt: Receipt,
        entry: Option<tokengauge_simulator::Entry>,
        spans: Vec<Span>,
        finished: f64,
    }

    fn good() -> Case {
        let client = Span {
            server: false,
            counted: Some(40),
            reported: Some(40),
            time_to_token: Some(0.0505),
        };
        Case {
            receipt: Receipt {
                trace_id: TRACE,
                scenario: "stream",
                stream: true,
                asked: at(100),
                first_token: Some(at(152)),
                tokens: 40,
                status: Some(200),
                ended: Ended::Complete,
            },
            entry: Some(tokengauge_simulator::Entry {
                request_id: Name::new(&hexadecimal(&TRACE)).unwrap(),
                model: Name::new("m"),
                stream: true,
                tokens: 40,
                reported: Some(tokengauge_simulator::Usage { input: 5, output: 40, reasoning: 0 }),
                received: at(101),
                head: Some(at(101)),
                first_token: Some(at(150)),
                last_token: Some(at(400)),
                end: at(401),
                ended: tokengauge_simulator::Ended::Complete,
            }),
            spans: vec![Span { server: true, ..Span::default() }, client],
            finished: 1.0,
        }
    }

    /// What is wrong with a case that is good but for `spoil`; `None` where everything agrees.
    fn wrong(spoil: impl FnOnce(&mut Case)) -> Option<String> {
        let mut case = good();
        spoil(&mut case);
        let sums =
            [("tokengauge.requests.started", 1.0), ("tokengauge.requests.finished", case.finished)];
        let arrived = Arrived::of(case.spans.into_iter().map(|span| (TRACE, span)), sums);
        let receipts = Receipts { kept: [case.receipt].into(), forgotten: 0 };
        let ledger: Vec<_> = case.entry.into_iter().collect();
        let report = Report::of(&Evidence {
            receipts: &receipts,
            ledger: &ledger,
            forgotten: 0,
            arrived: &arrived,
        });
        (!report.agrees()).then(|| report.to_string())
    }

    fn complains(text: &str, spoil: impl FnOnce(&mut Case)) {
        let found = wrong(spoil).unwrap_or_default();
        assert!(found.contains("FAILED") && found.contains(text), "{text}: {found}");
    }

    #[test]
    fn what_agrees_agrees() {
        assert_eq!(wrong(|_| ()), None);
    }

    #[test]
    fn a_token_more_or_less_is_found() {
        complains("counted 39, sent 40", |case| case.spans[1].counted = Some(39));
        complains("counted 41, sent 40", |case| case.spans[1].counted = Some(41));
        complains("counted 0, sent 40", |case| case.spans[1].counted = None);
    }

    #[test]
    fn of_an_answer_left_early_the_count_lies_between_received_and_sent() {
        let left = |counted| {
            move |case: &mut Case| {
                case.receipt.ended = Ended::Left;
                case.receipt.tokens = 12;
                case.entry.as_mut().unwrap().ended = tokengauge_simulator::Ended::ClientGone;
                case.entry.as_mut().unwrap().tokens = 15;
                case.entry.as_mut().unwrap().reported = None;
                case.spans[1].counted = Some(counted);
            }
        };
        assert!([12, 13, 15].into_iter().all(|counted| wrong(left(counted)).is_none()));
        complains("counted 11", left(11));
        complains("counted 16", left(16));
    }

    #[test]
    fn usage_that_was_not_sent_or_not_seen_is_found() {
        complains("on the span", |case| case.spans[1].reported = None);
        complains("on the span", |case| case.entry.as_mut().unwrap().reported = None);
        complains("on the span", |case| case.spans[1].reported = Some(41));
    }

    #[test]
    fn spans_missing_or_double_are_found() {
        complains("0 SERVER and 0 CLIENT", |case| case.spans.clear());
        complains("1 SERVER and 2 CLIENT", |case| case.spans.push(case.spans[1].clone()));
        complains("not in the backend's ledger", |case| case.entry = None);
        complains("requests.finished = 2", |case| case.finished = 2.0);
    }

    #[test]
    fn a_time_to_first_token_outside_of_what_both_sides_saw_is_found() {
        complains("passed", |case| case.spans[1].time_to_token = Some(0.043));
        complains("passed", |case| case.spans[1].time_to_token = Some(0.058));
        complains("no time to first token", |case| case.spans[1].time_to_token = None);
        complains("is no time", |case| case.spans[1].time_to_token = Some(-1.0));
        assert_eq!(wrong(|case| case.spans[1].time_to_token = Some(0.0519)), None);
    }

    #[test]
    fn a_busy_machine_is_not_blamed_on_the_proxy() {
        // Written at 150, yet it came at 190: the proxy may have had it at any time between.
        let found = wrong(|case| {
            case.receipt.first_token = Some(at(190));
            case.spans[1].time_to_token = Some(0.080);
        });
        assert_eq!(found, None);
    }

    #[test]
    fn a_run_without_exchanges_shows_nothing() {
        let receipts = Receipts::default();
        let arrived = Arrived::of([], []);
        let report = Report::of(&Evidence {
            receipts: &receipts,
            ledger: &[],
            forgotten: 0,
            arrived: &arrived,
        });
        assert!(!report.agrees());
    }
}
