//! Tests responses of Cohere and other rerankers: complete, byte by byte, and split in two at every position.

use proptest::prelude::*;

use crate::dialect::testing::{
    JSON, STREAM, TestResponse, events, failed, started, stopped, usage,
};
use crate::dialect::*;
use tokengauge_types::event::{SessionSignal, SessionSource};
use tokengauge_types::label::Name;

const LINES: Option<&str> = Some("application/stream+json");
const NOTHING: [String; 0] = [];

fn whole(api: Api, body: &str) -> Vec<String> {
    TestResponse::new(api, JSON).read(body.as_bytes())
}

/// Returns the events of a version 1 stream. The stream is read both as JSON lines and as named server-sent events.
fn first(api: Api, messages: &[&str]) -> Vec<String> {
    let lines: String = messages.iter().map(|line| format!("{line}\n")).collect();
    let read = TestResponse::new(api, LINES).read(lines.as_bytes());
    let named: String =
        messages.iter().map(|data| format!("event: message\ndata: {data}\n\n")).collect();
    assert_eq!(TestResponse::new(api, STREAM).read(named.as_bytes()), read);
    read
}

/// Returns the events of a version 2 stream.
fn second(messages: &[&str]) -> Vec<String> {
    TestResponse::new(Api::CohereV2Chat, STREAM).read(events(messages).as_bytes())
}

fn done() -> String {
    "Done".to_owned()
}

#[test]
fn a_chat_of_the_first_version() {
    let answer = r#"{"response_id":"r1","text":"Good day","generation_id":"g1","chat_history":[{"role":"USER","message":"Hi"},{"role":"CHATBOT","message":"Good day"}],"finish_reason":"COMPLETE","meta":{"api_version":{"version":"1"},"billed_units":{"input_tokens":2,"output_tokens":3},"tokens":{"input_tokens":70.0,"output_tokens":4},"cached_tokens":64}}"#;
    let end = [stopped(0, "COMPLETE"), usage([Some(70), Some(4), Some(64), None, None])];
    let head = [started(Some("g1"), None), r#"0 Text "Good day""#.to_owned()];
    let messages = [
        r#"{"is_finished":false,"event_type":"stream-start","generation_id":"g1"}"#,
        r#"{"is_finished":false,"event_type":"search-queries-generation","search_queries":[{"text":"no","generation_id":"g2"}]}"#,
        r#"{"is_finished":false,"event_type":"text-generation","text":"Good"}"#,
        r#"{"is_finished":false,"event_type":"text-generation","text":" day"}"#,
        r#"{"is_finished":false,"event_type":"citation-generation","citations":[{"start":0,"end":4,"text":"Good"}]}"#,
        &format!(
            r#"{{"is_finished":true,"event_type":"stream-end","finish_reason":"COMPLETE","response":{answer}}}"#
        ),
    ];
    let streamed = first(Api::CohereV1Chat, &messages);
    assert_eq!(streamed, [&head[..], &end, &[done()]].concat());
    // Bedrock may send the whole response in one message.
    assert_eq!(first(Api::CohereV1Chat, &[messages[0], messages[5]]), streamed);
    let [id, text] = head;
    let [reason, counts] = end;
    assert_eq!(whole(Api::CohereV1Chat, answer), [text, id, reason, counts]);
}

#[test]
fn calls_of_the_first_version_count_once() {
    let chunks = [
        r#"{"event_type":"tool-calls-chunk","text":"I will"}"#,
        r#"{"event_type":"tool-calls-chunk","tool_call_delta":{"text":" look."}}"#,
        r#"{"event_type":"tool-calls-chunk","tool_call_delta":{"name":"f","index":0}}"#,
        r#"{"event_type":"tool-calls-chunk","tool_call_delta":{"index":0,"parameters":"{\"a\":"}}"#,
        r#"{"event_type":"tool-calls-chunk","tool_call_delta":{"index":0,"parameters":"1}"}}"#,
        r#"{"event_type":"tool-calls-chunk","tool_call_delta":{"index":1,"parameters":"{}"}}"#,
    ];
    let again = r#"{"event_type":"tool-calls-generation","text":"I will look.","tool_calls":[{"name":"f","parameters":{"a": 1}},{"name":"g","parameters":{}}]}"#;
    let expected = [r#"0 Text "I will look.""#, r#"0 Tool(0) "{\"a\":1}""#, r#"0 Tool(1) "{}""#];
    let both: Vec<&str> = chunks.into_iter().chain([again]).collect();
    assert_eq!(first(Api::CohereV1Chat, &both), expected);
    assert_eq!(first(Api::CohereV1Chat, &[again, "{}"]), expected);
    assert_eq!(whole(Api::CohereV1Chat, again), expected);
}

#[test]
fn reads_generated_text() {
    let answer = r#"{"id":"i1","generations":[{"id":"a","text":" One","finish_reason":"COMPLETE"},{"id":"b","text":" Two","finish_reason":"MAX_TOKENS"}],"prompt":"no","meta":{"billed_units":{"input_tokens":5,"output_tokens":57}}}"#;
    let end = [stopped(0, "COMPLETE"), stopped(1, "MAX_TOKENS")];
    assert_eq!(
        whole(Api::CohereV1Generate, answer),
        [
            started(Some("i1"), None),
            r#"0 Text " One""#.to_owned(),
            end[0].clone(),
            r#"1 Text " Two""#.to_owned(),
            end[1].clone(),
        ]
    );
    let last = format!(r#"{{"is_finished":true,"event_type":"stream-end","response":{answer}}}"#);
    let messages = [
        r#"{"text":" O","index":0,"is_finished":false}"#,
        r#"{"text":" Two","index":1,"is_finished":false}"#,
        r#"{"text":"ne","index":0,"is_finished":false,"event_type":"text-generation"}"#,
        &last,
    ];
    assert_eq!(
        first(Api::CohereV1Generate, &messages),
        [
            r#"0 Text " O""#.to_owned(),
            r#"1 Text " Two""#.to_owned(),
            r#"0 Text "ne""#.to_owned(),
            started(Some("i1"), None),
            end[0].clone(),
            end[1].clone(),
            done(),
        ]
    );
    // On Bedrock, one message may have the whole text, and the last message may omit the response.
    assert_eq!(
        first(Api::CohereV1Generate, &[answer, "{}"])[1..],
        [
            r#"0 Text " One""#.to_owned(),
            r#"1 Text " Two""#.to_owned(),
            end[0].clone(),
            end[1].clone(),
        ]
    );
    let bare = [
        r#"{"text":"a","is_finished":false}"#,
        r#"{"index":0,"is_finished":true,"finish_reason":"COMPLETE"}"#,
    ];
    assert_eq!(first(Api::CohereV1Generate, &bare), [r#"0 Text "a""#.to_owned(), end[0].clone()]);
}

#[test]
fn a_streamed_chat_of_the_second_version() {
    let messages = [
        r#"{"id":"c1","type":"message-start","delta":{"message":{"role":"assistant","content":[],"tool_plan":"","tool_calls":[],"citations":[]}}}"#,
        r#"{"type":"content-start","index":0,"delta":{"message":{"content":{"type":"thinking","thinking":""}}}}"#,
        r#"{"type":"content-delta","index":0,"delta":{"message":{"content":{"thinking":"Hm."}}}}"#,
        r#"{"type":"content-end","index":0}"#,
        r#"{"type":"content-start","index":1,"delta":{"message":{"content":{"type":"text","text":"Good"}}}}"#,
        r#"{"type":"content-delta","index":1,"delta":{"message":{"content":{"text":" \"day\" é"}}}}"#,
        r#"{"type":"citation-start","index":0,"delta":{"message":{"citations":{"start":0,"text":"Good"}}}}"#,
        r#"{"type":"message-end","delta":{"finish_reason":"COMPLETE","usage":{"billed_units":{"input_tokens":1,"output_tokens":2},"tokens":{"input_tokens":508,"output_tokens":86,"reasoning_tokens":28},"cached_tokens":144}}}"#,
        "[DONE]",
    ];
    let expected = [
        started(Some("c1"), None),
        r#"0 Reasoning "Hm.""#.to_owned(),
        r#"0 Text "Good \"day\" é""#.to_owned(),
        stopped(0, "COMPLETE"),
        usage([Some(508), Some(86), Some(144), None, Some(28)]),
        done(),
    ];
    assert_eq!(second(&messages), expected);
    assert_eq!(second(&messages[..8]), expected, "without the usual mark");
    let billed = r#"{"type":"message-end","delta":{"finish_reason":"COMPLETE","usage":{"billed_units":{"input_tokens":1,"output_tokens":2}}}}"#;
    assert_eq!(second(&[billed]), [stopped(0, "COMPLETE"), done()]);
}

#[test]
fn a_plan_is_a_thought_and_calls_are_numbered() {
    let messages = [
        r#"{"type":"tool-plan-delta","delta":{"message":{"tool_plan":"I will"}}}"#,
        r#"{"type":"tool-plan-delta","delta":{"message":{"tool_plan":" look."}}}"#,
        r#"{"type":"tool-call-start","index":0,"delta":{"message":{"tool_calls":{"id":"x","type":"function","function":{"name":"f","arguments":""}}}}}"#,
        r#"{"type":"tool-call-delta","index":0,"delta":{"message":{"tool_calls":{"function":{"arguments":"{\"a\""}}}}}"#,
        r#"{"type":"tool-call-delta","index":0,"delta":{"message":{"tool_calls":{"function":{"arguments":":1}"}}}}}"#,
        r#"{"type":"tool-call-end","index":0}"#,
        r#"{"type":"tool-call-start","index":1,"delta":{"message":{"tool_calls":{"id":"y","type":"function","function":{"name":"g","arguments":"{}"}}}}}"#,
    ];
    let texts = [r#"0 Reasoning "I will look.""#, r#"0 Tool(0) "{\"a\":1}""#, r#"0 Tool(1) "{}""#];
    assert_eq!(second(&messages), texts);
    let body = r#"{"id":"c2","message":{"role":"assistant","tool_plan":"I will look.","tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"function":{"name":"g","arguments":"{}"}}]},"finish_reason":"TOOL_CALL","usage":{"tokens":{"input_tokens":9,"output_tokens":5}}}"#;
    let read = whole(Api::CohereV2Chat, body);
    assert_eq!(read[0], started(Some("c2"), None));
    assert_eq!(read[1..4], texts);
    assert_eq!(read[4..], [stopped(0, "TOOL_CALL"), usage([Some(9), Some(5), None, None, None])]);
}

#[test]
fn a_whole_chat_of_the_second_version() {
    let body = r#"{"id":"c3","finish_reason":"MAX_TOKENS","message":{"role":"assistant","content":[{"type":"thinking","thinking":"Hm."},{"type":"text","text":"Good"},{"text":" day"}],"citations":[{"text":"no","sources":[{"document":{"text":"no"}}]}]},"usage":{"billed_units":{"input_tokens":1},"tokens":{"input_tokens":9,"output_tokens":5},"cached_tokens":0}}"#;
    assert_eq!(
        whole(Api::CohereV2Chat, body),
        [
            started(Some("c3"), None),
            stopped(0, "MAX_TOKENS"),
            r#"0 Reasoning "Hm.""#.to_owned(),
            r#"0 Text "Good day""#.to_owned(),
            usage([Some(9), Some(5), Some(0), None, None]),
        ]
    );
    let plain = r#"{"message":{"content":"Good day"}}"#;
    assert_eq!(whole(Api::CohereV2Chat, plain), [r#"0 Text "Good day""#]);
}

#[test]
fn reads_input_of_embeddings_and_reranking() {
    let input = |tokens| [usage([Some(tokens), None, None, None, None])];
    let old = r#"{"id":"e1","texts":["a b"],"embeddings":[[0.1,-0.2]],"meta":{"api_version":{"version":"1"},"billed_units":{"input_tokens":2}},"response_type":"embeddings_floats"}"#;
    assert_eq!(whole(Api::CohereEmbed, old)[0], started(Some("e1"), None));
    assert_eq!(whole(Api::CohereEmbed, old)[1..], input(2));
    let both = r#"{"embeddings":{"float":[[0.1]]},"meta":{"billed_units":{"input_tokens":2,"images":1},"tokens":{"input_tokens":3,"image_tokens":40}}}"#;
    let split = Usage {
        input: Some(43),
        input_by: ByModality { text: Some(3), image: Some(40), ..ByModality::default() },
        ..Usage::default()
    };
    assert_eq!(whole(Api::CohereEmbed, both), [format!("{:?}", Event::Usage(&split))]);
    for (body, expected) in [
        (
            r#"{"results":[{"index":1,"relevance_score":0.7,"document":{"text":"no"}}],"meta":{"billed_units":{"search_units":1}}}"#,
            &NOTHING[..],
        ),
        (r#"{"object":"list","data":[{"index":0}],"usage":{"total_tokens":26}}"#, &input(26)),
        (r#"{"results":[],"usage":{"prompt_tokens":25,"total_tokens":26}}"#, &input(25)),
        (r#"[{"index":0,"score":0.9,"text":"no"}]"#, &NOTHING),
    ] {
        assert_eq!(whole(Api::Rerank, body), expected, "{body}");
    }
    let named = r#"{"model":"rerank-x","results":[]}"#;
    assert_eq!(whole(Api::Rerank, named), [started(None, Some("rerank-x"))]);
}

#[test]
fn reads_errors_of_the_status() {
    for api in
        [Api::CohereV1Chat, Api::CohereV1Generate, Api::CohereV2Chat, Api::CohereEmbed, Api::Rerank]
    {
        let error = |body: &str| TestResponse::new(api, JSON).status(400).read(body.as_bytes());
        assert_eq!(error(r#"{"id":"x","message":"No."}"#), [failed(None)]);
        assert_eq!(
            error(r#"{"error_type":"TOO_MANY_TOKENS","id":"x","message":"No."}"#),
            [failed(Some("TOO_MANY_TOKENS"))]
        );
        assert_eq!(
            error(r#"{"error":{"code":400,"message":"No.","type":"invalid_request_error"}}"#),
            [failed(Some("invalid_request_error"))]
        );
        assert_eq!(
            error(r#"{"error":"No.","error_type":"Validation"}"#),
            [failed(Some("Validation"))]
        );
        assert_eq!(error(r#"{"error":{"code":400,"message":"No."}}"#), [failed(Some("400"))]);
        assert_eq!(error("<html>No.</html>"), [failed(None)]);
        assert_eq!(error("data: {\"text\":\"no\"}\n\ndata: x\n\n"), [failed(None)]);
    }
}

#[test]
fn reads_errors_in_a_stream() {
    let text = r#"{"event_type":"text-generation","text":"a"}"#;
    let broke =
        r#"{"is_finished":true,"event_type":"stream-end","finish_reason":"ERROR","response":{}}"#;
    assert_eq!(
        first(Api::CohereV1Chat, &[text, broke]),
        [r#"0 Text "a""#.to_owned(), stopped(0, "ERROR"), done(), failed(Some("ERROR"))]
    );
    let ended = r#"{"type":"message-end","delta":{"error":"No.","finish_reason":"TIMEOUT"}}"#;
    let end = [stopped(0, "TIMEOUT"), done(), failed(None), failed(Some("TIMEOUT"))];
    assert_eq!(second(&[ended]), end);
    let named = "event: error\ndata: {\"message\":\"No.\"}\n\n";
    assert_eq!(TestResponse::new(Api::CohereV2Chat, STREAM).read(named.as_bytes()), [failed(None)]);
    let object = r#"{"error":{"type":"overloaded","message":"No."}}"#;
    assert_eq!(second(&[object]), [failed(Some("overloaded"))]);
    assert_eq!(whole(Api::CohereV2Chat, object), [failed(Some("overloaded"))]);
    assert_eq!(second(&["{", "[1]x"]), ["ParseError(BadJson)"; 2]);
    assert_eq!(whole(Api::CohereV2Chat, "{"), ["ParseError(Unterminated)"]);
    assert_eq!(whole(Api::CohereV2Chat, "no"), ["ParseError(BadJson)"]);
}

fn asked(api: Api, body: &str) -> RequestFacts {
    let found = DetectedApi { api, model: None, stream: None, body_decides: true };
    let read = |pieces: &[&[u8]]| {
        let mut reader = RequestReader::new(&found);
        pieces.iter().for_each(|piece| reader.push(piece));
        reader.finish()
    };
    let whole = read(&[body.as_bytes()]);
    let bytes: Vec<&[u8]> = body.as_bytes().chunks(1).collect();
    assert_eq!(read(&bytes), whole);
    whole
}

#[test]
fn reads_all_facts_of_a_chat() {
    let first = asked(
        Api::CohereV1Chat,
        r#"{"message":"abc","preamble":"d","chat_history":[{"role":"USER","message":"ef"}],"documents":[{"title":"g","snippet":"hi"},{"text":"j"}],"model":"command-x","stream":true,"temperature":0.5,"p":0.75,"k":40,"max_tokens":10,"stop_sequences":["a","b"],"seed":7,"frequency_penalty":0.25,"presence_penalty":0.125,"tools":[{"name":"f"}],"response_format":{"type":"json_object"},"conversation_id":"c1"}"#,
    );
    let expected = RequestFacts {
        api: Some(Api::CohereV1Chat),
        model: Name::new("command-x"),
        stream: Some(true),
        max_tokens: Some(10),
        temperature: Some(0.5),
        top_p: Some(0.75),
        top_k: Some(40),
        frequency_penalty: Some(0.25),
        presence_penalty: Some(0.125),
        seed: Some(7),
        stop_sequences: Some(2),
        conversation: Name::new("c1"),
        session: SessionSignal::new(SessionSource::Conversation, "c1"),
        output_type: Some("json"),
        prompt_bytes: 10,
        tools: true,
        ..RequestFacts::default()
    };
    assert_eq!(first, expected);
    let second = asked(
        Api::CohereV2Chat,
        r#"{"messages":[{"role":"system","content":"abc"},{"role":"user","content":[{"type":"text","text":"de"}]}],"documents":["f",{"data":"g"},{"id":"1","data":{"title":"h","text":"ij"}}],"model":"command-x","stream":true,"temperature":0.5,"p":0.75,"k":40,"max_tokens":10,"stop_sequences":["a","b"],"seed":7,"frequency_penalty":0.25,"presence_penalty":0.125,"tools":[{"type":"function"}],"response_format":{"type":"json_object"},"thinking":{"token_budget":512,"type":"enabled"}}"#,
    );
    let expected = RequestFacts {
        api: Some(Api::OpenAiChat),
        reasoning_level: Name::new("512"),
        conversation: None,
        session: None,
        ..expected
    };
    assert_eq!(second, expected);
    let off = asked(Api::CohereV2Chat, r#"{"thinking":{"type":"disabled"}}"#);
    assert_eq!(off.reasoning_level, Name::new("disabled"));
}

#[test]
fn detects_the_api_of_a_shared_path_by_the_body() {
    let api = |body| asked(Api::CohereV1Chat, body).api;
    assert_eq!(
        api(r#"{"model":"palmyra-x","messages":[{"content":"hi"}]}"#),
        Some(Api::OpenAiChat)
    );
    assert_eq!(api(r#"{"chat_history":[],"message":"hi"}"#), Some(Api::CohereV1Chat));
    assert_eq!(api(r#"{"text":"hi"}"#), None);
    let generate = asked(
        Api::CohereV1Generate,
        r#"{"prompt":"abc","num_generations":3,"end_sequences":["x"],"max_tokens":9}"#,
    );
    assert_eq!(generate.api, Some(Api::CohereV1Generate));
    assert_eq!((generate.prompt_bytes, generate.choices), (3, Some(3)));
    assert_eq!((generate.stop_sequences, generate.max_tokens), (Some(1), Some(9)));
}

#[test]
fn reads_facts_of_embedding_and_rerank_requests() {
    let embed = asked(
        Api::CohereEmbed,
        r#"{"model":"embed-x","texts":["ab","c"],"inputs":[{"content":[{"type":"text","text":"d"}]}],"embedding_types":["int8","float"],"output_dimension":256}"#,
    );
    assert_eq!((embed.prompt_bytes, embed.dimensions), (4, Some(256)));
    assert_eq!(embed.encoding_format, Name::new("int8"));
    for body in [
        r#"{"query":"a","documents":["bc",{"text":"d"}],"top_n":2}"#,
        r#"{"query":"a","texts":["bc","d"],"raw_scores":false}"#,
    ] {
        let rerank = asked(Api::Rerank, body);
        assert_eq!((rerank.api, rerank.prompt_bytes), (Some(Api::Rerank), 4), "{body}");
    }
}

proptest! {
    #[test]
    fn no_answer_makes_it_panic_and_no_cut_matters(
        words in prop::collection::vec(prop::sample::select(vec![
            "data: ", "\n", "\n\n", "{", "}", "[", "]", ",", ":", "\"text\":\"a\"", "\"delta\":{\"message\":{\"content\":{\"thinking\":\"b\"",
            "\"tool_calls\":[{\"parameters\":{", "\"generations\":[{\"text\":\"c\"", "\"finish_reason\":\"ERROR\"", "\"message\":{\"content\":[",
            "\"usage\":{\"tokens\":{\"input_tokens\":1", "\"response\":{", "\"error\":{", "é", "\\ud83d",
        ]), 0..30),
        noise in prop::collection::vec(any::<u8>(), 0..4),
        size in 1..9_usize,
        failed: bool,
    ) {
        let mut body = words.concat().into_bytes();
        body.extend(noise);
        for (api, content_type) in [(Api::CohereV1Chat, LINES), (Api::CohereV2Chat, STREAM), (Api::Rerank, JSON)] {
            let answer = TestResponse::new(api, content_type).status(if failed { 500 } else { 200 });
            let pieces: Vec<&[u8]> = body.chunks(size).collect();
            prop_assert_eq!(answer.cut(&pieces), answer.cut(&[&body]));
        }
    }
}
