//! Tests responses of Ollama. Each body is read in one piece, byte by byte, and split in two at every position.

use std::time::Duration;

use crate::dialect::testing::{JSON, TestResponse, asked, failed, started, stopped, usage};
use crate::dialect::*;
use tokengauge_types::label::Name;

const LINES: Option<&str> = Some("application/x-ndjson");

fn lines(api: Api, lines: &[&str]) -> Vec<String> {
    let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let declared = TestResponse::new(api, LINES).read(body.as_bytes());
    let as_json = TestResponse::new(api, JSON).cut(&[body.as_bytes()]);
    if lines.len() > 1 {
        assert_eq!(as_json, declared, "whatever the declared type");
    }
    declared
}

fn body(api: Api, body: &str) -> Vec<String> {
    TestResponse::new(api, JSON).read(body.as_bytes())
}

fn clocked(total: u64, load: u64, prefill: Option<u64>, decode: u64) -> String {
    let timings = Timings {
        queue: None,
        load: Some(Duration::from_nanos(load)),
        prefill: prefill.map(Duration::from_nanos),
        decode: Some(Duration::from_nanos(decode)),
        total: Some(Duration::from_nanos(total)),
    };
    format!("{:?}", Event::Timings(&timings))
}

#[test]
fn reads_a_chat_stream() {
    let events = lines(
        Api::OllamaChat,
        &[
            r#"{"model":"qwen3:4b","created_at":"2025-06-01T10:00:00.1Z","message":{"role":"assistant","content":"","thinking":"A tide "},"done":false}"#,
            r#"{"model":"qwen3:4b","created_at":"2025-06-01T10:00:00.2Z","message":{"role":"assistant","content":"","thinking":"table."},"done":false}"#,
            r#"{"model":"qwen3:4b","created_at":"2025-06-01T10:00:00.3Z","message":{"role":"assistant","content":"High at "},"done":false}"#,
            r#"{"model":"qwen3:4b","created_at":"2025-06-01T10:00:00.4Z","message":{"role":"assistant","content":"n\u00e9on \ud83c\udf0a"},"done":false}"#,
            r#"{"model":"qwen3:4b","created_at":"2025-06-01T10:00:00.5Z","message":{"role":"assistant","content":""},"done_reason":"stop","done":true,"total_duration":900000001,"load_duration":20000000,"prompt_eval_count":41,"prompt_eval_duration":80000000,"eval_count":17,"eval_duration":790000000}"#,
        ],
    );
    assert_eq!(
        events,
        [
            started(None, Some("qwen3:4b")),
            r#"0 Reasoning "A tide table.""#.to_owned(),
            r#"0 Text "High at néon 🌊""#.to_owned(),
            stopped(0, "stop"),
            usage([Some(41), Some(17), None, None, None]),
            clocked(900_000_001, 20_000_000, Some(80_000_000), 790_000_000),
            "Done".to_owned(),
        ]
    );
}

#[test]
fn numbers_tool_calls_across_messages() {
    let call = |arguments: &str| {
        format!(
            r#"{{"model":"m","message":{{"role":"assistant","content":"","tool_calls":[{{"function":{{"name":"f","arguments":{arguments}}}}}]}},"done":false}}"#
        )
    };
    let (first, second) = (call(r#"{"place": "Oslo", "days": [1, -2.5]}"#), call("{}"));
    let end = r#"{"model":"m","message":{"role":"assistant","content":""},"done":true}"#;
    assert_eq!(
        lines(Api::OllamaChat, &[&first, &second, end]),
        [
            started(None, Some("m")),
            r#"0 Tool(0) "{\"place\":\"Oslo\",\"days\":[1,-2.5]}""#.to_owned(),
            r#"0 Tool(1) "{}""#.to_owned(),
            "Done".to_owned(),
        ]
    );
}

#[test]
fn reads_a_generate_stream_and_an_old_end_without_counts() {
    let events = lines(
        Api::OllamaGenerate,
        &[
            r#"{"model":"llama2","response":"It ","done":false}"#,
            r#"{"model":"llama2","thinking":"hm","response":"","done":false}"#,
            r#"{"model":"llama2","response":"is.","done":false}"#,
            r#"{"model":"llama2","response":"","done":true,"context":[1,2,3],"total_duration":5,"load_duration":1,"eval_count":2,"eval_duration":3}"#,
        ],
    );
    assert_eq!(
        events,
        [
            started(None, Some("llama2")),
            r#"0 Text "It ""#.to_owned(),
            r#"0 Reasoning "hm""#.to_owned(),
            r#"0 Text "is.""#.to_owned(),
            usage([None, Some(2), None, None, None]),
            clocked(5, 1, None, 3),
            "Done".to_owned(),
        ]
    );
    let cut = lines(Api::OllamaGenerate, &[r#"{"model":"m","response":"a","done":false}"#]);
    assert_eq!(cut, [started(None, Some("m")), r#"0 Text "a""#.to_owned()]);
}

#[test]
fn reads_json_bodies() {
    let chat = r#"{"model":"m","created_at":"2025-06-01T10:00:00Z","message":{"role":"assistant","content":"Yes \"so\"","thinking":"hm",
      "tool_calls":[{"id":"call_1","function":{"index":0,"name":"f","arguments":{"a": "x y"}}},{"function":{"name":"g","arguments":{}}}]},
      "done_reason":"stop","done":true,"total_duration":10,"load_duration":1,"prompt_eval_count":5,"prompt_eval_duration":2,"eval_count":4,"eval_duration":7}"#;
    assert_eq!(
        body(Api::OllamaChat, chat),
        [
            started(None, Some("m")),
            r#"0 Text "Yes \"so\"""#.to_owned(),
            r#"0 Reasoning "hm""#.to_owned(),
            r#"0 Tool(0) "{\"a\":\"x y\"}""#.to_owned(),
            r#"0 Tool(1) "{}""#.to_owned(),
            stopped(0, "stop"),
            usage([Some(5), Some(4), None, None, None]),
            clocked(10, 1, Some(2), 7),
        ]
    );
    let generated = r#"{"model":"m","response":"Yes","done":true,"context":[1,2],"eval_count":1}"#;
    assert_eq!(
        body(Api::OllamaGenerate, generated),
        [
            started(None, Some("m")),
            r#"0 Text "Yes""#.to_owned(),
            usage([None, Some(1), None, None, None]),
        ]
    );
}

#[test]
fn reads_input_of_embeddings() {
    let answer = r#"{"model":"all-minilm","embeddings":[[0.25,-1e-9],[1,2]],"total_duration":14,"load_duration":1,"prompt_eval_count":8}"#;
    let timings = Timings {
        load: Some(Duration::from_nanos(1)),
        total: Some(Duration::from_nanos(14)),
        ..Timings::default()
    };
    assert_eq!(
        body(Api::OllamaEmbed, answer),
        [
            started(None, Some("all-minilm")),
            usage([Some(8), None, None, None, None]),
            format!("{:?}", Event::Timings(&timings)),
        ]
    );
    assert!(body(Api::OllamaEmbed, r#"{"embedding":[0.5,0.25]}"#).is_empty());
}

#[test]
fn reads_errors_of_bodies_and_streams() {
    let missing = r#"{"error":"model \"m\" not found, try pulling it first"}"#;
    let refused = TestResponse::new(Api::OllamaChat, JSON).status(404);
    assert_eq!(refused.read(missing.as_bytes()), [failed(None)]);
    let declared_lines = TestResponse::new(Api::OllamaChat, LINES).status(404);
    assert_eq!(declared_lines.read(missing.as_bytes()), [failed(None)]);
    assert_eq!(body(Api::OllamaChat, missing), [failed(None)]);
    let within = lines(
        Api::OllamaChat,
        &[
            r#"{"model":"m","message":{"role":"assistant","content":"a"},"done":false}"#,
            r#"{"error":"an error was encountered while running the model"}"#,
        ],
    );
    let before = [started(None, Some("m")), r#"0 Text "a""#.to_owned()];
    assert_eq!(within, [&before[..], &[failed(None)]].concat());
}

#[test]
fn reads_malformed_text_and_wrong_types() {
    let half = r#"{"model":"m","message":{"content":"a\ud83d"},"done":false}"#;
    assert_eq!(
        lines(Api::OllamaChat, &[half]),
        [
            "ParseError(BadText)".to_owned(),
            started(None, Some("m")),
            "0 Text \"a\u{FFFD}\"".to_owned()
        ]
    );
    let odd = r#"{"model":7,"message":{"content":["a"],"tool_calls":[3,{"function":"f"},{"function":{"arguments":"{\"a\": 1}"}}]},"done":"yes","eval_count":"many","response":null}"#;
    let read = [
        started(None, Some("7")),
        r#"0 Tool(2) "{\"a\": 1}""#.to_owned(),
        "ParseError(BadJson)".to_owned(),
    ];
    assert_eq!(lines(Api::OllamaChat, &[odd]), read);
    assert_eq!(lines(Api::OllamaChat, &["{\"model\" \"m\"}"]), ["ParseError(BadJson)"]);
}

#[test]
fn reads_all_facts_of_a_request() {
    let facts = asked(
        Api::OllamaChat,
        r#"{"model":"qwen3:4b","messages":[{"role":"system","content":"b\u00e9"},{"role":"user","content":"four","images":["AAAA"]}],
          "tools":[{"type":"function","function":{"name":"f","parameters":{"model":"no"}}}],"think":"high","format":{"type":"object"},
          "options":{"temperature":0.5,"num_predict":64,"top_k":40,"top_p":0.9,"seed":7,"stop":["a","b"],"num_ctx":8192,
          "frequency_penalty":-1,"presence_penalty":0.25},"stream":false,"keep_alive":"5m"}"#,
    );
    let expected = RequestFacts {
        model: Name::new("qwen3:4b"),
        stream: Some(false),
        max_tokens: Some(64),
        temperature: Some(0.5),
        top_p: Some(0.9),
        top_k: Some(40),
        frequency_penalty: Some(-1.0),
        presence_penalty: Some(0.25),
        seed: Some(7),
        stop_sequences: Some(2),
        reasoning_level: Name::new("high"),
        output_type: Some("json"),
        prompt_bytes: 7,
        tools: true,
        ..RequestFacts::default()
    };
    assert_eq!(facts, expected);
    let generate = asked(
        Api::OllamaGenerate,
        r#"{"model":"m","prompt":"abc","system":"de","suffix":"f","format":"json","think":true,"options":{"num_predict":-1,"stop":"x"}}"#,
    );
    let known = (generate.prompt_bytes, generate.output_type, generate.max_tokens);
    assert_eq!(known, (6, Some("json"), None));
    assert_eq!((generate.reasoning_level, generate.stop_sequences), (None, Some(1)));
    let embed = asked(Api::OllamaEmbed, r#"{"model":"e","input":["ab","c"],"dimensions":64}"#);
    assert_eq!((embed.prompt_bytes, embed.dimensions), (3, Some(64)));
    assert_eq!(
        asked(Api::OllamaGenerate, r#"{"format":"","think":false}"#),
        RequestFacts::default()
    );
}

#[test]
fn streams_unless_the_request_disables_it() {
    let post = |path, body: &str| {
        let detect = RequestTarget {
            hint: None,
            method: &http::Method::POST,
            host: None,
            path,
            header_family: None,
        };
        let mut reader = RequestReader::new(&crate::dialect::detect(&detect).unwrap());
        reader.push(body.as_bytes());
        reader.finish().stream
    };
    assert_eq!(post("/api/chat", "{}"), Some(true));
    assert_eq!(post("/api/generate", r#"{"stream":false}"#), Some(false));
    assert_eq!(post("/api/embed", "{}"), None);
}

proptest::proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..120), status in 200..600_u16) {
        let framed = [b"{\"model\":\"m\",\"message\":{\"content\":\"", bytes.as_slice(), b"\"}}\n{\"done\":true}\n"].concat();
        for api in [Api::OllamaChat, Api::OllamaGenerate, Api::OllamaEmbed] {
            let answer = TestResponse::new(api, LINES).status(status);
            let pieces: Vec<&[u8]> = framed.chunks(3).collect();
            proptest::prop_assert_eq!(answer.cut(&pieces), answer.cut(&[&framed]));
        }
    }
}
