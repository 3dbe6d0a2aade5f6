//! Captures a bounded part of a request body, and converts it to messages of the semantic conventions.

mod anthropic;
mod chat;
mod converse;
mod google;

use std::sync::Arc;

use serde_json::Value;

use super::{CapturePolicy, MAX_PARTS, REDACTION_MARGIN, prefix};
use crate::budget::{MemoryPermit, RequestBudget};
use crate::dialect::{Api, Family};

/// The captured part of one request body.
#[derive(Debug)]
pub struct RequestCapture {
    policy: Arc<CapturePolicy>,
    /// Memory for the captured request and response. `None` if the budget was used up. The content is then marked as
    /// truncated.
    permit: Option<MemoryPermit>,
    body: Vec<u8>,
    /// Whether the body exceeded the limit.
    cut: bool,
    /// Whether a part of the body was lost.
    lost: bool,
}

/// The content of a request as messages, system instructions and tool definitions.
#[derive(Debug, Default)]
pub struct Messages {
    pub system: Vec<Value>,
    pub input: Vec<Value>,
    pub tools: Vec<Value>,
    pub stop_sequences: Vec<Value>,
    pub left_out: u64,
    pub truncated: bool,
    /// Number of parts and tools converted so far.
    parts: usize,
}

impl RequestCapture {
    pub fn new(policy: &Arc<CapturePolicy>, budget: &RequestBudget) -> Self {
        Self {
            policy: Arc::clone(policy),
            permit: MemoryPermit::take(&budget.captures, 2 * (policy.max_bytes + REDACTION_MARGIN)),
            body: Vec::new(),
            cut: false,
            lost: false,
        }
    }

    pub(super) const fn policy(&self) -> &Arc<CapturePolicy> {
        &self.policy
    }

    /// Returns whether memory was reserved for the captured request and response.
    pub const fn has_room(&self) -> bool {
        self.permit.is_some()
    }

    /// Creates the capture for the response.
    pub fn heard(&self) -> Option<super::ResponseCapture> {
        self.has_room().then(|| super::ResponseCapture::new(&self.policy))
    }

    /// Captures the next bytes of the decoded body.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.lost || !self.has_room() {
            self.cut = true;
            return;
        }
        let room = (self.policy.max_bytes + REDACTION_MARGIN).saturating_sub(self.body.len());
        let fits = bytes.get(..room).unwrap_or(bytes);
        self.body.extend_from_slice(fits);
        self.cut |= fits.len() < bytes.len();
    }

    /// Stops the capture after a loss of bytes, because later bytes do not continue the captured part.
    pub const fn gap(&mut self) {
        self.lost = true;
        self.cut = true;
    }

    pub(super) fn messages(self, api: Api) -> Messages {
        let mut messages = Messages { truncated: self.cut, ..Messages::default() };
        if self.body.is_empty() {
            return messages;
        }
        // If the body arrived completely but is incomplete JSON, the client sent it in this form.
        let Some(body) = prefix::read(&self.body) else {
            // The body is a form with a file, or unreadable.
            messages.left_out = 1;
            return messages;
        };
        messages.read(api, &body);
        let redact = &self.policy.redact;
        let Messages { input, system, tools, stop_sequences, truncated, .. } = &mut messages;
        for list in [input, system, tools, stop_sequences] {
            for value in list {
                *truncated |= redact.value(value);
            }
        }
        messages
    }
}

impl Messages {
    fn read(&mut self, api: Api, body: &Value) {
        match api.family() {
            Family::Anthropic => anthropic::read(body, self),
            Family::Google => google::read(body, self),
            Family::Bedrock if body.get("anthropic_version").is_some() => {
                anthropic::read(body, self);
            }
            Family::Bedrock => converse::read(body, self),
            Family::OpenAi
            | Family::Cohere
            | Family::Ollama
            | Family::Tgi
            | Family::LlamaCpp
            | Family::Sglang
            | Family::Vllm
            | Family::Triton
            | Family::Watsonx
            | Family::Replicate
            | Family::DashScope
            | Family::Cloudflare
            | Family::AlephAlpha
            | Family::LmStudio => chat::read(body, self),
        }
        self.read_stop_sequences(body);
        if self.input.is_empty() && self.system.is_empty() && self.left_out == 0 {
            self.left_out = 1;
        }
    }

    /// Reads the stop sequences, which are at the top level or among the settings.
    fn read_stop_sequences(&mut self, body: &Value) {
        const SETTINGS: [&str; 5] =
            ["generationConfig", "generation_config", "inferenceConfig", "options", "parameters"];
        const KEYS: [&str; 5] =
            ["stop", "stop_sequences", "stopSequences", "stop_words", "end_sequences"];
        let settings = SETTINGS.into_iter().filter_map(|key| body.get(key));
        for place in std::iter::once(body).chain(settings) {
            for sequence in KEYS.into_iter().flat_map(|key| list(place, key)) {
                if sequence.is_string() && self.has_room(1) {
                    self.stop_sequences.push(sequence.clone());
                }
            }
        }
    }

    /// Counts content that has no converter.
    const fn count_left_out(&mut self) {
        self.left_out += 1;
    }

    /// Adds a message. A message without converted parts is left out.
    fn add_message(&mut self, role: &str, name: Option<&str>, parts: Vec<Value>) {
        if !parts.is_empty() && self.has_room(parts.len()) {
            self.input.push(super::parts::message(role, name, parts));
        }
    }

    /// Converts the items of a list with `read`. Counts the items that `read` cannot convert.
    fn convert(&mut self, items: &[Value], read: impl Fn(&Value) -> Option<Value>) -> Vec<Value> {
        let parts: Vec<Value> = items.iter().filter_map(read).collect();
        self.left_out += (items.len() - parts.len()) as u64;
        parts
    }

    /// Adds a system instruction. An instruction without text counts as left out.
    fn add_instruction_or_leave_out(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.add_instruction(text),
            None => self.count_left_out(),
        }
    }

    /// Adds a tool definition. A tool without a name counts as left out.
    fn add_function(&mut self, tool: &Value, parameters: Option<&Value>) {
        match string_at(tool, "name") {
            Some(name) => {
                let description = string_at(tool, "description");
                self.add_tool(super::parts::function(name, description, parameters));
            }
            None => self.count_left_out(),
        }
    }

    fn add_instruction(&mut self, text: &str) {
        if self.has_room(1) {
            self.system.push(super::parts::text(text));
        }
    }

    fn add_tool(&mut self, tool: Value) {
        if self.has_room(1) {
            self.tools.push(tool);
        }
    }

    const fn has_room(&mut self, parts: usize) -> bool {
        self.parts += parts;
        let fits = self.parts <= MAX_PARTS;
        self.truncated |= !fits;
        fits
    }
}

/// Returns the string under a key.
fn string_at<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key)?.as_str()
}

/// Returns the list under `key`. A single value is returned as a list of one.
fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    match value.get(key) {
        Some(Value::Array(items)) => items,
        Some(Value::Null) | None => &[],
        Some(one) => std::slice::from_ref(one),
    }
}

/// Returns the modality of a file according to its media type.
fn modality(media_type: Option<&str>) -> &str {
    match media_type.and_then(|kind| kind.split_once('/')) {
        Some((kind @ ("image" | "audio" | "video"), _)) => kind,
        _ => "document",
    }
}
