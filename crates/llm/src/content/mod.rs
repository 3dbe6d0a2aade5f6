//! Captures prompts and responses verbatim, only for routes that enable content capture.
//!
//! When capture is disabled, no buffer is allocated, and the cost is one branch per piece of a body. When it is
//! enabled, a request holds a bounded part of its body and of the response text until the exchange ends. Both are then
//! converted to the messages of the GenAI semantic conventions, redacted, and exported on the CLIENT span. Content that
//! is not understood is omitted and counted, never guessed.

mod parts;
mod prefix;
mod redact;
mod request;
mod response;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

pub use redact::{BUILT_IN_PATTERNS, PatternError, Redactor};
pub use request::RequestCapture;
pub use response::ResponseCapture;

use crate::dialect::Api;
use crate::memory::MemoryBudget;
use tokengauge_types::label::{Label, Name};

/// Maximum bytes that all active captures hold together: 1,000 requests with prompts of 64 KiB. A request that arrives
/// when the budget is exhausted is not captured and is marked as truncated.
const MOST_HELD: usize = 64 << 20;

/// Number of bytes scanned beyond the kept part. Redaction removes the same number from the end of a truncated text.
/// A secret that the truncation cuts in two is therefore either recognized or removed.
const MARGIN: usize = 4 << 10;

/// Maximum number of messages and parts of a request, and of a response. An empty part takes a byte or two in a request
/// and sixty bytes in the captured content.
const MOST_PARTS: usize = 4_096;

/// The replacement for a secret.
pub const REDACTED: &str = "[redacted]";

/// The capture settings of a route.
#[derive(Clone, Debug)]
pub struct CapturePolicy {
    /// Maximum captured bytes of the request body, and of the response text.
    pub max_bytes: usize,
    pub redact: Redactor,
}

impl CapturePolicy {
    /// 64 KiB is about 16,000 tokens. Most prompts fit completely, but an agent's whole repository does not.
    pub const MAX_BYTES: usize = 64 << 10;
}

/// The routes with content capture.
#[derive(Clone, Debug, Default)]
pub struct CapturePolicies(HashMap<Label, Arc<CapturePolicy>>);

impl CapturePolicies {
    pub fn of(&self, route: &Label) -> Option<&Arc<CapturePolicy>> {
        // Most configurations have no such route.
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

/// The redacted content of one exchange, in the JSON schemas of the semantic conventions. Empty content is absent.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CapturedContent {
    pub input_messages: Option<String>,
    pub output_messages: Option<String>,
    pub system_instructions: Option<String>,
    pub tool_definitions: Option<String>,
    /// Whether a part of the content exceeded the limit.
    pub truncated: bool,
    /// Number of messages and message parts that were not understood: images, audio, and new types.
    pub left_out: u64,
}

/// The memory budget that all captures share.
#[derive(Clone, Debug)]
pub struct CaptureBudget(Arc<MemoryBudget>);

impl Default for CaptureBudget {
    fn default() -> Self {
        Self(Arc::new(MemoryBudget::new(MOST_HELD)))
    }
}

/// A text that may be truncated.
#[derive(Debug, Default)]
struct Bounded {
    text: String,
    /// A part of the text exceeded the limit.
    cut: bool,
}

impl Bounded {
    /// Appends as much of `piece` as fits into `room`, and reduces `room` by that amount.
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

/// Combines the request and the response of an exchange.
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

/// Returns the last character boundary at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    let mut place = at.min(text.len());
    while !text.is_char_boundary(place) {
        place -= 1;
    }
    place
}

/// Serializes a list as the text of a span attribute. Returns `None` for an empty list.
fn written(list: Vec<Value>) -> Option<String> {
    (!list.is_empty()).then(|| Value::Array(list).to_string())
}

#[cfg(test)]
mod tests;
