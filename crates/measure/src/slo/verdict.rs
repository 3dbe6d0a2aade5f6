//! Verdict of one SLO on one request.

use std::time::Duration;

use crate::record::{Call, Completeness, Outcome, Record, Verdict};
use crate::slo::scope::is_stream;
use crate::slo::{CountingRules, Exclusion, Objective, Sli};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{Ending, ErrorSource};

/// A verdict, and the number of events that it counts for. A request is one event, unless the SLI counts tokens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WeightedVerdict {
    pub verdict: Verdict,
    pub events: u64,
}

impl Objective {
    /// Judges a request. `None` if the SLI does not apply, for example time to first token to a non-streaming response.
    pub(super) fn judge(&self, record: &Record, call: &Call) -> Option<WeightedVerdict> {
        let Self { indicator, counting, .. } = self;
        let result = RequestResult::from_record(record, counting);
        let verdict = indicator.judge(record, call, result)?;
        let left_out = record.timestamps.accept < MonotonicInstant::ZERO + counting.warmup
            || counting.is_burning_in(call)
            || counting.is_too_short(*indicator, call);
        let tokens = matches!(indicator, Sli::TokensAboveRate(_));
        Some(WeightedVerdict {
            verdict: if left_out { Verdict::Excluded } else { verdict },
            events: if tokens { output_tokens(call) } else { 1 },
        })
    }
}

impl Objective {
    /// Returns why a request with the verdict [`Verdict::Excluded`] does not count. `rate_limited`, `overload`, `shutdown`
    /// and `warming` are the exclusions of the configuration.
    pub(super) fn exclusion_reason(&self, record: &Record, call: &Call) -> &'static str {
        let Self { indicator, counting, .. } = self;
        if record.timestamps.accept < MonotonicInstant::ZERO + counting.warmup {
            "warmup"
        } else if counting.is_burning_in(call) {
            Exclusion::Warming.as_str()
        } else if counting.is_too_short(*indicator, call) {
            "short_response"
        } else if record.outcome == Outcome::Ok {
            "undefined"
        } else if let Some(exclusion) = counting.exclusion(record) {
            exclusion.as_str()
        } else if record.error_source == ErrorSource::Client {
            "client"
        } else {
            "undefined"
        }
    }
}

impl Sli {
    /// Judges a request without the counting rules. `None` if the SLI does not apply.
    ///
    /// SLIs on tokens, output rates and stalls apply only to streams. SLIs on the duration and the total rate do not
    /// apply to WebSocket sessions, because the client chooses their length. [`Sli::SystemRate`] judges minutes, not
    /// requests.
    fn judge(self, record: &Record, call: &Call, result: RequestResult) -> Option<Verdict> {
        let session = record.websocket.is_some();
        match self {
            Self::Availability => Some(result.verdict()),
            Self::Duration(_) | Self::TotalRate(_) if session => None,
            Self::Duration(limit) => Some(judge_duration(record, limit, result)),
            Self::TotalRate(floor) => call
                .series
                .operation
                .generates()
                .then(|| judge_total_rate(record, call, floor, result)),
            Self::SystemRate { .. } => None,
            Self::Ttft(_)
            | Self::FirstVisible(_)
            | Self::OutputRate(_)
            | Self::StallFree
            | Self::InterToken(_)
            | Self::TokensAboveRate(_)
                if !is_stream(call) =>
            {
                None
            }
            Self::Ttft(limit) => {
                let time = record.timestamps.time_to_first_token();
                Some(judge_first_token(record, call, time, limit, result))
            }
            Self::FirstVisible(limit) => {
                let time = record.timestamps.time_to_visible();
                Some(judge_first_token(record, call, time, limit, result))
            }
            Self::OutputRate(floor) | Self::TokensAboveRate(floor) => {
                Some(judge_measured(call.rates.output, |rate| rate >= floor))
            }
            Self::InterToken(limit) => {
                // Without an output rate, the decode time is not reliable.
                let rated = call.rates.output.and(call.rates.time_per_output_token);
                Some(judge_measured(rated, |time| time <= limit))
            }
            Self::StallFree => Some(judge_stalls(call, result)),
        }
    }
}

fn judge_measured<T>(measured: Option<T>, is_good: impl FnOnce(T) -> bool) -> Verdict {
    match measured.map(is_good) {
        Some(true) => Verdict::Good,
        Some(false) => Verdict::Bad,
        None => Verdict::Excluded,
    }
}

fn judge_duration(record: &Record, limit: Duration, result: RequestResult) -> Verdict {
    let Some(took) = record.timestamps.duration() else {
        return Verdict::Excluded;
    };
    match result {
        RequestResult::Served if took <= limit => Verdict::Good,
        // The exchange would have ended in time if the client had read without pauses.
        RequestResult::Served if took.saturating_sub(record.blocked) <= limit => Verdict::Excluded,
        RequestResult::Served | RequestResult::Failed => Verdict::Bad,
        RequestResult::Excused if disconnected_after(record, limit) => Verdict::Bad,
        RequestResult::Excused => Verdict::Excluded,
    }
}

fn judge_total_rate(record: &Record, call: &Call, floor: f64, result: RequestResult) -> Verdict {
    let (Some(rate), Some(took)) = (call.rates.total, record.timestamps.duration()) else {
        return Verdict::Excluded;
    };
    let unblocked = took.saturating_sub(record.blocked);
    match result {
        RequestResult::Served if rate >= floor => Verdict::Good,
        // The rate would have been high enough if the client had read without pauses.
        RequestResult::Served if rate * took.as_secs_f64() >= floor * unblocked.as_secs_f64() => {
            Verdict::Excluded
        }
        RequestResult::Served => Verdict::Bad,
        // A failed exchange has no comparable total rate; availability covers the failure.
        RequestResult::Failed | RequestResult::Excused => Verdict::Excluded,
    }
}

/// Judges the time to the first token or to the first visible token.
fn judge_first_token(
    record: &Record,
    call: &Call,
    time: Option<Duration>,
    limit: Duration,
    result: RequestResult,
) -> Verdict {
    let unobserved = call.complete == Completeness::Unobserved;
    match time {
        Some(time) if time <= limit => Verdict::Good,
        // The observer may have missed the first token, so a late one is not proven.
        Some(_) if unobserved => Verdict::Excluded,
        Some(_) => Verdict::Bad,
        None => match result {
            RequestResult::Failed => Verdict::Bad,
            RequestResult::Excused if !unobserved && disconnected_after(record, limit) => {
                Verdict::Bad
            }
            // A response without such a token: empty, a tool call, or only reasoning. None was due.
            RequestResult::Served | RequestResult::Excused => Verdict::Excluded,
        },
    }
}

/// Returns whether the client disconnected only after `limit` had passed. Time in which the client did not read is not
/// counted.
fn disconnected_after(record: &Record, limit: Duration) -> bool {
    let waited = record.timestamps.duration().map(|took| took.saturating_sub(record.blocked));
    record.ending == Ending::ClientDisconnected && waited.is_some_and(|waited| waited > limit)
}

/// Judges stalls. A stall is bad, no matter how the stream ended. A stream without a stall is good only if it was
/// served to its end.
fn judge_stalls(call: &Call, result: RequestResult) -> Verdict {
    match result {
        // The unobserved part may have ended a silence early, or may have caused one.
        _ if call.complete == Completeness::Unobserved => Verdict::Excluded,
        _ if !call.stalls.is_empty() => Verdict::Bad,
        RequestResult::Served => Verdict::Good,
        RequestResult::Failed | RequestResult::Excused => Verdict::Excluded,
    }
}

/// Returns N, rounded.
fn output_tokens(call: &Call) -> u64 {
    let tokens = call.output.as_ref().map_or(0.0, |output| output.tokens);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and token counts stay far below 2^52"
    )]
    let tokens = tokens.round() as u64;
    tokens
}

/// Result of a request for its SLOs, in which errors of the client are separate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RequestResult {
    Served,
    /// The backend, the network or this proxy made the request fail. An SLO covers what the client experiences, so the
    /// three are not distinguished.
    Failed,
    /// The client disconnected or sent an invalid request, or the operator ignores such failures.
    Excused,
}

impl RequestResult {
    fn from_record(record: &Record, counting: &CountingRules) -> Self {
        if record.outcome == Outcome::Ok {
            Self::Served
        } else if record.error_source == ErrorSource::Client || counting.excludes(record) {
            Self::Excused
        } else {
            Self::Failed
        }
    }

    const fn verdict(self) -> Verdict {
        match self {
            Self::Served => Verdict::Good,
            Self::Failed => Verdict::Bad,
            Self::Excused => Verdict::Excluded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::WarmupState;
    use crate::record::{Output, ResponseSummary, classify};
    use crate::slo::{CountingRules, Exclusion};
    use crate::testing::{at, objective, stream};
    use crate::timing::{Stall, StallKind, StallPhase, Stalls};
    use tokengauge_llm::dialect::Operation;
    use tokengauge_types::clock::MonotonicInstant;
    use tokengauge_types::event::{RejectReason, TimeoutKind, UpstreamFailure};

    const GOOD: Option<Verdict> = Some(Verdict::Good);
    const BAD: Option<Verdict> = Some(Verdict::Bad);
    const EXCLUDED: Option<Verdict> = Some(Verdict::Excluded);

    const FIRST_TOKEN: Sli = Sli::Ttft(Duration::from_millis(500));
    const RATE: Sli = Sli::OutputRate(30.0);
    const DURATION: Sli = Sli::Duration(Duration::from_secs(10));

    const VISIBLE: Sli = Sli::FirstVisible(Duration::from_millis(800));
    const TOTAL: Sli = Sli::TotalRate(40.0);
    const GAPS: Sli = Sli::InterToken(Duration::from_millis(20));
    const TOKENS: Sli = Sli::TokensAboveRate(30.0);

    fn judged(objective: &Objective, record: &Record) -> Option<WeightedVerdict> {
        objective.judge(record, record.call.as_ref().unwrap())
    }

    fn judge(indicator: Sli, record: &Record) -> Option<Verdict> {
        let objective = Objective { indicator, ..objective("a") };
        judged(&objective, record).map(|judged| judged.verdict)
    }

    /// Returns the verdicts of five SLIs: first visible token, total rate, stall-free, inter-token latency, tokens
    /// above a rate.
    fn others(record: &Record) -> [Option<Verdict>; 5] {
        [VISIBLE, TOTAL, Sli::StallFree, GAPS, TOKENS].map(|indicator| judge(indicator, record))
    }

    fn stalled(mut record: Record) -> Record {
        call(&mut record).stalls = Stalls {
            count: 1,
            total: Duration::from_secs(3),
            first: vec![Stall {
                phase: StallPhase::NextToken,
                kind: StallKind::Silent,
                begun: at(500),
                raised: at(2_500),
                lasted: Some(Duration::from_secs(3)),
            }],
        };
        record
    }

    /// Verdicts on availability, first token, rate and duration.
    fn verdicts(record: &Record) -> [Option<Verdict>; 4] {
        [Sli::Availability, FIRST_TOKEN, RATE, DURATION].map(|indicator| judge(indicator, record))
    }

    fn call(record: &mut Record) -> &mut Call {
        record.call.as_mut().unwrap()
    }

    fn ended(outcome: Outcome, ending: Ending) -> Record {
        Record { outcome, ending, error_source: ending.error_source(), ..stream() }
    }

    /// Changes the record to a stream that ended without a token, `millis` after accept.
    fn tokenless(mut record: Record, millis: u64) -> Record {
        record.timestamps.token = None;
        record.timestamps.visible = None;
        record.timestamps.last = None;
        record.timestamps.end = Some(at(millis));
        call(&mut record).rates = Default::default();
        record
    }

    fn refused(status: u16) -> Record {
        let answered = ResponseSummary { status: Some(status), ..ResponseSummary::default() };
        let (outcome, error_source, _) = classify(Ending::Complete, &answered);
        let mut record = tokenless(ended(outcome, Ending::Complete), 20);
        record.error_source = error_source;
        record.http.status = Some(status);
        call(&mut record).streamed = false;
        record
    }

    #[test]
    fn a_successful_stream_is_good_for_all_indicators() {
        assert_eq!(verdicts(&stream()), [GOOD; 4]);
    }

    #[test]
    fn a_value_at_the_threshold_is_good() {
        let mut record = stream();
        record.timestamps.token = Some(at(500));
        record.timestamps.end = Some(at(10_000));
        call(&mut record).rates.output = Some(30.0);
        assert_eq!(verdicts(&record), [GOOD; 4]);
        record.timestamps.token = Some(at(500) + Duration::from_nanos(1));
        record.timestamps.end = Some(at(10_000) + Duration::from_nanos(1));
        call(&mut record).rates.output = Some(29.999);
        assert_eq!(verdicts(&record), [GOOD, BAD, BAD, BAD]);
    }

    #[test]
    fn an_invalid_request_is_excluded() {
        for status in [400, 401, 403, 404, 413, 422, 499] {
            assert_eq!(verdicts(&refused(status)), [EXCLUDED; 4], "{status}");
        }
    }

    #[test]
    fn an_overloaded_or_failing_backend_is_bad() {
        for status in [408, 429, 500, 502, 503, 504, 529] {
            assert_eq!(verdicts(&refused(status)), [BAD, BAD, EXCLUDED, BAD], "{status}");
        }
    }

    #[test]
    fn an_error_in_a_stream_is_bad_with_any_status() {
        let record = Record {
            error_source: ErrorSource::Upstream,
            ..ended(Outcome::Error, Ending::Complete)
        };
        assert_eq!(verdicts(&record), [BAD, GOOD, GOOD, BAD]);
        let blamed = Record { error_source: ErrorSource::Client, ..record };
        assert_eq!(verdicts(&blamed), [EXCLUDED, GOOD, GOOD, EXCLUDED]);
    }

    #[test]
    fn a_stream_broken_by_any_other_party_than_the_client_is_bad() {
        for (outcome, ending) in [
            (Outcome::Error, Ending::UpstreamFailed(UpstreamFailure::MidBody)),
            (Outcome::Timeout, Ending::TimedOut(TimeoutKind::Idle)),
            (Outcome::Truncated, Ending::Complete),
            (Outcome::Truncated, Ending::Drained),
            (Outcome::Rejected, Ending::Rejected(RejectReason::Overload)),
            (Outcome::Rejected, Ending::Rejected(RejectReason::Draining)),
        ] {
            let record = ended(outcome, ending);
            assert_eq!(verdicts(&record), [BAD, GOOD, GOOD, BAD], "{ending:?}");
            let record = tokenless(record, 20);
            assert_eq!(verdicts(&record), [BAD, BAD, EXCLUDED, BAD], "{ending:?}");
        }
        let record = ended(Outcome::Rejected, Ending::Rejected(RejectReason::BadRequest));
        assert_eq!(verdicts(&tokenless(record, 20)), [EXCLUDED; 4]);
    }

    #[test]
    fn a_client_that_disconnects_excludes_only_undecided_indicators() {
        let left = || ended(Outcome::Cancelled, Ending::ClientDisconnected);
        assert_eq!(verdicts(&left()), [EXCLUDED, GOOD, GOOD, EXCLUDED]);
        let in_time = tokenless(left(), 500);
        assert_eq!(verdicts(&in_time), [EXCLUDED; 4]);
        let too_late = tokenless(left(), 501);
        assert_eq!(verdicts(&too_late), [EXCLUDED, BAD, EXCLUDED, EXCLUDED]);
        let broke = ended(Outcome::Cancelled, Ending::RequestBodyFailed);
        assert_eq!(verdicts(&tokenless(broke, 501)), [EXCLUDED; 4]);
    }

    #[test]
    fn a_client_that_disconnects_after_the_duration_limit_counts_as_bad() {
        let mut left = tokenless(ended(Outcome::Cancelled, Ending::ClientDisconnected), 10_000);
        call(&mut left).request.stream = None;
        call(&mut left).streamed = false;
        assert_eq!(judge(DURATION, &left), EXCLUDED);
        left.timestamps.end = Some(at(10_001));
        assert_eq!(judge(DURATION, &left), BAD);
        left.blocked = Duration::from_millis(1);
        assert_eq!(judge(DURATION, &left), EXCLUDED, "the client did not read");
        let broke = Record { ending: Ending::RequestBodyFailed, ..left };
        assert_eq!(judge(DURATION, &broke), EXCLUDED, "the request was never complete");
    }

    #[test]
    fn unobserved_exchanges_are_excluded() {
        let mut record = stream();
        call(&mut record).complete = Completeness::Unobserved;
        assert_eq!(judge(FIRST_TOKEN, &record), GOOD, "early enough even so");
        record.timestamps.token = Some(at(501));
        assert_eq!(judge(FIRST_TOKEN, &record), EXCLUDED);
        record.outcome = Outcome::Cancelled;
        record.ending = Ending::ClientDisconnected;
        record.error_source = ErrorSource::Client;
        assert_eq!(judge(FIRST_TOKEN, &tokenless(record, 900)), EXCLUDED);
    }

    #[test]
    fn a_stream_without_a_token_or_a_rate_has_no_such_result() {
        assert_eq!(verdicts(&tokenless(stream(), 2_000)), [GOOD, EXCLUDED, EXCLUDED, GOOD]);
    }

    #[test]
    fn a_non_streaming_response_has_only_availability_and_duration() {
        let mut whole = tokenless(stream(), 2_000);
        call(&mut whole).streamed = false;
        call(&mut whole).request.stream = None;
        assert_eq!(verdicts(&whole), [GOOD, None, None, GOOD]);
        let mut embeddings = tokenless(stream(), 2_000);
        call(&mut embeddings).series.operation = Operation::Embeddings;
        assert_eq!(verdicts(&embeddings), [GOOD, None, None, GOOD]);
    }

    #[test]
    fn time_in_which_the_client_did_not_read_is_excluded() {
        let mut record = stream();
        record.timestamps.end = Some(at(15_000));
        assert_eq!(judge(DURATION, &record), BAD);
        record.blocked = Duration::from_secs(5);
        assert_eq!(judge(DURATION, &record), EXCLUDED);
        record.blocked = Duration::from_millis(4_999);
        assert_eq!(judge(DURATION, &record), BAD);
    }

    #[test]
    fn a_successful_stream_is_good_for_the_other_indicators_including_thresholds() {
        assert_eq!(others(&stream()), [GOOD; 5]);
        let mut record = stream();
        record.timestamps.visible = Some(at(800));
        let rates = &mut call(&mut record).rates;
        rates.total = Some(40.0);
        rates.time_per_output_token = Some(Duration::from_millis(20));
        rates.output = Some(30.0);
        assert_eq!(others(&record), [GOOD; 5]);
        record.timestamps.visible = Some(at(800) + Duration::from_nanos(1));
        let rates = &mut call(&mut record).rates;
        rates.total = Some(39.999);
        rates.time_per_output_token = Some(Duration::from_nanos(20_000_001));
        rates.output = Some(29.999);
        assert_eq!(others(&record), [BAD, BAD, GOOD, BAD, BAD]);
    }

    #[test]
    fn a_complete_response_without_visible_text_is_excluded() {
        let mut thought = stream();
        thought.timestamps.visible = None;
        assert_eq!(judge(VISIBLE, &thought), EXCLUDED);
        let thinking = |millis, outcome, ending| {
            let mut record = Record { timestamps: thought.timestamps, ..ended(outcome, ending) };
            record.timestamps.end = Some(at(millis));
            judge(VISIBLE, &record)
        };
        let left = |millis| thinking(millis, Outcome::Cancelled, Ending::ClientDisconnected);
        assert_eq!((left(800), left(801)), (EXCLUDED, BAD), "the client waited for longer");
        assert_eq!(thinking(700, Outcome::Truncated, Ending::Complete), BAD, "it broke");
        let silent = tokenless(ended(Outcome::Cancelled, Ending::ClientDisconnected), 801);
        assert_eq!(judge(VISIBLE, &silent), BAD);
        let failed = tokenless(ended(Outcome::Truncated, Ending::Complete), 20);
        assert_eq!(judge(VISIBLE, &failed), BAD);
    }

    #[test]
    fn only_a_delivered_response_has_a_total() {
        for (outcome, ending) in [
            (Outcome::Cancelled, Ending::ClientDisconnected),
            (Outcome::Truncated, Ending::Complete),
        ] {
            let mut record = ended(outcome, ending);
            call(&mut record).rates.total = Some(1.0);
            assert_eq!(judge(TOTAL, &record), EXCLUDED, "{ending:?}");
        }
        let mut whole = stream();
        call(&mut whole).streamed = false;
        call(&mut whole).request.stream = None;
        assert_eq!(others(&whole), [None, GOOD, None, None, None]);
        call(&mut whole).series.operation = Operation::Embeddings;
        assert_eq!(others(&whole), [None; 5]);
    }

    #[test]
    fn a_total_delayed_by_the_client_is_excluded() {
        // 160 tokens in 8 s, of which the client did not read for 4 s.
        let mut record = stream();
        record.timestamps.end = Some(at(8_000));
        call(&mut record).rates.total = Some(20.0);
        assert_eq!(judge(TOTAL, &record), BAD);
        record.blocked = Duration::from_secs(4);
        assert_eq!(judge(TOTAL, &record), EXCLUDED);
        record.blocked = Duration::from_millis(3_999);
        assert_eq!(judge(TOTAL, &record), BAD);
    }

    #[test]
    fn a_stall_is_bad_after_any_end_and_no_stall_is_good_only_for_a_complete_stream() {
        let of = |record: &Record| judge(Sli::StallFree, record);
        for (outcome, ending, without) in [
            (Outcome::Ok, Ending::Complete, GOOD),
            (Outcome::Cancelled, Ending::ClientDisconnected, EXCLUDED),
            (Outcome::Timeout, Ending::TimedOut(TimeoutKind::Idle), EXCLUDED),
        ] {
            let record = ended(outcome, ending);
            assert_eq!(of(&record), without, "{ending:?}");
            let mut stalled = stalled(record);
            assert_eq!(of(&stalled), BAD, "{ending:?}");
            call(&mut stalled).complete = Completeness::Unobserved;
            assert_eq!(of(&stalled), EXCLUDED, "{ending:?}");
        }
        assert_eq!(of(&refused(500)), EXCLUDED);
    }

    #[test]
    fn a_stream_without_a_rate_has_no_result_for_its_gaps() {
        let mut record = stream();
        call(&mut record).rates.output = None;
        assert_eq!(others(&record)[3..], [EXCLUDED, EXCLUDED]);
    }

    #[test]
    fn a_stream_counts_once_per_token_for_token_indicators() {
        let objective = |indicator| Objective { indicator, ..objective("a") };
        let mut record = stream();
        let tokens = |tokens| Some(Output { tokens, ..Output::default() });
        for (exact, rounded) in [(160.0, 160), (159.5, 160), (159.4, 159)] {
            call(&mut record).output = tokens(exact);
            let actual = judged(&objective(TOKENS), &record).unwrap();
            assert_eq!((actual.verdict, actual.events), (Verdict::Good, rounded));
        }
        call(&mut record).rates.output = Some(1.0);
        let actual = judged(&objective(TOKENS), &record).unwrap();
        assert_eq!((actual.verdict, actual.events), (Verdict::Bad, 159));
        let actual = judged(&objective(RATE), &record).unwrap();
        assert_eq!((actual.verdict, actual.events), (Verdict::Bad, 1));
    }

    #[test]
    fn a_short_stream_has_no_rate_result_and_keeps_the_others() {
        let counting = CountingRules { min_output_tokens: Some(160), ..CountingRules::default() };
        let actual = |indicator, tokens| {
            let objective = Objective { indicator, counting: counting.clone(), ..objective("a") };
            let mut record = stream();
            call(&mut record).output.as_mut().unwrap().tokens = tokens;
            judged(&objective, &record).map(|judged| judged.verdict)
        };
        for indicator in [RATE, TOTAL, GAPS, TOKENS] {
            assert_eq!(actual(indicator, 160.0), GOOD, "{indicator:?}");
            assert_eq!(actual(indicator, 159.9), EXCLUDED, "{indicator:?}");
        }
        for indicator in [Sli::Availability, FIRST_TOKEN, VISIBLE, DURATION] {
            assert_eq!(actual(indicator, 1.0), GOOD, "{indicator:?}");
        }
    }

    #[test]
    fn exchanges_that_began_in_the_start_up_period_are_excluded() {
        let accepted = MonotonicInstant::from_millis(1_000_000);
        let actual = |warmup, record: &Record| {
            let counting = CountingRules { warmup, ..CountingRules::default() };
            let objective = Objective { counting, ..objective("a") };
            judged(&objective, record).map(|judged| judged.verdict)
        };
        let over = accepted.since(MonotonicInstant::ZERO);
        for (record, verdict) in [(stream(), GOOD), (refused(500), BAD)] {
            assert_eq!(actual(over, &record), verdict, "it began when it was over");
            assert_eq!(actual(over + Duration::from_nanos(1), &record), EXCLUDED);
        }
    }

    #[test]
    fn outcomes_excluded_by_the_operator_do_not_count() {
        let actual = |exclude: &[Exclusion], record: &Record| {
            let counting = CountingRules { exclude: exclude.to_vec(), ..CountingRules::default() };
            let objective = Objective { counting, ..objective("a") };
            judged(&objective, record).map(|judged| judged.verdict)
        };
        let limited = refused(429);
        let mut own = ended(Outcome::Rejected, Ending::Rejected(RejectReason::Overload));
        own.http.status = Some(429);
        own.http.own = true;
        let draining = ended(Outcome::Rejected, Ending::Rejected(RejectReason::Draining));
        let cut = ended(Outcome::Truncated, Ending::Drained);
        let excused = |exclude: &[Exclusion]| {
            [&limited, &own, &draining, &cut].map(|record| actual(exclude, record) == EXCLUDED)
        };
        assert_eq!(excused(&[]), [false; 4]);
        assert_eq!(excused(&[Exclusion::RateLimited]), [true, false, false, false]);
        assert_eq!(excused(&[Exclusion::Overload]), [false, true, false, false]);
        assert_eq!(excused(&[Exclusion::Shutdown]), [false, false, true, true]);
        assert_eq!(excused(&Exclusion::ALL), [true; 4]);
        let mut early = stream();
        early.call.as_mut().unwrap().warm = Some(WarmupState::Warming);
        assert_eq!(actual(&[Exclusion::Warming], &early), EXCLUDED);
        assert_eq!(actual(&[Exclusion::Shutdown], &early), GOOD);
        early.call.as_mut().unwrap().warm = Some(WarmupState::Warm);
        assert_eq!(actual(&[Exclusion::Warming], &early), GOOD);
        assert_eq!(actual(&Exclusion::ALL, &stream()), GOOD);
        assert_eq!(actual(&Exclusion::ALL, &refused(500)), BAD);
    }
}
