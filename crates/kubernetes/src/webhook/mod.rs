//! The mutating admission webhook, which adds sidecars to pods when the pods are created.
//!
//! [`crate::inject`] computes the changes to a pod. This module adds the HTTPS server, its certificate, events and
//! metrics.

mod api;
mod certificate;
mod events;
mod metrics;
pub mod review;
mod rotator;
mod self_signed;
mod server;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

pub use self::api::{ApiServer, SERVICE_ACCOUNT};
pub use self::certificate::CertificateFiles;
pub use self::metrics::metric_names;
pub use self::rotator::SelfSigned;
pub use self::self_signed::ServiceName;

use self::api::ApiClient;
use self::certificate::CertificateResolver;
use self::events::EventRecorder;
use self::metrics::Metrics;
use self::server::{AdminService, ServerHandle, WebhookService};
use crate::inject::Settings;

/// Time limit for open reviews at shutdown. The API server waits 5 s for a review with the settings of the chart, and
/// never longer than 30 s.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Config {
    /// Address of the HTTPS server for reviews.
    pub listen: SocketAddr,
    /// Address of the HTTP server for probes and metrics.
    pub admin: SocketAddr,
    pub certificate: CertificateSource,
    /// API server to which events are sent. `None` disables events.
    pub events: Option<ApiServer>,
    /// Time from the failing readiness probe to the end of the listener. During this time, the API servers switch to
    /// another replica.
    pub shutdown_delay: Duration,
    pub settings: Settings,
}

#[derive(Clone, Debug)]
pub enum CertificateSource {
    Files(CertificateFiles),
    SelfSigned(SelfSigned, ApiServer),
}

/// Reason why the webhook cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Listen(#[from] tokengauge_listen::ListenError),
    #[error("cannot configure TLS")]
    Tls(#[from] rustls::Error),
}

#[derive(Debug)]
pub struct WebhookServer {
    accepts_reviews: Arc<AtomicBool>,
    shutdown_delay: Duration,
    reviews: ServerHandle,
    admin: ServerHandle,
    certificates: JoinHandle<()>,
}

impl WebhookServer {
    /// Opens the ports for reviews and for probes. The server becomes ready when it has a certificate.
    ///
    /// # Errors
    /// Fails if a port cannot be opened.
    pub fn start(config: Config) -> Result<Self, Error> {
        let metrics = Arc::new(Metrics::default());
        let resolver = Arc::new(CertificateResolver::default());
        let accepts_reviews = Arc::new(AtomicBool::new(true));
        let events = config.events.map(ApiClient::new);
        let events = EventRecorder::start(events, Arc::clone(&metrics));
        let webhook = WebhookService::new(config.settings, events, Arc::clone(&metrics));
        let reviews = server::serve_reviews(config.listen, resolver.tls()?, Arc::new(webhook))?;
        let admin = AdminService {
            accepts_reviews: Arc::clone(&accepts_reviews),
            resolver: Arc::clone(&resolver),
            metrics: Arc::clone(&metrics),
        };
        let admin = server::serve_admin(config.admin, Arc::new(admin))?;
        let certificates = match config.certificate {
            CertificateSource::Files(files) => {
                tokio::spawn(certificate::watch(files, resolver, metrics))
            }
            CertificateSource::SelfSigned(settings, server) => {
                tokio::spawn(rotator::run(settings, ApiClient::new(server), resolver, metrics))
            }
        };
        let shutdown_delay = config.shutdown_delay;
        Ok(Self { accepts_reviews, shutdown_delay, reviews, admin, certificates })
    }

    pub const fn address(&self) -> SocketAddr {
        self.reviews.address
    }

    pub const fn admin_addr(&self) -> SocketAddr {
        self.admin.address
    }

    /// Shuts the server down. First fails the readiness probe and waits for the shutdown delay. Then stops accepting
    /// connections and waits for open reviews.
    pub async fn shutdown(self) {
        self.accepts_reviews.store(false, Ordering::Release);
        tracing::info!(delay = ?self.shutdown_delay, "stopping");
        tokio::time::sleep(self.shutdown_delay).await;
        self.reviews.stop(DRAIN_TIMEOUT).await;
        self.certificates.abort();
        self.admin.stop(Duration::ZERO).await;
    }
}
