//! Tests responses of each engine. Each body is read in one piece, byte by byte, and split in two at every position.

mod ollama;

use std::time::Duration;

use crate::dialect::testing::{
    JSON, STREAM, TestResponse, asked, events, failed, started, stopped, usage,
};
use crate::dialect::*;
use tokengauge_types::label::Name;

const ENGINES: [Api; 5] = [
    Api::TgiGenerate,
    Api::LlamaCppCompletion,
    Api::SglangGenerate,
    Api::VllmGenerate,
    Api::TritonGenerate,
];

fn stream(api: Api, messages: &[&str]) -> Vec<String> {
    TestResponse::new(api, STREAM).read(events(messages).as_bytes())
}

fn body(api: Api, body: &str) -> Vec<String> {
    TestResponse::new(api, JSON).read(body.as_bytes())
}

fn text(text: &str) -> String {
    format!("0 Text {text:?}")
}

fn clocked(timings: Timings) -> String {
    format!("{:?}", Event::Timings(&timings))
}

#[test]
fn reads_tgi_streams_once() {
    let messages = [
        r#"{"index":1,"token":{"id":10,"text":" low","logprob":-0.1,"special":false},"generated_text":null,"details":null}"#,
        r#"{"index":2,"token":{"id":11,"text":" t\u00efde","logprob":-0.2,"special":false},"top_tokens":[{"id":9,"text":" no"}],"generated_text":null,"details":null}"#,
        r#"{"index":3,"token":{"id":2,"text":"</s>","logprob":0.0,"special":true},"generated_text":" low tïde","details":{"finish_reason":"eos_token","generated_tokens":3,"seed":42,"input_length":6}}"#,
    ];
    let end =
        [stopped(0, "eos_token"), usage([Some(6), Some(3), None, None, None]), "Done".to_owned()];
    assert_eq!(stream(Api::TgiGenerate, &messages), [&[text(" low tïde")][..], &end].concat());
    assert_eq!(stream(Api::TgiGenerate, &messages[..2]), [text(" low tïde")]);
    // Without `details`, only the whole text shows that this is the last token.
    let last =
        r#"{"token":{"id":1,"text":".","special":false},"generated_text":".","details":null}"#;
    assert_eq!(stream(Api::TgiGenerate, &[last]), [text("."), "Done".to_owned()]);
    let at_once = r#"{"token":{"id":1,"text":"</s>","special":true},"generated_text":"All."}"#;
    assert_eq!(stream(Api::TgiGenerate, &[at_once]), [text("All."), "Done".to_owned()]);
}

#[test]
fn reads_tgi_objects_and_lists() {
    let details = r#""details":{"finish_reason":"length","generated_tokens":2,"seed":0,"prefill":[{"id":1,"text":"p"}],"tokens":[{"id":5,"text":" a","special":false}]}"#;
    let end = [stopped(0, "length"), usage([None, Some(2), None, None, None])];
    let first = format!(r#"{{{details},"generated_text":" a b"}}"#);
    assert_eq!(body(Api::TgiGenerate, &first), [&end[..], &[text(" a b")]].concat());
    let listed = format!(r#"[{{"generated_text":" a b",{details}}}]"#);
    assert_eq!(body(Api::TgiGenerate, &listed), [&[text(" a b")][..], &end].concat());
    assert_eq!(body(Api::TgiGenerate, r#"{"generated_text":"x"}"#), [text("x")]);
    for batch in [
        format!(r#"[{{"generated_text":"a",{details}}},{{"generated_text":"b",{details}}}]"#),
        format!(r#"[[{{"generated_text":"a",{details}}}],[{{"generated_text":"b",{details}}}]]"#),
    ] {
        let expected = [
            text("a"),
            stopped(0, "length"),
            usage([None, Some(2), None, None, None]),
            r#"1 Text "b""#.to_owned(),
            stopped(1, "length"),
            usage([None, Some(4), None, None, None]),
        ];
        assert_eq!(body(Api::TgiGenerate, &batch), expected);
    }
}

#[test]
fn skips_the_repeated_prompt_of_tgi() {
    let request = r#"{"parameters":{"return_full_text":true},"inputs":"Où est"}"#;
    let answer = r#"[{"generated_text":"O\u00f9 est Brest"}]"#;
    let of = |request| {
        let answered = TestResponse::new(Api::TgiGenerate, JSON).to(request);
        answered.read(answer.as_bytes())
    };
    assert_eq!(of(request), [text(" Brest")]);
    let without = r#"{"inputs":"Où est","parameters":{"return_full_text":false}}"#;
    assert_eq!(of(without), [text("Où est Brest")]);
    let several = r#"{"inputs":["Où","est"],"parameters":{"return_full_text":true}}"#;
    assert_eq!(of(several), [text("Où est Brest")]);
}

#[test]
fn reads_llama_cpp_streams() {
    let messages = [
        r#"{"index":0,"content":" ebb","tokens":[7],"stop":false,"id_slot":-1,"tokens_predicted":1,"tokens_evaluated":28}"#,
        r#"{"index":0,"content":" and","tokens":[8],"stop":false,"id_slot":-1,"tokens_predicted":2,"tokens_evaluated":28}"#,
        r#"{"index":0,"content":"","tokens":[],"id_slot":0,"stop":true,"model":"gpt-oss-20b","tokens_predicted":2,"tokens_evaluated":28,"generation_settings":{"stop":["x"],"seed":1},"prompt":"<s>tide","has_new_line":false,"truncated":false,"stop_type":"word","stopping_word":" flow","tokens_cached":29,"timings":{"cache_n":20,"prompt_n":8,"prompt_ms":12.5,"prompt_per_token_ms":1.5,"predicted_n":2,"predicted_ms":40,"predicted_per_second":50.0}}"#,
    ];
    let timings = Timings {
        prefill: Some(Duration::from_micros(12_500)),
        decode: Some(Duration::from_millis(40)),
        ..Timings::default()
    };
    let end = [
        started(None, Some("gpt-oss-20b")),
        stopped(0, "word"),
        usage([Some(28), Some(2), Some(20), None, None]),
        clocked(timings),
    ];
    let so_far = |output| usage([Some(28), Some(output), None, None, None]);
    let before = [text(" ebb"), so_far(1), text(" and"), so_far(2)];
    assert_eq!(stream(Api::LlamaCppCompletion, &messages), [&before[..], &end].concat());
    let only_text = r#"{"content":"a","stop":true}"#;
    assert_eq!(stream(Api::LlamaCppCompletion, &[only_text]), [text("a"), "Done".to_owned()]);
}

#[test]
fn reads_llama_cpp_objects_and_lists() {
    let old = r#"{"content":" ebb","model":"m.gguf","prompt":"tide","stop":true,"stopped_eos":false,"stopped_limit":true,"stopped_word":false,"stopping_word":"","timings":{"predicted_ms":10.0,"predicted_n":1,"prompt_ms":5.0,"prompt_n":4},"tokens_cached":5,"tokens_evaluated":4,"tokens_predicted":1,"truncated":false}"#;
    let timings = Timings {
        prefill: Some(Duration::from_millis(5)),
        decode: Some(Duration::from_millis(10)),
        ..Timings::default()
    };
    assert_eq!(
        body(Api::LlamaCppCompletion, old),
        [
            text(" ebb"),
            started(None, Some("m.gguf")),
            stopped(0, "limit"),
            usage([Some(4), Some(1), None, None, None]),
            clocked(timings),
        ]
    );
    assert!(stream(Api::LlamaCppCompletion, &[old]).contains(&stopped(0, "limit")));
    let listed = r#"[{"index":0,"content":"a","stop":true,"stop_type":"eos","tokens_evaluated":4,"tokens_predicted":1},
        {"index":1,"content":"b","stop":true,"stop_type":"none","tokens_evaluated":4,"tokens_predicted":2}]"#;
    let end = [r#"1 Text "b""#.to_owned(), usage([Some(8), Some(3), None, None, None])];
    let read = body(Api::LlamaCppCompletion, listed);
    assert_eq!(
        read,
        [&[text("a"), stopped(0, "eos"), usage([Some(4), Some(1), None, None, None])][..], &end]
            .concat()
    );
    // Two completions share one prompt.
    let twice = TestResponse::new(Api::LlamaCppCompletion, JSON).to(r#"{"prompt":"x","n_cmpl":2}"#);
    assert_eq!(
        twice.read(listed.as_bytes()).last(),
        Some(&usage([Some(4), Some(3), None, None, None]))
    );
}

/// Returns a message of SGLang with a text, its number of tokens and the stop reason.
fn sglang(text: &str, tokens: u32, reason: &str) -> String {
    format!(
        r#"{{"text":"{text}","output_ids":[1],"meta_info":{{"id":"a1","finish_reason":{reason},"prompt_tokens":9,"weight_version":"default","completion_tokens":{tokens},"cached_tokens":8}}}}"#
    )
}

#[test]
fn reads_cumulative_and_incremental_streams_of_sglang() {
    let counts = |output| usage([Some(9), Some(output), Some(8), None, None]);
    let expected = [
        started(Some("a1"), None),
        text(" The"),
        counts(1),
        text(" tide"),
        counts(2),
        text(" turns"),
        counts(3),
        stopped(0, "stop"),
        counts(3),
        "Done".to_owned(),
    ];
    let of = |texts: [&str; 4]| {
        let stop = r#"{"type":"stop","matched":2}"#;
        let messages = [
            sglang(texts[0], 1, "null"),
            sglang(texts[1], 2, "null"),
            sglang(texts[2], 3, "null"),
            sglang(texts[3], 3, stop),
            "[DONE]".to_owned(),
        ];
        stream(Api::SglangGenerate, &messages.each_ref().map(String::as_str))
    };
    let repeated = [" The", " The tide", " The tide turns", " The tide turns"];
    assert_eq!(of(repeated), expected);
    assert_eq!(of([" The", " tide", " turns", ""]), expected);
}

#[test]
fn reads_sglang_objects_and_lists() {
    let answer = r#"{"text":" Brest","output_ids":[5],"meta_info":{"id":"a1","finish_reason":{"type":"length","length":1},"prompt_tokens":9,"completion_tokens":1,"cached_tokens":0,"e2e_latency":0.25}}"#;
    let total = Timings { total: Some(Duration::from_millis(250)), ..Timings::default() };
    let one = [
        text(" Brest"),
        started(Some("a1"), None),
        stopped(0, "length"),
        usage([Some(9), Some(1), Some(0), None, None]),
        clocked(total),
    ];
    assert_eq!(body(Api::SglangGenerate, answer), one);
    let two = format!("[{answer},{answer}]");
    let of = |request| {
        let answered = TestResponse::new(Api::SglangGenerate, JSON).to(request);
        let read = answered.read(two.as_bytes());
        assert!(read.contains(&stopped(1, "length")));
        read.into_iter().rfind(|line| line.starts_with("Usage"))
    };
    assert_eq!(of(r#"{"text":["a","b"]}"#), Some(usage([Some(18), Some(2), Some(0), None, None])));
    let same = r#"{"text":"a","sampling_params":{"n":2}}"#;
    assert_eq!(of(same), Some(usage([Some(9), Some(2), Some(0), None, None])));
}

#[test]
fn reports_aborts_of_sglang() {
    let abort = r#"{"type":"abort","message":"No room.","status_code":503,"err_type":"ServiceUnavailable"}"#;
    let read = stream(Api::SglangGenerate, &[&sglang("", 0, abort)]);
    let counts = usage([Some(9), Some(0), Some(8), None, None]);
    let end = [stopped(0, "abort"), failed(Some("ServiceUnavailable")), counts.clone()];
    assert_eq!(read[read.len() - 3..], end);
    let whole = body(Api::SglangGenerate, &sglang("", 0, r#"{"type":"abort","message":"No."}"#));
    assert_eq!(whole[whole.len() - 3..], [stopped(0, "abort"), counts, failed(Some("abort"))]);
    let word = stream(Api::SglangGenerate, &[&sglang("", 0, r#""FINISH_LENGTH""#)]);
    assert!(word.contains(&stopped(0, "FINISH_LENGTH")));
}

#[test]
fn skips_repeated_text_of_vllm() {
    let lines = [
        r#"{"text": ["Où est Br", "Où est"]}"#,
        r#"{"text": ["Où est Brest", "Où est Pa"]}"#,
        r#"{"text": ["Où est Brest?", "Où est Paris"]}"#,
    ];
    let expected =
        [text(" Brest"), r#"1 Text " Pa""#.to_owned(), text("?"), r#"1 Text "ris""#.to_owned()];
    let answer =
        TestResponse::new(Api::VllmGenerate, None).to(r#"{"prompt":"Où est","n":2,"stream":true}"#);
    for between in ["\n", "\0"] {
        let body: String = lines.iter().map(|line| format!("{line}{between}")).collect();
        assert_eq!(answer.read(body.as_bytes()), expected, "{between:?}");
    }
    let whole = TestResponse::new(Api::VllmGenerate, JSON).to(r#"{"prompt":"Où est"}"#);
    let both = [text(" Brest?"), r#"1 Text " Paris""#.to_owned()];
    assert_eq!(whole.read(lines[2].as_bytes()), both);
}

#[test]
fn reads_triton_streams_without_end_mark() {
    let message = |text: &str| {
        format!(
            r#"{{"model_name":"ensemble","model_version":"1","sequence_end":false,"sequence_id":0,"text_output":"{text}"}}"#
        )
    };
    let of = |texts: [&str; 3]| {
        let messages = texts.map(message);
        stream(Api::TritonGenerate, &messages.each_ref().map(String::as_str))
    };
    let expected = [started(None, Some("ensemble")), text("The tide turns")];
    assert_eq!(of(["The", " tide", " turns"]), expected);
    assert_eq!(of(["The", "The tide", "The tide turns"]), expected);
    assert!(!Api::TritonGenerate.marks_end() && !Api::VllmGenerate.marks_end());
    assert!(Api::ALL.iter().filter(|api| !api.marks_end()).count() == 2);
}

#[test]
fn reads_counts_and_reasons_of_triton() {
    let messages = [
        r#"{"model_name":"vllm_model","model_version":"1","text_output":"The","finish_reason":"None","num_input_tokens":5,"num_output_tokens":1}"#,
        r#"{"model_name":"vllm_model","model_version":"1","text_output":[" tide"],"finish_reason":["length"],"num_input_tokens":5,"num_output_tokens":[2]}"#,
    ];
    assert_eq!(
        stream(Api::TritonGenerate, &messages),
        [
            started(None, Some("vllm_model")),
            text("The"),
            usage([Some(5), Some(1), None, None, None]),
            text(" tide"),
            stopped(0, "length"),
            usage([Some(5), Some(3), None, None, None]),
        ]
    );
    let whole = r#"{"finish_reason":["stop","length"],"model_name":"m","num_input_tokens":5,"num_output_tokens":[3,4],"text_output":["a","b"]}"#;
    assert_eq!(
        body(Api::TritonGenerate, whole),
        [
            stopped(0, "stop"),
            stopped(1, "length"),
            started(None, Some("m")),
            text("a"),
            r#"1 Text "b""#.to_owned(),
            usage([Some(5), Some(7), None, None, None]),
        ]
    );
    let kserve = r#"{"text_output":"a","model_name":"m","details":{"finish_reason":"stop","logprobs":null}}"#;
    let expected = [text("a"), started(None, Some("m")), stopped(0, "stop")];
    assert_eq!(body(Api::TritonGenerate, kserve), expected);
    assert_eq!(stream(Api::TritonGenerate, &[kserve]).last(), Some(&stopped(0, "stop")));
}

#[test]
fn skips_the_repeated_prompt_of_triton() {
    let answer = r#"{"model_name":"m","text_output":"Where is Brest"}"#;
    let of = |exclude: &str| {
        let request = format!(r#"{{"text_input":"Where is"{exclude}}}"#);
        let answer_to = TestResponse::new(Api::TritonGenerate, JSON).to(&request);
        answer_to.read(answer.as_bytes()).pop().unwrap()
    };
    assert_eq!(of(r#","exclude_input_in_output":false"#), text(" Brest"));
    assert_eq!(of(r#","exclude_input_in_output":true"#), text("Where is Brest"));
}

#[test]
fn reads_errors_of_bodies_and_streams() {
    for (api, message, kind) in [
        (
            Api::TgiGenerate,
            r#"{"error":"Input validation error","error_type":"validation"}"#,
            Some("validation"),
        ),
        (
            Api::LlamaCppCompletion,
            r#"{"error":{"code":400,"message":"No.","type":"invalid_request_error"}}"#,
            Some("invalid_request_error"),
        ),
        (Api::SglangGenerate, r#"{"error":{"message":"No."}}"#, None),
        (Api::VllmGenerate, r#"{"error":"No."}"#, None),
        (Api::TritonGenerate, r#"{"error":"No."}"#, None),
    ] {
        let refused = TestResponse::new(api, JSON).status(422);
        assert_eq!(refused.read(message.as_bytes()), [failed(kind)], "{api:?}");
        let declared_stream = TestResponse::new(api, STREAM).status(500);
        assert_eq!(declared_stream.read(events(&[message, message]).as_bytes()), [failed(kind)]);
        assert_eq!(body(api, message), [failed(kind)], "{api:?}");
        assert_eq!(stream(api, &[message, "[DONE]"]), [failed(kind), "Done".to_owned()]);
        assert_eq!(
            TestResponse::new(api, None).status(404).read(b"Not DetectedApi"),
            [failed(None)]
        );
        let named = format!("event: error\ndata: {message}\n\n");
        let field = format!("error: {message}\n\n");
        assert_eq!(TestResponse::new(api, STREAM).read(field.as_bytes()), [failed(kind)]);
        assert_eq!(TestResponse::new(api, STREAM).read(named.as_bytes()), [failed(kind)]);
    }
}

#[test]
fn detects_the_engine_by_the_prompt() {
    let api = |by_path, body| asked(by_path, body).api;
    let generate = Api::VllmGenerate;
    for (body, expected) in [
        (r#"{"inputs":"a"}"#, Some(Api::TgiGenerate)),
        (r#"{"text":"a","sampling_params":{}}"#, Some(Api::SglangGenerate)),
        (r#"{"input_ids":[[1]]}"#, Some(Api::SglangGenerate)),
        (r#"{"prompt":"a","n":2}"#, Some(Api::VllmGenerate)),
        (r#"{"model":"m"}"#, None),
        (r#"{"inputs":{"past":[]}}"#, Some(Api::TgiGenerate)),
    ] {
        assert_eq!(api(generate, body), expected, "{body}");
    }
    for (body, expected) in [
        (r#"{"inputs":"a"}"#, Some(Api::TgiGenerate)),
        (r#"{"text":"a"}"#, None),
        (r#"{"prompt":"a"}"#, None),
    ] {
        assert_eq!(api(Api::TgiGenerate, body), expected, "{body}");
    }
    assert_eq!(api(Api::LlamaCppCompletion, r#"{"prompt":[1,2]}"#), Some(Api::LlamaCppCompletion));
    assert_eq!(
        api(Api::LlamaCppCompletion, r#"{"input_prefix":"a"}"#),
        Some(Api::LlamaCppCompletion)
    );
    let completions = Api::OpenAiCompletions;
    assert_eq!(api(completions, r#"{"prompt":"a","n_predict":3}"#), Some(Api::LlamaCppCompletion));
    assert_eq!(
        api(completions, r#"{"cache_prompt":true,"prompt":"a"}"#),
        Some(Api::LlamaCppCompletion)
    );
    assert_eq!(api(completions, r#"{"prompt":"a","max_tokens":3}"#), Some(completions));
    assert_eq!(asked(completions, r#"{"n_predict":3,"id_slot":1}"#).max_tokens, Some(3));
}

#[test]
fn reads_all_facts_of_a_request() {
    let common = RequestFacts {
        stream: Some(true),
        max_tokens: Some(20),
        temperature: Some(0.5),
        top_p: Some(0.9),
        top_k: Some(40),
        seed: Some(7),
        stop_sequences: Some(2),
        prompt_bytes: 4,
        ..RequestFacts::default()
    };
    let settings = r#""temperature":0.5,"top_p":0.9,"top_k":40,"stop":["a","b"]"#;
    let tgi = format!(
        r#"{{"inputs":"b\u00e9a","parameters":{{{settings},"max_new_tokens":20,"seed":7,"frequency_penalty":0.1,"grammar":{{"type":"json","value":{{"type":"object"}}}},"return_full_text":false}},"stream":true}}"#
    );
    let expected = RequestFacts {
        api: Some(Api::TgiGenerate),
        frequency_penalty: Some(0.1),
        output_type: Some("json"),
        echo: Some(false),
        ..common.clone()
    };
    assert_eq!(asked(Api::TgiGenerate, &tgi), expected);
    let sglang = format!(
        r#"{{"text":"béa","sampling_params":{{{settings},"max_new_tokens":20,"sampling_seed":7,"presence_penalty":1,"n":2,"json_schema":"{{}}"}},"stream":true}}"#
    );
    let expected = RequestFacts {
        api: Some(Api::SglangGenerate),
        presence_penalty: Some(1.0),
        choices: Some(2),
        output_type: Some("json"),
        ..common.clone()
    };
    assert_eq!(asked(Api::VllmGenerate, &sglang), expected);
    let llama = format!(
        r#"{{"model":"m","prompt":{{"prompt_string":"béa","multimodal_data":["AA"]}},{settings},"n_predict":20,"seed":7,"stream":true,"json_schema":{{"n":1}}}}"#
    );
    let expected = RequestFacts {
        api: Some(Api::LlamaCppCompletion),
        model: Name::new("m"),
        output_type: Some("json"),
        ..common.clone()
    };
    assert_eq!(asked(Api::LlamaCppCompletion, &llama), expected);
    let triton = format!(
        r#"{{"text_input":"béa","parameters":{{{settings},"max_tokens":20,"seed":7,"stream":true}},"exclude_input_in_output":true}}"#
    );
    let expected = RequestFacts { api: Some(Api::TritonGenerate), echo: Some(false), ..common };
    assert_eq!(asked(Api::TritonGenerate, &triton), expected);
}

#[test]
fn reads_facts_of_infill_and_ignores_empty_stop_words() {
    let infill = r#"{"input_prefix":"ab","input_suffix":"c","input_extra":[{"filename":"f","text":"de"}],"n_predict":-1}"#;
    let infill = asked(Api::LlamaCppCompletion, infill);
    assert_eq!((infill.prompt_bytes, infill.max_tokens), (5, None));
    let empty = asked(Api::TritonGenerate, r#"{"text_input":"a","stop_words":"","bad_words":""}"#);
    assert_eq!(empty.stop_sequences, None);
}

#[test]
fn reports_fields_of_wrong_types() {
    for (api, message) in [
        (Api::TgiGenerate, r#"{"token":[{"text":"a"}],"generated_text":7,"details":"x"}"#),
        (
            Api::LlamaCppCompletion,
            r#"{"content":["a"],"stop":"no","timings":[1],"tokens_predicted":"many","stop_type":null}"#,
        ),
        (Api::SglangGenerate, r#"{"text":7,"meta_info":{"finish_reason":[1],"prompt_tokens":{}}}"#),
        (Api::VllmGenerate, r#"{"text":[null,true]}"#),
        (
            Api::TritonGenerate,
            r#"{"text_output":null,"finish_reason":{"a":1},"num_output_tokens":"x"}"#,
        ),
    ] {
        for events in [stream(api, &[message]), body(api, message)] {
            let errors = events.iter().filter(|event| *event == "ParseError(BadJson)").count();
            assert_eq!(errors, 1, "{api:?} {events:?}");
        }
        assert_eq!(stream(api, &["{\"a\" 1}"]), ["ParseError(BadJson)"]);
    }
    let meant = r#"{"text":7,"meta_info":[{"id":"a","prompt_tokens":"12","finish_reason":null}]}"#;
    let expected = [
        started(Some("a"), None),
        r#"0 Text "7""#.to_owned(),
        usage([Some(12), None, None, None, None]),
    ];
    assert_eq!(stream(Api::SglangGenerate, &[meant]), expected);
    let half = r#"{"content":"a\ud83d"}"#;
    assert_eq!(
        stream(Api::LlamaCppCompletion, &[half]),
        ["ParseError(BadText)", "0 Text \"a\u{FFFD}\""]
    );
}

proptest::proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..120), status in 200..600_u16) {
        let within = |before: &[u8]| [before, bytes.as_slice(), b"\"}\n\n"].concat();
        let bodies = [within(b"data: {\"text\":\""), within(b"data: {\"content\":\""), within(b"{\"text_output\":\""), within(b"[{\"generated_text\":\"")];
        for body in &bodies {
            for api in ENGINES {
                let answer = TestResponse::new(api, None).status(status);
                let pieces: Vec<&[u8]> = body.chunks(3).collect();
                proptest::prop_assert_eq!(answer.cut(&pieces), answer.cut(&[body]));
            }
        }
    }
}
