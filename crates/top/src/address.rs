//! Addresses of admin ports: URLs of the command line, and the processes behind a DNS name.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use tokengauge_types::url::Url;
use tokengauge_types::value::ValueError;

/// The URL of an admin port: `http://HOST:PORT[/PREFIX]`, or `HOST:PORT`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AdminUrl {
    host: String,
    port: u16,
    /// Path prefix without a slash at the end.
    prefix: String,
}

/// An address that is not an admin URL.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}; write HOST:PORT or http://HOST:PORT, such as 127.0.0.1:4001")]
pub struct AddressError(String);

impl FromStr for AdminUrl {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = |problem: &str| AddressError(problem.to_owned());
        let url: Url = match text.contains("://") {
            true => text.parse(),
            false => {
                let authority = text.split('/').next().unwrap_or_default();
                let port = authority.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
                if !matches!(port, Some(Ok(_))) {
                    return Err(wrong("the address has no port"));
                }
                format!("http://{text}").parse()
            }
        }
        .map_err(|error: ValueError| wrong(error.what()))?;
        if url.tls {
            return Err(wrong("the admin port has no TLS"));
        }
        Ok(Self { host: reachable(url.host), port: url.port, prefix: url.base_path })
    }
}

/// Returns the host to connect to if the server listens on `host`, which may be `0.0.0.0` or `::`.
fn reachable(host: String) -> String {
    match host.parse() {
        Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED) | IpAddr::V6(Ipv6Addr::UNSPECIFIED)) => {
            Ipv4Addr::LOCALHOST.to_string()
        }
        Ok(_) | Err(_) => host,
    }
}

impl fmt::Display for AdminUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}{}", self.host, self.port, self.prefix),
            false => write!(f, "{}:{}{}", self.host, self.port, self.prefix),
        }
    }
}

/// The admin port of one process.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Endpoint {
    pub address: SocketAddr,
    pub prefix: String,
    /// Host name of the URL, for HTTP proxies in between.
    pub host: String,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.address, self.prefix)
    }
}

impl AdminUrl {
    /// Returns the processes behind the URL: one per address of the name. If a name has IPv4 and IPv6 addresses, only
    /// IPv4 addresses are used, because a process has one of each.
    ///
    /// # Errors
    /// Returns an error if the name cannot be resolved.
    pub async fn resolve(&self) -> io::Result<Vec<Endpoint>> {
        let endpoint = |address: SocketAddr| Endpoint {
            address,
            prefix: self.prefix.clone(),
            host: format!("{}:{}", self.host, self.port),
        };
        let fixed = match self.host.as_str() {
            "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
            host => host.parse::<IpAddr>().ok(),
        };
        if let Some(ip) = fixed {
            return Ok(vec![endpoint(SocketAddr::new(ip, self.port))]);
        }
        let addresses = tokio::net::lookup_host((self.host.as_str(), self.port)).await?;
        Ok(one_family(addresses.collect()).into_iter().map(endpoint).collect())
    }
}

fn one_family(addresses: BTreeSet<SocketAddr>) -> Vec<SocketAddr> {
    let has_ipv4 = addresses.iter().any(SocketAddr::is_ipv4);
    addresses.into_iter().filter(|address| address.is_ipv4() == has_ipv4).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_addresses_and_urls() {
        for (text, shown) in [
            ("127.0.0.1:4001", "127.0.0.1:4001"),
            ("0.0.0.0:4001", "127.0.0.1:4001"),
            ("[::]:4001", "127.0.0.1:4001"),
            ("[::1]:4001", "[::1]:4001"),
            ("http://gateway.chat.svc:4001/", "gateway.chat.svc:4001"),
            ("gateway:80/tokengauge", "gateway:80/tokengauge"),
            ("http://gateway/x/", "gateway:80/x"),
        ] {
            assert_eq!(text.parse::<AdminUrl>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn errors_say_what_to_write() {
        let error = |text: &str| text.parse::<AdminUrl>().unwrap_err().to_string();
        for text in ["", "localhost", "4001", ":4001", "a:99999", "ftp://a:1", "a b:1"] {
            assert!(error(text).ends_with("such as 127.0.0.1:4001"), "{text}");
        }
        assert!(error("https://a:4001").starts_with("the admin port has no TLS"));
        let secret = error("http://me:hunter2@a:4001");
        assert!(secret.starts_with("the URL contains credentials") && !secret.contains("hunter2"));
    }

    #[test]
    fn uses_one_address_family() {
        let addresses = |texts: &[&str]| texts.iter().map(|it| it.parse().unwrap()).collect();
        let mixed = one_family(addresses(&["[fd00::1]:1", "10.0.0.2:1", "10.0.0.1:1"]));
        assert_eq!(mixed, ["10.0.0.1:1".parse().unwrap(), "10.0.0.2:1".parse().unwrap()]);
        assert_eq!(one_family(addresses(&["[fd00::1]:1"])).len(), 1);
    }
}
