//! Bodies with a content encoding.

use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, InBuffer, OutBuffer};

use super::{STREAMED, at, chunk, open, parsers, usage};
use crate::ObservedExchange;
use tokengauge_llm::frame::ParseError;
use tokengauge_measure::record::{Completeness, Outcome, Record};
use tokengauge_types::event::{
    BackpressureTime, Direction, Ending, ExchangeId, Headers, ObserverEvent, ResponseHead,
};
use tokengauge_types::label::{CardinalityLimiter, CardinalityLimits, Name};

/// The events of a stream, one every 100 ms from 300 ms on.
fn events() -> Vec<String> {
    let events = [
        chunk(r#"{"role":"assistant","content":""}"#, "null"),
        chunk(r#"{"content":"Hello"}"#, "null"),
        chunk(r#"{"content":" world"}"#, "null"),
        chunk("{}", r#""stop""#),
        usage(2, 0),
        "[DONE]".to_owned(),
    ];
    events.map(|data| format!("data: {data}\n\n")).to_vec()
}

fn bytes(pieces: &[String]) -> Vec<Vec<u8>> {
    pieces.iter().map(|it| it.clone().into_bytes()).collect()
}

fn gzip(pieces: &[String]) -> Vec<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let mut wire: Vec<Vec<u8>> = Vec::new();
    for piece in pieces {
        encoder.write_all(piece.as_bytes()).unwrap();
        encoder.flush().unwrap();
        wire.push(std::mem::take(encoder.get_mut()));
    }
    wire.push(encoder.finish().unwrap());
    wire
}

fn br(pieces: &[String]) -> Vec<Vec<u8>> {
    let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
    let mut wire: Vec<Vec<u8>> = Vec::new();
    for piece in pieces {
        encoder.write_all(piece.as_bytes()).unwrap();
        encoder.flush().unwrap();
        wire.push(std::mem::take(encoder.get_mut()));
    }
    wire.push(encoder.into_inner());
    wire
}

fn zstd(pieces: &[String]) -> Vec<Vec<u8>> {
    let mut context = CCtx::create();
    let mut encode = |piece: &[u8], directive| {
        let mut wire = vec![0; 1024];
        let mut output = OutBuffer::around(&mut wire[..]);
        let mut input = InBuffer::around(piece);
        let left = context.compress_stream2(&mut output, &mut input, directive);
        assert_eq!(left, Ok(0));
        output.as_slice().to_vec()
    };
    let flush = |piece: &String| encode(piece.as_bytes(), ZSTD_EndDirective::ZSTD_e_flush);
    let mut wire: Vec<Vec<u8>> = pieces.iter().map(flush).collect();
    wire.push(encode(b"", ZSTD_EndDirective::ZSTD_e_end));
    wire
}

/// Returns the encoded bytes of each flushed piece, and of the end.
type Encode = fn(&[String]) -> Vec<Vec<u8>>;

const CODINGS: [(&str, Encode); 3] = [("gzip", gzip), ("br", br), ("zstd", zstd)];

fn headers(content_type: &str, coding: Option<&str>) -> Headers {
    let coding = coding.map(|coding| ("content-encoding", Name::new(coding).unwrap()));
    let kind = ("content-type", Name::new(content_type).unwrap());
    [kind].into_iter().chain(coding).collect()
}

/// A body and its encoding.
type Body<'a> = (Option<&'a str>, &'a [Vec<u8>]);

fn arrival(exchange: &mut ObservedExchange, millis: u64, direction: Direction, bytes: &[u8]) {
    let event = ObserverEvent::Body {
        direction,
        len: u32::try_from(bytes.len()).unwrap(),
        blocked: BackpressureTime::default(),
    };
    exchange.apply(at(millis), event, bytes, &mut |_| ());
}

fn head(exchange: &mut ObservedExchange, coding: Option<&str>) {
    let head = ResponseHead {
        status: 200,
        version: http::Version::HTTP_11,
        headers: headers("text/event-stream", coding),
        length: None,
        from_proxy: false,
    };
    exchange.apply(at(200), ObserverEvent::ResponseHead(Box::new(head)), b"", &mut |_| ());
}

fn gap(exchange: &mut ObservedExchange, millis: u64, direction: Direction) {
    let event = ObserverEvent::Gap { direction, bytes: 10 };
    exchange.apply(at(millis), event, b"", &mut |_| ());
}

fn opened(request_coding: Option<&str>) -> ObservedExchange {
    let mut opened = open("/v1/chat/completions");
    opened.headers = headers("application/json", request_coding);
    let limiter = Arc::new(CardinalityLimiter::new(CardinalityLimits::default(), []));
    ObservedExchange::new(ExchangeId(1), at(100), Box::new(opened), limiter, parsers())
}

/// Plays a call whose response arrives in pieces every 100 ms from 300 ms on. At `lost` there is a gap instead.
fn call(request: Body<'_>, answer: Body<'_>, lost: Option<usize>) -> Record {
    let mut exchange = opened(request.0);
    for piece in request.1 {
        arrival(&mut exchange, 110, Direction::Request, piece);
    }
    exchange.apply(at(110), ObserverEvent::RequestBodySent, b"", &mut |_| ());
    head(&mut exchange, answer.0);
    let mut millis = 200;
    for (index, piece) in answer.1.iter().enumerate() {
        millis += 100;
        if lost == Some(index) {
            gap(&mut exchange, millis, Direction::Response);
        } else {
            arrival(&mut exchange, millis, Direction::Response, piece);
        }
    }
    exchange.end(at(2_000), Ending::Complete, &mut |_| ())
}

fn streamed() -> Vec<Vec<u8>> {
    vec![STREAMED.as_bytes().to_vec()]
}

fn answered(coding: Option<&str>, wire: &[Vec<u8>]) -> Record {
    call((None, &streamed()), (coding, wire), None)
}

/// Returns everything in the record except the encoded sizes.
fn facts(record: &Record) -> String {
    let odd = &record.anomalies;
    let (timestamps, call) = (&record.timestamps, &record.call);
    format!("{:?} {timestamps:?} {odd:?} {call:?}", record.outcome)
}

#[test]
fn encoded_stream_has_the_same_record() {
    let plain = answered(None, &bytes(&events()));
    assert_eq!(plain.timestamps.event, Some(at(300)));
    assert_eq!(plain.timestamps.token, Some(at(400)));
    assert_eq!(plain.timestamps.last, Some(at(500)));
    for (header, encode) in CODINGS {
        let coded = answered(Some(header), &encode(&events()));
        assert_eq!(facts(&coded), facts(&plain), "{header}");
        assert_ne!(coded.http.response_bytes, plain.http.response_bytes);
    }
}

#[test]
fn decodes_requests() {
    let events = bytes(&events());
    let plain = call((None, &streamed()), (None, &events), None);
    for (header, encode) in CODINGS {
        let request = encode(&[STREAMED.to_owned()]);
        let coded = call((Some(header), &request), (None, &events), None);
        assert_eq!(facts(&coded), facts(&plain), "{header}");
    }
    let asked = plain.call.unwrap().request;
    assert_eq!((asked.model, asked.stream), (Name::new("gpt-4o"), Some(true)));
}

#[test]
fn undecodable_request_is_a_parse_error() {
    let broken = gzip(&[STREAMED.to_owned()])[..1].to_vec();
    for (header, request) in [("gzip", broken), ("aes128gcm", streamed())] {
        let record = call((Some(header), &request), (None, &bytes(&events())), None);
        assert_eq!(record.anomalies, [(ParseError::Encoding, 1)], "{header}");
        let call = record.call.unwrap();
        assert_eq!(call.complete, Completeness::Complete, "{header}");
        assert_eq!(call.output.unwrap().counted, 2, "{header}");
    }
}

/// Completeness, outcome, parse errors and counted tokens.
type Brief = (Completeness, Outcome, Vec<(ParseError, u32)>, Option<u64>);

fn brief(record: Record) -> Brief {
    let call = record.call.unwrap();
    let counted = call.output.map(|output| output.counted);
    (call.complete, record.outcome, record.anomalies, counted)
}

#[test]
fn counts_tokens_before_an_error() {
    for (header, encode) in CODINGS {
        let mut wire = encode(&events());
        // Invalid for every encoding.
        wire[2] = vec![0xff; 64];
        let odd = vec![(ParseError::Encoding, 1)];
        let expected = (Completeness::Unobserved, Outcome::Ok, odd, Some(1));
        assert_eq!(brief(answered(Some(header), &wire)), expected, "{header}");
    }
}

#[test]
fn stops_at_a_gap_in_a_response() {
    for (header, encode) in CODINGS {
        let wire = encode(&events());
        let record = call((None, &streamed()), (Some(header), &wire), Some(2));
        let odd = vec![(ParseError::Gap, 1)];
        let expected = (Completeness::Unobserved, Outcome::Ok, odd, Some(1));
        assert_eq!(brief(record), expected, "{header}");
    }
}

#[test]
fn stops_at_a_gap_in_a_request() {
    let mut exchange = opened(Some("gzip"));
    let wire = gzip(&[STREAMED.to_owned()]).concat();
    arrival(&mut exchange, 110, Direction::Request, &wire[..12]);
    gap(&mut exchange, 110, Direction::Request);
    arrival(&mut exchange, 110, Direction::Request, &wire[30..]);
    exchange.apply(at(120), ObserverEvent::RequestBodySent, b"", &mut |_| ());
    let record = exchange.end(at(200), Ending::Complete, &mut |_| ());
    assert_eq!(record.anomalies, [(ParseError::Gap, 1)]);
}

#[test]
fn cancelled_body_is_not_a_parse_error() {
    let mut exchange = opened(Some("gzip"));
    let wire = gzip(&[STREAMED.to_owned()]).concat();
    arrival(&mut exchange, 110, Direction::Request, &wire[..12]);
    head(&mut exchange, Some("gzip"));
    let wire = gzip(&events());
    arrival(&mut exchange, 300, Direction::Response, &wire[0]);
    let record = exchange.end(at(400), Ending::ClientDisconnected, &mut |_| ());
    assert_eq!(record.anomalies, []);
    assert_eq!(record.call.unwrap().complete, Completeness::Cut);
}

#[test]
fn stops_at_a_decompression_bomb() {
    let mut pieces = events();
    pieces.insert(2, " ".repeat(16 << 20));
    let odd = vec![(ParseError::Oversize, 1), (ParseError::DecompressionLimit, 1)];
    let expected = (Completeness::Unobserved, Outcome::Ok, odd, Some(1));
    assert_eq!(brief(answered(Some("gzip"), &gzip(&pieces))), expected);
}

#[test]
fn unknown_encoding_leaves_response_unobserved() {
    let odd = vec![(ParseError::Encoding, 1)];
    // A body that was not decoded has no count.
    let expected = (Completeness::Unobserved, Outcome::Ok, odd, None);
    let record = answered(Some("compress"), &bytes(&events()));
    assert_eq!(brief(record), expected);
}

#[test]
fn truncated_encoding_is_a_parse_error() {
    let mut wire = gzip(&events());
    wire.pop();
    let odd = vec![(ParseError::Encoding, 1)];
    let expected = (Completeness::Complete, Outcome::Ok, odd, Some(2));
    let record = answered(Some("gzip"), &wire);
    assert_eq!(brief(record), expected, "the end marker was received");
    let wire = &gzip(&[r#"{"id":"a","choices":[]"#.to_owned()])[..1];
    let record = answered(Some("gzip"), wire);
    assert!(record.anomalies.contains(&(ParseError::Encoding, 1)));
    assert_eq!(record.call.unwrap().complete, Completeness::Cut);
}
