//! One upstream: its idle connections, and how a new one is made.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::connect::{self, Connector};
use super::http1::Http1Connection;
use super::{Config, Protocol, Upload};
use tokengauge_types::clock;
use tokengauge_types::event::{ConnectTimings, UpstreamFailure};
use tokengauge_types::tcp::TcpConnection;

pub(super) type Http2 = http2::SendRequest<Upload>;

/// The connection that all streams share, and its ends.
type Shared = (Http2, Option<Arc<TcpConnection>>);

/// One upstream, shared by all exchanges that go there.
#[derive(Debug)]
pub struct Upstream {
    pub(super) config: Config,
    pub(super) connector: Connector,
    /// What is sent as `Host` unless the client's is kept.
    pub(super) host: HeaderValue,
    /// Idle links, the one used last at the back: it is taken first, so that the others can grow old and be closed.
    idle: Mutex<VecDeque<Box<Http1Connection>>>,
    /// The one connection all streams share where HTTP/2 is spoken. Locked while connecting: a burst makes one only.
    http2: tokio::sync::Mutex<Option<Shared>>,
}

/// A connection in hand.
pub(super) enum Channel {
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

    /// Whether requests go to a proxy as they are: for `https` it is asked for a tunnel instead.
    pub(super) fn speaks_to_proxy(&self) -> bool {
        !self.config.tls && self.connector.via.is_some()
    }

    pub(super) fn proxy_authorization(&self) -> Option<&HeaderValue> {
        let via = self.connector.via.as_ref().filter(|_| !self.config.tls)?;
        via.authorization.as_ref()
    }

    /// An idle link that is fit, else none.
    pub(super) fn take_idle(&self) -> Option<Box<Http1Connection>> {
        let oldest = clock::now().saturating_sub(self.config.pool_idle);
        loop {
            let mut link = self.idle().pop_back()?;
            if link.idle_since >= oldest && link.is_fit() {
                return Some(link);
            }
        }
    }

    /// Keeps `link` for the next exchange, if it is fit for one.
    pub(super) fn keep(self: &Arc<Self>, mut link: Box<Http1Connection>) {
        if self.config.pool_size == 0 || self.config.pool_idle.is_zero() || !link.is_fit() {
            return;
        }
        link.idle_since = clock::now();
        let mut idle = self.idle();
        let first = idle.is_empty();
        let surplus = (idle.len() >= self.config.pool_size).then(|| idle.pop_front());
        idle.push_back(link);
        drop(idle);
        drop(surplus);
        if first {
            tokio::spawn(sweep(Arc::clone(self)));
        }
    }

    /// A new connection.
    pub(super) async fn connect(&self) -> Result<(Channel, ConnectTimings), connect::Error> {
        match self.config.protocol {
            Protocol::Http1 => {
                let (wire, connected) = self.connector.connect().await?;
                let link = Http1Connection::over(wire, connected.connection.clone())
                    .await
                    .map_err(|error| protocol_error(&error))?;
                Ok((Channel::Http1(link), connected))
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
        let (wire, connected) = self.connector.connect().await?;
        let connected = ConnectTimings { wait, ..connected };
        if self.config.tls && !wire.chose_http2() {
            let link = Http1Connection::over(wire, connected.connection.clone())
                .await
                .map_err(|error| protocol_error(&error))?;
            return Ok((Channel::Http1(link), connected));
        }
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(HTTP2_STREAM_WINDOW)
            .initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
            .keep_alive_interval(HTTP2_PING)
            .handshake(TokioIo::new(wire))
            .await
            .map_err(|error| protocol_error(&error))?;
        tokio::spawn(connection);
        *shared = Some((sender.clone(), connected.connection.clone()));
        Ok((Channel::Http2(sender), connected))
    }

    /// The shared connection, and how long another exchange that was making it was waited for.
    async fn shared(&self) -> (tokio::sync::MutexGuard<'_, Option<Shared>>, Option<Duration>) {
        if let Ok(shared) = self.http2.try_lock() {
            return (shared, None);
        }
        let begun = clock::now();
        let shared = self.http2.lock().await;
        (shared, Some(clock::now() - begun))
    }

    /// Closes what has been idle for too long; the number left.
    fn expire(&self) -> usize {
        let oldest = clock::now().saturating_sub(self.config.pool_idle);
        let mut idle = self.idle();
        let old = idle.partition_point(|link| link.idle_since < oldest);
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

/// A slow reader of one stream must not stop the others: the connection's window is many streams wide.
const HTTP2_STREAM_WINDOW: u32 = 1024 * 1024;
const HTTP2_CONNECTION_WINDOW: u32 = 64 * 1024 * 1024;
/// A dead path is noticed within this and hyper's 20 s of patience.
const HTTP2_PING: Duration = Duration::from_secs(30);

/// Runs while there is an idle link, and so not at all beside a busy or a silent upstream.
async fn sweep(upstream: Arc<Upstream>) {
    loop {
        tokio::time::sleep(upstream.config.pool_idle).await;
        if upstream.expire() == 0 {
            return;
        }
    }
}

fn protocol_error(error: &hyper::Error) -> connect::Error {
    connect::Error::Failed(UpstreamFailure::Protocol, error.to_string())
}
