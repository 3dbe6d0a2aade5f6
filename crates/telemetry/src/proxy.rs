//! The configured HTTP proxy between this process and a server: an upstream or a collector.
//!
//! `hyper_util::client::legacy::connect::proxy::Tunnel` is not suitable. Its errors do not contain the status of a
//! refused CONNECT request. It rejects every success status except 200, but RFC 9110 allows any 2xx status.

use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An HTTP proxy, which is reached without TLS. For `https` servers, it opens a tunnel (CONNECT). For `http` servers, it
/// receives the requests and forwards them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Proxy {
    /// Host name or IP address of the proxy. An IPv6 address has no brackets.
    pub host: String,
    pub port: u16,
    /// Value of `Proxy-Authorization`. The value is marked as sensitive, so that `Debug` does not print it.
    pub authorization: Option<HeaderValue>,
}

/// Maximum length in bytes of the response to CONNECT. Such a response has only a few header lines.
const MAX_RESPONSE_HEAD: usize = 8 * 1024;

impl Proxy {
    /// `credentials` have the form `user:password`.
    pub fn new(host: &str, port: u16, credentials: Option<&str>) -> Self {
        let basic = |credentials| {
            let text = format!("Basic {}", STANDARD.encode(credentials));
            // Base64 is ASCII without control characters, so it is always a valid header value.
            let mut value = HeaderValue::try_from(text).ok()?;
            value.set_sensitive(true);
            Some(value)
        };
        Self { host: host.to_owned(), port, authorization: credentials.and_then(basic) }
    }

    /// Asks the proxy to open a tunnel to `host`.
    ///
    /// # Errors
    /// Fails if the proxy refuses the tunnel, with its status, or closes the connection.
    pub async fn tunnel(&self, stream: &mut TcpStream, host: &str, port: u16) -> io::Result<()> {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
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
        Err(io::Error::other(format!("the proxy answered CONNECT with {status}")))
    }
}

/// Reads the headers of the response to CONNECT and returns the status code. Reads single bytes, so that no data after
/// the headers is consumed.
async fn read_status(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_RESPONSE_HEAD {
            return Err(io::Error::other("the proxy's response to CONNECT is too long"));
        }
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head);
    let status = head.split_ascii_whitespace().nth(1).unwrap_or_default();
    Ok(status.chars().take(3).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_credentials_and_hides_them_in_debug() {
        let proxy = Proxy::new("proxy.local", 3128, Some("user:p@ss"));
        let authorization = proxy.authorization.clone().unwrap();
        assert_eq!(authorization.to_str().unwrap(), "Basic dXNlcjpwQHNz");
        assert!(!format!("{proxy:?}").contains("dXNlcjpwQHNz"));
    }
}
