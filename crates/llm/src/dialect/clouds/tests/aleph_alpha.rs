//! Tests Aleph Alpha's responses: complete, byte by byte, and cut in two at every position.

use crate::dialect::testing::{JSON, STREAM, TestResponse, asked, events, failed, stopped, usage};
use crate::dialect::*;
use tokengauge_types::label::Name;

const API: Api = Api::AlephAlphaComplete;

#[test]
fn reads_a_json_body() {
    let answer = r#"{"completions":[{"completion":"\n\nH\u00f6her","finish_reason":"maximum_tokens","completion_tokens":["x"]},
        {"completion":"b","finish_reason":"end_of_text"}],"model_version":"2024-01","optimized_prompt":[{"type":"text","data":"p"}],
        "num_tokens_prompt_total":9,"num_tokens_generated":12}"#;
    assert_eq!(
        TestResponse::new(API, JSON).read(answer.as_bytes()),
        [
            r#"0 Text "\n\nHöher""#.to_owned(),
            stopped(0, "maximum_tokens"),
            r#"1 Text "b""#.to_owned(),
            stopped(1, "end_of_text"),
            usage([Some(9), Some(12), None, None, None]),
        ]
    );
    let echoed = TestResponse::new(API, JSON).to(r#"{"prompt":"Wer ist","echo":true,"n":2}"#);
    let twice = r#"{"completions":[{"completion":"Wer ist da"},{"completion":"Wer ist er"}]}"#;
    assert_eq!(echoed.read(twice.as_bytes()), [r#"0 Text " da""#, r#"1 Text " er""#]);
}

#[test]
fn reads_a_stream() {
    let messages = [
        r#"{"type":"stream_chunk","index":0,"completion":" H\u00f6","log_probs":null}"#,
        r#"{"type":"stream_chunk","index":1,"completion":"b"}"#,
        r#"{"type":"stream_chunk","index":0,"completion":"her"}"#,
        r#"{"type":"stream_summary","index":0,"model_version":"2024-01","finish_reason":"end_of_text"}"#,
        r#"{"type":"stream_summary","index":1,"model_version":"2024-01","finish_reason":"maximum_tokens"}"#,
        r#"{"type":"completion_summary","optimized_prompt":null,"num_tokens_prompt_total":5,"num_tokens_generated":3}"#,
    ];
    assert_eq!(
        TestResponse::new(API, STREAM).read(events(&messages).as_bytes()),
        [
            r#"0 Text " Hö""#.to_owned(),
            r#"1 Text "b""#.to_owned(),
            r#"0 Text "her""#.to_owned(),
            stopped(0, "end_of_text"),
            stopped(1, "maximum_tokens"),
            usage([Some(5), Some(3), None, None, None]),
            "Done".to_owned(),
        ]
    );
}

#[test]
fn reads_errors_of_bodies_and_streams() {
    let busy = r#"{"error":"Sorry, we had to reject your request.","code":"QUEUE_FULL"}"#;
    let kind = [failed(Some("QUEUE_FULL"))];
    assert_eq!(TestResponse::new(API, JSON).status(503).read(busy.as_bytes()), kind);
    assert_eq!(TestResponse::new(API, STREAM).read(events(&[busy]).as_bytes()), kind);
    assert_eq!(TestResponse::new(API, JSON).read(busy.as_bytes()), kind);
    assert_eq!(
        TestResponse::new(API, STREAM).read(events(&["{\"a\" 1}"]).as_bytes()),
        ["ParseError(BadJson)"]
    );
}

#[test]
fn reads_all_facts_of_a_request() {
    let facts = asked(
        API,
        r#"{"model":"luminous-base","prompt":[{"type":"text","data":"b\u00e9","controls":[]},{"type":"image","data":"AAAA"},{"type":"text","data":"c"},
          {"type":"token_ids","data":[1]}],"maximum_tokens":20,"temperature":0.5,"top_k":0,"top_p":0.9,"presence_penalty":0.25,"frequency_penalty":-1,
          "n":2,"stop_sequences":["a","b"],"stream":true,"echo":false}"#,
    );
    let expected = RequestFacts {
        api: Some(API),
        model: Name::new("luminous-base"),
        stream: Some(true),
        max_tokens: Some(20),
        temperature: Some(0.5),
        top_p: Some(0.9),
        top_k: Some(0),
        frequency_penalty: Some(-1.0),
        presence_penalty: Some(0.25),
        choices: Some(2),
        stop_sequences: Some(2),
        prompt_bytes: 4,
        echo: Some(false),
        ..RequestFacts::default()
    };
    assert_eq!(facts, expected);
    assert_eq!(asked(API, r#"{"prompt":"abc"}"#).prompt_bytes, 3);
    assert_eq!(asked(API, r#"{"messages":[]}"#).api, None);
}

proptest::proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..120), status in 200..600_u16) {
        let framed = [b"data: {\"type\":\"stream_chunk\",\"completion\":\"", bytes.as_slice(), b"\"}\n\n"].concat();
        for body in [&framed, &bytes] {
            let answer = TestResponse::new(API, None).status(status);
            let pieces: Vec<&[u8]> = body.chunks(3).collect();
            proptest::prop_assert_eq!(answer.cut(&pieces), answer.cut(&[body]));
        }
    }
}
