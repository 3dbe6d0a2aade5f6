//! The session of a request: the conversation or run that it belongs to, found by what clients send.

use std::sync::Arc;

use ring::hmac;

use super::CallerIdentity;
use crate::label::Name;
use crate::label_enum;

/// Maximum length in bytes of a session that clients send without configuration. Clients use UUIDs (36 bytes) and ids
/// such as `ses_…` (30 bytes). The limit is below the length at which strings in bodies are cut off, so a session is
/// never a part of a longer one.
pub const MAX_SESSION_BYTES: usize = 200;

/// Number of hexadecimal digits of a hash that are kept (64 bits). Among 100 values, the probability of a collision is
/// less than 10⁻¹⁵.
const HASH_DIGITS: usize = 16;

label_enum! {
    /// The signal that a session was read from: a header, a field of the request body, or an entry of the baggage. In
    /// the order of preference.
    #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub enum SessionSource {
        /// A header that the configuration names.
        Configured = "configured",
        /// Claude Code.
        ClaudeCode = "x-claude-code-session-id",
        /// Claude Code, in the body of requests to Anthropic.
        UserId = "metadata.user_id",
        /// Gemini CLI, in the body of requests to Code Assist.
        CodeAssist = "request.session_id",
        /// Codex.
        SessionDash = "session-id",
        /// Older versions of Codex.
        SessionUnderscore = "session_id",
        /// opencode and others.
        XSessionId = "x-session-id",
        /// opencode and others.
        Affinity = "x-session-affinity",
        /// opencode, for its own models.
        OpenCode = "x-opencode-session",
        /// The key of OpenAI's prompt cache, in the body. Applications can use one key for several conversations.
        PromptCacheKey = "prompt_cache_key",
        /// The conversation of OpenAI's Responses or of Cohere, in the body.
        Conversation = "conversation",
        /// W3C baggage.
        Baggage = "baggage",
    }
}

/// The headers that contain a session. A session in another header must be configured.
///
/// `x-client-request-id` is not in the list. Claude Code sends a new id with every request, which would create a session
/// for each call, and Codex sends the same value in `session-id`, too.
const HEADERS: [SessionSource; 6] = [
    SessionSource::ClaudeCode,
    SessionSource::SessionDash,
    SessionSource::SessionUnderscore,
    SessionSource::XSessionId,
    SessionSource::Affinity,
    SessionSource::OpenCode,
];

/// The header of a sub-agent.
const SUB_AGENT: &str = "x-claude-code-agent-id";

/// A session as a client sent it, and where.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SessionSignal {
    pub source: SessionSource,
    pub id: Name,
}

impl SessionSignal {
    /// Returns `None` if `id` is empty, longer than [`MAX_SESSION_BYTES`], or has control characters.
    pub fn new(source: SessionSource, id: &str) -> Option<Self> {
        Some(Self { source, id: client_id(id)? })
    }

    /// Replaces `current` unless its source is preferred.
    pub fn prefer(self, current: &mut Option<Self>) {
        if current.as_ref().is_none_or(|current| self.source <= current.source) {
            *current = Some(self);
        }
    }
}

/// What the headers of a request contain about the session.
#[derive(Debug, Default)]
struct SessionHeaders {
    session: Option<SessionSignal>,
    /// Id of the sub-agent of a session.
    sub_agent: Option<Name>,
}

impl SessionHeaders {
    /// The loop runs over the received headers, because most comparisons end at the length of the name, which costs
    /// less than hashing every known name.
    fn read(map: &http::HeaderMap) -> Self {
        let mut found = Self::default();
        for (name, value) in map {
            let name = name.as_str();
            let text = || value.to_str().ok();
            if let Some(source) = HEADERS.iter().find(|source| source.as_str() == name) {
                let signal = text().and_then(|text| SessionSignal::new(*source, text));
                if let Some(signal) = signal {
                    signal.prefer(&mut found.session);
                }
            } else if name == SUB_AGENT {
                found.sub_agent = text().and_then(client_id);
            }
        }
        found
    }
}

impl CallerIdentity {
    /// Reads the session that a client sends without configuration. `baggage` is the conversation in the baggage header.
    /// Returns an empty identity if the rule is off.
    pub fn detect(headers: &http::HeaderMap, baggage: Option<&Name>, rule: &SessionRule) -> Self {
        if !rule.detect {
            return Self::default();
        }
        let SessionHeaders { session, sub_agent } = SessionHeaders::read(headers);
        let in_baggage = || SessionSignal::new(SessionSource::Baggage, baggage?.as_str());
        let signal = session.or_else(in_baggage);
        Self {
            session_source: signal.as_ref().map(|signal| signal.source),
            session: signal.and_then(|signal| rule.recorded(signal.id)),
            sub_agent: sub_agent.and_then(|id| rule.recorded(id)),
            ..Self::default()
        }
    }
}

/// Returns an id that a client chose, unless it is too long or no printable text. A part of an id would be another id.
fn client_id(text: &str) -> Option<Name> {
    let text = text.trim();
    let is_id = text.len() <= MAX_SESSION_BYTES && !text.chars().any(char::is_control);
    Name::new(text).filter(|_| is_id)
}

/// Replaces values by their HMAC-SHA-256.
pub struct ValueHasher {
    key: hmac::Key,
}

impl ValueHasher {
    /// With an empty key, short names can be guessed from their hashes, but API keys cannot.
    pub fn new(key: &[u8]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key) }
    }

    /// Returns the first 16 hexadecimal digits of the HMAC.
    pub fn hash(&self, value: &[u8]) -> Option<Name> {
        let tag = hmac::sign(&self.key, value);
        let digits = tag.as_ref().iter().map(|byte| format!("{byte:02x}"));
        let digits: String = digits.take(HASH_DIGITS / 2).collect();
        Name::new(&digits)
    }
}

/// Omits the key.
impl std::fmt::Debug for ValueHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValueHasher").finish_non_exhaustive()
    }
}

/// How sessions are recorded that clients send without configuration.
#[derive(Clone, Debug, Default)]
pub struct SessionRule {
    /// Whether such sessions are used.
    pub detect: bool,
    /// Hashes the ids of sessions and conversations. `None` if they are recorded as the client sent them.
    pub hasher: Option<Arc<ValueHasher>>,
}

impl SessionRule {
    /// Returns the id as it is recorded.
    pub fn recorded(&self, id: Name) -> Option<Name> {
        match &self.hasher {
            Some(hasher) => hasher.hash(id.as_str().as_bytes()),
            None => Some(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn read(headers: &[(&'static str, &[u8])]) -> SessionHeaders {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        SessionHeaders::read(&map)
    }

    fn session(headers: &[(&'static str, &[u8])]) -> Option<(&'static str, String)> {
        let signal = read(headers).session?;
        Some((signal.source.as_str(), signal.id.to_string()))
    }

    #[test]
    fn prefers_headers_in_the_order_of_their_sources() {
        let all = HEADERS.map(|source| (source.as_str(), source.as_str().as_bytes()));
        for start in 0..all.len() {
            let mut rest = all[start..].to_vec();
            rest.reverse();
            let name = all[start].0;
            assert_eq!(session(&rest), Some((name, name.to_owned())));
        }
        assert!(HEADERS.is_sorted() && SessionSource::ALL.is_sorted());
    }

    /// Such an id belongs to one request and would create a session for each call.
    #[test]
    fn ignores_the_id_of_a_request() {
        let id = b"2c54b3d0-1111-4222-8333-444455556666".as_slice();
        assert_eq!(session(&[("x-client-request-id", id), ("x-request-id", id)]), None);
    }

    #[test]
    fn refuses_values_that_are_no_ids() {
        let long = [b'x'; 10_000];
        for refused in
            [b"".as_slice(), b"  ", &long, &long[..201], b"a\tb", b"\xff\xfe", b"\xc3\xa9"]
        {
            assert_eq!(session(&[("session-id", refused)]), None, "{refused:?}");
            let next = session(&[("session-id", refused), ("x-session-id", b"b")]);
            assert_eq!(next, Some(("x-session-id", "b".to_owned())), "the next signal is used");
            assert_eq!(read(&[(SUB_AGENT, refused)]).sub_agent, None);
        }
        let markup = b"<script>alert(1)</script>".as_slice();
        assert_eq!(session(&[("session-id", markup)]).unwrap().1.as_bytes(), markup);
        assert!(session(&[("session-id", &long[..200])]).is_some());
        assert_eq!(read(&[(SUB_AGENT, b"a1")]).sub_agent, Name::new("a1"));
    }

    /// Uses RFC 4231, test case 2: key `Jefe`, data `what do ya want for nothing?`.
    #[test]
    fn hash_is_the_beginning_of_the_hmac() {
        let hash = ValueHasher::new(b"Jefe").hash(b"what do ya want for nothing?").unwrap();
        assert_eq!(hash.as_str(), "5bdcc146bf60754e");
        let other = ValueHasher::new(b"").hash(b"what do ya want for nothing?").unwrap();
        assert_ne!(other, hash, "another key produces another hash");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_id_is_bounded_and_printable(text in "\\PC{0,300}|[ -~\\t\\r\\n\\x00\\x7f]{0,300}") {
            let signal = SessionSignal::new(SessionSource::Conversation, &text);
            let trimmed = text.trim();
            let is_id = (1..=MAX_SESSION_BYTES).contains(&trimmed.len())
                && !trimmed.chars().any(char::is_control);
            prop_assert_eq!(signal.is_some(), is_id);
            if let Some(signal) = signal {
                prop_assert_eq!(signal.id.as_str(), trimmed);
            }
        }
    }
}
