//! Redacts secrets and personal data in captured content.
//!
//! The time is proportional to the length of the text for each pattern, because the regular expression engine does not
//! backtrack. Each message part, argument and key is searched separately. A secret that is split across two texts is
//! therefore not found.

use std::sync::Arc;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::prefix::TRUNCATION_MARK;
use super::{REDACTED, REDACTION_MARGIN, floor_char_boundary};

/// Maximum memory of a compiled pattern in bytes. Patterns with large counted repetitions are rejected.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// The pattern sets that the configuration can name.
pub const BUILT_IN_PATTERNS: &[(&str, &[&str])] = &[
    ("secrets", &[API_KEY, BEARER, JWT, PRIVATE_KEY, URL_CREDENTIALS]),
    ("api_keys", &[API_KEY]),
    ("bearer_tokens", &[BEARER]),
    ("jwts", &[JWT]),
    ("private_keys", &[PRIVATE_KEY]),
    ("url_credentials", &[URL_CREDENTIALS]),
    ("emails", &[EMAIL]),
];

/// API keys with a provider-specific prefix: OpenAI and Anthropic (sk-), Google, AWS, GitHub, GitLab, Slack, Stripe,
/// Hugging Face, Groq, xAI, Perplexity, Replicate, npm, SendGrid.
const API_KEY: &str = r"(?x)\b(?:
    sk-[A-Za-z0-9_-]{16,} | AIza[A-Za-z0-9_-]{30,} | (?:AKIA|ASIA)[A-Z0-9]{16}
    | gh[oprsu]_[A-Za-z0-9]{20,} | github_pat_[A-Za-z0-9_]{20,} | glpat-[A-Za-z0-9_-]{16,}
    | xox[abeoprs]-[A-Za-z0-9-]{10,} | [rs]k_(?:live|test)_[A-Za-z0-9]{16,} | hf_[A-Za-z0-9]{20,}
    | gsk_[A-Za-z0-9]{20,} | xai-[A-Za-z0-9]{20,} | pplx-[A-Za-z0-9]{20,} | r8_[A-Za-z0-9]{20,}
    | npm_[A-Za-z0-9]{20,} | SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}
)";

const BEARER: &str = r"(?i)\b(?:bearer|basic)\s+[A-Za-z0-9._~+/-]{16,}=*";

const JWT: &str = r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*";

/// Matches up to the end of the key, or to the end of the text if the key is truncated.
const PRIVATE_KEY: &str =
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\z)";

const URL_CREDENTIALS: &str = r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#@]+@";

const EMAIL: &str = r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+\b";

/// Why a configured entry is not a valid pattern.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PatternError {
    #[error("unknown pattern \"{0}\"")]
    Unknown(String),
    #[error("invalid pattern: {0}")]
    Pattern(String),
    #[error("the pattern matches the empty text, so it would redact everywhere")]
    FitsNothing,
}

/// Replaces text that matches one of the configured patterns by [`REDACTED`](super::REDACTED).
#[derive(Clone, Debug)]
pub struct Redactor {
    /// The entries as written in the configuration.
    entries: Vec<String>,
    patterns: Arc<[Regex]>,
}

impl Redactor {
    /// The default pattern set: secrets of all providers.
    pub const DEFAULT_PATTERNS: &str = "secrets";

    /// Creates a redactor. Each entry is the name of a pattern set, or a regular expression between two `/`.
    ///
    /// # Errors
    /// Returns the error of the first invalid entry, and its index in the list.
    pub fn new(entries: &[String]) -> Result<Self, (usize, PatternError)> {
        let mut patterns = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            patterns.extend(read(entry).map_err(|problem| (at, problem))?);
        }
        Ok(Self { entries: entries.to_vec(), patterns: patterns.into() })
    }

    pub fn entries(&self) -> &[String] {
        &self.entries
    }

    /// Returns the redacted text. `cut` is true if `text` is the start of a longer text.
    pub(super) fn text(&self, text: &str, cut: bool) -> String {
        let mut text = text.to_owned();
        for pattern in self.patterns.iter() {
            let replaced = pattern.replace_all(&text, regex::NoExpand(REDACTED));
            if let std::borrow::Cow::Owned(replaced) = replaced {
                text = replaced;
            }
        }
        if cut {
            let kept = floor_char_boundary(&text, text.len().saturating_sub(REDACTION_MARGIN));
            text.truncate(kept);
        }
        text
    }

    /// Redacts all texts of a JSON value, including keys. Returns whether one of the texts was truncated.
    pub(super) fn value(&self, value: &mut Value) -> bool {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
            Value::String(text) => {
                let (kept, cut) = match text.strip_suffix(TRUNCATION_MARK) {
                    Some(kept) => (kept, true),
                    None => (text.as_str(), false),
                };
                *text = self.text(kept, cut);
                cut
            }
            Value::Array(items) => items.iter_mut().fold(false, |cut, item| self.value(item) | cut),
            Value::Object(fields) => {
                let mut cut = false;
                let clean = std::mem::take(fields).into_iter().map(|(key, mut value)| {
                    cut |= self.value(&mut value);
                    (self.text(&key, false), value)
                });
                *fields = clean.collect();
                cut
            }
        }
    }
}

fn read(entry: &str) -> Result<Vec<Regex>, PatternError> {
    let own = entry.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
    if let Some(own) = own {
        let pattern = compile(own)?;
        return match pattern.is_match("") {
            true => Err(PatternError::FitsNothing),
            false => Ok(vec![pattern]),
        };
    }
    let named = BUILT_IN_PATTERNS.iter().find(|(name, _)| *name == entry);
    let (_, patterns) = named.ok_or_else(|| PatternError::Unknown(entry.to_owned()))?;
    patterns.iter().map(|pattern| compile(pattern)).collect()
}

fn compile(pattern: &str) -> Result<Regex, PatternError> {
    let mut builder = RegexBuilder::new(pattern);
    let built = builder.size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES).build();
    built.map_err(|problem| PatternError::Pattern(problem.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redactor(entries: &[&str]) -> Redactor {
        let entries: Vec<_> = entries.iter().map(|entry| (*entry).to_owned()).collect();
        Redactor::new(&entries).unwrap()
    }

    #[test]
    fn redacts_secrets_and_keeps_other_text() {
        let secrets = redactor(&["secrets"]);
        for (text, expected) in [
            ("key sk-proj-abcdefghijklmnop1234 end", "key [redacted] end"),
            ("AKIAABCDEFGHIJKLMNOP", "[redacted]"),
            ("ghp_abcdefghijklmnopqrst, hf_abcdefghijklmnopqrst", "[redacted], [redacted]"),
            ("Authorization: Bearer abcdef0123456789ab==", "Authorization: [redacted]"),
            ("eyJhbGciOiJI.eyJzdWIiOiIx.sig-1", "[redacted]"),
            ("see https://user:pass@host/path", "see [redacted]host/path"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- after",
                "[redacted] after",
            ),
            ("-----BEGIN PRIVATE KEY-----\nMIIcut", "[redacted]"),
            (
                "risk-free sk-1 a bearer of news at https://host/a@b",
                "risk-free sk-1 a bearer of news at https://host/a@b",
            ),
        ] {
            assert_eq!(secrets.text(text, false), expected);
        }
        assert_eq!(redactor(&["emails"]).text("to a.b@example.com.", false), "to [redacted].");
        assert_eq!(redactor(&["/[0-9]{4}/"]).text("12345 a", false), "[redacted]5 a");
        assert_eq!(redactor(&[]).text("sk-abcdefghijklmnop", false), "sk-abcdefghijklmnop");
    }

    #[test]
    fn removes_the_end_of_truncated_text() {
        let secrets = redactor(&["secrets"]);
        let text = "a".repeat(REDACTION_MARGIN) + "é sk-abc";
        assert_eq!(secrets.text(&text, true), "a".repeat(9));
        assert_eq!(secrets.text("short", true), "");
    }

    #[test]
    fn redacts_every_text_of_a_value() {
        let mut value = serde_json::json!({
            "sk-abcdefghijklmnop": [1, "sk-abcdefghijklmnop"],
            "b": {"c": format!("x{TRUNCATION_MARK}")},
        });
        assert!(redactor(&["api_keys"]).value(&mut value));
        let expected = serde_json::json!({"[redacted]": [1, "[redacted]"], "b": {"c": ""}});
        assert_eq!(value, expected);
    }

    #[test]
    fn errors_name_invalid_patterns() {
        let problem = |entry: &str| Redactor::new(&[entry.to_owned()]).unwrap_err().1;
        assert_eq!(problem("secret"), PatternError::Unknown("secret".into()));
        assert_eq!(problem("/a*/"), PatternError::FitsNothing);
        assert!(matches!(problem("/(/"), PatternError::Pattern(_)));
        assert!(matches!(problem("/(?:a{1000}){1000}/"), PatternError::Pattern(_)));
        assert!(
            matches!(problem("/(a)\\1/"), PatternError::Pattern(_)),
            "back references cannot be matched in linear time"
        );
    }
}
