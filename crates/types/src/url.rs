//! Parses upstream URLs, the `/PREFIX=URL` form of the command line, and percent-encoding.

use std::borrow::Cow;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use http::Uri;

use crate::value::ValueError;

/// An upstream URL. Error messages never contain the URL, because users put keys into URLs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Url {
    pub tls: bool,
    /// Host name in lower case, or an IP address (IPv6 without brackets).
    pub host: String,
    pub port: u16,
    /// Path of the URL. It is empty, or starts with `/` and does not end with `/`.
    pub base_path: String,
}

const EXAMPLE: &str =
    "write it as https://host[:port][/base/path], such as https://example.com:8443";

impl FromStr for Url {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let after_scheme = text.split_once("://").map(|(_, rest)| rest);
        let authority = after_scheme.and_then(|rest| rest.split(['/', '?', '#']).next());
        if authority.is_some_and(|authority| authority.contains('@')) {
            return Err(ValueError::new(
                "the URL contains credentials",
                "remove the part before the @: clients send credentials in headers, which are forwarded unchanged",
            ));
        }
        if text.contains(['?', '#']) {
            return Err(ValueError::new(
                "the URL has a query or a fragment",
                "remove the query or fragment: queries of clients are forwarded unchanged",
            ));
        }
        let wrong = |what: &'static str| ValueError::new(what, EXAMPLE);
        let uri: Uri = with_valid_ip(text)
            .parse()
            .map_err(|error| ValueError::new(format!("not a URL ({error})"), EXAMPLE))?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            Some(_) => return Err(wrong("the URL is neither http:// nor https://")),
            None => return Err(wrong("the URL has no scheme")),
        };
        let host = uri.host().unwrap_or_default();
        if host.is_empty() {
            return Err(wrong("the URL has no host"));
        }
        let port_text = uri.authority().map_or("", |authority| authority.as_str());
        let has_port = port_text.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let port = match uri.port_u16() {
            Some(0) => return Err(wrong("port 0 cannot be connected to")),
            Some(port) => port,
            None if has_port => return Err(wrong("the URL's port is not a number up to 65535")),
            None if tls => 443,
            None => 80,
        };
        Ok(Self {
            tls,
            host: bare(host).to_ascii_lowercase(),
            port,
            base_path: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

/// Corrects the brackets around the IP address of a URL. A Kubernetes manifest writes `http://$(K8S_NODE_IP):4317` or
/// `http://[$(K8S_NODE_IP)]:4317` without knowing the family of the node's address, so both spellings must work for both
/// families: an IPv4 address loses brackets, and an IPv6 address gets them.
///
/// Without brackets, the digits after the last colon are the port if the rest is an IPv6 address: `fd00::1:4317` is port
/// 4317 of `fd00::1`.
pub fn with_valid_ip(url: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = url.split_once("://") else { return Cow::Borrowed(url) };
    let (authority, path) =
        rest.split_at_checked(rest.find(['/', '?', '#']).unwrap_or(rest.len())).unwrap_or_default();
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (format!("{user}@"), host),
        None => (String::new(), authority),
    };
    match valid_host(host) {
        Some(host) => Cow::Owned(format!("{scheme}://{user}{host}{path}")),
        None => Cow::Borrowed(url),
    }
}

/// Returns the host and port of a URL with corrected brackets, or `None` if they are correct.
fn valid_host(host: &str) -> Option<String> {
    let is_ipv6 = |text: &str| text.parse::<Ipv6Addr>().is_ok();
    if let Some((address, port)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        return address.parse::<Ipv4Addr>().is_ok().then(|| format!("{address}{port}"));
    }
    match host.rsplit_once(':') {
        Some((address, port)) if is_ipv6(address) && port.parse::<u16>().is_ok() => {
            Some(format!("[{address}]:{port}"))
        }
        Some(_) if is_ipv6(host) => Some(format!("[{host}]")),
        Some(_) | None => None,
    }
}

/// Removes the brackets of an IPv6 address.
pub fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, usual_port) = if self.tls { ("https", 443) } else { ("http", 80) };
        write!(f, "{scheme}://")?;
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        if self.port != usual_port {
            write!(f, ":{}", self.port)?;
        }
        f.write_str(&self.base_path)
    }
}

crate::serde_as_str!(Url, { "type": "string", "format": "URL", "pattern": "^https?://[^/?#@]+(/[^?#]*)?$" });

/// Location of an HTTP endpoint: a path on the upstream's host, or a URL on another host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PathOrUrl {
    /// A path that starts with `/`.
    Path(String),
    /// A URL whose `base_path` is the complete path of the endpoint. A trailing `/` is kept.
    Url(Url),
}

impl FromStr for PathOrUrl {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let path = if text.starts_with('/') { prefix(text)? } else { String::new() };
        let last = if text.ends_with('/') { "/" } else { "" };
        if text.starts_with('/') {
            return Ok(Self::Path(path + last));
        }
        let mut url: Url = text.parse()?;
        url.base_path.push_str(last);
        Ok(Self::Url(url))
    }
}

impl fmt::Display for PathOrUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.write_str(path),
            Self::Url(url) => url.fmt(f),
        }
    }
}

crate::serde_as_str!(PathOrUrl, { "type": "string", "format": "path or URL", "pattern": "^(https?://[^/?#@]+)?(/[^?#]*)?$" });

/// Value of the `--upstream` option.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UpstreamTarget {
    /// Path prefix without a trailing `/`. `None` matches every path. An empty prefix is parsed as `None`.
    pub prefix: Option<String>,
    pub url: Url,
}

impl FromStr for UpstreamTarget {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if !text.starts_with('/') {
            let url = text.parse()?;
            return Ok(Self { prefix: None, url });
        }
        let Some((path, url)) = text.split_once('=') else {
            return Err(ValueError::new(
                "a path prefix without a URL",
                "write /PREFIX=URL, such as /openai=https://api.openai.com",
            ));
        };
        let prefix = Some(prefix(path)?).filter(|prefix| !prefix.is_empty());
        let url = url.parse()?;
        Ok(Self { prefix, url })
    }
}

/// Decodes percent-encoding. Returns `None` if an escape is malformed or the result is not UTF-8.
pub fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let value = digit()? * 16 + digit()?;
        decoded.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(decoded).ok()
}

/// Replaces in a message what can be a credential in a URL or path: the query, and the user information before `@`.
///
/// A query starts with `?`. It ends at the closing quote if the URL is in double quotes, and else at the next space. A `?`
/// at the end of a word is punctuation.
pub fn redact_urls(message: &str) -> Cow<'_, str> {
    if !message.contains(['?', '@']) {
        return Cow::Borrowed(message);
    }
    let mut redacted = String::with_capacity(message.len());
    let mut is_quoted = false;
    for part in split_quotes(message) {
        if is_quoted {
            push_redacted(&mut redacted, part);
        } else {
            for word in part.split_inclusive(char::is_whitespace) {
                push_redacted(&mut redacted, word);
            }
        }
        is_quoted = !is_quoted;
    }
    Cow::Owned(redacted)
}

/// Splits a message at the double quotes around values. A double quote within a value does not end the value. Each part
/// except the last one ends with its quote.
fn split_quotes(message: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(message);
    let mut is_quoted = false;
    std::iter::from_fn(move || {
        let text = rest?;
        let is_end = |at: usize| {
            let after = text.get(at + 1..).and_then(|after| after.chars().next());
            !is_quoted || after.is_none_or(|next| next.is_whitespace() || ";,.:)".contains(next))
        };
        let quote = text.match_indices('"').map(|(at, _)| at).find(|&at| is_end(at));
        is_quoted = !is_quoted;
        let (part, left) = match quote.and_then(|at| text.split_at_checked(at + 1)) {
            Some((part, left)) => (part, Some(left)),
            None => (text, None),
        };
        rest = left;
        Some(part)
    })
}

/// Appends a URL, path or other text. It may end with a quote or white space.
fn push_redacted(redacted: &mut String, text: &str) {
    let end = |c: char| c == '"' || c.is_whitespace();
    let body = text.trim_end_matches(end);
    let (mut shown, mut query) = (body, false);
    if let Some((before, after)) = body.split_once('?')
        && after.contains(|c: char| c.is_alphanumeric())
    {
        (shown, query) = (before, true);
    }
    // A password can contain `/` and `?`, so that its end is the last `@`.
    let host = body.rsplit_once('@').filter(|_| body.contains("://"));
    match (host, shown.split_once("://")) {
        (Some((_, host)), Some((scheme, _))) => {
            let host = host.split('?').next().unwrap_or_default();
            redacted.extend([scheme, "://***@", host]);
        }
        (Some(_) | None, Some(_) | None) => redacted.push_str(shown),
    }
    if query {
        redacted.push_str("?***");
    }
    redacted.push_str(text.get(body.len()..).unwrap_or_default());
}

/// Parses a path prefix and removes a trailing `/`. The result is empty or starts with `/`.
pub fn prefix(text: &str) -> Result<String, ValueError> {
    let remedy = "write a path such as /openai";
    if !text.starts_with('/') {
        return Err(ValueError::new(format!("\"{text}\" does not begin with /"), remedy));
    }
    let odd = |c: char| c.is_whitespace() || c.is_control() || !c.is_ascii() || "?#*".contains(c);
    if text.contains(odd) || text.contains("//") {
        return Err(ValueError::new(
            format!("\"{text}\" is not a path prefix"),
            "write a path as clients send it, without spaces, * ? # or an empty segment, such as /openai",
        ));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacts_queries_and_user_information_in_messages() {
        for (message, expected) in [
            ("nothing to hide; see https://a/b", "nothing to hide; see https://a/b"),
            ("\"/metrics?key=hunter2\" is not a path", "\"/metrics?***\" is not a path"),
            ("\"http://h:1/m?a=1&key=hun ter2\": bad", "\"http://h:1/m?***\": bad"),
            ("\"/m?key=hun\"ter2\" is bad", "\"/m?***\" is bad"),
            ("upstreams.http://h?key=hunter2.url: missing", "upstreams.http://h?*** missing"),
            ("GET http://h/m?key=hunter2 failed", "GET http://h/m?*** failed"),
            ("invalid value 'http://h?key=hunter2' for", "invalid value 'http://h?*** for"),
            ("\"http://me:hunter2@h/a\" is bad", "\"http://***@h/a\" is bad"),
            ("\"http://me:hun/ter?2@h/a?b=c\" is bad", "\"http://***@h/a?***\" is bad"),
            ("unknown name; did you mean \"url\"?", "unknown name; did you mean \"url\"?"),
            (
                "write a path without spaces, * ? # or //",
                "write a path without spaces, * ? # or //",
            ),
            ("really?", "really?"),
            ("mail me@example.com", "mail me@example.com"),
        ] {
            assert_eq!(redact_urls(message), expected);
        }
    }

    #[test]
    fn parses_and_formats_urls() {
        let cases = [
            ("https://api.openai.com", true, "api.openai.com", 443, ""),
            ("http://10.0.0.1:8000", false, "10.0.0.1", 8000, ""),
            ("https://h/v1/base", true, "h", 443, "/v1/base"),
            ("http://[::1]:8000/x", false, "::1", 8000, "/x"),
            ("http://[fe80::1]", false, "fe80::1", 80, ""),
        ];
        for (text, tls, host, port, base_path) in cases {
            let url: Url = text.parse().unwrap();
            assert_eq!(
                (url.tls, url.host.as_str(), url.port, url.base_path.as_str()),
                (tls, host, port, base_path),
                "{text}"
            );
            assert_eq!(url.to_string(), text);
        }
        let url: Url = "HTTPS://API.Example.COM:443/v1/".parse().unwrap();
        assert_eq!(url.to_string(), "https://api.example.com/v1");
    }

    #[test]
    fn an_ip_address_of_either_family_works_with_and_without_brackets() {
        for (text, expected) in [
            ("http://[10.0.0.1]:8000/x", "http://10.0.0.1:8000/x"),
            ("http://[10.0.0.1]", "http://10.0.0.1"),
            ("http://fd00::1:4317", "http://[fd00::1]:4317"),
            ("http://fd00:10:96::a:4317/x", "http://[fd00:10:96::a]:4317/x"),
            ("http://fd00::1", "http://[fd00::1]"),
            ("http://fd00:1:2:3:4:5:6:7:4317", "http://[fd00:1:2:3:4:5:6:7]:4317"),
            ("http://fd00:1:2:3:4:5:6:7/", "http://[fd00:1:2:3:4:5:6:7]"),
            ("http://::1:8000", "http://[::1]:8000"),
            ("http://[::1]:8000", "http://[::1]:8000"),
            ("http://::ffff:10.0.0.1:8000", "http://[::ffff:10.0.0.1]:8000"),
        ] {
            assert_eq!(text.parse::<Url>().unwrap().to_string(), expected, "{text}");
        }
        assert_eq!(
            with_valid_ip("http://me:x@fd00::1:4317?k=a:b"),
            "http://me:x@[fd00::1]:4317?k=a:b"
        );
        for unchanged in
            ["http://host:4317", "http://a:b:c", "fd00::1:4317", "http://[host]:1", "http://"]
        {
            assert_eq!(with_valid_ip(unchanged), unchanged);
        }
        for invalid in
            ["http://fd00::1:x", "http://fd00::1::2", "http://fd00::1:99999", "http://::g"]
        {
            assert!(invalid.parse::<Url>().is_err(), "{invalid}");
        }
    }

    #[test]
    fn rejects_invalid_urls_without_echoing_them() {
        let cases = [
            ("api.openai.com", "no scheme"),
            ("ftp://host.secret", "neither http"),
            ("https://", "not a URL"),
            ("https://user:secret@host", "credentials"),
            ("https://secret@host/path", "credentials"),
            ("https://host/v1?key=secret", "query"),
            ("https://host/v1#secret", "fragment"),
            ("https://host:secret", "URL"),
            ("https://host:99999", "port"),
            ("https://host:0", "port 0"),
            ("https://ho st", "not a URL"),
            ("https://höst", "not a URL"),
            ("", "not a URL"),
        ];
        for (text, part) in cases {
            let error = text.parse::<Url>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
        let path: Url = "https://host/an@sign".parse().unwrap();
        assert_eq!(path.base_path, "/an@sign", "an @ in the path is not a credential");
    }

    #[test]
    fn path_or_url_keeps_its_trailing_slash() {
        for text in ["/metrics", "/metrics/", "/", "http://h:8002/metrics", "https://h/metrics/"] {
            assert_eq!(text.parse::<PathOrUrl>().unwrap().to_string(), text);
        }
        let cases = [
            ("metrics", "no scheme"),
            ("/metrics?format=x", "not a path"),
            ("http://user:secret@h/metrics", "credentials"),
            ("http://h/metrics?key=secret", "query"),
        ];
        for (text, part) in cases {
            let error = text.parse::<PathOrUrl>().unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("secret"), "{text}: {error}");
        }
    }

    #[test]
    fn a_target_may_have_a_prefix() {
        let target: UpstreamTarget = "/openai/=https://api.openai.com/v1=2".parse().unwrap();
        assert_eq!(target.prefix.as_deref(), Some("/openai"));
        assert_eq!(target.url.base_path, "/v1=2");
        let target: UpstreamTarget = "/=http://h".parse().unwrap();
        assert_eq!(target.prefix, None);
        for text in
            ["/openai", "openai=https://h", "/a b=http://h", "/a?b=http://h", "/a//b=http://h"]
        {
            assert!(text.parse::<UpstreamTarget>().is_err(), "{text}");
        }
    }
}
