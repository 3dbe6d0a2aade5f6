//! Tests events above the size limit: they lose their long strings and nothing else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::encode::{event, exception, message, raw};
use super::*;

/// Small enough for every split to be tested. Strings of more than 256 bytes are removed first.
const CAP: usize = 4_096;

fn image() -> String {
    "iVBOR/+\\/a\\\"\\u00e9\\\\".repeat(300)
}

/// Events that are larger than [`CAP`], and their shortened forms.
fn large() -> [(String, String); 5] {
    let image = image();
    [
        format!(r#"{{"type":"done","usage":{{"total":7}},"image":"{image}"}}"#),
        format!(r#"{{"image":"{image}","type":"done","usage":{{"total":7}}}}"#),
        format!(
            r#"{{"a":[{{"b":"{image}"}},{{"b":"{image}","c":1}}],"finish":"stop","b":"{image}"}}"#
        ),
        format!(r#"{{"{image}":null,"of":[["{image}"]],"text":"\"short\"","last":[]}}"#),
        format!("[{{\"a\": \"{image}\",\t\"b\": -1.5e3 }}]"),
    ]
    .map(|event| {
        let short = event.replace(&image, "").replace([' ', '\t'], "");
        (event, short)
    })
}

fn check(framer: impl Fn() -> Framer, body: &[u8], expected: &[&str]) {
    let whole = collect(framer(), &[body]);
    assert_eq!(whole, expected);
    for size in [1, 2, 7, 100, 4_095, 4_096, 4_097] {
        let pieces: Vec<&[u8]> = body.chunks(size).collect();
        assert_eq!(collect(framer(), &pieces), whole, "pieces of {size}");
    }
    for at in (0..body.len()).filter(|at| *at < 200 || at % 97 == 0 || at + 100 > body.len()) {
        let (first, second) = body.split_at(at);
        assert_eq!(collect(framer(), &[first, second]), whole, "cut at {at}");
    }
}

#[test]
fn server_sent_events() {
    let framer = || Framer::Sse(Sse::new(CAP));
    for (event, short) in large() {
        let oversize = ["|{\"a\":1}", "error oversize", &format!("e|{short}"), "|[DONE]"];
        for end in ["\n", "\r\n"] {
            for lines in
                ["event: e\nid: 7\ndata: @\n", "data:@\nevent: e\n", ": note\nevent: e\ndata: @\n"]
            {
                let body =
                    format!("data: {{\"a\":1}}\n\n{lines}\ndata: [DONE]\n\n").replace('\n', end);
                check(framer, body.replace('@', &event).as_bytes(), &oversize);
            }
        }
        // Spread over several lines, and at the end of the body.
        let lines = event.replacen(':', ":\ndata: ", 1);
        check(
            framer,
            format!("data: {lines}\n").as_bytes(),
            &["error oversize", &format!("|{short}")],
        );
        let cut = format!("data: {event}");
        let expected = ["error oversize", &format!("|{short}"), "error unterminated"];
        check(framer, cut.as_bytes(), &expected);
    }
    let text = format!("data: {}\ndata: {{}}\n\ndata: b\n\n", "x".repeat(2 * CAP));
    check(framer, text.as_bytes(), &["error oversize", "|b"]);
}

#[test]
fn server_sent_events_without_blank_lines() {
    let framer = || Framer::Sse(Sse::new(CAP));
    for (event, short) in large() {
        let body = format!(
            "event: a\ndata: {{\"n\":1}}\ndata: {event}\ndata: {event}\nevent: b\ndata: [1]\n"
        );
        let short = format!("a|{short}");
        let expected = ["error oversize", "a|{\"n\":1}", &short, "error oversize", &short, "b|[1]"];
        let expected: Vec<&str> = expected.into_iter().collect();
        let mut frames = collect(framer(), &[body.as_bytes()]);
        frames.sort_unstable();
        let mut sorted = expected.clone();
        sorted.sort_unstable();
        assert_eq!(frames, sorted);
        for size in [1, 3, 1_000, 4_096] {
            let pieces: Vec<&[u8]> = body.as_bytes().chunks(size).collect();
            assert_eq!(collect(framer(), &pieces), collect(framer(), &[body.as_bytes()]), "{size}");
        }
    }
}

#[test]
fn json_lines_and_elements() {
    let lines = || Framer::JsonLines(JsonValues::lines(CAP));
    let elements = || Framer::JsonArray(JsonValues::array(CAP));
    for (event, short) in large() {
        let expected = ["|{\"a\":1}", "error oversize", &format!("|{short}"), "|{}"];
        check(lines, format!("{{\"a\":1}}\n{event}\n{{}}\n").as_bytes(), &expected);
        check(lines, format!("{{\"a\":1}}{event}{{}}").as_bytes(), &expected);
        check(elements, format!("[{{\"a\":1}},\r\n{event}\r\n,{{}}]").as_bytes(), &expected);
        // A line that breaks off does not affect the next one.
        let (broken, _) = event.split_at(event.len() - 1);
        let body = format!("{broken}\n{{\"b\":2}}\n");
        if !event.contains('\t') {
            check(lines, body.as_bytes(), &["error oversize", "|{\"b\":2}"]);
        }
    }
}

#[test]
fn aws_messages() {
    let framer = || Framer::AwsEventStream(AwsEventStream::new(CAP));
    for (payload, short) in large() {
        let body = [event("a", "{}"), event("large", &payload), event("b", "{}")].concat();
        let expected = ["a|{}", "error oversize", &format!("large|{short}"), "b|{}"];
        check(framer, &body, &expected);
        let broken = [exception("throttled", &payload), raw(b"", payload.as_bytes())].concat();
        let expected = [
            "error oversize",
            &format!("exception throttled|{short}"),
            "error oversize",
            &format!("|{short}"),
        ];
        check(framer, &broken, &expected);
    }
    let text = "x".repeat(2 * CAP);
    let body = [event("large", &text), exception("e", &text), event("b", "{}")].concat();
    check(framer, &body, &["error oversize", "error oversize", "exception e|", "b|{}"]);
}

#[test]
fn aws_messages_with_a_wrong_checksum() {
    let framer = || Framer::AwsEventStream(AwsEventStream::new(CAP));
    let [(payload, _), ..] = large();
    let good = event("large", &payload);
    for at in [13, 40, 2_000, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        let body = [bad, event("b", "{}")].concat();
        check(framer, &body, &["error oversize", "error bad_frame"]);
    }
    check(framer, &good[..good.len() - 1], &["error oversize", "error unterminated"]);
    let headers = [7_u8; CAP];
    let body = [raw(&headers, payload.as_bytes()), event("b", "{}")].concat();
    check(framer, &body, &["error oversize", "b|{}"]);
}

#[test]
fn wrapped_messages() {
    let framer = || Framer::AwsEventStream(AwsEventStream::new(CAP));
    for (payload, short) in large() {
        let wrap = |json: &str, escape: bool| {
            let base64 = STANDARD.encode(json);
            let base64 = if escape { base64.replace('/', "\\/") } else { base64 };
            format!(r#"{{"p":"abcd","bytes":"{base64}","more":[1]}}"#)
        };
        for escape in [false, true] {
            let body = [event("chunk", &wrap(&payload, escape)), event("b", "{}")].concat();
            let expected = ["error oversize", &format!("chunk|{}", wrap(&short, false)), "b|{}"];
            check(framer, &body, &expected);
        }
    }
    let [(payload, _), ..] = large();
    let bad = [payload.as_str(), "*"].concat().replace(['"', '{', '}'], "x");
    let body = event("chunk", &format!(r#"{{"bytes":"{bad}"}}"#));
    check(framer, &body, &["error oversize", r#"chunk|{"bytes":""}"#]);
}

#[test]
fn parts_of_another_stream_lose_nothing() {
    let framer = || Framer::AwsEventStream(AwsEventStream::new(CAP));
    let text = "data: {\"a\":1}\n\n".repeat(1_000);
    let headers = [(":event-type", "PayloadPart"), (":message-type", "event")];
    let body = message(&headers, text.as_bytes());
    let frames = collect(framer(), &[&body]);
    let parts: Vec<&str> =
        frames.iter().filter_map(|frame| frame.strip_prefix("PayloadPart|")).collect();
    assert_eq!(parts.concat(), text);
    assert!(parts.iter().all(|part| part.len() <= CAP));
    let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
    check(framer, &body, &frames);
}

#[test]
fn memory_is_bounded_while_an_event_is_shortened() {
    let strings = format!(r#"{{"a":["{}"]}}"#, vec!["x".repeat(90); 500].join("\",\""));
    let numbers = format!(r#"{{"a":[{}1]}}"#, "0.125,".repeat(20_000));
    let deep = format!("{}{}", "[{\"a\":".repeat(5_000), "\"b\"}]".repeat(5_000));
    let keys: String = (0..5_000).map(|key| format!("\"{key}\":0,")).collect();
    for json in [strings, numbers, deep, format!("{{{keys}\"a\":1}}")] {
        let bodies = [format!("data: {json}\n\n"), json.clone(), format!("[{json}]")];
        let aws = event("chunk", &json);
        let bodies = bodies.iter().map(String::as_bytes).chain([&*aws]);
        for (mut framer, body) in small(CAP).into_iter().zip(bodies) {
            let mut errors = 0;
            let mut count =
                |frame: Frame<'_>| errors += usize::from(matches!(frame, Frame::ParseError(_)));
            for piece in body.chunks(50) {
                framer.push(piece, &mut count);
                assert!(held(&framer) <= CAP, "{}", held(&framer));
            }
            framer.finish(&mut count);
            assert_eq!(errors, 1);
        }
    }
}
