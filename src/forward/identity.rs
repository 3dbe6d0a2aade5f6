//! Reads the tenant, session and variant of a request from the configured headers.
//!
//! The headers are forwarded unchanged. If a header contains a credential, such as an API key, only its hash identifies
//! the tenant. The credential itself is never recorded.

use std::fmt;

use http::{HeaderMap, HeaderName};
use ring::hmac;

use tokengauge_types::event::CallerIdentity;
use tokengauge_types::label::Name;

/// Number of hexadecimal digits of a hash that are kept (64 bits). Among 100 values, the probability of a collision is
/// less than 10⁻¹⁵.
const HASH_DIGITS: usize = 16;

/// The headers that contain each value. `None` means that the value is not read.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct IdentityConfig {
    pub tenant: Option<IdentitySource>,
    pub session: Option<IdentitySource>,
    pub variant: Option<IdentitySource>,
}

/// Header names in order of preference. The first header that is present and not empty is used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IdentitySource {
    pub headers: Vec<HeaderName>,
    /// Whether the value is replaced by its hash.
    pub hash: bool,
}

/// Reads tenant, session and variant of a request.
pub struct Identity {
    config: IdentityConfig,
    key: hmac::Key,
}

impl Identity {
    /// Creates a reader that hashes values with HMAC-SHA-256 and `key`. With an empty key, short names can be guessed
    /// from their hashes, but API keys cannot.
    pub fn new(config: IdentityConfig, key: &[u8]) -> Self {
        Self { config, key: hmac::Key::new(hmac::HMAC_SHA256, key) }
    }

    pub fn read(&self, headers: &HeaderMap) -> CallerIdentity {
        let IdentityConfig { tenant, session, variant } = &self.config;
        let read = |source: &Option<IdentitySource>| self.value(source.as_ref()?, headers);
        CallerIdentity { tenant: read(tenant), session: read(session), variant: read(variant) }
    }

    fn value(&self, source: &IdentitySource, headers: &HeaderMap) -> Option<Name> {
        let present = |name: &HeaderName| {
            let value = headers.get(name)?.as_bytes().trim_ascii();
            (!value.is_empty()).then_some(value)
        };
        let value = source.headers.iter().find_map(present)?;
        if source.hash { self.hashed(value) } else { Name::new(std::str::from_utf8(value).ok()?) }
    }

    fn hashed(&self, value: &[u8]) -> Option<Name> {
        let tag = hmac::sign(&self.key, value);
        let digits = tag.as_ref().iter().map(|byte| format!("{byte:02x}"));
        let digits: String = digits.take(HASH_DIGITS / 2).collect();
        Name::new(&digits)
    }
}

/// Omits the key.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("config", &self.config).finish_non_exhaustive()
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
        let who = Identity::new(config, key).read(sent);
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

    /// Uses RFC 4231, test case 2: key `Jefe`, data `what do ya want for nothing?`.
    #[test]
    fn hash_is_the_beginning_of_the_hmac() {
        let sent = headers(&[("x-tenant", "what do ya want for nothing?")]);
        let hash = tenant(source(&["x-tenant"], true), b"Jefe", &sent).unwrap();
        assert_eq!(hash, "5bdcc146bf60754e");
        let other = tenant(source(&["x-tenant"], true), b"", &sent).unwrap();
        assert_ne!(other, hash, "another key produces another hash");
        assert_eq!(other.len(), HASH_DIGITS);
    }

    #[test]
    fn reads_each_value_from_its_own_headers() {
        let config = IdentityConfig {
            tenant: source(&["x-tenant"], false),
            session: source(&["x-session"], false),
            variant: source(&["x-variant"], false),
        };
        let sent = headers(&[("x-tenant", "acme"), ("x-session", "run-1"), ("x-variant", "b")]);
        let who = Identity::new(config, b"").read(&sent);
        let expected = CallerIdentity {
            tenant: Name::new("acme"),
            session: Name::new("run-1"),
            variant: Name::new("b"),
        };
        assert_eq!(who, expected);
    }

    #[test]
    fn ignores_a_value_that_is_not_text() {
        let mut sent = HeaderMap::new();
        let value = HeaderValue::from_bytes(b"\xff\xfe").unwrap();
        sent.insert("x-tenant", value);
        assert_eq!(tenant(source(&["x-tenant"], false), b"", &sent), None);
    }
}
