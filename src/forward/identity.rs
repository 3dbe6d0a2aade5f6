//! Reads the tenant, session and variant of a request from the configured headers, and a session from the headers that
//! clients send without configuration.
//!
//! The headers are forwarded unchanged. If a header contains a credential, such as an API key, only its hash identifies
//! the tenant. The credential itself is never recorded.

use std::sync::Arc;

use http::{HeaderMap, HeaderName};

use tokengauge_types::event::{CallerIdentity, SessionRule, SessionSource, ValueHasher};
use tokengauge_types::label::Name;

/// The headers that contain each value. `None` means that the value is not read.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct IdentityConfig {
    pub tenant: Option<IdentitySource>,
    pub session: SessionConfig,
    pub variant: Option<IdentitySource>,
}

/// Where the session of a request is read.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SessionConfig {
    /// Configured headers, which are preferred. May be empty.
    pub source: IdentitySource,
    /// Whether a session is used that a client sends without configuration.
    pub detect: bool,
}

/// Header names in order of preference. The first header that is present and not empty is used.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct IdentitySource {
    pub headers: Vec<HeaderName>,
    /// Whether the value is replaced by its hash.
    pub hash: bool,
}

/// Reads tenant, session and variant of a request.
#[derive(Debug)]
pub struct Identity {
    config: IdentityConfig,
    hasher: Arc<ValueHasher>,
}

impl Identity {
    /// Creates a reader that hashes values with HMAC-SHA-256 and `key`. With an empty key, short names can be guessed
    /// from their hashes, but API keys cannot.
    pub fn new(config: IdentityConfig, key: &[u8]) -> Self {
        Self { config, hasher: Arc::new(ValueHasher::new(key)) }
    }

    /// Reads the identity from the headers of a request, and returns the rule for a session in its body. `baggage` is
    /// the conversation in the baggage header.
    pub fn read(
        &self,
        headers: &HeaderMap,
        baggage: Option<&Name>,
    ) -> (CallerIdentity, SessionRule) {
        let IdentityConfig { tenant, session, variant } = &self.config;
        let hasher = session.source.hash.then(|| Arc::clone(&self.hasher));
        let rule = SessionRule { detect: session.detect, hasher };
        let mut identity = CallerIdentity::detect(headers, baggage, &rule);
        if let Some(configured) = self.value(&session.source, headers) {
            identity.session = Some(configured);
            identity.session_source = Some(SessionSource::Configured);
        }
        let read = |source: &Option<IdentitySource>| self.value(source.as_ref()?, headers);
        (identity.tenant, identity.variant) = (read(tenant), read(variant));
        (identity, rule)
    }

    fn value(&self, source: &IdentitySource, headers: &HeaderMap) -> Option<Name> {
        let present = |name: &HeaderName| {
            let value = headers.get(name)?.as_bytes().trim_ascii();
            (!value.is_empty()).then_some(value)
        };
        let value = source.headers.iter().find_map(present)?;
        if source.hash {
            self.hasher.hash(value)
        } else {
            Name::new(std::str::from_utf8(value).ok()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn source(headers: &[&'static str], hash: bool) -> Option<IdentitySource> {
        let headers = headers.iter().map(|name| HeaderName::from_static(name));
        Some(IdentitySource { headers: headers.collect(), hash })
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    fn tenant(source: Option<IdentitySource>, key: &[u8], sent: &HeaderMap) -> Option<String> {
        let config = IdentityConfig { tenant: source, ..IdentityConfig::default() };
        let (who, _) = Identity::new(config, key).read(sent, None);
        assert_eq!((&who.session, &who.variant), (&None, &None));
        who.tenant.map(|name| name.to_string())
    }

    #[test]
    fn uses_first_header_with_a_value() {
        let source = || source(&["x-tenant", "x-team"], false);
        let read = |sent: &[(&'static str, &'static str)]| tenant(source(), b"", &headers(sent));
        assert_eq!(read(&[("x-team", "b"), ("x-tenant", "a")]).as_deref(), Some("a"));
        assert_eq!(read(&[("x-team", " b "), ("x-tenant", "  ")]).as_deref(), Some("b"));
        assert_eq!(read(&[("x-other", "c")]), None);
        assert_eq!(tenant(None, b"", &headers(&[("x-tenant", "a")])), None);
    }

    #[test]
    fn hashes_a_value() {
        let sent = headers(&[("x-tenant", "what do ya want for nothing?")]);
        let hash = tenant(source(&["x-tenant"], true), b"Jefe", &sent).unwrap();
        assert_eq!(hash, "5bdcc146bf60754e");
    }

    #[test]
    fn reads_each_value_from_its_own_headers() {
        let config = IdentityConfig {
            tenant: source(&["x-tenant"], false),
            session: SessionConfig { source: source(&["x-session"], false).unwrap(), detect: true },
            variant: source(&["x-variant"], false),
        };
        let sent = headers(&[
            ("x-tenant", "acme"),
            ("x-session", "run-1"),
            ("x-variant", "b"),
            ("x-claude-code-session-id", "detected"),
        ]);
        let (who, _) = Identity::new(config, b"").read(&sent, None);
        let expected = CallerIdentity {
            tenant: Name::new("acme"),
            session: Name::new("run-1"),
            session_source: Some(SessionSource::Configured),
            variant: Name::new("b"),
            sub_agent: None,
        };
        assert_eq!(who, expected);
    }

    #[test]
    fn detects_a_session_unless_it_is_off() {
        let sent = headers(&[("session-id", "s-1"), ("x-claude-code-agent-id", "a-1")]);
        let read = |detect, hash, baggage: Option<&str>, sent: &HeaderMap| {
            let source = IdentitySource { headers: vec![], hash };
            let session = SessionConfig { source, detect };
            let config = IdentityConfig { session, ..IdentityConfig::default() };
            let baggage = baggage.and_then(Name::new);
            let (who, rule) = Identity::new(config, b"k").read(sent, baggage.as_ref());
            assert_eq!((rule.detect, rule.hasher.is_some()), (detect, hash));
            let text = |name: Option<Name>| name.map(|name| name.to_string());
            (text(who.session), who.session_source.map(SessionSource::as_str), text(who.sub_agent))
        };
        let of = |text: &str| Some(text.to_owned());
        assert_eq!(read(false, false, Some("b"), &sent), (None, None, None));
        assert_eq!(read(true, false, Some("b"), &sent), (of("s-1"), Some("session-id"), of("a-1")));
        let none = HeaderMap::new();
        assert_eq!(read(true, false, Some("b"), &none), (of("b"), Some("baggage"), None));
        assert_eq!(read(true, false, None, &none), (None, None, None));
        let (session, source, sub_agent) = read(true, true, None, &sent);
        let hash =
            |text: &str| ValueHasher::new(b"k").hash(text.as_bytes()).map(|it| it.to_string());
        assert_eq!((session, source, sub_agent), (hash("s-1"), Some("session-id"), hash("a-1")));
    }

    #[test]
    fn ignores_a_value_that_is_not_text() {
        let mut sent = HeaderMap::new();
        let value = HeaderValue::from_bytes(b"\xff\xfe").unwrap();
        sent.insert("x-tenant", value);
        assert_eq!(tenant(source(&["x-tenant"], false), b"", &sent), None);
    }
}
