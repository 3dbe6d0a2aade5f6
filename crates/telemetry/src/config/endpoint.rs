//! The URL of a collector. Credentials are removed from the URL and stored separately, so that no log line and no error
//! contains them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokengauge_types::url::{percent_decoded, with_valid_ip};

/// A collector's URL and the credentials that were part of the URL.
#[derive(Debug, PartialEq)]
pub(super) struct Endpoint {
    /// The URL without credentials.
    pub(super) url: String,
    /// Value of the `Authorization` header for `user:password` in the URL.
    pub(super) authorization: Option<String>,
}

impl Endpoint {
    /// Parses an `http` or `https` URL with a host.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = &*with_valid_ip(text);
        let uri: http::Uri = text.parse().ok()?;
        let is_known = matches!(uri.scheme_str(), Some("http" | "https"));
        if !is_known || uri.host().is_none_or(str::is_empty) {
            return None;
        }
        let (scheme, rest) = text.split_once("://")?;
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (credentials, host) = match authority.rsplit_once('@') {
            Some((credentials, host)) => (Some(credentials), host),
            None => (None, authority),
        };
        Some(Self {
            url: format!("{scheme}://{host}{path}"),
            authorization: credentials.map(basic_authorization),
        })
    }

    /// Appends `path` to the path of the URL, before the query.
    pub(super) fn with_path(self, path: &str) -> Self {
        let (base, query) = self.url.split_at(self.url.find(['?', '#']).unwrap_or(self.url.len()));
        Self { url: format!("{}{path}{query}", base.trim_end_matches('/')), ..self }
    }
}

fn basic_authorization(credentials: &str) -> String {
    let decoded = percent_decoded(credentials).unwrap_or_else(|| credentials.to_owned());
    format!("Basic {}", STANDARD.encode(decoded))
}

/// Returns a URL for messages. `***` replaces the query, because a query can contain an API key.
pub(super) fn without_query(url: &str) -> String {
    match url.split_once('?') {
        Some((url, _)) => format!("{url}?***"),
        None => url.to_owned(),
    }
}

/// Returns the value of an endpoint variable for messages, even if the value is not a URL. `***` replaces the query and
/// everything before the last `@`, because both can contain credentials.
pub(super) fn redacted(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            (format!("{scheme}://"), rest)
        }
        Some(_) | None => (String::new(), text),
    };
    match rest.rsplit_once('@') {
        Some((_, host)) => without_query(&format!("{scheme}***@{host}")),
        None => without_query(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separates_credentials_and_appends_the_path_before_the_query() {
        for (text, authorization, url) in [
            ("http://c:4318", None, "http://c:4318/v1/traces"),
            ("http://c:4318/", None, "http://c:4318/v1/traces"),
            ("https://me:p%40ss@c/base/", Some("Basic bWU6cEBzcw=="), "https://c/base/v1/traces"),
            ("http://c/otlp?key=a/b", None, "http://c/otlp/v1/traces?key=a/b"),
            ("http://me@c?key=1", Some("Basic bWU="), "http://c/v1/traces?key=1"),
            ("http://c/@team", None, "http://c/@team/v1/traces"),
            ("http://fd00::7:4318", None, "http://[fd00::7]:4318/v1/traces"),
            ("http://[fd00::7]:4318", None, "http://[fd00::7]:4318/v1/traces"),
            ("http://[10.0.0.7]:4318", None, "http://10.0.0.7:4318/v1/traces"),
            ("https://me@fd00::7", Some("Basic bWU="), "https://[fd00::7]/v1/traces"),
        ] {
            let endpoint = Endpoint::parse(text).unwrap().with_path("/v1/traces");
            let expected =
                Endpoint { url: url.into(), authorization: authorization.map(str::to_owned) };
            assert_eq!(endpoint, expected, "{text}");
        }
        assert_eq!(Endpoint::parse("http://c/own?a=1").unwrap().url, "http://c/own?a=1");
        for invalid in ["ftp://c", "http://", "c:4318", "http://a b"] {
            assert_eq!(Endpoint::parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn redacts_credentials_and_queries_of_any_text() {
        for (text, shown) in [
            ("http://c:4318/v1/traces", "http://c:4318/v1/traces"),
            ("http://me:hunter2@c:4318", "http://***@c:4318"),
            ("me:hunter2@c", "***@c"),
            ("me:hunter2://x@c", "***@c"),
            ("http://me:hun/ter?2@c", "http://***@c"),
            ("http://c/p?key=hunter2", "http://c/p?***"),
        ] {
            assert_eq!(redacted(text), shown);
        }
    }
}
