//! Capture of prompts and answers on a route.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::check_length;
use crate::config::errors::{ErrorCollector, NodeId, suggestion};
use crate::config::spanned::List;
use tokengauge_llm::content::{self, BUILT_IN_PATTERNS, CapturePolicy, Redactor};
use tokengauge_types::bounded::Size;

/// Maximum number of redaction patterns. Each pattern scans all captured text.
const MAX_REDACT_PATTERNS: usize = 64;

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["capture"]))]
pub struct Content {
    /// Whether prompts and responses of this route are exported on spans; see [content
    /// capture](../how-to/content-capture.md). Required with `content`.
    pub capture: Option<bool>,
    /// Maximum captured bytes of the request body and of the response text, each.
    // Less than 1 KiB is not a sentence. More than 2 × 1 MiB exceeds what collectors accept at a time.
    pub max_bytes: Size<{ 1 << 10 }, { 1 << 20 }, { CapturePolicy::MAX_BYTES as u64 }>,
    /// Patterns to redact: `secrets`, `api_keys`, `bearer_tokens`, `jwts`, `private_keys`, `url_credentials`, `emails`,
    /// or a regular expression between slashes such as `/\bACME-[0-9]+/`. At most 64. `redact: []` redacts nothing.
    pub redact: List<String>,
}

impl Default for Content {
    fn default() -> Self {
        let redact = [Redactor::DEFAULT_PATTERNS.to_owned()].into_iter().collect();
        Self { capture: None, max_bytes: Size::default(), redact }
    }
}

/// `None` if the route captures nothing.
pub fn capture_policy(
    written: &mut Option<Content>,
    route: NodeId,
    errors: &mut ErrorCollector,
) -> Option<CapturePolicy> {
    let content = written.as_ref()?;
    let hint = "write `capture: true`, or remove `content`";
    let capture = errors.required(&content.capture, (route, "content.capture"), hint).copied();
    let redact = redactor(&content.redact, route, errors);
    let max_bytes = content.max_bytes.get();
    if !capture? {
        *written = None;
        return None;
    }
    Some(CapturePolicy { max_bytes, redact: redact? })
}

fn redactor(
    patterns: &List<String>,
    route: NodeId,
    errors: &mut ErrorCollector,
) -> Option<Redactor> {
    let at = (route, "content.redact");
    check_length(patterns.written_len(), MAX_REDACT_PATTERNS, "patterns", at, errors);
    let texts: Vec<String> = patterns.iter().map(|pattern| pattern.value.clone()).collect();
    let redactor = Redactor::new(&texts).map_err(|(index, problem)| {
        if let Some(pattern) = patterns.get(index) {
            errors.add(pattern.node, redact_error(&problem));
        }
    });
    redactor.ok()
}

fn redact_error(problem: &content::PatternError) -> String {
    let hint = match problem {
        content::PatternError::Unknown(name) => {
            let hint = suggestion(name, BUILT_IN_PATTERNS.iter().map(|(name, _)| *name));
            format!("write a regular expression between slashes, or a built-in name; {hint}")
        }
        content::PatternError::Pattern(_) => {
            "back-references, look-around and large expressions are not supported".to_owned()
        }
        content::PatternError::FitsNothing => {
            "write an expression that matches at least one character".to_owned()
        }
    };
    format!("{problem}; {hint}")
}
