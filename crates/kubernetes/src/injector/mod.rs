//! The mutating admission webhook: gives pods their sidecar when they are created. The only part of `kube/` with input
//! and output; what becomes of a pod is decided by [`super::inject`], as on the command line.
//!
//! - `server` takes reviews over HTTPS, with bounds, and answers health and metrics;
//! - `authority`, `keeper`: certificates of its own, kept in a Secret and announced in the webhook configuration;
//! - `mounted`: certificates from files;
//! - `serving`: which certificate new connections get;
//! - `events`, `metrics`: what it says about what it did; `api`: how it speaks with the API server.

pub mod api;
pub mod authority;
mod events;
mod instant;
mod keeper;
pub mod log;
mod metrics;
mod mounted;
mod server;
mod serving;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

pub use self::keeper::SelfMade;
pub use self::metrics::names;
pub use self::mounted::Files;

use self::api::Api;
use self::events::Events;
use self::metrics::Metrics;
use self::server::{Desk, Health};
use self::serving::Serving;
use super::inject::Settings;

/// How long reviews that are under way may take when it ends. The API server waits for none longer than its webhook's
/// timeout, 5 s in the chart and 30 s at the most.
const FINISH: Duration = Duration::from_secs(10);

/// What the injector is told.
#[derive(Debug)]
pub struct Config {
    /// Where the API server sends reviews.
    pub listen: SocketAddr,
    /// Health and metrics, in the clear.
    pub admin: SocketAddr,
    pub certificate: Certificate,
    /// Whom events are sent to; `None` for nobody.
    pub events: Option<api::Server>,
    /// Between being unready and no longer accepting: until every API server has heard of it.
    pub shutdown_delay: Duration,
    pub settings: Settings,
}

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub enum Certificate {
    Mounted(Files),
    SelfMade(SelfMade, api::Server),
}

/// Why the injector cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Listen(#[from] tokengauge_listen::Error),
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// The running injector.
#[derive(Debug)]
pub struct Injector {
    address: SocketAddr,
    admin: SocketAddr,
    open: Arc<AtomicBool>,
    shutdown_delay: Duration,
    reviews: server::Running,
    pages: server::Running,
    certificates: JoinHandle<()>,
}

impl Injector {
    /// Opens both ports; ready as soon as there is a certificate.
    ///
    /// # Errors
    /// Where a port cannot be had.
    pub fn start(config: Config) -> Result<Self, Error> {
        let metrics = Arc::new(Metrics::default());
        let serving = Arc::new(Serving::default());
        let open = Arc::new(AtomicBool::new(true));
        let events = config.events.map(|server| Arc::new(Api::new(server)));
        let events = Events::start(events, Arc::clone(&metrics));
        let desk = Desk::new(config.settings, events, Arc::clone(&metrics));
        let reviews = server::reviews(config.listen, serving.tls()?, Arc::new(desk))?;
        let health = Health {
            open: Arc::clone(&open),
            serving: Arc::clone(&serving),
            metrics: Arc::clone(&metrics),
        };
        let pages = server::pages(config.admin, Arc::new(health))?;
        let certificates = match config.certificate {
            Certificate::Mounted(files) => tokio::spawn(mounted::watch(files, serving, metrics)),
            Certificate::SelfMade(settings, server) => {
                let api = Arc::new(Api::new(server));
                tokio::spawn(keeper::keep(settings, api, serving, metrics))
            }
        };
        Ok(Self {
            address: reviews.address,
            admin: pages.address,
            open,
            shutdown_delay: config.shutdown_delay,
            reviews,
            pages,
            certificates,
        })
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub const fn admin_addr(&self) -> SocketAddr {
        self.admin
    }

    /// Unready → serves on for the delay → no new connections → open reviews finish → the end.
    pub async fn shutdown(self) {
        self.open.store(false, Ordering::Release);
        log::InjectorStopping { delay: self.shutdown_delay }.emit();
        tokio::time::sleep(self.shutdown_delay).await;
        self.reviews.stop(FINISH).await;
        self.certificates.abort();
        self.pages.stop(Duration::ZERO).await;
    }
}
