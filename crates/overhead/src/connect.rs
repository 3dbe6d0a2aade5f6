//! Connections to a server: with or without TLS, HTTP/1.1 or HTTP/2.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, bail};
use http::{Request, Response, Uri};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::tls;

/// Where to connect, and how.
#[derive(Clone, Debug, clap::Args)]
pub struct Server {
    /// http:// or https://, an IP address and a port
    #[arg(long)]
    pub url: Uri,
    /// HTTP/2: by ALPN over TLS, else with prior knowledge
    #[arg(long)]
    pub http2: bool,
    /// PEM file with the certificate of an https:// server
    #[arg(long)]
    pub certificate: Option<PathBuf>,
}

/// Opens connections to one server.
#[derive(Clone)]
pub struct Connector {
    address: SocketAddr,
    tls: Option<TlsConnector>,
    pub http2: bool,
    /// `http://127.0.0.1:8080`
    pub origin: String,
}

/// Sends requests on one connection. Dropping the sender of an HTTP/1.1 connection closes the connection.
pub enum Sender<B> {
    Http1(http1::SendRequest<B>),
    Http2(http2::SendRequest<B>),
}

impl Connector {
    pub fn new(server: &Server) -> anyhow::Result<Self> {
        let authority = server.url.authority().context("the URL has no host")?;
        let address = authority
            .as_str()
            .parse()
            .with_context(|| format!("\"{authority}\" is not IP:PORT"))?;
        let protocol = if server.http2 { "h2" } else { "http/1.1" };
        let tls = match (server.url.scheme_str(), &server.certificate) {
            (Some("https"), Some(file)) => Some(tls::connector(file, protocol)?),
            (Some("https"), None) => bail!("https:// needs --certificate"),
            _ => None,
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        Ok(Self { address, tls, http2: server.http2, origin: format!("{scheme}://{authority}") })
    }

    pub async fn connect<B>(&self) -> anyhow::Result<Sender<B>>
    where
        B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => self.handshake(stream).await,
            Some(tls) => {
                let name = ServerName::try_from(tls::SERVER_NAME)?;
                self.handshake(tls.connect(name, stream).await?).await
            }
        }
    }

    async fn handshake<S, B>(&self, stream: S) -> anyhow::Result<Sender<B>>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        // A connection's error also fails its requests, which report it.
        let stream = TokioIo::new(stream);
        if self.http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
            tokio::spawn(async move { drop(connection.await) });
            Ok(Sender::Http2(sender))
        } else {
            let (sender, connection) = http1::handshake(stream).await?;
            tokio::spawn(async move { drop(connection.await) });
            Ok(Sender::Http1(sender))
        }
    }
}

impl<B: Body + 'static> Sender<B> {
    pub async fn send(&mut self, request: Request<B>) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::Http1(sender) => sender.send_request(request).await,
            Self::Http2(sender) => sender.send_request(request).await,
        }
    }

    /// Waits until the connection can take a request.
    pub async fn ready(&mut self) -> hyper::Result<()> {
        match self {
            Self::Http1(sender) => sender.ready().await,
            Self::Http2(sender) => sender.ready().await,
        }
    }
}
