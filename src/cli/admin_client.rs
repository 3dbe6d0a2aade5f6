//! `tokengauge drain` and `tokengauge probe`: commands that call the admin port of a running proxy. Container hooks and
//! images without a shell need them instead of an HTTP client.

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

use crate::config::value::DurationValue;

/// Maximum length of a response in bytes. The pages that these commands request have one line.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum time of the response to a drain request, in addition to the drain itself.
const DRAIN_RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Environment variable with the bearer token of the admin port, for this client and the proxy.
const TOKEN_VARIABLE: &str = "TOKENGAUGE_ADMIN_TOKEN";

#[derive(Clone, Debug, clap::Args)]
pub struct DrainArgs {
    #[command(flatten)]
    server: AdminServer,

    /// Keep connections open for this long after the proxy reports not ready, so that load balancers can notice it; up
    /// to 1h
    #[arg(long, value_name = "TIME", default_value = "5s")]
    delay: DurationValue,

    /// End the drain only after no request was in flight for this long, up to 1h
    #[arg(long, value_name = "TIME", default_value = "0s")]
    quiet: DurationValue,

    /// Wait at most this long for the end of the drain. The same limit applies to requests for /drained. The drain
    /// itself continues afterwards
    #[arg(long, value_name = "TIME", default_value = "1h")]
    timeout: DurationValue,

    /// After the timeout, wait this much longer for requests that end when the backend stops. Use this option if
    /// nothing else keeps the proxy running until then
    #[arg(long, value_name = "TIME", default_value = "0s")]
    linger: DurationValue,
}

#[derive(Clone, Debug, clap::Args)]
pub struct ProbeArgs {
    /// Check that the proxy runs (livez), or that it accepts requests and is not draining (readyz)
    #[arg(value_enum, default_value_t = Page::Livez)]
    page: Page,

    #[command(flatten)]
    server: AdminServer,

    /// Wait at most this long for a response
    #[arg(long, value_name = "TIME", default_value = "1s")]
    timeout: DurationValue,

    /// Repeat a failed check twice a second for up to this long
    #[arg(long, value_name = "TIME", default_value = "0s")]
    wait: DurationValue,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Page {
    Livez,
    Readyz,
}

#[derive(Clone, Debug, clap::Args)]
struct AdminServer {
    /// Connect to the admin port at this address: IP:PORT or NAME:PORT. For an address of all interfaces (0.0.0.0,
    /// [::]), loopback is used
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "TOKENGAUGE_ADMIN",
        default_value = "127.0.0.1:4001"
    )]
    admin: AdminAddress,
}

/// An address such as `127.0.0.1:4001` or `NAME:PORT`. The name is a DNS name, such as the name of a Kubernetes
/// Service.
#[derive(Clone, Debug)]
struct AdminAddress(String);

impl FromStr for AdminAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse() {
            return Ok(Self(reachable(address).to_string()));
        }
        let is_valid = |(host, port): (&str, &str)| {
            let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            // A host without letters is a mistyped IP address and not a name.
            let is_name = host.contains(char::is_alphabetic) && host.chars().all(is_allowed);
            is_name && port.parse::<u16>().is_ok()
        };
        if text.rsplit_once(':').is_some_and(is_valid) {
            return Ok(Self(text.to_owned()));
        }
        Err("write an IP address or a name, and a port, such as 127.0.0.1:4001")
    }
}

/// Returns the address to connect to if the server listens on `address`, which may be `0.0.0.0` or `[::]`. A proxy that
/// listens on `[::]` accepts IPv4 connections too, even on a host without IPv6.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) | IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
            Ipv4Addr::LOCALHOST.into()
        }
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, address.port())
}

pub(super) fn drain(
    args: &DrainArgs,
    environment: fn(&str) -> Option<String>,
) -> anyhow::Result<String> {
    let DrainArgs { server, delay, quiet, timeout, linger } = args;
    let request = |within: &DurationValue| AdminRequest {
        method: Method::POST,
        path: format!("/drain?delay={delay}&quiet={quiet}&within={within}"),
        timeout: within.0.saturating_add(DRAIN_RESPONSE_TIMEOUT),
        retry_for: Duration::ZERO,
        token: environment(TOKEN_VARIABLE),
    };
    match server.send(&request(timeout)) {
        // By now, requests for /drained have received their response.
        Err(_) if !linger.0.is_zero() => server.send(&request(linger)),
        response => response,
    }
}

pub(super) fn probe(
    args: &ProbeArgs,
    environment: fn(&str) -> Option<String>,
) -> anyhow::Result<String> {
    let ProbeArgs { page, server, timeout, wait } = args;
    let path = match page {
        Page::Livez => "/livez",
        Page::Readyz => "/readyz",
    };
    server.send(&AdminRequest {
        method: Method::GET,
        path: path.to_owned(),
        timeout: timeout.0,
        retry_for: wait.0,
        token: environment(TOKEN_VARIABLE),
    })
}

struct AdminRequest {
    method: Method,
    path: String,
    /// Time limit of one attempt.
    timeout: Duration,
    /// Time for which failed attempts are repeated.
    retry_for: Duration,
    token: Option<String>,
}

impl AdminServer {
    /// Sends the request and returns the body of a response with status 200. If all attempts fail, returns the last
    /// error.
    fn send(&self, request: &AdminRequest) -> anyhow::Result<String> {
        let AdminAddress(address) = &self.admin;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let response = runtime.block_on(async {
            let mut deadline = pin!(tokio::time::sleep(request.retry_for));
            loop {
                let response = request.attempt(address).await;
                if response.is_ok() {
                    return response;
                }
                tokio::select! {
                    biased;
                    () = &mut deadline => return response,
                    () = tokio::time::sleep(RETRY_INTERVAL) => {}
                }
            }
        });
        // The shutdown does not wait for a DNS query in progress.
        runtime.shutdown_background();
        response
    }
}

impl AdminRequest {
    async fn attempt(&self, address: &str) -> anyhow::Result<String> {
        let Self { path, timeout, .. } = self;
        let (status, body) = tokio::time::timeout(*timeout, self.exchange(address))
            .await
            .with_context(|| format!("no response from {address}{path} within {timeout:?}"))??;
        if status != StatusCode::OK {
            bail!("{address}{path} returned {}: {body}", status.as_u16());
        }
        Ok(body)
    }

    async fn exchange(&self, address: &str) -> anyhow::Result<(StatusCode, String)> {
        let stream = TcpStream::connect(address).await.with_context(|| {
            format!("cannot connect to {address}; set --admin to the proxy's admin port")
        })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(&self.path)
            .header(header::HOST, address)
            .header(header::CONNECTION, "close");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Empty::<Bytes>::new())?;
        let incomplete = || format!("{address} closed the connection without a response");
        let response = sender.send_request(request).await.with_context(incomplete)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
        let body = body.map_err(anyhow::Error::from_boxed).with_context(incomplete)?;
        Ok((status, String::from_utf8_lossy(&body.to_bytes()).trim_end().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connects_to_loopback_for_all_interfaces() {
        for (text, expected) in [
            ("0.0.0.0:4001", "127.0.0.1:4001"),
            ("[::]:4001", "127.0.0.1:4001"),
            ("[::1]:4001", "[::1]:4001"),
            ("127.0.0.1:5", "127.0.0.1:5"),
            ("10.0.0.7:4001", "10.0.0.7:4001"),
            ("localhost:4001", "localhost:4001"),
            ("tokengauge-admin.chat.svc:4001", "tokengauge-admin.chat.svc:4001"),
        ] {
            assert_eq!(text.parse::<AdminAddress>().unwrap().0, expected);
        }
    }

    #[test]
    fn rejects_invalid_addresses() {
        for text in [
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
            assert!(text.parse::<AdminAddress>().is_err(), "{text}");
        }
    }
}
