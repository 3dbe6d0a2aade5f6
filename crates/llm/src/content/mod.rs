//! Captures prompts and responses verbatim, for routes that enable content capture.
//!
//! Without content capture, no buffer is allocated, and the cost is one branch per piece of a body. With content
//! capture, a bounded part of the request body and of the response text is kept until the response ends. Then both are
//! converted to messages of OpenTelemetry's GenAI semantic conventions, redacted, and exported on the CLIENT span.
//! Content of unknown types is left out and counted.

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
use tokengauge_types::label::{Label, Name};

/// Number of bytes that are searched for secrets beyond the exported text. Redaction removes this number of bytes from
/// the end of a truncated text. A secret that is cut in two is therefore either recognized or removed.
const REDACTION_MARGIN: usize = 4 << 10;

/// Maximum number of messages and parts in a request, and in a response. An empty part takes one or two bytes in a
/// request, but sixty bytes after conversion.
const MAX_PARTS: usize = 4_096;

/// The text that replaces a secret.
pub const REDACTED: &str = "[redacted]";

/// The settings of content capture for a route.
#[derive(Clone, Debug)]
pub struct CapturePolicy {
    /// Maximum number of captured bytes of the request body, and of the response text.
    pub max_bytes: usize,
    pub redact: Redactor,
}

impl CapturePolicy {
    /// Default limit in bytes: about 16,000 tokens. Most prompts fit completely, but an agent's whole repository does
    /// not.
    pub const MAX_BYTES: usize = 64 << 10;
}

/// The settings of all routes that enable content capture.
#[derive(Clone, Debug, Default)]
pub struct CapturePolicies(HashMap<Label, Arc<CapturePolicy>>);

impl CapturePolicies {
    pub fn for_route(&self, route: &Label) -> Option<&Arc<CapturePolicy>> {
        // In most configurations, no route enables content capture.
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

/// The redacted content of a request and its response, as JSON of the GenAI semantic conventions. `None` if empty.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CapturedContent {
    pub input_messages: Option<String>,
    pub output_messages: Option<String>,
    pub system_instructions: Option<String>,
    pub tool_definitions: Option<String>,
    pub stop_sequences: Vec<String>,
    /// Whether the content exceeded the limit, so that a part is missing.
    pub truncated: bool,
    /// Number of messages and message parts that were left out: images, audio and unknown types.
    pub left_out: u64,
}

/// A text that may be truncated.
#[derive(Debug, Default)]
struct TruncatableText {
    text: String,
    /// Whether a part of the text exceeded the limit.
    cut: bool,
}

impl TruncatableText {
    /// Appends as much of `piece` as fits into `room` (bytes), and subtracts the appended bytes from `room`.
    fn push(&mut self, piece: &str, room: &mut usize) {
        let fits = floor_char_boundary(piece, *room);
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

/// Converts the captured request and response of an exchange.
pub fn assemble(
    api: Api,
    request: RequestCapture,
    response: Option<&ResponseCapture>,
    finish_reasons: &[Option<Name>],
) -> CapturedContent {
    let policy = Arc::clone(request.policy());
    let mut content = CapturedContent::default();
    let messages = request.messages(api);
    content.truncated = messages.truncated;
    content.left_out = messages.left_out;
    content.input_messages = serialize_list(messages.input);
    content.system_instructions = serialize_list(messages.system);
    content.tool_definitions = serialize_list(messages.tools);
    let stop_sequences = messages.stop_sequences.iter().filter_map(Value::as_str);
    content.stop_sequences = stop_sequences.map(str::to_owned).collect();
    if let Some(response) = response {
        content.truncated |= response.is_cut();
        content.output_messages = serialize_list(response.messages(&policy.redact, finish_reasons));
    }
    content
}

/// Returns the last character boundary in `text` at or before `at`.
fn floor_char_boundary(text: &str, at: usize) -> usize {
    let mut place = at.min(text.len());
    while !text.is_char_boundary(place) {
        place -= 1;
    }
    place
}

/// Serializes a list for a span attribute. Returns `None` for an empty list.
fn serialize_list(list: Vec<Value>) -> Option<String> {
    (!list.is_empty()).then(|| Value::Array(list).to_string())
}

#[cfg(test)]
mod tests;
