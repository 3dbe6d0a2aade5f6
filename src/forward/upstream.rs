//! One upstream: its pool of idle connections, and new connections.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::buffered_body::Upload;
use super::connect::{self, Connector};
use super::http1::Http1Connection;
use super::{Config, Protocol};
use tokengauge_types::clock;
use tokengauge_types::event::ConnectTimings;
use tokengauge_types::tcp::TcpConnection;

pub type Http2 = http2::SendRequest<Upload>;

/// The HTTP/2 connection that all streams share, and its TCP connection.
type Shared = (Http2, Option<Arc<TcpConnection>>);

/// One upstream: its settings and connections. All exchanges with the upstream share this value.
#[derive(Debug)]
pub struct Upstream {
    pub(super) config: Config,
    pub(super) connector: Connector,
    /// Value of the `Host` header, unless the client's `Host` is preserved.
    pub(super) host: HeaderValue,
    /// Idle connections, with the most recently used at the back. The most recently used connection is taken first, so
    /// that surplus connections reach their idle timeout.
    idle: Mutex<VecDeque<Box<Http1Connection>>>,
    /// The HTTP/2 connection that all streams share. The lock is held while connecting, so that a burst of requests
    /// opens only one connection.
    http2: tokio::sync::Mutex<Option<Shared>>,
}

/// A connection that is ready for a request.
pub enum Channel {
    Http1(Box<Http1Connection>),
    Http2(Http2),
}

impl Upstream {
    pub fn new(config: Config) -> Result<Arc<Self>, connect::SetupError> {
        let connector = Connector::new(&config)?;
        let host = connect::host_header(&config)?;
        Ok(Arc::new(Self {
            config,
            connector,
            host,
            idle: Mutex::default(),
            http2: tokio::sync::Mutex::default(),
        }))
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns whether requests are sent to an HTTP proxy instead of the upstream. For `https`, the proxy opens a
    /// tunnel instead.
    pub(super) fn is_behind_plain_proxy(&self) -> bool {
        !self.config.tls && self.connector.proxy.is_some()
    }

    pub(super) fn proxy_authorization(&self) -> Option<&HeaderValue> {
        let proxy = self.connector.proxy.as_ref().filter(|_| !self.config.tls)?;
        proxy.authorization.as_ref()
    }

    /// Takes a usable idle connection from the pool.
    pub(super) fn take_idle(&self) -> Option<Box<Http1Connection>> {
        let oldest = clock::now().saturating_sub(self.config.pool_idle);
        loop {
            let mut connection = self.idle().pop_back()?;
            if connection.idle_since >= oldest && connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// Returns `connection` to the pool, if the connection is still usable.
    pub(super) fn keep(self: &Arc<Self>, mut connection: Box<Http1Connection>) {
        let is_pooling = self.config.pool_size > 0 && !self.config.pool_idle.is_zero();
        if !is_pooling || !connection.is_usable() {
            return;
        }
        connection.idle_since = clock::now();
        let mut idle = self.idle();
        let was_empty = idle.is_empty();
        let surplus = (idle.len() >= self.config.pool_size).then(|| idle.pop_front());
        idle.push_back(connection);
        drop(idle);
        drop(surplus);
        if was_empty {
            tokio::spawn(expire_idle(Arc::clone(self)));
        }
    }

    /// Opens a new HTTP/1.1 connection, or returns the shared HTTP/2 connection.
    pub(super) async fn connect(&self) -> Result<(Channel, ConnectTimings), connect::Error> {
        match self.config.protocol {
            Protocol::Http1 => {
                let (stream, connected) = self.connector.connect().await?;
                let tcp = connected.connection.clone();
                let connection = Http1Connection::handshake(stream, tcp).await?;
                Ok((Channel::Http1(connection), connected))
            }
            Protocol::Http2 => self.connect_http2().await,
        }
    }

    async fn connect_http2(&self) -> Result<(Channel, ConnectTimings), connect::Error> {
        let (mut shared, wait) = self.shared().await;
        if let Some((sender, connection)) = &*shared
            && !sender.is_closed()
        {
            let connected = ConnectTimings {
                reused: true,
                wait,
                connection: connection.clone(),
                ..ConnectTimings::default()
            };
            return Ok((Channel::Http2(sender.clone()), connected));
        }
        let (stream, connected) = self.connector.connect().await?;
        let connected = ConnectTimings { wait, ..connected };
        if self.config.tls && !stream.chose_http2() {
            let tcp = connected.connection.clone();
            let connection = Http1Connection::handshake(stream, tcp).await?;
            return Ok((Channel::Http1(connection), connected));
        }
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(HTTP2_STREAM_WINDOW)
            .initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
            .keep_alive_interval(HTTP2_PING)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(connection);
        *shared = Some((sender.clone(), connected.connection.clone()));
        Ok((Channel::Http2(sender), connected))
    }

    /// Locks the shared HTTP/2 connection. Also returns how long the request waited for another request to open the
    /// connection.
    async fn shared(&self) -> (tokio::sync::MutexGuard<'_, Option<Shared>>, Option<Duration>) {
        if let Ok(shared) = self.http2.try_lock() {
            return (shared, None);
        }
        let begun = clock::now();
        let shared = self.http2.lock().await;
        (shared, Some(clock::now() - begun))
    }

    /// Closes pooled connections that exceeded the idle timeout. Returns the number of remaining connections.
    fn expire(&self) -> usize {
        let oldest = clock::now().saturating_sub(self.config.pool_idle);
        let mut idle = self.idle();
        let old = idle.partition_point(|connection| connection.idle_since < oldest);
        let expired: Vec<_> = idle.drain(..old).collect();
        let left = idle.len();
        drop(idle);
        drop(expired);
        left
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Box<Http1Connection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Flow-control window of one HTTP/2 stream, in bytes. The window of the connection is many times larger, so that a
/// slow reader of one stream does not stop the others.
const HTTP2_STREAM_WINDOW: u32 = 1024 * 1024;
const HTTP2_CONNECTION_WINDOW: u32 = 64 * 1024 * 1024;
/// Interval of HTTP/2 pings. A dead network path is detected after this interval and hyper's ping timeout of 20 s.
const HTTP2_PING: Duration = Duration::from_secs(30);

/// Closes expired connections periodically. Ends when the pool holds no idle connection.
async fn expire_idle(upstream: Arc<Upstream>) {
    loop {
        tokio::time::sleep(upstream.config.pool_idle).await;
        if upstream.expire() == 0 {
            return;
        }
    }
}
