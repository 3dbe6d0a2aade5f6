//! The request's body, kept up to a bound, and what it asks.

mod anthropic;
mod chat;
mod converse;
mod google;

use std::sync::Arc;

use serde_json::Value;

use super::{CaptureBudget, CapturePolicy, MARGIN, MOST_PARTS, Share, prefix};
use crate::dialect::{Api, Family};

/// The body of a request, as far as it is kept.
#[derive(Debug)]
pub struct RequestCapture {
    policy: Arc<CapturePolicy>,
    /// `None` where all the memory for captures was taken.
    share: Option<Share>,
    body: Vec<u8>,
    /// More of it came than is kept.
    cut: bool,
    /// Some of it was not seen.
    lost: bool,
}

/// What a request asks, in the standard's words.
#[derive(Debug, Default)]
pub struct Messages {
    pub system: Vec<Value>,
    pub input: Vec<Value>,
    pub tools: Vec<Value>,
    pub left_out: u64,
    pub truncated: bool,
    /// Parts and tools so far.
    parts: usize,
}

impl RequestCapture {
    pub fn new(policy: &Arc<CapturePolicy>, budget: &CaptureBudget) -> Self {
        Self {
            policy: Arc::clone(policy),
            share: budget.share(2 * (policy.max_bytes + MARGIN)),
            body: Vec::new(),
            cut: false,
            lost: false,
        }
    }

    pub(super) const fn policy(&self) -> &Arc<CapturePolicy> {
        &self.policy
    }

    /// Whether there is memory to keep an answer, too.
    pub const fn has_room(&self) -> bool {
        self.share.is_some()
    }

    /// What the answer is put together in.
    pub fn heard(&self) -> Option<super::ResponseCapture> {
        self.has_room().then(|| super::ResponseCapture::new(&self.policy))
    }

    /// The next bytes of the body, in plain.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.lost || !self.has_room() {
            self.cut = true;
            return;
        }
        let room = (self.policy.max_bytes + MARGIN).saturating_sub(self.body.len());
        let fits = bytes.get(..room).unwrap_or(bytes);
        self.body.extend_from_slice(fits);
        self.cut |= fits.len() < bytes.len();
    }

    /// Bytes were lost here: what follows does not go on from what is there.
    pub const fn gap(&mut self) {
        self.lost = true;
        self.cut = true;
    }

    pub(super) fn messages(self, api: Api) -> Messages {
        let mut messages = Messages { truncated: self.cut, ..Messages::default() };
        if self.body.is_empty() {
            return messages;
        }
        // A body that came to its end is read in the same way: where it broke off, so did the client.
        let Some(body) = prefix::read(&self.body) else {
            // A form, with a file in it; or nothing that anybody could read.
            messages.left_out = 1;
            return messages;
        };
        messages.read(api, &body);
        let redact = &self.policy.redact;
        for list in [&mut messages.input, &mut messages.system, &mut messages.tools] {
            for value in list {
                messages.truncated |= redact.value(value);
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
            | Family::AlephAlpha => chat::read(body, self),
        }
        if self.input.is_empty() && self.system.is_empty() && self.left_out == 0 {
            self.left_out = 1;
        }
    }

    /// Something that no reader knows.
    const fn leave_out(&mut self) {
        self.left_out += 1;
    }

    /// A message, unless nothing of it was understood.
    fn say(&mut self, role: &str, name: Option<&str>, parts: Vec<Value>) {
        if !parts.is_empty() && self.has_room(parts.len()) {
            self.input.push(super::parts::message(role, name, parts));
        }
    }

    fn instruct(&mut self, text: &str) {
        if self.has_room(1) {
            self.system.push(super::parts::text(text));
        }
    }

    fn offer(&mut self, tool: Value) {
        if self.has_room(1) {
            self.tools.push(tool);
        }
    }

    const fn has_room(&mut self, parts: usize) -> bool {
        self.parts += parts;
        let fits = self.parts <= MOST_PARTS;
        self.truncated |= !fits;
        fits
    }
}

/// The text under a key.
fn word<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key)?.as_str()
}

/// The list under a key; what stands there by itself is a list of one.
fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    match value.get(key) {
        Some(Value::Array(items)) => items,
        Some(Value::Null) | None => &[],
        Some(one) => std::slice::from_ref(one),
    }
}

/// The general kind of a file by its media type.
fn modality(media_type: Option<&str>) -> &str {
    match media_type.and_then(|kind| kind.split_once('/')) {
        Some((kind @ ("image" | "audio" | "video"), _)) => kind,
        _ => "document",
    }
}
