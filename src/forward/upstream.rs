//! One upstream: its settings, its connections and new connections.

use std::sync::Arc;

use http::{HeaderValue, StatusCode};

use super::connect::{self, Connector};
use super::error::ForwardError;
use super::error_responses::Transition;
use super::health::UpstreamHealth;
use super::http1::Http1Connection;
use super::http2::{Http2Pool, UpstreamConnection};
use super::outage::Outage;
use super::pool::Pool;
use super::{Protocol, UpstreamConfig};
use tokengauge_telemetry::self_telemetry::{self, ErrorResponseCounts};
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::event::ConnectTimings;

/// One upstream: its settings and connections. All requests to the upstream share this value.
#[derive(Debug)]
pub struct Upstream {
    connector: Arc<Connector>,
    /// The upstream's value of the `Host` header, unless the client's `Host` is forwarded.
    pub(super) host: HeaderValue,
    pub(super) pool: Arc<Pool>,
    http2: Arc<Http2Pool>,
    pub(super) health: Arc<UpstreamHealth>,
}

impl Upstream {
    pub fn new(config: UpstreamConfig) -> Result<Arc<Self>, connect::SetupError> {
        let health = UpstreamHealth::new(config.name.clone());
        Self::with_health(config, health)
    }

    /// Creates an upstream that continues the counters of an earlier one with the same name.
    pub(super) fn with_health(
        config: UpstreamConfig,
        health: Arc<UpstreamHealth>,
    ) -> Result<Arc<Self>, connect::SetupError> {
        let connector = Connector::new(config)?;
        let host = connect::host_header(&connector.config)?;
        Ok(Arc::new(Self {
            pool: Arc::new(Pool::new(&connector.config, Arc::clone(&health))),
            http2: Http2Pool::new(&connector.config),
            connector: Arc::new(connector),
            host,
            health,
        }))
    }

    pub fn config(&self) -> &UpstreamConfig {
        &self.connector.config
    }

    /// Records a response. Logs the end of an outage, and the start and the end of a series of error responses.
    pub(super) fn log_response(&self, status: StatusCode, now: impl Fn() -> MonotonicInstant) {
        let name = self.health.name();
        if let Some(Outage { start, failed }) = self.health.outages.record_response() {
            self_telemetry::upstream_recovered(name, &self.address(), now() - start, failed);
        }
        self.log_transitions(self.health.error_responses.record(status, now));
    }

    /// Records a response whose body ended early, after [`log_response`](Self::log_response).
    pub(super) fn log_broken_body(&self, at: MonotonicInstant) {
        self.log_transitions(self.health.error_responses.record_broken_body(at));
    }

    fn log_transitions(&self, transitions: impl Iterator<Item = Transition>) {
        let name = self.health.name();
        for Transition { kind, is_end, duration, errors, responses } in transitions {
            let counts = ErrorResponseCounts { status: kind.as_str(), duration, errors, responses };
            match is_end {
                false => self_telemetry::error_responses_started(name, &self.address(), counts),
                true => self_telemetry::error_responses_ended(name, &self.address(), counts),
            }
        }
    }

    /// Records a request that got no response. Logs a warning, at most one per minute.
    pub(super) fn log_failure(&self, error: &ForwardError) {
        if !error.is_upstream_failure() {
            return;
        }
        if let Some(failed) = self.health.outages.record_failure(clock::now()) {
            let problem = error.problem();
            self_telemetry::upstream_failed(self.health.name(), &self.address(), &problem, failed);
        }
    }

    /// Returns the address of the upstream, and of its proxy, for the log.
    fn address(&self) -> String {
        let UpstreamConfig { host, port, proxy, .. } = self.config();
        match proxy {
            None => format!("{host}:{port}"),
            Some(proxy) => format!("{host}:{port} through {}:{}", proxy.host, proxy.port),
        }
    }

    /// Returns whether requests are sent to an HTTP proxy instead of the upstream. False for `https` upstreams, because
    /// the proxy only opens a tunnel to them.
    pub(super) fn is_behind_plain_proxy(&self) -> bool {
        !self.config().tls && self.config().proxy.is_some()
    }

    pub(super) fn proxy_authorization(&self) -> Option<&HeaderValue> {
        let proxy = self.config().proxy.as_ref().filter(|_| !self.config().tls)?;
        proxy.authorization.as_ref()
    }

    /// Opens a connection as for a request, and closes it.
    ///
    /// # Errors
    /// Returns the step that failed. The caller limits the time if the upstream has no connect timeout.
    pub async fn try_connection(&self) -> Result<ConnectTimings, connect::ConnectError> {
        self.connect().await.map(|(_, timings)| timings)
    }

    /// Opens an HTTP/1.1 connection, or takes one stream of an HTTP/2 connection.
    pub(super) async fn connect(
        &self,
    ) -> Result<(UpstreamConnection, ConnectTimings), connect::ConnectError> {
        match self.config().protocol {
            Protocol::Http1 => {
                let (stream, connected) = self.connector.connect().await?;
                let limits = self.config().header_limits;
                let connection = Http1Connection::handshake(stream, &connected, limits).await?;
                Ok((UpstreamConnection::Http1(connection), connected))
            }
            Protocol::Http2 => self.http2.acquire(&self.connector).await,
        }
    }
}
