//! Opens TCP connections to the collector, directly or through an HTTP proxy.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::config::SignalConfig;
use crate::proxy::Proxy;

/// Time without traffic after which the kernel probes an idle connection, and the interval of the probes. A connection
/// is then closed if its path has failed silently, for example because a NAT gateway has lost its state.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Maximum time that sent bytes may stay unacknowledged until the kernel closes the connection. The kernel's default is
/// about 15 minutes.
#[cfg(target_os = "linux")]
const MAX_UNACKNOWLEDGED: Duration = Duration::from_secs(20);

/// Opens connections to one collector.
#[derive(Clone, Debug)]
pub(super) struct Dialer {
    tcp: HttpConnector,
    proxy: Option<Proxy>,
    /// Whether the proxy opens tunnels. Otherwise, it receives the requests, as HTTP clients do without TLS.
    tunnels: bool,
    host: String,
    port: u16,
}

impl Dialer {
    /// Creates a dialer for the endpoint of `config`. `tunnels` is whether a proxy must open a tunnel.
    pub(super) fn new(config: &SignalConfig, tunnels: bool) -> Self {
        let mut tcp = HttpConnector::new();
        // The connectors for TLS use this connector, too.
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEP_ALIVE));
        tcp.set_keepalive_interval(Some(KEEP_ALIVE));
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(MAX_UNACKNOWLEDGED));
        let (host, port) = config.host_and_port().unwrap_or_default();
        Self { tcp, proxy: config.proxy.clone(), tunnels, host, port }
    }
}

type BoxError = Box<dyn Error + Send + Sync>;

impl Service<Uri> for Dialer {
    type Response = CollectorStream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<CollectorStream, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, collector: Uri) -> Self::Future {
        let Self { mut tcp, proxy, tunnels, host, port } = self.clone();
        Box::pin(async move {
            let Some(proxy) = proxy else {
                return Ok(CollectorStream {
                    tcp: tcp.call(collector).await?,
                    is_forwarded: false,
                });
            };
            let authority = match proxy.host.contains(':') {
                true => format!("[{}]:{}", proxy.host, proxy.port),
                false => format!("{}:{}", proxy.host, proxy.port),
            };
            let mut stream = tcp.call(format!("http://{authority}").parse()?).await?;
            if tunnels {
                let mut opened = stream.into_inner();
                proxy.tunnel(&mut opened, &host, port).await?;
                stream = TokioIo::new(opened);
            }
            Ok(CollectorStream { tcp: stream, is_forwarded: !tunnels })
        })
    }
}

/// A connection to the collector, or to the proxy that forwards requests to the collector.
#[derive(Debug)]
pub(super) struct CollectorStream {
    tcp: TokioIo<TcpStream>,
    /// Whether a proxy receives the requests. Their first line then contains the whole URL.
    is_forwarded: bool,
}

impl Connection for CollectorStream {
    fn connected(&self) -> Connected {
        self.tcp.inner().connected().proxy(self.is_forwarded)
    }
}

impl Read for CollectorStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(context, buffer)
    }
}

impl Write for CollectorStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}
