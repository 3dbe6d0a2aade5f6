//! Reads the proxies for upstream connections from `HTTPS_PROXY`, `http_proxy`, `ALL_PROXY` and `NO_PROXY`, as curl
//! does.
//!
//! There are two differences from curl. A `NO_PROXY` entry may include a port. Loopback addresses are always connected
//! directly, because a proxy would connect to its own machine instead.

use std::borrow::Cow;
use std::net::IpAddr;

use http::Uri;
use percent_encoding::percent_decode_str;

use super::errors::{ConfigErrors, ErrorCollector};
use super::value::ValueError;
use super::{Environment, non_empty};
use crate::forward;
use tokengauge_types::url::bare;

/// The proxies of the environment.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Proxies {
    /// For upstreams over TLS.
    pub https: Option<forward::Proxy>,
    /// For upstreams in plain text.
    pub http: Option<forward::Proxy>,
    /// Hosts that are reached directly.
    pub no_proxy: Vec<NoProxyRule>,
}

/// One entry of `NO_PROXY`. Without a port, the entry applies to all ports.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NoProxyRule {
    hosts: Hosts,
    port: Option<u16>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Hosts {
    /// `*`: every host.
    Any,
    /// Matches a domain and its subdomains. The text is in lower case, without a dot at the beginning or end.
    Domain(String),
    /// Matches IP addresses whose first `bits` bits equal those of `network`. Never matches a host name.
    Network { network: IpAddr, bits: u8 },
}

/// Why a variable defines no proxy.
#[derive(Clone, Debug, Eq, PartialEq)]
enum ProxyError {
    /// The URL has this scheme, which is not supported. The variable is ignored, because it can be meant for other
    /// programs.
    UnsupportedScheme(String),
    Invalid(ValueError),
}

/// Reads the proxies from environment variables, and reports each invalid variable.
///
/// As in curl, a name in lower case takes precedence. `HTTP_PROXY` in upper case is ignored, because a client of a CGI
/// script can set this variable with a `Proxy:` header.
pub(super) fn from_env(environment: Environment<'_>, errors: &mut ErrorCollector) -> Proxies {
    const HTTPS: [&str; 4] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    const HTTP: [&str; 3] = ["http_proxy", "all_proxy", "ALL_PROXY"];
    const NONE: [&str; 2] = ["no_proxy", "NO_PROXY"];
    let mut problems = Vec::new();
    let mut proxy = |names: &[&'static str]| {
        let (name, text) = first_set_variable(names, environment)?;
        parse_proxy(&text).map_err(|error| problems.push((name, error))).ok()
    };
    let (https, http) = (proxy(&HTTPS), proxy(&HTTP));
    // A variable can apply to both kinds of upstreams.
    problems.dedup();
    for (name, error) in problems {
        match error {
            ProxyError::Invalid(error) => errors.add_outside_file(name, error.to_string()),
            ProxyError::UnsupportedScheme(scheme) => {
                let message = format!(
                    "proxies over {scheme}:// are not supported, so the variable is ignored and upstreams are \
                     connected directly; for a proxy over http://, set HTTPS_PROXY or http_proxy"
                );
                errors.warn_outside_file(name, message);
            }
        }
    }
    let no_proxy = first_set_variable(&NONE, environment).map(|(name, list)| {
        let entries = list.split(|c: char| c == ',' || c.is_whitespace());
        let mut rules = Vec::new();
        for entry in entries.filter(|entry| !entry.is_empty()) {
            match parse_rule(entry) {
                Some(rule) => rules.push(rule),
                None => errors.add_outside_file(
                    name,
                    format!(
                        "\"{entry}\" is not a host or a network; write hosts, .domains, addresses or networks such as \
                         10.0.0.0/8, separated by commas; or *"
                    ),
                ),
            }
        }
        rules
    });
    Proxies { https, http, no_proxy: no_proxy.unwrap_or_default() }
}

impl Proxies {
    /// Reads the proxies of the environment.
    ///
    /// # Errors
    /// Returns the variables whose values define no proxy.
    pub fn read(environment: Environment<'_>) -> Result<Self, ConfigErrors> {
        let mut errors = ErrorCollector::default();
        let proxies = from_env(environment, &mut errors);
        errors.into_result(proxies)
    }

    /// Returns the proxy for `host` and `port`. `None` means a direct connection. An IPv6 host has no brackets.
    pub fn for_host(&self, tls: bool, host: &str, port: u16) -> Option<forward::Proxy> {
        let proxy = if tls { &self.https } else { &self.http };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let address: Option<IpAddr> = bare(&host).parse().ok();
        let is_loopback =
            host == "localhost" || address.is_some_and(|address| address.is_loopback());
        let is_direct = |rule: &NoProxyRule| rule.matches(&host, address, port);
        if is_loopback || self.no_proxy.iter().any(is_direct) {
            return None;
        }
        proxy.clone()
    }
}

impl NoProxyRule {
    fn matches(&self, host: &str, address: Option<IpAddr>, target_port: u16) -> bool {
        let has_host = match (&self.hosts, address) {
            (Hosts::Any, _) => true,
            (Hosts::Domain(suffix), None) => host
                .strip_suffix(suffix.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
            (Hosts::Network { network, bits }, Some(address)) => contains(*network, *bits, address),
            (Hosts::Domain(_), Some(_)) | (Hosts::Network { .. }, None) => false,
        };
        has_host && self.port.is_none_or(|port| port == target_port)
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
    // A shift by the full width of the type returns `None`. This is the network of all addresses, which always matches.
    differing.checked_shr(ignored).unwrap_or(0) == 0
}

fn first_set_variable(
    names: &[&'static str],
    environment: Environment<'_>,
) -> Option<(&'static str, String)> {
    let set = |name: &&'static str| Some((*name, environment(name).and_then(non_empty)?));
    names.iter().find_map(set)
}

/// Parses a proxy's URL. The default scheme is http.
fn parse_proxy(text: &str) -> Result<forward::Proxy, ProxyError> {
    let hint = "write it as http://[user:password@]host:port";
    // The error messages do not include the text of the URL, because it may hold a password.
    let invalid = |what: &'static str| ProxyError::Invalid(ValueError::new(what, hint));
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: Uri = url.parse().map_err(|_| invalid("not the URL of a proxy"))?;
    if let Some(scheme) = uri.scheme_str().filter(|scheme| *scheme != "http") {
        return Err(ProxyError::UnsupportedScheme(scheme.to_owned()));
    }
    let (Some(host), Some(authority)) =
        (uri.host().filter(|host| !host.is_empty()), uri.authority())
    else {
        return Err(invalid("the URL has no host"));
    };
    let credentials =
        authority.as_str().rsplit_once('@').map(|(credentials, _)| percent_decoded(credentials));
    let host = bare(host).to_ascii_lowercase();
    let port = uri.port_u16().unwrap_or(80);
    Ok(forward::Proxy::new(&host, port, credentials.as_deref()))
}

/// Decodes percent escapes. Returns the text unchanged if the result is not UTF-8.
fn percent_decoded(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8().unwrap_or(Cow::Borrowed(text))
}

fn parse_rule(entry: &str) -> Option<NoProxyRule> {
    if entry == "*" {
        return Some(NoProxyRule { hosts: Hosts::Any, port: None });
    }
    let (host, port) = match entry.rsplit_once(':') {
        // Text with more than one colon and no brackets is an IPv6 address without a port.
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, Some(port.parse().ok()?))
        }
        Some(_) | None => (entry, None),
    };
    Some(NoProxyRule { hosts: parse_hosts(host)?, port })
}

fn parse_hosts(text: &str) -> Option<Hosts> {
    let (address, bits) = text.split_once('/').unzip();
    if let Ok(network) = bare(address.unwrap_or(text)).parse::<IpAddr>() {
        let widest = if network.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(widest), |bits| bits.parse().ok())?;
        return (bits <= widest).then_some(Hosts::Network { network, bits });
    }
    // curl does not support `*.example.com`, but many users write it.
    let suffix = text.trim_start_matches('*').trim_matches('.').to_ascii_lowercase();
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (!suffix.is_empty() && suffix.chars().all(is_allowed)).then_some(Hosts::Domain(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the proxies, the errors and the warnings.
    fn read(variables: &[(&str, &str)]) -> (Proxies, Vec<String>, Vec<String>) {
        let environment = |name: &str| {
            let value = variables.iter().find(|(known, _)| *known == name)?.1;
            Some(value.to_owned())
        };
        let mut errors = ErrorCollector::default();
        let proxies = from_env(&environment, &mut errors);
        let warnings = errors.take_warnings().iter().map(ToString::to_string).collect();
        let errors = errors.into_errors().iter().map(ToString::to_string).collect();
        (proxies, errors, warnings)
    }

    fn proxy(variables: &[(&str, &str)]) -> Proxies {
        let (proxies, errors, warnings) = read(variables);
        assert!(errors.is_empty() && warnings.is_empty(), "{errors:?} {warnings:?}");
        proxies
    }

    #[test]
    fn no_proxy_follows_curl() {
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
            let proxy = proxy(&[("https_proxy", "p:3128"), ("NO_PROXY", no_proxy)]);
            let proxied = proxied && host != "localhost";
            assert_eq!(
                proxy.for_host(true, host, port).is_some(),
                proxied,
                "{host}:{port} with NO_PROXY={no_proxy}"
            );
        }
    }

    #[test]
    fn reaches_loopback_directly() {
        let proxy = proxy(&[("all_proxy", "p:1")]);
        for host in ["localhost", "127.0.0.1", "127.8.8.8", "::1"] {
            assert_eq!(proxy.for_host(false, host, 8000), None, "{host}");
        }
        assert!(proxy.for_host(false, "10.0.0.1", 8000).is_some());
    }

    #[test]
    fn variables_have_the_precedence_of_curl() {
        let host = |variables: &[(&str, &str)], tls| {
            proxy(variables).for_host(tls, "h", 1).map(|proxy| proxy.host)
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
    fn parses_credentials_and_redacts_them() {
        let proxy = proxy(&[("https_proxy", "http://me:p%40ss@[::1]:3128/")]);
        let address = proxy.https.unwrap();
        assert_eq!(address, forward::Proxy::new("::1", 3128, Some("me:p@ss")));
        assert!(!format!("{address:?}").contains("p@ss"));
        assert_eq!(parse_proxy("proxy").unwrap().port, 80);
        assert!(parse_proxy("https://proxy").is_err());
        assert_eq!(percent_decoded("%4g%+1%41%ff"), "%4g%+1%41%ff", "not UTF-8");
        assert_eq!(percent_decoded("a%2"), "a%2");
    }

    #[test]
    fn reports_errors_by_variable_without_secrets() {
        let (_, errors, _) = read(&[
            ("https_proxy", "http://me:secret@h:port x"),
            ("no_proxy", "fine.org, 10.0.0.0/33, a b:x, ex ample!"),
        ]);
        let names: Vec<&str> =
            errors.iter().map(|error| error.split(':').next().unwrap()).collect();
        assert_eq!(names, ["https_proxy", "no_proxy", "no_proxy", "no_proxy"]);
        assert!(errors.iter().all(|error| !error.contains("secret")));
    }

    #[test]
    fn an_unsupported_scheme_is_a_warning() {
        for (name, scheme) in [("ALL_PROXY", "socks5"), ("https_proxy", "https")] {
            let url = format!("{scheme}://me:secret@h:1");
            let (proxies, errors, warnings) = read(&[(name, &url)]);
            assert!(errors.is_empty(), "{errors:?}");
            let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
            let start = format!("{name}: proxies over {scheme}:// are not supported");
            assert!(warning.starts_with(&start) && !warning.contains("secret"), "{warning}");
            assert_eq!(proxies.for_host(true, "api.example.com", 443), None);
        }
    }
}
