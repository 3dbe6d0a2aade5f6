//! Asking the admin port of a proxy that runs on this machine.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::config::value::ListenAddr;

/// What is asked for here is answered by a line.
const LONGEST_ANSWER: usize = 64 << 10;

/// Between two times of asking.
const PAUSE: Duration = Duration::from_millis(500);

/// The variable that holds the admin port's bearer token, as for the proxy itself.
const TOKEN_VARIABLE: &str = "TOKENGAUGE_ADMIN_TOKEN";

/// AdminAddress the proxy's admin port is.
#[derive(Clone, Debug, clap::Args)]
pub struct AdminAddress {
    /// The admin port of the proxy: IP:PORT or NAME:PORT. AdminAddress it listens on all interfaces (0.0.0.0, [::]), loopback is
    /// asked
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "TOKENGAUGE_ADMIN",
        default_value = "127.0.0.1:4001"
    )]
    admin: Place,
}

/// A port of a host: as the variable of the proxy itself has it, or of a host that DNS knows, such as a Service.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Place {
    Address(SocketAddr),
    Name { host: String, port: u16 },
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = || {
            let (host, port) = text.rsplit_once(':')?;
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            // Without a letter it is an address that was mistyped.
            let named = host.contains(char::is_alphabetic) && host.chars().all(allowed);
            Some(Self::Name {
                host: Some(host).filter(|_| named)?.to_owned(),
                port: port.parse().ok()?,
            })
        };
        let address = text.parse().ok();
        address
            .map(|ListenAddr(address)| Self::Address(reached(address)))
            .or_else(named)
            .ok_or_else(|| {
                "write an IP address or a name, and a port, such as 127.0.0.1:4001".to_owned()
            })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// AdminAddress to reach what listens on this address.
fn reached(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// How long somebody who asks has time.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// For an answer.
    pub limit: Duration,
    /// While it goes wrong, for asking again.
    pub wait: Duration,
}

impl AdminAddress {
    /// Asks for `path`; the line that is answered with 200. Needs no runtime.
    ///
    /// # Errors
    /// AdminAddress anything else than 200 is answered, or nothing in time: of the last time.
    pub fn ask(
        &self,
        method: &Method,
        path: &str,
        patience: RequestLimits,
        environment: fn(&str) -> Option<String>,
    ) -> anyhow::Result<String> {
        let RequestLimits { limit, wait } = patience;
        let address = self.admin.to_string();
        let token = environment(TOKEN_VARIABLE);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answered = runtime.block_on(async {
            let mut over = pin!(tokio::time::sleep(wait));
            loop {
                let answer = once(&address, method, path, limit, token.clone()).await;
                if answer.is_ok() {
                    return answer;
                }
                tokio::select! {
                    biased;
                    () = &mut over => return answer,
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
        });
        // A name that is still being asked for is not waited for.
        runtime.shutdown_background();
        answered
    }
}

async fn once(
    address: &str,
    method: &Method,
    path: &str,
    limit: Duration,
    token: Option<String>,
) -> anyhow::Result<String> {
    let (status, text) = tokio::time::timeout(limit, exchange(address, method, path, token))
        .await
        .with_context(|| format!("{address}{path} has not answered within {limit:?}"))??;
    if status != StatusCode::OK {
        bail!("{address}{path} answers {}: {text}", status.as_u16());
    }
    Ok(text)
}

async fn exchange(
    address: &str,
    method: &Method,
    path: &str,
    token: Option<String>,
) -> anyhow::Result<(StatusCode, String)> {
    let stream = TcpStream::connect(address).await.with_context(|| {
        format!("nobody listens on {address}; --admin says where the proxy does")
    })?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let mut request = Request::builder()
        .method(method.clone())
        .uri(path)
        .header(header::HOST, address)
        .header(header::CONNECTION, "close");
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new())?;
    let broke_off = || format!("{address} ended without an answer");
    let response = sender.send_request(request).await.with_context(broke_off)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LONGEST_ANSWER);
    let body = body.collect().await;
    let body = body.map_err(anyhow::Error::from_boxed).with_context(broke_off)?;
    let text = String::from_utf8_lossy(&body.to_bytes()).trim_end().to_owned();
    Ok((status, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_interfaces_are_asked_on_loopback_of_their_family() {
        for (said, asked) in [
            ("0.0.0.0:4001", "127.0.0.1:4001"),
            ("[::]:4001", "[::1]:4001"),
            ("127.0.0.1:5", "127.0.0.1:5"),
            ("10.0.0.7:4001", "10.0.0.7:4001"),
            ("localhost:4001", "localhost:4001"),
            ("tokengauge-admin.chat.svc:4001", "tokengauge-admin.chat.svc:4001"),
        ] {
            assert_eq!(said.parse::<Place>().unwrap().to_string(), asked);
        }
    }

    #[test]
    fn what_is_no_host_with_a_port_is_refused() {
        for said in [
            "",
            "localhost",
            ":4001",
            "4001",
            "a:b",
            "a:99999",
            "10.0.0:4001",
            "http://a:1",
            "a b:1",
            "::1:4001",
        ] {
            assert!(said.parse::<Place>().is_err(), "{said}");
        }
    }
}
