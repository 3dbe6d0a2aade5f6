//! Plays the recorded exchanges through `ResponseParser`, the public parser of `tokengauge-llm`.
//!
//! Every fact must equal the fact that the observer reads from the same bytes.

use bytes::Bytes;
use serde_json::{Value, json};
use tokengauge_llm::count::Source;
use tokengauge_llm::frame::ParseError;
use tokengauge_llm::{ResponseParser, ResponseSummary};
use tokengauge_measure::record::{Completeness, Record};

use super::fixture::{Fixture, SWITCHING};

/// Size of each piece of a response, in bytes.
const PIECE: usize = 100;

#[test]
fn parser_reads_what_the_observer_reads() {
    for fixture in Fixture::all().iter().filter(|fixture| fixture.status != SWITCHING) {
        let pieces: Vec<&[u8]> = fixture.body.chunks(PIECE).collect();
        let record = fixture.play(&pieces);
        let (summary, live_tokens) = parse(fixture, &pieces);
        assert_eq!(facts_of_summary(&summary), facts_of_record(&record), "{}", fixture.name());
        let rest: u64 = summary.tokens.native_unreported.into_iter().map(u64::from).sum();
        assert_eq!(live_tokens + rest, summary.tokens.native, "{}", fixture.name());
        if summary.error_type.is_some() {
            assert_eq!(json!(summary.error_type), json!(record.error_type), "{}", fixture.name());
        }
    }
}

/// Returns the summary, and the sum of the tokens that the parser reported with its events.
fn parse(fixture: &Fixture, pieces: &[&[u8]]) -> (ResponseSummary, u64) {
    let request = fixture.http_request();
    let response = fixture.http_response(Bytes::new());
    let mut parser = ResponseParser::builder(&fixture.path)
        .method(fixture.method.clone())
        .host(fixture.server_address())
        .request_headers(request.headers())
        .request_body(&fixture.request)
        .status(fixture.status)
        .response_headers(response.headers())
        .build()
        .unwrap_or_else(|error| panic!("{}: {error}", fixture.name()));
    let mut live_tokens = 0;
    for piece in pieces {
        parser.push(piece, |_, tokens| live_tokens += u64::from(tokens.native));
    }
    let summary = parser.finish(|_, tokens| live_tokens += u64::from(tokens.native));
    (summary, live_tokens)
}

fn facts_of_summary(summary: &ResponseSummary) -> Value {
    let reasons: Vec<_> = summary.finish_reasons.iter().map(|(_, reason)| reason).collect();
    let tokens = summary.tokens;
    json!({
        "request": summary.request,
        "model": summary.model,
        "id": summary.id,
        "service_tier": summary.service_tier,
        "system_fingerprint": summary.system_fingerprint,
        "finish_reasons": reasons,
        "usage": summary.usage,
        "timings": summary.timings,
        "tokens": tokens_or_none((tokens.native, tokens.standard, tokens.by_kind), tokens.source),
        "streamed": summary.is_streamed,
        "complete": summary.is_complete,
        "parse_errors": parse_errors(&summary.parse_errors),
    })
}

fn facts_of_record(record: &Record) -> Value {
    let call = record.call.as_ref().unwrap();
    let complete = call.complete == Completeness::Complete;
    let output = call.output.as_ref();
    json!({
        "request": call.request,
        "model": call.response_model,
        "id": call.response_id,
        "service_tier": call.service_tier,
        "system_fingerprint": call.system_fingerprint,
        "finish_reasons": call.finish_reasons().collect::<Vec<_>>(),
        "usage": call.usage,
        "timings": call.timings,
        "tokens": output.map_or(Value::Null, |output| {
            let counts = (output.counted, output.standard, output.by_kind);
            tokens_or_none(counts, output.counted_source.unwrap())
        }),
        "streamed": call.streamed,
        "complete": complete,
        "parse_errors": parse_errors(&record.anomalies),
    })
}

/// Returns the token counts: in the model's encoding, in the standard encoding and by kind. Returns null if no text was
/// generated, because the observer's record then can have no output.
fn tokens_or_none((native, standard, by_kind): (u64, u64, [u64; 5]), source: Source) -> Value {
    if native == 0 { Value::Null } else { json!([native, standard, by_kind, source.as_str()]) }
}

fn parse_errors(errors: &[(ParseError, u32)]) -> Value {
    errors.iter().map(|(error, count)| (error.as_str().to_owned(), json!(count))).collect()
}
