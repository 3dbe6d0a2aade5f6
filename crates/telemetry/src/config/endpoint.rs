//! The URL of a collector. Credentials are separated from it, so that no log line or error message can contain them.

/// A collector's URL and the credentials that were part of it.
#[derive(Debug, PartialEq)]
pub(super) struct Endpoint {
    /// Without credentials.
    pub(super) url: String,
    /// `user:password`, percent-encoded.
    pub(super) credentials: Option<String>,
}

impl Endpoint {
    /// Parses an `http` or `https` URL with a host.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let uri: http::Uri = text.parse().ok()?;
        let is_known = matches!(uri.scheme_str(), Some("http" | "https"));
        if !is_known || uri.host().is_none_or(str::is_empty) {
            return None;
        }
        let (scheme, rest) = text.split_once("://")?;
        let path = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(path)?;
        let (credentials, host) = match authority.rsplit_once('@') {
            Some((credentials, host)) => (Some(credentials.to_owned()), host),
            None => (None, authority),
        };
        Some(Self { url: format!("{scheme}://{host}{path}"), credentials })
    }

    /// Appends `path` to the path of the URL, before its query.
    pub(super) fn with_path(self, path: &str) -> Self {
        if path.is_empty() {
            return self;
        }
        let (base, query) = self.url.split_at(self.url.find(['?', '#']).unwrap_or(self.url.len()));
        let url = format!("{}{path}{query}", base.trim_end_matches('/'));
        Self { url, ..self }
    }
}

/// Returns a URL, valid or not, for a message: credentials and query are replaced by `***`.
pub(super) fn redacted(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), text),
    };
    let (credentials, rest) = match rest.rsplit_once('@') {
        Some((_, rest)) => ("***@", rest),
        None => ("", rest),
    };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, _)) => (rest, "?***"),
        None => (rest, ""),
    };
    format!("{scheme}{credentials}{rest}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separates_credentials_and_appends_before_the_query() {
        for (text, credentials, url) in [
            ("http://c:4318", None, "http://c:4318/v1/traces"),
            ("http://c:4318/", None, "http://c:4318/v1/traces"),
            ("https://me:p%40ss@c/base/", Some("me:p%40ss"), "https://c/base/v1/traces"),
            ("http://c/otlp?key=a/b", None, "http://c/otlp/v1/traces?key=a/b"),
            ("http://me@c?key=1", Some("me"), "http://c/v1/traces?key=1"),
        ] {
            let endpoint = Endpoint::parse(text).unwrap().with_path("/v1/traces");
            let expected =
                Endpoint { url: url.to_owned(), credentials: credentials.map(str::to_owned) };
            assert_eq!(endpoint, expected, "{text}");
        }
        assert_eq!(Endpoint::parse("http://c/own?a=1").unwrap().url, "http://c/own?a=1");
        for invalid in ["ftp://c", "http://", "c:4318", "http://a b"] {
            assert_eq!(Endpoint::parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn redacts_whatever_may_be_secret() {
        for (text, shown) in [
            ("http://c:4318/v1/traces", "http://c:4318/v1/traces"),
            ("http://me:hunter2@c:4318", "http://***@c:4318"),
            ("me:hunter2@c", "***@c"),
            ("http://me:hun/ter?2@c", "http://***@c"),
            ("http://c/p?key=hunter2", "http://c/p?***"),
        ] {
            assert_eq!(redacted(text), shown);
        }
    }
}
