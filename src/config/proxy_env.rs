//! The way out: `HTTPS_PROXY`, `http_proxy`, `ALL_PROXY` and `NO_PROXY`, by curl's rules.
//!
//! Two departures: a `NO_PROXY` entry may name a port, and loopback is always reached directly, since to a proxy
//! elsewhere it would be another machine.

use std::net::IpAddr;

use http::Uri;

use super::Environment;
use super::value::Wrong;
use crate::forward;
use tokengauge_types::url::bare;

/// Which proxy to use for which upstream.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Proxy {
    /// For upstreams over TLS.
    pub https: Option<forward::Proxy>,
    /// For upstreams in plain text.
    pub http: Option<forward::Proxy>,
    /// Hosts that are reached directly.
    pub no_proxy: Vec<Pattern>,
}

/// One entry of `NO_PROXY`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Pattern {
    /// `*`: every host.
    Any,
    /// A domain and everything below it, in lower case without leading or trailing dot.
    Domain { suffix: String, port: Option<u16> },
    /// Addresses whose first `bits` are those of `network`; only for hosts that are IP addresses.
    Network { network: IpAddr, bits: u8, port: Option<u16> },
}

/// The proxies that the environment names, and what is wrong with it, by variable.
///
/// The lower-case names win, and `HTTP_PROXY` is not read at all: like curl, because in a CGI script a client can set it
/// with a `Proxy:` header.
pub fn from_env(environment: Environment<'_>) -> (Proxy, Vec<(&'static str, Wrong)>) {
    const HTTPS: [&str; 4] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    const HTTP: [&str; 3] = ["http_proxy", "all_proxy", "ALL_PROXY"];
    const NONE: [&str; 2] = ["no_proxy", "NO_PROXY"];
    let mut wrongs = Vec::new();
    let mut proxy = |names: &[&'static str]| {
        let (name, text) = first(names, environment)?;
        match address(&text) {
            Ok(address) => Some(address),
            Err(wrong) => {
                wrongs.push((name, wrong));
                None
            }
        }
    };
    let (https, http) = (proxy(&HTTPS), proxy(&HTTP));
    wrongs.dedup();
    let no_proxy = first(&NONE, environment).map(|(name, list)| {
        let entries = list.split(|c: char| c == ',' || c.is_whitespace());
        let mut patterns = Vec::new();
        for entry in entries.filter(|entry| !entry.is_empty()) {
            match pattern(entry) {
                Some(pattern) => patterns.push(pattern),
                None => wrongs.push((
                    name,
                    Wrong::new(
                        format!("\"{entry}\" is neither a host nor a network"),
                        "write hosts, .domains, addresses or networks such as 10.0.0.0/8, separated by commas; or *",
                    ),
                )),
            }
        }
        patterns
    });
    let proxy = Proxy { https, http, no_proxy: no_proxy.unwrap_or_default() };
    (proxy, wrongs)
}

impl Proxy {
    /// The proxy by which to reach `host` (without the brackets of IPv6) at `port`; `None` is directly.
    pub fn for_host(&self, tls: bool, host: &str, port: u16) -> Option<forward::Proxy> {
        let proxy = if tls { &self.https } else { &self.http };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let address: Option<IpAddr> = bare(&host).parse().ok();
        let loopback = host == "localhost" || address.is_some_and(|address| address.is_loopback());
        let direct = |pattern: &Pattern| pattern.covers(&host, address, port);
        if loopback || self.no_proxy.iter().any(direct) {
            return None;
        }
        proxy.clone()
    }
}

impl Pattern {
    fn covers(&self, host: &str, address: Option<IpAddr>, at: u16) -> bool {
        let here = |port: &Option<u16>| port.is_none_or(|port| port == at);
        match self {
            Self::Any => true,
            Self::Domain { suffix, port } => {
                let below = host
                    .strip_suffix(suffix.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
                address.is_none() && below && here(port)
            }
            Self::Network { network, bits, port } => {
                address.is_some_and(|address| contains(*network, *bits, address)) && here(port)
            }
        }
    }
}

fn contains(network: IpAddr, bits: u8, address: IpAddr) -> bool {
    let (network, address, width) = match (network, address.to_canonical()) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            (network.to_bits().into(), address.to_bits().into(), 32_u8)
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => (network.to_bits(), address.to_bits(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    let ignored = u32::from(width.saturating_sub(bits));
    let differing: u128 = network ^ address;
    // A shift by the whole width is none in Rust: that is the network of everything.
    differing.checked_shr(ignored).unwrap_or(0) == 0
}

fn first(names: &[&'static str], environment: Environment<'_>) -> Option<(&'static str, String)> {
    let set =
        |name: &&'static str| Some((*name, environment(name).filter(|text| !text.is_empty())?));
    names.iter().find_map(set)
}

/// A proxy's URL; without a scheme it is http.
fn address(text: &str) -> Result<forward::Proxy, Wrong> {
    let remedy = "write it as http://[user:password@]host:port";
    // Never echoed: it may hold a password.
    let wrong = |what: &'static str| Wrong::new(what, remedy);
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: Uri = url.parse().map_err(|_| wrong("this is no URL of a proxy"))?;
    if uri.scheme_str() != Some("http") {
        return Err(wrong("only proxies over http:// are supported"));
    }
    let (Some(host), Some(authority)) =
        (uri.host().filter(|host| !host.is_empty()), uri.authority())
    else {
        return Err(wrong("the proxy's URL names no host"));
    };
    let credentials =
        authority.as_str().rsplit_once('@').map(|(credentials, _)| percent_decoded(credentials));
    let host = bare(host).to_ascii_lowercase();
    let port = uri.port_u16().unwrap_or(80);
    Ok(forward::Proxy::new(&host, port, credentials.as_deref()))
}

/// What is no escape, or none of UTF-8, stays as it is.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escape = after.split_first_chunk::<2>().filter(|_| byte == b'%');
        let decoded = escape.and_then(|(digits, after)| {
            let digits = std::str::from_utf8(digits).ok()?;
            let hexadecimal = digits.chars().all(|c| c.is_ascii_hexdigit());
            let byte = u8::from_str_radix(digits, 16).ok().filter(|_| hexadecimal)?;
            Some((byte, after))
        });
        let (byte, after) = decoded.unwrap_or((byte, after));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

fn pattern(entry: &str) -> Option<Pattern> {
    if entry == "*" {
        return Some(Pattern::Any);
    }
    let (host, port) = match entry.rsplit_once(':') {
        // More than one colon and no brackets: an IPv6 address.
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, Some(port.parse().ok()?))
        }
        Some(_) | None => (entry, None),
    };
    if let Some((network, bits)) = host.split_once('/') {
        let network: IpAddr = bare(network).parse().ok()?;
        let widest = if network.is_ipv4() { 32 } else { 128 };
        let bits = bits.parse().ok().filter(|bits| *bits <= widest)?;
        return Some(Pattern::Network { network, bits, port });
    }
    if let Ok(network) = bare(host).parse::<IpAddr>() {
        let bits = if network.is_ipv4() { 32 } else { 128 };
        return Some(Pattern::Network { network, bits, port });
    }
    // `*.example.com` is no form that curl knows, but one that many write.
    let suffix = host.trim_start_matches('*').trim_matches('.').to_ascii_lowercase();
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (!suffix.is_empty() && suffix.chars().all(fits)).then_some(Pattern::Domain { suffix, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(variables: &[(&str, &str)]) -> (Proxy, Vec<(&'static str, Wrong)>) {
        from_env(&|name| {
            let value = variables.iter().find(|(known, _)| *known == name)?.1;
            Some(value.to_owned())
        })
    }

    #[test]
    fn no_proxy_follows_the_rules_of_curl() {
        let cases = [
            ("", "api.example.com", 443, true),
            ("*", "api.example.com", 443, false),
            ("example.com", "example.com", 443, false),
            ("example.com", "api.example.com", 443, false),
            ("example.com", "API.EXAMPLE.COM", 443, false),
            ("Example.COM.", "api.example.com.", 443, false),
            ("example.com", "badexample.com", 443, true),
            (".example.com", "api.example.com", 443, false),
            (".example.com", "example.com", 443, false),
            ("*.example.com", "api.example.com", 443, false),
            ("api.example.com", "example.com", 443, true),
            ("example.com:443", "api.example.com", 443, false),
            ("example.com:8443", "api.example.com", 443, true),
            ("other.org, example.com", "api.example.com", 443, false),
            ("other.org example.com", "api.example.com", 443, false),
            ("10.1.2.3", "10.1.2.3", 443, false),
            ("10.1.2.3", "10.1.2.4", 443, true),
            ("10.1.2.3:80", "10.1.2.3", 443, true),
            ("10.0.0.0/8", "10.200.0.1", 443, false),
            ("10.0.0.0/8", "11.0.0.1", 443, true),
            ("10.0.0.0/9", "10.128.0.1", 443, true),
            ("0.0.0.0/0", "11.0.0.1", 443, false),
            ("10.0.0.0/8", "ten.example.com", 443, true),
            ("2.3", "10.1.2.3", 443, true),
            ("fd00::/8", "fd12::1", 443, false),
            ("fd00::/8", "[fd12::1]", 443, false),
            ("::/0", "2001:db8::1", 443, false),
            ("2001:db8::1", "2001:db8::1", 443, false),
            ("[2001:db8::1]:443", "2001:db8::1", 443, false),
            ("[2001:db8::1]:80", "2001:db8::1", 443, true),
            ("10.0.0.0/8", "::ffff:10.0.0.1", 443, false),
            ("", "localhost", 443, true),
        ];
        for (no_proxy, host, port, proxied) in cases {
            let (proxy, wrong) = proxy(&[("https_proxy", "p:3128"), ("NO_PROXY", no_proxy)]);
            assert_eq!(wrong, [], "{no_proxy}");
            let proxied = proxied && host != "localhost";
            assert_eq!(
                proxy.for_host(true, host, port).is_some(),
                proxied,
                "{host}:{port} with NO_PROXY={no_proxy}"
            );
        }
    }

    #[test]
    fn loopback_is_reached_directly() {
        let (proxy, _) = proxy(&[("all_proxy", "p:1")]);
        for host in ["localhost", "127.0.0.1", "127.8.8.8", "::1"] {
            assert_eq!(proxy.for_host(false, host, 8000), None, "{host}");
        }
        assert!(proxy.for_host(false, "10.0.0.1", 8000).is_some());
    }

    #[test]
    fn the_variables_win_in_the_order_of_curl() {
        let host = |variables: &[(&str, &str)], tls| {
            let (proxy, wrong) = proxy(variables);
            assert_eq!(wrong, []);
            proxy.for_host(tls, "h", 1).map(|proxy| proxy.host)
        };
        let all = [("all_proxy", "all:1"), ("HTTPS_PROXY", "upper:1"), ("https_proxy", "lower:1")];
        assert_eq!(host(&all, true).as_deref(), Some("lower"));
        assert_eq!(host(&all[..2], true).as_deref(), Some("upper"));
        assert_eq!(host(&all, false).as_deref(), Some("all"));
        assert_eq!(host(&[("HTTP_PROXY", "cgi:1")], false), None);
        assert_eq!(host(&[("http_proxy", "plain:1")], false).as_deref(), Some("plain"));
        assert_eq!(host(&[("http_proxy", "plain:1")], true), None);
        assert_eq!(host(&[("https_proxy", "")], true), None);
    }

    #[test]
    fn an_address_has_its_parts_and_its_credentials_are_secret() {
        let (proxy, _) = proxy(&[("https_proxy", "http://me:p%40ss@[::1]:3128/")]);
        let address = proxy.https.unwrap();
        assert_eq!(address, forward::Proxy::new("::1", 3128, Some("me:p@ss")));
        assert!(!format!("{address:?}").contains("p@ss"));
        assert_eq!(super::address("proxy").unwrap().port, 80);
        assert!(super::address("https://proxy").is_err());
        assert_eq!(percent_decoded("%4g%+1%41%ff"), "%4g%+1%41%ff", "no UTF-8: as it is");
        assert_eq!(percent_decoded("a%2"), "a%2");
    }

    #[test]
    fn what_is_wrong_is_told_by_variable_and_without_secrets() {
        let (_, wrongs) = proxy(&[
            ("all_proxy", "socks5://me:secret@h:1"),
            ("https_proxy", "http://me:secret@h:port x"),
            ("no_proxy", "fine.org, 10.0.0.0/33, a b:x, ex ample!"),
        ]);
        let names: Vec<&str> = wrongs.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["https_proxy", "all_proxy", "no_proxy", "no_proxy", "no_proxy"]);
        assert!(wrongs.iter().all(|(_, wrong)| !wrong.to_string().contains("secret")));
    }
}
