//! Tests streams of Replicate. Each body is read in one piece, byte by byte, and split in two at every position.

use crate::dialect::testing::{JSON, STREAM, TestResponse, failed, stopped};
use crate::dialect::*;

fn read(body: &str) -> Vec<String> {
    TestResponse::new(Api::ReplicateStream, STREAM).read(body.as_bytes())
}

/// Returns output events. Each event has the given lines of data.
fn output(texts: &[&[&str]]) -> String {
    let event = |lines: &&[&str]| {
        let data: String = lines.iter().map(|line| format!("data: {line}\n")).collect();
        format!("event: output\nid: 1700000000:0\n{data}\n")
    };
    texts.iter().map(event).collect()
}

const DONE: &str = "event: done\nid: 1700000000:9\ndata: {}\n\n";

#[test]
fn reads_data_as_plain_text() {
    let texts =
        output(&[&[""], &["Low"], &[" tide:"], &[":", "", "At "], &["[DONE]"], &["{\"a\":"]]);
    let body = format!(": hi\n\n{texts}{DONE}:408: 408 Request Timeout\n\n");
    let end = [stopped(0, "done"), "Done".to_owned()];
    let text = r#"0 Text "Low tide:\n\nAt [DONE]{\"a\":""#.replace("tide:", "tide::");
    assert_eq!(read(&body), [&[text][..], &end].concat());
    assert_eq!(read(&output(&[&["a"]])), [r#"0 Text "a""#]);
    assert_eq!(read("event: logs\ndata: x\n\nevent: output\nid: 1\n\n"), Vec::<String>::new());
}

#[test]
fn reads_streams_that_fail_or_are_cut() {
    let canceled = "event: done\ndata: {\"reason\":\"canceled\"}\n\n";
    assert_eq!(read(canceled), [stopped(0, "canceled"), "Done".to_owned()]);
    let error = "event: error\ndata: {\"detail\":\"Out of memory\"}\n\n";
    let ended = "event: done\ndata: {\"reason\":\"error\"}\n\n";
    let end = [stopped(0, "error"), "Done".to_owned()];
    let both = format!("{}{error}{ended}", output(&[&["a"]]));
    let before = [r#"0 Text "a""#.to_owned(), failed(None)];
    assert_eq!(read(&both), [&before[..], &end].concat());
    let [reason, done] = end;
    assert_eq!(read(ended), [reason, done, failed(None)]);
    let missing = TestResponse::new(Api::ReplicateStream, JSON).status(404);
    assert_eq!(missing.read(br#"{"detail":"Not found","status":404}"#), [failed(None)]);
    assert_eq!(missing.read(b"event: output\ndata: a\n\n"), [failed(None)]);
}

#[test]
fn reads_text_that_is_not_utf8() {
    let answer = TestResponse::new(Api::ReplicateStream, STREAM);
    let read = answer.read(b"event: output\ndata: a\xF0\x9F b\n\n");
    assert_eq!(read, ["ParseError(BadText)", "0 Text \"a\u{FFFD} b\""]);
}

proptest::proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..120), status in 200..600_u16) {
        let framed = [b"event: output\ndata: ", bytes.as_slice(), b"\n\nevent: done\ndata: ", &bytes, b"\n\n"].concat();
        let answer = TestResponse::new(Api::ReplicateStream, STREAM).status(status);
        let pieces: Vec<&[u8]> = framed.chunks(3).collect();
        proptest::prop_assert_eq!(answer.cut(&pieces), answer.cut(&[&framed]));
    }
}
