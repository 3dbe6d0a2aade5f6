//! Parses requests in OpenAI's format, and builds error responses.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde::Deserialize;
use serde_json::{Value, json};

/// Request fields that the simulator uses. Unknown fields are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Request {
    pub model: Option<String>,
    messages: Option<Value>,
    prompt: Option<Value>,
    pub input: Option<Value>,
    pub stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    n: Option<u32>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<Value>,
    pub dimensions: Option<usize>,
    pub encoding_format: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Debug, Default, Deserialize)]
struct Tool {
    function: Option<Function>,
}

#[derive(Debug, Default, Deserialize)]
struct Function {
    name: Option<String>,
}

/// Maximum number of choices per request. OpenAI has the same limit.
const MAX_CHOICES: u32 = 128;

impl Request {
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        serde_json::from_slice(body)
            .map_err(|error| ApiError::invalid(&format!("invalid JSON body: {error}"), None))
    }

    /// Returns an error if the request lacks the field that its API requires, such as `messages`.
    pub fn require(&self, api: Api) -> Result<(), ApiError> {
        let (there, name) = match api {
            Api::Chat => (self.messages.is_some(), "messages"),
            Api::Completion => (self.prompt.is_some(), "prompt"),
            Api::Embeddings => (self.input.is_some(), "input"),
        };
        if there {
            return Ok(());
        }
        let message = format!("you must provide a {name} parameter");
        Err(ApiError::invalid(&message, Some(name)))
    }

    pub fn streams(&self) -> bool {
        self.stream == Some(true)
    }

    pub fn wants_usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|options| options.include_usage)
    }

    pub fn max_tokens_limit(&self) -> Option<u32> {
        self.max_completion_tokens.or(self.max_tokens)
    }

    pub fn choices(&self) -> u32 {
        self.n.unwrap_or(1).clamp(1, MAX_CHOICES)
    }

    /// Returns the text of the whole prompt.
    pub fn prompt_text(&self) -> String {
        let mut text = String::new();
        for value in [&self.messages, &self.prompt, &self.input].into_iter().flatten() {
            gather(value, &mut text);
        }
        text
    }

    /// Returns the name of the tool to call. If `tool_choice` names a tool, returns this tool. Returns the first tool
    /// if `tool_choice` is `required`, or if the model is `willing`. Returns `None` if `tool_choice` is `none`.
    pub fn tool_to_call(&self, willing: bool) -> Option<&str> {
        let first = self.tools.as_ref()?.first()?;
        let first = first.function.as_ref().and_then(|it| it.name.as_deref());
        match &self.tool_choice {
            Some(Value::String(word)) if word == "none" => None,
            Some(Value::String(word)) if word == "required" => first,
            Some(choice @ Value::Object(_)) => choice.pointer("/function/name")?.as_str(),
            _ if willing => first,
            _ => None,
        }
    }
}

/// Collects the text of a prompt from strings, lists, and the fields `content` and `text` of objects. Roles and types
/// are not part of the text.
fn gather(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => {
            out.push_str(text);
            out.push('\n');
        }
        Value::Array(items) => items.iter().for_each(|item| gather(item, out)),
        Value::Object(fields) => {
            let texts = ["content", "text"].into_iter().filter_map(|name| fields.get(name));
            texts.for_each(|inner| gather(inner, out));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Settings of a single request, which override the model's profile. They are in headers `x-simulate-…`. Each comment
/// gives the rest of the header name.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Overrides {
    /// `tokens`: exact length of the text in tokens.
    pub tokens: Option<u32>,
    /// `chunk-tokens`: number of tokens per chunk.
    pub chunk_tokens: Option<u32>,
    /// `gap-us`: microseconds between two tokens, independent of the load.
    pub gap: Option<Duration>,
    /// `ttft-us`: microseconds to the first token, for any prompt length.
    pub first: Option<Duration>,
    /// `stall-after` and `stall-ms`: number of tokens before a pause, and length of the pause in milliseconds.
    pub stall_after: Option<u32>,
    pub stall: Option<Duration>,
    /// `status`: error status that replaces the response.
    pub status: Option<u16>,
    /// `cut-after`: number of tokens before the connection breaks.
    pub cut_after: Option<u32>,
}

impl Overrides {
    /// Reads the settings from the headers. The error is the name of a header whose value is not a number.
    pub fn read(headers: &HeaderMap) -> Result<Self, &'static str> {
        let time = |name, unit: fn(u64) -> Duration| {
            number(headers, name).map(|it| it.map(|it| unit(it.into())))
        };
        Ok(Self {
            tokens: number(headers, "x-simulate-tokens")?,
            chunk_tokens: number(headers, "x-simulate-chunk-tokens")?,
            gap: time("x-simulate-gap-us", Duration::from_micros)?,
            first: time("x-simulate-ttft-us", Duration::from_micros)?,
            stall_after: number(headers, "x-simulate-stall-after")?,
            stall: time("x-simulate-stall-ms", Duration::from_millis)?,
            status: number(headers, "x-simulate-status")?.and_then(|it| u16::try_from(it).ok()),
            cut_after: number(headers, "x-simulate-cut-after")?,
        })
    }
}

fn number(headers: &HeaderMap, name: &'static str) -> Result<Option<u32>, &'static str> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    parsed.map(Some).ok_or(name)
}

/// Endpoints that accept POST.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Api {
    Chat,
    Completion,
    Embeddings,
}

impl Api {
    /// Returns the API for the end of a request path, so that a client can use any base path.
    pub fn from_path(path: &str) -> Option<Self> {
        match path {
            path if path.ends_with("/chat/completions") => Some(Self::Chat),
            path if path.ends_with("/completions") => Some(Self::Completion),
            path if path.ends_with("/embeddings") => Some(Self::Embeddings),
            _ => None,
        }
    }
}

/// An error response in OpenAI's format.
#[derive(Debug)]
pub struct ApiError {
    pub status: u16,
    pub body: Bytes,
}

impl ApiError {
    pub fn new(status: u16, message: &str, param: Option<&str>) -> Self {
        let (kind, code) = match status {
            401 => ("invalid_request_error", Some("invalid_api_key")),
            404 => ("invalid_request_error", Some("model_not_found")),
            429 => ("requests", Some("rate_limit_exceeded")),
            400..=499 => ("invalid_request_error", None),
            _ => ("server_error", None),
        };
        let error = json!({"message": message, "type": kind, "param": param, "code": code});
        Self { status, body: Bytes::from(json!({ "error": error }).to_string()) }
    }

    /// Endpoint that this backend does not have, as OpenAI reports it.
    pub fn no_endpoint(method: &Method, path: &str) -> Self {
        let message = format!(
            "no such endpoint: {method} {path}; this backend has POST .../chat/completions, .../completions and \
             .../embeddings, and GET .../models"
        );
        let error = json!({"message": message, "type": "invalid_request_error", "param": null, "code": "unknown_url"});
        Self { status: 404, body: Bytes::from(json!({ "error": error }).to_string()) }
    }

    pub fn invalid(message: &str, param: Option<&str>) -> Self {
        Self::new(400, message, param)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        Request::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn finds_the_endpoint_by_path() {
        assert_eq!(Api::from_path("/v1/chat/completions"), Some(Api::Chat));
        assert_eq!(Api::from_path("/openai/deployments/x/completions"), Some(Api::Completion));
        assert_eq!(Api::from_path("/v1/embeddings"), Some(Api::Embeddings));
        assert_eq!(Api::from_path("/v1/images"), None);
    }

    #[test]
    fn selects_the_tool_to_call() {
        let tools = r#""tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b"}}]"#;
        let asked = |choice: &str, willing| {
            request(&format!("{{{tools}{choice}}}")).tool_to_call(willing).map(str::to_owned)
        };
        assert_eq!(asked("", false), None);
        assert_eq!(asked("", true).as_deref(), Some("a"));
        assert_eq!(asked(r#","tool_choice":"required""#, false).as_deref(), Some("a"));
        assert_eq!(asked(r#","tool_choice":"none""#, true), None);
        let named = r#","tool_choice":{"type":"function","function":{"name":"b"}}"#;
        assert_eq!(asked(named, false).as_deref(), Some("b"));
        assert_eq!(request("{}").tool_to_call(true), None);
    }

    #[test]
    fn collects_only_prompt_text() {
        let text = request(
            r#"{"messages":[{"role":"user","content":"one"},{"role":"user","content":[{"type":"text","text":"two"}]}]}"#,
        )
        .prompt_text();
        assert_eq!(text, "one\ntwo\n");
    }

    #[test]
    fn rejects_a_request_without_its_required_field() {
        let error = request("{}").require(Api::Chat).unwrap_err();
        let body: Value = serde_json::from_slice(&error.body).unwrap();
        assert_eq!(error.status, 400);
        assert_eq!(body.pointer("/error/param"), Some(&json!("messages")));
        assert_eq!(body.pointer("/error/type"), Some(&json!("invalid_request_error")));
        assert!(Request::parse(b"{").is_err());
    }
}
