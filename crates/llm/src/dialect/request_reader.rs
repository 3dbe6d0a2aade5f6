//! Reads facts about a request, such as its model and settings, while the body is forwarded. The body is not stored.

use super::form::Form;
use super::json::{Found, JsonScanner};
use super::request::{RequestField, RequestPaths, RequestState};
use super::{DetectedApi, RequestFacts, request_paths};

/// Reads the facts of one request.
#[derive(Debug)]
pub struct RequestReader {
    paths: &'static RequestPaths,
    body: Body,
    state: RequestState,
    has_gap: bool,
}

/// The format of a request body: JSON, or a form for APIs that accept files.
#[derive(Debug)]
enum Body {
    /// No byte of the body has arrived yet.
    Unknown,
    Json(JsonScanner<RequestField>),
    Form(Form),
}

impl RequestReader {
    pub fn new(detected: &DetectedApi) -> Self {
        let state = RequestState::new(detected);
        Self { paths: request_paths(detected.api), body: Body::Unknown, state, has_gap: false }
    }

    /// Reads the next bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.has_gap {
            return;
        }
        let bytes = match self.body {
            Body::Unknown => bytes.trim_ascii_start(),
            Body::Json(_) | Body::Form(_) => bytes,
        };
        let Some(first) = bytes.first() else {
            return;
        };
        let state = &mut self.state;
        let read = &mut |field, found: Found<'_>| state.read(field, found);
        match &mut self.body {
            Body::Json(scanner) => scanner.push(bytes, read),
            Body::Form(form) => form.push(bytes, read),
            Body::Unknown => {
                self.body = Body::for_first_byte(*first, self.paths);
                self.push(bytes);
            }
        }
    }

    /// Stops reading because bytes were lost. The facts read so far remain valid.
    pub const fn gap(&mut self) {
        self.has_gap = true;
    }

    /// Returns the facts read so far.
    pub const fn facts(&self) -> &RequestFacts {
        &self.state.facts
    }

    pub fn finish(self) -> RequestFacts {
        self.state.facts
    }
}

impl Body {
    fn for_first_byte(first: u8, paths: &'static RequestPaths) -> Self {
        if Form::starts_with(first) {
            Self::Form(Form::new(paths))
        } else {
            let reads_length = |field| matches!(field, RequestField::Prompt);
            Self::Json(JsonScanner::new(paths).with_lengths(reads_length))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Api;
    use tokengauge_types::label::Name;

    fn chat() -> DetectedApi {
        DetectedApi { api: Api::OpenAiChat, model: None, stream: None, body_decides: false }
    }

    /// Returns the facts of a request. Asserts that splitting the body at any position gives the same facts.
    fn facts(body: &str) -> RequestFacts {
        let read = |pieces: &[&[u8]]| {
            let mut reader = RequestReader::new(&chat());
            pieces.iter().for_each(|piece| reader.push(piece));
            reader.finish()
        };
        let body = body.as_bytes();
        let whole = read(&[body]);
        assert_eq!(read(&body.chunks(1).collect::<Vec<_>>()), whole);
        for at in 0..=body.len() {
            let (first, second) = body.split_at(at);
            assert_eq!(read(&[first, second]), whole, "cut at {at}");
        }
        whole
    }

    #[test]
    fn reads_all_facts_of_a_chat_request() {
        let asked = facts(
            r#"{"messages":[{"role":"system","content":"b\u00e9"},{"role":"user","content":[{"type":"text","text":"four"},
              {"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}],"model":"no"}],
              "temperature":0.5,"top_p":1,"top_k":40,"frequency_penalty":-1.5,"presence_penalty":0.25,"seed":7,"n":3,
              "max_tokens":10,"max_completion_tokens":20,"stop":["a","b"],"reasoning_effort":"high","service_tier":"flex",
              "response_format":{"type":"json_schema","json_schema":{"type":"text","model":"no"}},"stream":true,
              "tools":[{"type":"function","function":{"name":"f","stream":false}}],"metadata":{"model":"no"},"model":"gpt-x"}"#,
        );
        let expected = RequestFacts {
            api: Some(Api::OpenAiChat),
            model: Name::new("gpt-x"),
            stream: Some(true),
            max_tokens: Some(20),
            temperature: Some(0.5),
            top_p: Some(1.0),
            top_k: Some(40),
            frequency_penalty: Some(-1.5),
            presence_penalty: Some(0.25),
            seed: Some(7),
            choices: Some(3),
            stop_sequences: Some(2),
            prompt_name: None,
            prompt_version: None,
            compacted: false,
            previous_response: None,
            conversation: None,
            session: None,
            background: false,
            reasoning_level: Name::new("high"),
            reasoning: false,
            service_tier: Name::new("flex"),
            output_type: Some("json"),
            dimensions: None,
            encoding_format: None,
            prompt_bytes: 7,
            tools: true,
            echo: None,
            bad_counts: 0,
        };
        assert_eq!(asked, expected);
    }

    #[test]
    fn measures_prompts_unescaped() {
        assert_eq!(facts(r#"{"prompt":"\n\ud83d\ude00"}"#).prompt_bytes, 5);
        assert_eq!(facts(r#"{"prompt":["ab","c"]}"#).prompt_bytes, 3);
        let embeddings =
            facts(r#"{"input":["ab",[1,2]],"dimensions":256,"encoding_format":"base64"}"#);
        let format = embeddings.encoding_format.as_ref().map(Name::as_str);
        let known = (embeddings.prompt_bytes, embeddings.dimensions, format);
        assert_eq!(known, (2, Some(256), Some("base64")));
    }

    #[test]
    fn ignores_and_counts_implausible_counts() {
        for number in ["1e12", "9223372036854775807", "18446744073709551615", "-7", "1.5", "1e300"]
        {
            for key in ["max_tokens", "max_completion_tokens", "n", "dimensions"] {
                let asked = facts(&format!("{{\"{key}\":{number}}}"));
                let expected = RequestFacts { bad_counts: 1, ..RequestFacts::default() };
                assert_eq!(asked, expected, "{key}: {number}");
            }
        }
        for number in ["-1", "-2", "null"] {
            assert_eq!(facts(&format!("{{\"max_tokens\":{number}}}")), RequestFacts::default());
        }
        assert_eq!(facts(r#"{"max_tokens":10000000}"#).max_tokens, Some(10_000_000));
        assert_eq!(facts(r#"{"max_tokens":40.0}"#).max_tokens, Some(40));
    }

    #[test]
    fn reads_other_spellings() {
        let asked = facts(
            r#"{"stop":"x","reasoning":{"effort":"low"},"modalities":["text","audio"],"functions":[{}],"n":1}"#,
        );
        assert_eq!(asked.stop_sequences, Some(1));
        assert_eq!(asked.reasoning_level, Name::new("low"));
        assert_eq!(asked.output_type, Some("speech"));
        assert!(asked.tools);
        assert_eq!(asked.choices, None);
        let limits = facts(
            r#"{"max_completion_tokens":20,"max_tokens":10,"response_format":{"type":"text"}}"#,
        );
        assert_eq!((limits.max_tokens, limits.output_type), (Some(20), Some("text")));
    }

    #[test]
    fn reads_all_facts_of_a_responses_request() {
        let asked = facts(
            r#"{"instructions":"abc","input":[{"role":"user","content":"four"},{"type":"message","content":[{"type":"input_text","text":"six"},{"type":"input_image","image_url":"data:AAAA"}]},
              {"type":"reasoning","encrypted_content":"zzzz","summary":[]},{"type":"function_call","name":"f","arguments":"{}"},{"type":"function_call_output","output":"ok"},
              {"type":"custom_tool_call","input":"ls"}],"max_output_tokens":9,"reasoning":{"effort":"low","summary":"auto"},"text":{"verbosity":"low","format":{"type":"json_schema","schema":{"type":"text"}}},
              "tools":[{"type":"web_search"}],"previous_response_id":"resp_0","stream":true,"model":"gpt-x"}"#,
        );
        let expected = RequestFacts {
            model: Name::new("gpt-x"),
            stream: Some(true),
            max_tokens: Some(9),
            previous_response: Name::new("resp_0"),
            reasoning_level: Name::new("low"),
            output_type: Some("json"),
            prompt_bytes: 16,
            tools: true,
            ..RequestFacts::default()
        };
        assert_eq!(asked, expected);
        assert_eq!(facts(r#"{"input":"four"}"#).prompt_bytes, 4);
        let parts = r#"{"input":[{"type":"text","text":"four"},{"type":"image_url","image_url":{"url":"x"}}]}"#;
        assert_eq!(facts(parts).prompt_bytes, 4);
    }

    #[test]
    fn reads_whether_the_response_is_generated_in_the_background() {
        assert!(facts(r#"{"input":"x","background":true}"#).background);
        assert!(!facts(r#"{"input":"x","background":false}"#).background);
        assert!(!facts(r#"{"input":[{"background":true}]}"#).background);
    }

    #[test]
    fn reads_the_prompt_template_without_its_variables() {
        let asked = facts(
            r#"{"prompt":{"id":"pmpt_1","version":"2","variables":{"id":"no","version":"no","city":"Rome"}},"input":"four"}"#,
        );
        assert_eq!(asked.prompt_name, Name::new("pmpt_1"));
        assert_eq!(asked.prompt_version, Name::new("2"));
        assert_eq!(asked.prompt_bytes, 4);
        for body in [r#"{"prompt":"id","input":[{"id":"no"}]}"#, r#"{"prompt":[{"id":"no"}]}"#] {
            assert_eq!(facts(body).prompt_name, None, "{body}");
        }
    }

    #[test]
    fn reads_whether_the_request_contains_a_compaction() {
        let compaction =
            r#"{"input":[{"type":"compaction","encrypted_content":"zz"},{"type":"message"}]}"#;
        assert!(facts(compaction).compacted);
        assert!(
            !facts(r#"{"input":[{"type":"message","content":[{"type":"compaction"}]}]}"#).compacted
        );
        let messages = DetectedApi { api: Api::AnthropicMessages, ..chat() };
        for (kind, is_compacted) in [("compaction", true), ("text", false)] {
            let mut reader = RequestReader::new(&messages);
            let body = format!(
                r#"{{"messages":[{{"role":"assistant","content":[{{"type":"{kind}","content":"So far"}}]}}]}}"#
            );
            reader.push(body.as_bytes());
            assert_eq!(reader.finish().compacted, is_compacted, "{kind}");
        }
    }

    #[test]
    fn reads_a_conversation_from_a_string_or_an_object() {
        for (body, conversation) in [
            (r#"{"conversation":"conv_1","input":"x"}"#, Some("conv_1")),
            (r#"{"conversation":{"id":"conv_1"},"input":"x"}"#, Some("conv_1")),
            (r#"{"conversation":null,"input":"x"}"#, None),
            (r#"{"conversation":{"id":7,"name":"x"}}"#, None),
            (r#"{"input":[{"id":"msg_1","content":"x"}],"id":"no"}"#, None),
        ] {
            assert_eq!(facts(body).conversation, conversation.and_then(Name::new), "{body}");
        }
    }

    #[test]
    fn reads_a_form_like_a_json_body() {
        let field = |name: &str, value: &str| {
            format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let file = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n{\"model\":\"no\"}\r\n";
        let fields = [
            ("prompt", "four"),
            ("temperature", "0"),
            ("stream", "true"),
            ("n", "2"),
            ("model", "m"),
        ];
        let fields: String = fields.map(|(name, value)| field(name, value)).concat();
        let asked = facts(&format!("\r\n{file}{fields}--x--\r\n"));
        let expected = RequestFacts {
            model: Name::new("m"),
            stream: Some(true),
            temperature: Some(0.0),
            choices: Some(2),
            prompt_bytes: 4,
            ..RequestFacts::default()
        };
        assert_eq!(asked, expected);
    }

    #[test]
    fn takes_the_output_type_from_the_api() {
        for (api, output_type) in [
            (Api::OpenAiImages, Some("image")),
            (Api::OpenAiSpeech, Some("speech")),
            (Api::OpenAiChat, None),
        ] {
            let found = DetectedApi { api, ..chat() };
            assert_eq!(RequestReader::new(&found).finish().output_type, output_type);
        }
    }

    #[test]
    fn ignores_wrong_types_and_absent_fields() {
        let nothing = RequestFacts::default();
        for body in [
            "",
            "{}",
            "[]",
            "not json",
            "{\"model\":null,\"stream\":\"yes\",\"seed\":1.5,\"stop\":null,\"tools\":[]}",
            r#"{"model":["m"],"temperature":"hot","messages":"hi","input":[[1]],"n":true,"stop":[1]}"#,
        ] {
            assert_eq!(facts(body), nothing, "{body}");
        }
    }

    #[test]
    fn finds_a_model_after_megabytes_of_messages() {
        let mut reader = RequestReader::new(&chat());
        reader.push(b"{\"messages\":[{\"content\":\"");
        for _ in 0..1000 {
            reader.push(&[b'x'; 4096]);
        }
        assert_eq!(reader.facts().model, None);
        reader.push(b"\"}],\"model\":\"m\"}");
        let found = reader.finish();
        assert_eq!((found.model, found.prompt_bytes), (Name::new("m"), 4_096_000));
    }

    #[test]
    fn keeps_the_facts_before_a_gap() {
        let mut reader = RequestReader::new(&chat());
        reader.push(b"{\"seed\":1,\"n\":");
        reader.gap();
        reader.push(b"2,\"model\":\"m\"}");
        let found = reader.finish();
        assert_eq!((found.seed, found.choices, found.model), (Some(1), None, None));
    }
}
