//! What was asked and what was answered, word for word: only for routes that say so.
//!
//! Off, nothing of this exists: no buffer is made, and a call has one branch more per piece of its body. On, a call
//! holds a bounded part of its request's body and of its answer's text until it ends; then both are put into the
//! standard's messages, redacted, and go out on the CLIENT span. What is not understood is left out and counted, never
//! guessed.

mod parts;
mod prefix;
mod redact;
mod request;
mod response;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

pub use redact::{BUILT_IN_PATTERNS, PatternError, Redactor};
pub use request::RequestCapture;
pub use response::ResponseCapture;

use crate::dialect::Api;
use tokengauge_types::label::{Label, Name};

/// Bytes that all captures in flight may hold together: a thousand calls with prompts of 64 KiB. A call that comes when
/// they are used up is not captured, and says so.
const MOST_HELD: usize = 64 << 20;

/// So many bytes are looked at beyond what is kept, and where something was cut off so many are taken off its end: a
/// secret that is cut in two is longer than what is left of it, or is recognised.
const MARGIN: usize = 4 << 10;

/// The most messages and parts of a request, and of an answer: an empty one has a byte or two in a request and sixty in
/// what is captured.
const MOST_PARTS: usize = 4_096;

/// What stands in the place of a secret.
pub const REDACTED: &str = "[redacted]";

/// What a route captures.
#[derive(Clone, Debug)]
pub struct CapturePolicy {
    /// Bytes that are kept of the request's body, and as many of the answer's text.
    pub max_bytes: usize,
    pub redact: Redactor,
}

impl CapturePolicy {
    /// 64 KiB are some 16,000 tokens: most prompts are kept whole, and no agent's whole repository.
    pub const MAX_BYTES: usize = 64 << 10;
}

/// The routes that capture.
#[derive(Clone, Debug, Default)]
pub struct CapturePolicies(HashMap<Label, Arc<CapturePolicy>>);

impl CapturePolicies {
    pub fn of(&self, route: &Label) -> Option<&Arc<CapturePolicy>> {
        // Mostly there are none at all.
        (!self.0.is_empty()).then(|| self.0.get(route)).flatten()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Label, &CapturePolicy)> {
        self.0.iter().map(|(route, policy)| (route, &**policy))
    }
}

impl FromIterator<(Label, CapturePolicy)> for CapturePolicies {
    fn from_iter<I: IntoIterator<Item = (Label, CapturePolicy)>>(routes: I) -> Self {
        let shared = |(route, policy)| (route, Arc::new(policy));
        Self(routes.into_iter().map(shared).collect())
    }
}

/// The content of one call, in the standard's JSON schemas, redacted. What there was none of is absent.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CapturedContent {
    pub input_messages: Option<String>,
    pub output_messages: Option<String>,
    pub system_instructions: Option<String>,
    pub tool_definitions: Option<String>,
    /// Whether some of it was beyond the bound.
    pub truncated: bool,
    /// Messages and parts of messages that were not understood: pictures, sounds, types that are new.
    pub left_out: u64,
}

/// Memory that all captures share.
#[derive(Clone, Debug, Default)]
pub struct CaptureBudget(Arc<AtomicUsize>);

/// Memory that one capture has of it; given back at its end.
#[derive(Debug)]
struct Share {
    budget: CaptureBudget,
    bytes: usize,
}

impl CaptureBudget {
    fn share(&self, bytes: usize) -> Option<Share> {
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        let share = Share { budget: self.clone(), bytes };
        (before + bytes <= MOST_HELD).then_some(share)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A text that may stop short of its end.
#[derive(Debug, Default)]
struct Bounded {
    text: String,
    /// Some of it was beyond the bound.
    cut: bool,
}

impl Bounded {
    /// Takes as much of a piece as there is room for, and takes that off the room.
    fn push(&mut self, piece: &str, room: &mut usize) {
        let fits = floor(piece, *room);
        if !self.cut {
            self.text.push_str(piece.get(..fits).unwrap_or_default());
            *room -= fits;
        }
        self.cut |= fits < piece.len();
    }

    fn finish(&self, redact: &Redactor) -> String {
        redact.text(&self.text, self.cut)
    }
}

/// Puts request and answer of a call together.
pub fn assemble(
    api: Api,
    asked: RequestCapture,
    heard: Option<&ResponseCapture>,
    finish_reasons: &[Name],
) -> CapturedContent {
    let policy = Arc::clone(asked.policy());
    let mut content = CapturedContent::default();
    let messages = asked.messages(api);
    content.truncated = messages.truncated;
    content.left_out = messages.left_out;
    content.input_messages = written(messages.input);
    content.system_instructions = written(messages.system);
    content.tool_definitions = written(messages.tools);
    if let Some(heard) = heard {
        content.truncated |= heard.is_cut();
        content.output_messages = written(heard.messages(&policy.redact, finish_reasons));
    }
    content
}

/// The last place up to `at` where a character begins or the text ends.
fn floor(text: &str, at: usize) -> usize {
    let mut place = at.min(text.len());
    while !text.is_char_boundary(place) {
        place -= 1;
    }
    place
}

/// As the text that an attribute holds.
fn written(list: Vec<Value>) -> Option<String> {
    (!list.is_empty()).then(|| Value::Array(list).to_string())
}

#[cfg(test)]
mod tests;
