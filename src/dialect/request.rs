//! Reads a request's facts as its body goes by, whatever the API.

use super::openai;
use super::{Api, RequestFacts};

/// Reads what a request asks for from its body, as it comes, keeping none of it.
#[derive(Debug)]
pub struct RequestReader {
    format: Format,
    lost: bool,
}

#[derive(Debug)]
enum Format {
    OpenAi(openai::Request),
}

impl RequestReader {
    pub fn new(api: Api) -> Self {
        let format = match api {
            Api::OpenAiChat | Api::OpenAiCompletions | Api::OpenAiEmbeddings => {
                Format::OpenAi(openai::Request::new())
            }
        };
        Self {
            format,
            lost: false,
        }
    }

    /// Takes the next bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.format {
            Format::OpenAi(request) if !self.lost => request.push(bytes),
            Format::OpenAi(_) => {}
        }
    }

    /// Bytes were lost: what follows is not read, what was understood before still counts.
    pub fn gap(&mut self) {
        self.lost = true;
    }

    /// What is known so far.
    pub fn facts(&self) -> &RequestFacts {
        match &self.format {
            Format::OpenAi(request) => request.facts(),
        }
    }

    pub fn finish(self) -> RequestFacts {
        match self.format {
            Format::OpenAi(request) => request.into_facts(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::Name;

    /// The facts of a request, however its body is cut.
    fn facts(body: &str) -> RequestFacts {
        let read = |pieces: &[&[u8]]| {
            let mut reader = RequestReader::new(Api::OpenAiChat);
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
    fn everything_a_chat_request_may_ask_for() {
        let asked = facts(
            r#"{"messages":[{"role":"system","content":"b\u00e9"},{"role":"user","content":[{"type":"text","text":"four"},
              {"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}],"model":"no"}],
              "temperature":0.5,"top_p":1,"top_k":40,"frequency_penalty":-1.5,"presence_penalty":0.25,"seed":7,"n":3,
              "max_tokens":10,"max_completion_tokens":20,"stop":["a","b"],"reasoning_effort":"high","service_tier":"flex",
              "response_format":{"type":"json_schema","json_schema":{"type":"text","model":"no"}},"stream":true,
              "tools":[{"type":"function","function":{"name":"f","stream":false}}],"metadata":{"model":"no"},"model":"gpt-x"}"#,
        );
        let expected = RequestFacts {
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
            reasoning_level: Name::new("high"),
            service_tier: Name::new("flex"),
            output_type: Some("json"),
            dimensions: None,
            encoding_format: None,
            prompt_bytes: 7,
            tools: true,
        };
        assert_eq!(asked, expected);
    }

    #[test]
    fn prompts_and_inputs_are_measured_unescaped() {
        assert_eq!(facts(r#"{"prompt":"\n\ud83d\ude00"}"#).prompt_bytes, 5);
        assert_eq!(facts(r#"{"prompt":["ab","c"]}"#).prompt_bytes, 3);
        let embeddings =
            facts(r#"{"input":["ab",[1,2]],"dimensions":256,"encoding_format":"base64"}"#);
        let format = embeddings.encoding_format.as_ref().map(Name::as_str);
        let known = (embeddings.prompt_bytes, embeddings.dimensions, format);
        assert_eq!(known, (2, Some(256), Some("base64")));
    }

    #[test]
    fn other_spellings() {
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
        assert_eq!(
            (limits.max_tokens, limits.output_type),
            (Some(20), Some("text"))
        );
    }

    #[test]
    fn wrong_types_and_absent_fields_are_nothing() {
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
    fn a_model_after_megabytes_of_messages_is_found() {
        let mut reader = RequestReader::new(Api::OpenAiChat);
        reader.push(b"{\"messages\":[{\"content\":\"");
        for _ in 0..1000 {
            reader.push(&[b'x'; 4096]);
        }
        assert_eq!(reader.facts().model, None);
        reader.push(b"\"}],\"model\":\"m\"}");
        let found = reader.finish();
        assert_eq!(
            (found.model, found.prompt_bytes),
            (Name::new("m"), 4_096_000)
        );
    }

    #[test]
    fn after_a_gap_what_was_understood_counts_and_nothing_else() {
        let mut reader = RequestReader::new(Api::OpenAiChat);
        reader.push(b"{\"seed\":1,\"n\":");
        reader.gap();
        reader.push(b"2,\"model\":\"m\"}");
        let found = reader.finish();
        assert_eq!(
            (found.seed, found.choices, found.model),
            (Some(1), None, None)
        );
    }
}
