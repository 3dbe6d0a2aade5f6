//! Asking the admin port of a proxy that runs on this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::config::value::Socket;

/// What is asked for here is answered by a line.
const LONGEST_ANSWER: usize = 64 << 10;

/// The variable that holds the admin port's bearer token, as for the proxy itself.
const TOKEN_VARIABLE: &str = "TOKENGAUGE_ADMIN_TOKEN";

/// Where the proxy's admin port is.
#[derive(Clone, Debug, clap::Args)]
pub struct Where {
    /// The admin port of the proxy: IP:PORT. Where it listens on all interfaces (0.0.0.0, [::]), loopback is asked
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "TOKENGAUGE_ADMIN",
        default_value = "127.0.0.1:4001"
    )]
    admin: Socket,
}

impl Where {
    fn address(&self) -> SocketAddr {
        let Socket(address) = self.admin;
        let ip = match address.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        SocketAddr::new(ip, address.port())
    }

    /// Asks for `path`; the line that is answered with 200, within `limit`. Needs no runtime.
    ///
    /// # Errors
    /// Where nothing else than 200 is answered, or nothing in time.
    pub fn ask(
        &self,
        method: Method,
        path: &str,
        limit: Duration,
        environment: fn(&str) -> Option<String>,
    ) -> anyhow::Result<String> {
        let address = self.address();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let answered = runtime.block_on(async {
            let asking = exchange(address, method, path, environment(TOKEN_VARIABLE));
            tokio::time::timeout(limit, asking).await
        });
        let (status, text) = answered
            .with_context(|| format!("{address}{path} has not answered within {limit:?}"))??;
        if status != StatusCode::OK {
            bail!("{address}{path} answers {}: {text}", status.as_u16());
        }
        Ok(text)
    }
}

async fn exchange(
    address: SocketAddr,
    method: Method,
    path: &str,
    token: Option<String>,
) -> anyhow::Result<(StatusCode, String)> {
    let stream = TcpStream::connect(address).await.with_context(|| {
        format!("nobody listens on {address}; --admin says where the proxy does")
    })?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, address.to_string())
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
    let body = body
        .map_err(anyhow::Error::from_boxed)
        .with_context(broke_off)?;
    let text = String::from_utf8_lossy(&body.to_bytes())
        .trim_end()
        .to_owned();
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
        ] {
            let admin = said.parse().unwrap();
            assert_eq!(Where { admin }.address().to_string(), asked);
        }
    }
}
