//! Invariants of every record, for any sequence of events.

use std::time::Duration;

use tokengauge_llm::frame::ParseError;
use tokengauge_measure::record::{Call, Completeness, Outcome, Output, Record};
use tokengauge_measure::timing::LiveSample;
use tokengauge_types::event::{Direction, Ending, ErrorSource, TimeoutKind};

use super::Played;
use super::words::Scene;

/// Maximum number of choices whose ends are distinguished.
const MAX_CHOICES: usize = 128;

pub fn check(scene: &Scene, played: &Played) {
    let record = &played.record;
    assert_eq!(record.ending, scene.ending);
    assert_eq!(
        Some(record.stages.iter().map(|(_, length)| length).sum::<Duration>()),
        record.timestamps.duration(),
        "the stages do not add up to the total: {:?}",
        record.timestamps
    );
    counts_every_byte(scene, record);
    if scene.is_in_order() {
        is_in_order(record);
    }
    outcome_makes_sense(record);
    anomalies_are_bounded(scene, record);
    if let Some(call) = &record.call {
        completeness_makes_sense(scene, record, call);
        rates_are_numbers(call);
        if let Some(output) = &call.output {
            output_adds_up(scene, played, output);
        }
    }
}

fn counts_every_byte(scene: &Scene, record: &Record) {
    let sum = |direction| {
        let bytes: usize = scene.arrivals(direction).map(|(bytes, _)| bytes.len()).sum();
        bytes as u64 + scene.lost(direction).unwrap_or(0)
    };
    assert_eq!(record.http.request_bytes, sum(Direction::Request));
    assert_eq!(record.http.response_bytes, sum(Direction::Response));
    let blocked: Duration = scene.arrivals(Direction::Response).map(|(_, blocked)| blocked).sum();
    assert_eq!(record.blocked, blocked);
}

/// If events arrive in order, the timestamps are in order.
fn is_in_order(record: &Record) {
    let timestamps = &record.timestamps;
    let in_order = [
        Some(timestamps.accept),
        timestamps.byte,
        timestamps.event,
        timestamps.token,
        timestamps.visible,
        timestamps.last,
        timestamps.end,
    ];
    let known: Vec<_> = in_order.into_iter().flatten().collect();
    assert!(known.is_sorted(), "{timestamps:?}");
    let text = [timestamps.event, timestamps.token, timestamps.last];
    assert!(
        timestamps.token.is_some() == timestamps.last.is_some()
            && text.is_sorted_by_key(Option::is_none),
        "{timestamps:?}"
    );
}

/// A successful record has no error type and no error source, and any other record has both. The error source must fit
/// the outcome.
fn outcome_makes_sense(record: &Record) {
    let ok = record.outcome == Outcome::Ok;
    assert_eq!(ok, record.error_type.is_none(), "{record:?}");
    assert_eq!(ok, record.error_source == ErrorSource::None, "{record:?}");
    let fits = match record.outcome {
        Outcome::Ok => true,
        Outcome::Cancelled => record.error_source == ErrorSource::Client,
        Outcome::Timeout => {
            let is_unread = matches!(
                record.ending,
                Ending::TimedOut(TimeoutKind::Send | TimeoutKind::TotalUnread)
            );
            let expected = if is_unread { ErrorSource::Client } else { ErrorSource::Upstream };
            record.error_source == expected
        }
        Outcome::Truncated => {
            matches!(record.error_source, ErrorSource::Upstream | ErrorSource::Proxy)
        }
        Outcome::Rejected => {
            matches!(record.error_source, ErrorSource::Client | ErrorSource::Proxy)
        }
        Outcome::Error if record.ending == Ending::Drained => {
            record.error_source != ErrorSource::None
        }
        Outcome::Error => {
            matches!(record.error_source, ErrorSource::Client | ErrorSource::Upstream)
        }
    };
    assert!(fits, "{:?} {:?}", record.outcome, record.error_source);
    if record.websocket.is_some() {
        return;
    }
    let refused = matches!(record.ending, Ending::Rejected(_));
    assert_eq!(record.outcome == Outcome::Rejected, refused);
    let call = record.call.as_ref();
    let streamed = call.is_some_and(|call| call.streamed);
    let timed_out = matches!(record.ending, Ending::TimedOut(_));
    assert!(timed_out || record.outcome != Outcome::Timeout);
    assert!(!timed_out || ok || record.outcome == Outcome::Timeout);
    if ok && record.ending != Ending::Complete {
        let cut = call.is_none_or(|call| call.complete == Completeness::Cut);
        assert!(streamed && !cut, "only a stream can end before its body");
    }
    if record.http.status.is_some_and(|status| status >= 400) && !refused && !timed_out {
        assert_eq!(record.outcome, Outcome::Error);
    }
    if record.outcome == Outcome::Truncated {
        assert!(streamed, "only a stream can be truncated");
    }
}

fn anomalies_are_bounded(scene: &Scene, record: &Record) {
    let mut kinds: Vec<_> = record.anomalies.iter().map(|(kind, _)| *kind).collect();
    kinds.sort_by_key(|kind| kind.as_str());
    let told = kinds.len();
    kinds.dedup();
    assert_eq!(kinds.len(), told, "{:?}", record.anomalies);
    assert!(!kinds.contains(&ParseError::Panic));
    let lost = [Direction::Request, Direction::Response].map(|way| scene.lost(way).is_some());
    assert_eq!(kinds.contains(&ParseError::Gap), lost.contains(&true));
    let times: u64 = record.anomalies.iter().map(|(_, times)| u64::from(*times)).sum();
    // Encoded bodies may decode to more bytes than they have on the wire.
    if !scene.is_coded() {
        let most = record.http.response_bytes + record.http.request_bytes;
        assert!(times <= most + scene.acts.len() as u64 + 4, "{times} oddities");
    }
}

/// A call that is `true` reached its end, and a call that is `cut` did not. A call with a gap is neither.
fn completeness_makes_sense(scene: &Scene, record: &Record, call: &Call) {
    let lost =
        scene.lost(Direction::Request).is_some() || scene.lost(Direction::Response).is_some();
    if lost {
        assert_eq!(call.complete, Completeness::Unobserved);
    }
    assert!(call.choices.len() <= MAX_CHOICES);
    if record.websocket.is_some() {
        return;
    }
    let delivered = record.ending == Ending::Complete;
    match (call.streamed, call.complete) {
        (_, Completeness::Unobserved) => {}
        (false, Completeness::Complete) => assert!(delivered),
        (false, Completeness::Cut) => assert!(!delivered || has(record, ParseError::Encoding)),
        (true, Completeness::Complete) => {
            let cut = delivered && record.outcome == Outcome::Truncated;
            assert!(!cut, "a response is both complete and truncated");
        }
        (true, Completeness::Cut) => {
            assert_ne!(record.outcome, Outcome::Ok, "an aborted exchange is successful")
        }
    }
}

fn has(record: &Record, wanted: ParseError) -> bool {
    record.anomalies.iter().any(|(kind, _)| *kind == wanted)
}

fn rates_are_numbers(call: &Call) {
    let rates = &call.rates;
    for rate in [rates.output, rates.total].into_iter().flatten() {
        assert!(rate.is_finite() && rate >= 0.0, "{rates:?}");
    }
    assert!(rates.output.is_none() || rates.unrated.is_none());
    assert!(call.output.is_some() || (rates.output, rates.total) == (None, None));
}

fn output_adds_up(scene: &Scene, played: &Played, output: &Output) {
    assert!(output.tokens.is_finite() && output.tokens >= 0.0);
    assert_eq!(output.by_kind.iter().sum::<u64>(), output.counted);
    assert_eq!(output.counted == 0, output.standard == 0);
    let standard = played.samples.iter().filter_map(|sample| {
        if let LiveSample::Standard { tokens } = sample {
            return Some(u64::from(*tokens));
        }
        None
    });
    // A second response head restarts the response, but samples of the first one remain reported.
    if scene.heads().count() <= 1 {
        assert_eq!(standard.sum::<u64>(), output.standard, "samples differ from the record");
    }
}
