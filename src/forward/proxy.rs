//! The proxy between this one and an upstream, as `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` name it.

use std::fmt;
use std::io;

use http::HeaderValue;
use http::uri::Uri;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Config;

/// The three settings as the environment has them; none by default.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Proxy {
    /// For `https` upstreams.
    pub https: Option<String>,
    /// For `http` upstreams.
    pub http: Option<String>,
    /// Hosts reached directly: names (with their subdomains), addresses, or `*`; separated by commas.
    pub exempt: Option<String>,
}

impl fmt::Debug for Proxy {
    /// Without the addresses: a proxy's URL may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            https,
            http,
            exempt,
        } = self;
        f.debug_struct("Proxy")
            .field("https", &https.is_some())
            .field("http", &http.is_some())
            .field("exempt", exempt)
            .finish()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the proxy's address is not a URL of the form http://host:port")]
    Address,
}

/// The proxy that an upstream is reached through.
pub(super) struct Via {
    pub(super) host: String,
    pub(super) port: u16,
    /// `Proxy-Authorization`, marked as sensitive.
    pub(super) authorization: Option<HeaderValue>,
}

/// The longest answer to CONNECT that is read: its head is a few lines.
const LONGEST_ANSWER: usize = 8 * 1024;

impl Via {
    pub(super) fn of(config: &Config) -> Result<Option<Self>, Error> {
        let Proxy {
            https,
            http,
            exempt,
        } = &config.proxy;
        let address = if config.tls { https } else { http };
        match address.as_deref().filter(|address| !address.is_empty()) {
            Some(address) if !is_exempt(&config.host, exempt.as_deref()) => {
                Self::parse(address).map(Some)
            }
            Some(_) | None => Ok(None),
        }
    }

    fn parse(address: &str) -> Result<Self, Error> {
        let with_scheme = match address.split_once("://") {
            Some(("http", _)) => address.to_owned(),
            Some(_) => return Err(Error::Address),
            None => format!("http://{address}"),
        };
        let uri: Uri = with_scheme.parse().map_err(|_| Error::Address)?;
        let authority = uri.authority().ok_or(Error::Address)?;
        let authorization = match authority.as_str().rsplit_once('@') {
            None => None,
            Some((user, _)) => Some(basic(user)?),
        };
        Ok(Self {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(80),
            authorization,
        })
    }

    /// Asks the proxy for a tunnel to `host`.
    pub(super) async fn tunnel(
        &self,
        stream: &mut TcpStream,
        host: &str,
        port: u16,
    ) -> io::Result<()> {
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.to_owned()
        };
        let mut request =
            format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n").into_bytes();
        if let Some(authorization) = &self.authorization {
            request.extend_from_slice(b"Proxy-Authorization: ");
            request.extend_from_slice(authorization.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        stream.write_all(&request).await?;
        let status = read_status(stream).await?;
        if status.starts_with("2") {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "the proxy answered CONNECT with {status}"
        )))
    }
}

impl fmt::Debug for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host,
            port,
            authorization: _,
        } = self;
        write!(f, "Via({host}:{port})")
    }
}

/// Reads the head of the answer to CONNECT, byte by byte so that nothing behind it is taken; its status.
async fn read_status(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= LONGEST_ANSWER {
            return Err(io::Error::other(
                "the proxy's answer to CONNECT is too long",
            ));
        }
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head);
    let status = head.split_ascii_whitespace().nth(1).unwrap_or_default();
    Ok(status.chars().take(3).collect())
}

fn is_exempt(host: &str, exempt: Option<&str>) -> bool {
    let host = host.trim_matches(['[', ']']);
    exempt
        .unwrap_or_default()
        .split(',')
        .map(|entry| {
            entry
                .trim()
                .trim_start_matches("*.")
                .trim_start_matches('.')
        })
        .filter(|entry| !entry.is_empty())
        .any(|entry| {
            let above = host.len().checked_sub(entry.len()).filter(|at| {
                host.get(*at..)
                    .is_some_and(|end| end.eq_ignore_ascii_case(entry))
            });
            entry == "*"
                || above.is_some_and(|at| {
                    at == 0 || host.get(..at).is_some_and(|rest| rest.ends_with('.'))
                })
        })
}

/// `Basic` credentials from the user info of a URL, percent-decoded.
fn basic(user: &str) -> Result<HeaderValue, Error> {
    let text = format!("Basic {}", base64(&percent_decoded(user)));
    let mut value = HeaderValue::try_from(text).map_err(|_| Error::Address)?;
    value.set_sensitive(true);
    Ok(value)
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        let escaped = match (byte, ahead.next(), ahead.next()) {
            (b'%', Some(high), Some(low)) => hex(high).zip(hex(low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                decoded.push(high * 16 + low);
                bytes = ahead;
            }
            None => decoded.push(byte),
        }
    }
    decoded
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let index = usize::try_from(bits >> (18 - 6 * place) & 63).unwrap_or_default();
            let letter = ALPHABET.get(index).copied().unwrap_or(b'=');
            text.push(if place <= group.len() {
                char::from(letter)
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_encoded_and_never_shown() {
        let via = Via::parse("http://us%65r:p%40ss@proxy.local:3128").unwrap();
        assert_eq!((via.host.as_str(), via.port), ("proxy.local", 3128));
        let authorization = via.authorization.clone().unwrap();
        assert_eq!(authorization.to_str().unwrap(), "Basic dXNlcjpwQHNz");
        assert!(!format!("{via:?}{authorization:?}").contains("dXNlcjpwQHNz"));
        assert_eq!(base64(b"a"), "YQ==");
        assert_eq!(base64(b"ab"), "YWI=");
        assert_eq!(base64(b"abc"), "YWJj");
    }

    #[test]
    fn an_address_needs_no_scheme_but_has_no_other_than_http() {
        assert_eq!(Via::parse("[::1]:8080").unwrap().host, "::1");
        assert_eq!(Via::parse("proxy").unwrap().port, 80);
        assert!(Via::parse("socks5://proxy:1080").is_err());
        assert!(Via::parse("http://").is_err());
    }

    #[test]
    fn exempt_names_cover_their_subdomains_only() {
        let exempt = Some("localhost, .svc.local,*.corp.example,10.0.0.1");
        for host in [
            "localhost",
            "svc.local",
            "a.svc.local",
            "A.CORP.example",
            "10.0.0.1",
        ] {
            assert!(is_exempt(host, exempt), "{host}");
        }
        for host in ["notlocalhost", "xsvc.local", "example", "10.0.0.11", ""] {
            assert!(!is_exempt(host, exempt), "{host}");
        }
        assert!(is_exempt("anything", Some("*")));
        assert!(!is_exempt("anything", None));
    }
}
