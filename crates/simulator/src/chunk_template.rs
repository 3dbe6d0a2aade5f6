//! Formats a response like OpenAI: as the chunks of a stream (`data: {"choices":[{"delta":{"content":"Hi"}}]}`) or as
//! one JSON body.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

use crate::ledger::Usage;
use crate::request::Api;
use crate::script::{Part, PartKind, Script};

/// Fields that all chunks of a response share.
#[derive(Debug)]
pub struct ChunkTemplate {
    pub api: Api,
    pub id: String,
    pub created: u64,
    pub model: String,
    /// Whether the client requested a usage report at the end of the stream. If so, all earlier chunks contain
    /// `"usage":null`, as OpenAI's chunks do.
    pub null_usage: bool,
}

#[derive(Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'static str,
    choices: &'a [Choice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Value>,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<Delta<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    logprobs: (),
    finish_reason: Option<&'a str>,
}

#[derive(Default, Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[ToolDelta<'a>; 1]>,
}

#[derive(Serialize)]
struct ToolDelta<'a> {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    function: FunctionDelta<'a>,
}

#[derive(Serialize)]
struct FunctionDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

const FINGERPRINT: &str = "fp_simulated";
const TOOL_ID: &str = "call_simulated_0";

impl ChunkTemplate {
    /// Returns the first chunk of a choice, which contains only the role.
    pub fn role_chunk(&self, choice: u32) -> Bytes {
        let delta = Delta { role: Some("assistant"), content: Some(""), ..Delta::default() };
        self.chat(choice, delta, None)
    }

    /// Returns the chunk with the name of the called tool. Later chunks contain the arguments of the tool.
    pub fn tool_call_chunk(&self, choice: u32, name: &str) -> Bytes {
        let call = ToolDelta {
            index: 0,
            id: Some(TOOL_ID),
            kind: Some("function"),
            function: FunctionDelta { name: Some(name), arguments: "" },
        };
        self.chat(choice, Delta { tool_calls: Some([call]), ..Delta::default() }, None)
    }

    /// Returns a chunk of generated text.
    pub fn text_chunk(&self, choice: u32, kind: PartKind, text: &str) -> Bytes {
        if self.api == Api::Completion {
            return self.text(choice, text, None);
        }
        let delta = match kind {
            PartKind::Text => Delta { content: Some(text), ..Delta::default() },
            PartKind::Reasoning => Delta { reasoning_content: Some(text), ..Delta::default() },
            PartKind::Tool => {
                let function = FunctionDelta { name: None, arguments: text };
                let call = ToolDelta { index: 0, id: None, kind: None, function };
                Delta { tool_calls: Some([call]), ..Delta::default() }
            }
        };
        self.chat(choice, delta, None)
    }

    pub fn finish_chunk(&self, choice: u32, reason: &str) -> Bytes {
        match self.api {
            Api::Completion => self.text(choice, "", Some(reason)),
            Api::Chat | Api::Embeddings => self.chat(choice, Delta::default(), Some(reason)),
        }
    }

    /// Returns the chunk with the usage report, which contains no choice.
    pub fn usage_chunk(&self, usage: Usage) -> Bytes {
        self.event(&[], Some(usage_json(usage)))
    }

    /// Returns the whole response as one body.
    pub fn full_body(&self, script: &Script, usage: Option<Usage>) -> Bytes {
        let object = match self.api {
            Api::Completion => "text_completion",
            Api::Chat | Api::Embeddings => "chat.completion",
        };
        let choice = |index| {
            let (key, content) = match self.api {
                Api::Completion => {
                    let part = script.text(index, PartKind::Text);
                    ("text", json!(part.map_or("", |part| &part.text)))
                }
                Api::Chat | Api::Embeddings => ("message", message(script, index)),
            };
            let reason = script.finish;
            json!({"index": index, key: content, "logprobs": null, "finish_reason": reason})
        };
        let choices: Vec<Value> = (0..script.choices).map(choice).collect();
        let mut body = json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
            "system_fingerprint": FINGERPRINT,
        });
        if let (Some(usage), Some(fields)) = (usage, body.as_object_mut()) {
            fields.insert("usage".to_owned(), usage_json(usage));
        }
        Bytes::from(body.to_string())
    }

    fn chat(&self, index: u32, delta: Delta<'_>, finish_reason: Option<&str>) -> Bytes {
        let (delta, text) = (Some(delta), None);
        self.event(&[Choice { index, delta, text, logprobs: (), finish_reason }], None)
    }

    fn text(&self, index: u32, text: &str, finish_reason: Option<&str>) -> Bytes {
        let (delta, text) = (None, Some(text));
        self.event(&[Choice { index, delta, text, logprobs: (), finish_reason }], None)
    }

    fn event(&self, choices: &[Choice<'_>], usage: Option<Value>) -> Bytes {
        let chunk = Chunk {
            id: &self.id,
            object: match self.api {
                Api::Completion => "text_completion",
                Api::Chat | Api::Embeddings => "chat.completion.chunk",
            },
            created: self.created,
            model: &self.model,
            system_fingerprint: FINGERPRINT,
            choices,
            usage: usage.or(self.null_usage.then_some(Value::Null)),
        };
        let mut line = Vec::with_capacity(320);
        line.extend_from_slice(b"data: ");
        // Serialization cannot fail: the chunk contains only strings and numbers, and a `Vec` accepts every byte.
        if serde_json::to_writer(&mut line, &chunk).is_err() {
            line.extend_from_slice(b"{}");
        }
        line.extend_from_slice(b"\n\n");
        Bytes::from(line)
    }
}

/// Marks the end of a stream.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// A comment that keeps the connection alive. SSE clients ignore it.
pub const PING: &[u8] = b": ping\n\n";

fn message(script: &Script, choice: u32) -> Value {
    let text = |kind| script.text(choice, kind).map(|part: &Part| part.text.as_str());
    let mut message =
        json!({"role": "assistant", "content": text(PartKind::Text), "refusal": null});
    let Some(fields) = message.as_object_mut() else { return message };
    if let Some(reasoning) = text(PartKind::Reasoning) {
        fields.insert("reasoning_content".to_owned(), json!(reasoning));
    }
    if let (Some(name), Some(arguments)) = (&script.tool, text(PartKind::Tool)) {
        let function = json!({"name": name, "arguments": arguments});
        let call = json!({"id": TOOL_ID, "type": "function", "function": function});
        fields.insert("tool_calls".to_owned(), json!([call]));
    }
    message
}

fn usage_json(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}

/// Returns the body of `GET */models`.
pub fn models<'a>(names: impl Iterator<Item = &'a str>, created: u64) -> Bytes {
    let list: Vec<Value> = names
        .map(|name| json!({"id": name, "object": "model", "created": created, "owned_by": "simulate"}))
        .collect();
    Bytes::from(json!({"object": "list", "data": list}).to_string())
}
