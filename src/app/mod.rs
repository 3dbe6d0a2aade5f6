//! Starts all parts of the proxy in order, owns their tasks, and stops the parts in reverse order.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::admin::{Admin, Drain, DrainStart, DrainTarget, Pages};
use crate::config::Config;
use crate::forward::{self, Forwarder, RouteTable};
use crate::scrape::{self, Scraper};
use crate::tcp::Kernel;
use tokengauge_listen::{Address, Connections, Listener, Workers};
use tokengauge_measure::load::RouteKey;
use tokengauge_measure::record::Record;
use tokengauge_observe::tee::{self, ObservationChannel};
use tokengauge_observe::{InFlightRequests, Observer, ObserverSettings, Sinks};
use tokengauge_telemetry::logs::LogEmitter;
use tokengauge_telemetry::self_telemetry::{self, Abandoned};
use tokengauge_telemetry::{
    Instruments, LineCounters, RequestLog, StateSnapshot, Telemetry, request_log,
};
use tokengauge_types::clock;
use tokengauge_types::event::RouteFacts;
use tokengauge_types::label::CardinalityLimiter;

mod console;
mod descriptors;
#[cfg(feature = "envoy")]
mod envoy;
mod listeners;
#[cfg(not(feature = "envoy"))]
mod no_envoy;
mod reloads;
mod routing;
mod services;
mod slo_state;
mod views;

use self::descriptors::DescriptorBudget;
#[cfg(feature = "envoy")]
use self::envoy::Envoy;
use self::listeners::bind_listeners;
#[cfg(not(feature = "envoy"))]
use self::no_envoy::Envoy;
use self::reloads::Reloads;
use self::routing::{backends, propagation, route_table, unrouted};
use self::services::Services;
use self::slo_state::{SloStateWriter, reserved_labels};

/// Maximum time for the last work of observer and exporters at shutdown. Kubernetes may kill a sidecar 2 s after
/// SIGTERM, if the grace period of the pod is over.
pub const FLUSH_TIMEOUT: Duration = Duration::from_millis(1_500);

/// The part of [`FLUSH_TIMEOUT`] in which the observer may process its backlog, beside the rest of the grace period.
/// Without overload, this takes some milliseconds. On a busy machine, the observer can need seconds, and the rest of the
/// grace period is free: no stream needs it.
const OBSERVER_TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum time that a shutdown waits for the end of aborted requests. Each needs one wake-up of a task, so 1 s is
/// enough even on a busy single core.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// The running proxy.
#[derive(Debug)]
pub struct App {
    /// The address of each listener, and whether it serves TLS.
    listeners: Vec<(Address, bool)>,
    admin: SocketAddr,
    heartbeats: Vec<JoinHandle<()>>,
    ready: Arc<AtomicBool>,
    stop: watch::Sender<bool>,
    listener_tasks: Vec<JoinHandle<Connections>>,
    admin_task: JoinHandle<()>,
    forwarder: Arc<Forwarder>,
    envoy: Envoy,
    routes: Arc<ArcSwap<RouteTable>>,
    descriptors: DescriptorBudget,
    reloads: Arc<Reloads>,
    config: Arc<ArcSwap<Config>>,
    #[expect(dead_code, reason = "the workers must run as long as connections are open")]
    workers: Workers,
    core: Core,
}

/// The parts for observation and export. They are separate from the servers, because they start earlier and stop later.
#[derive(Debug)]
struct Core {
    channel: Arc<ObservationChannel>,
    observer: Arc<Observer>,
    telemetry: Arc<Telemetry>,
    request_log: Arc<RequestLog>,
    scraper: Scraper,
    /// Writes error budgets to a file, so that they survive a restart. `None` if no file is configured.
    slo_state_writer: Option<SloStateWriter>,
    limiter: Arc<CardinalityLimiter>,
}

/// The result of a shutdown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ShutdownOutcome {
    /// Number of requests that were aborted at the end of the grace period.
    pub aborted: u64,
    /// Whether everything was saved in time: telemetry, request log and error budgets.
    pub flushed: bool,
}

/// Why the proxy cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Listen(#[from] tokengauge_listen::ListenError),
    #[error("admin port")]
    Admin(#[source] tokengauge_listen::ListenError),
    #[error(transparent)]
    Upstream(#[from] forward::SetupError),
    #[error(transparent)]
    Route(#[from] forward::RouteError),
    #[error(transparent)]
    Telemetry(#[from] tokengauge_telemetry::telemetry::StartError),
    #[error(transparent)]
    RequestLog(#[from] request_log::RequestLogError),
    #[error(transparent)]
    Scrape(#[from] scrape::ScraperStartError),
    #[error(transparent)]
    Budgets(#[from] slo_state::SloStateError),
    #[error("cannot start the observer thread")]
    Observer(#[source] std::io::Error),
}

impl App {
    /// Starts the proxy. The proxy accepts requests when this function returns, and serves them on `workers`.
    /// `log_lines` counts the lines of the process's log.
    ///
    /// # Errors
    /// Returns an error if a socket, a certificate or a thread is not available. No part is left running in this case.
    pub async fn start(
        config: Config,
        export: tokengauge_telemetry::TelemetryConfig,
        workers: Workers,
        log_lines: Arc<LineCounters>,
    ) -> Result<Self, StartError> {
        let (listeners, descriptors) = bind_listeners(&config)?;
        let routes = Arc::new(ArcSwap::from_pointee(route_table(&config, descriptors, None)?));
        let loads: Vec<_> = listeners.iter().map(Listener::load).collect();
        let propagation = propagation(&config, export.sampler);
        let drain_start = DrainStart::default();
        let start = drain_start.clone();
        let current_routes = Arc::clone(&routes);
        let certificates = listeners.iter().filter_map(Listener::tls_reloader).collect();
        let reloads = Arc::new(Reloads::new(certificates, &config));
        let status = Arc::clone(&reloads);
        let envoy = Envoy::prepare(&config);
        let envoy_counts = envoy.counts();
        let others = Box::new(move || StateSnapshot {
            envoy: envoy_counts(),
            upstreams: current_routes.load().upstream_counts(),
            draining: start.elapsed(),
            log: log_lines.counts(),
            ..status.snapshot(views::client_load(loads.iter().map(|load| load())))
        });
        let core = Core::start(&config, export, others)?;
        let forwarder = Forwarder::new(forward::Dependencies {
            routes: Arc::clone(&routes),
            channel: Arc::clone(&core.channel),
            unrouted: Arc::new(unrouted(&config)),
            propagation: propagation(),
        });
        let ready = Arc::new(AtomicBool::new(true));
        let config = Arc::new(ArcSwap::from_pointee(config));
        let drain = Drain::new(DrainTarget {
            ready: Arc::clone(&ready),
            start: drain_start,
            channel: Arc::clone(&core.channel),
            connections: listeners.iter().map(Listener::drain).collect(),
        });
        let admin = bind_admin(&config, &core, &ready, drain).await?;
        let addresses = listeners.iter().map(|it| (it.address(), it.has_tls())).collect();
        let stop = watch::Sender::new(false);
        let envoy = envoy.start(&core.channel, (&routes, &config), propagation, &ready);
        let services = Services { forwarder: &forwarder, envoy: &envoy };
        let listener_tasks = services.serve_all(listeners, &config.load(), &workers, &stop);
        Ok(Self {
            listeners: addresses,
            admin: admin.address(),
            ready,
            stop,
            listener_tasks,
            admin_task: tokio::spawn(admin.serve()),
            heartbeats: workers.spawn_on_each(|worker| core.observer.run_heartbeat(worker)),
            forwarder,
            envoy,
            routes,
            descriptors,
            reloads,
            config,
            workers,
            core,
        })
    }

    /// The address of the first TCP listener.
    pub fn listen_addr(&self) -> Option<SocketAddr> {
        self.listeners.iter().find_map(|(address, _)| match address {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        })
    }

    pub fn listeners(&self) -> &[(Address, bool)] {
        &self.listeners
    }

    /// Returns the emitter of OTLP log records. `None` if logs are not exported.
    pub fn log_emitter(&self) -> Option<&LogEmitter> {
        self.core.telemetry.logs()
    }

    pub const fn admin_addr(&self) -> SocketAddr {
        self.admin
    }

    /// Returns whether the admin port serves the console.
    pub fn has_console(&self) -> bool {
        cfg!(feature = "console") && self.config.load().file.console.enabled
    }

    /// Returns the observer, for programs that contain a proxy and show its state.
    pub const fn observer(&self) -> &Arc<Observer> {
        &self.core.observer
    }

    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Applies the reloadable settings of a new configuration. Connections stay open, and requests continue.
    ///
    /// # Errors
    /// If routes, upstreams or the request log cannot be set up, no setting changes. If the scrape thread cannot be
    /// started, only the settings of the request log have changed.
    pub fn reload(&self, new: Config) -> Result<(), StartError> {
        let new = new.as_applied_to(&self.config.load());
        let routes = route_table(&new, self.descriptors, Some(&self.routes.load()))?;
        self.core.request_log.reload(new.request_log.as_ref(), &new.fingerprint())?;
        self.core.scraper.reload(&new.scrapes)?;
        self.core.observer.with_current_state(|requests, at| {
            requests.apply_settings(at, observer_settings(&new));
        });
        let routes = Arc::new(routes);
        let previous = self.routes.swap(Arc::clone(&routes));
        routes.apply_limits(&previous);
        self.reloads.record_success(&new);
        self.config.store(Arc::new(new));
        self.envoy.reload();
        Ok(())
    }

    /// Records for the metrics that the previous configuration stays in use.
    pub fn record_failed_reload(&self) {
        self.reloads.record_failure();
    }

    /// Reads the certificates of the listeners and of the OTLP export again, for new connections. If a certificate
    /// cannot be used, logs the error and keeps the previous certificate. [`reload`](Self::reload) reads the certificates
    /// of upstreams and engines, which are part of the configuration.
    /// Returns whether all certificates of the listeners are in use.
    pub fn reload_certificates(&self) -> bool {
        let are_current = self.reloads.reload_certificates();
        self.core.telemetry.reload_certificates();
        are_current
    }

    /// Shuts the proxy down. `/readyz` fails, and no new connections are accepted. Open streams may continue for
    /// `grace_period`, and are then aborted. At the end, all telemetry is exported. If the streams end earlier, the
    /// observer may use the rest of `grace_period` to record them.
    pub async fn shutdown(self, grace_period: Duration) -> ShutdownOutcome {
        let Self {
            ready,
            stop,
            listener_tasks,
            admin_task,
            heartbeats,
            forwarder,
            envoy,
            core,
            ..
        } = self;
        ready.store(false, Ordering::Release);
        self_telemetry::shutdown_started(core.channel.open_exchanges(), grace_period);
        stop.send_replace(true);
        forwarder.drain();
        envoy.drain();
        let deadline = tokio::time::Instant::now() + grace_period;
        let mut open = Vec::new();
        for task in listener_tasks {
            let Ok(connections) = task.await else {
                continue;
            };
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            if connections.drain(left).await > 0 {
                open.push(connections);
            }
        }
        let aborted = core.channel.open_exchanges();
        forwarder.abort();
        for connections in open {
            connections.abort().await;
        }
        heartbeats.iter().for_each(JoinHandle::abort);
        core.await_last_exchanges().await;
        let rest = deadline.saturating_duration_since(tokio::time::Instant::now());
        let (observer, request_log) = (Arc::clone(&core.observer), Arc::clone(&core.request_log));
        let flushed = core.stop(rest).await;
        admin_task.abort();
        self_telemetry::stopped(Abandoned {
            exchanges_cut: aborted,
            requests_unrecorded: observer.unrecorded_requests(),
            log_lines_dropped: request_log.counts().dropped.iter().map(|(_, lines)| lines).sum(),
            telemetry_flushed: flushed,
        });
        ShutdownOutcome { aborted, flushed }
    }
}

impl Core {
    /// Starts observation and export. `others` returns the gauge values that come neither from the observer nor from
    /// the request log.
    fn start(
        config: &Config,
        export: tokengauge_telemetry::TelemetryConfig,
        others: Box<dyn Fn() -> StateSnapshot + Send + Sync>,
    ) -> Result<Self, StartError> {
        let channel = Arc::new(ObservationChannel::new(tee::ChannelConfig {
            budget_bytes: config.file.limits.observer_memory.get() / 2,
            max_requests: config.listeners.iter().map(|listener| listener.max_requests).sum(),
            ..tee::ChannelConfig::default()
        }));
        let cardinality_limits = config.file.cardinality_limits;
        let limiter =
            Arc::new(CardinalityLimiter::new(cardinality_limits, reserved_labels(config)));
        let observer_ref = Arc::new(OnceLock::new());
        let request_log =
            Arc::new(RequestLog::start(config.request_log.as_ref(), &config.fingerprint())?);
        let others = {
            let request_log = Arc::clone(&request_log);
            Box::new(move || StateSnapshot { request_log: request_log.counts(), ..others() })
        };
        let gauges = views::snapshot_source(&observer_ref, &limiter, others);
        let (instruments, collector) = Instruments::new(&export, cardinality_limits, gauges);
        let facts: Vec<Arc<RouteFacts>> = config.observed_routes().map(Arc::clone).collect();
        instruments.initialize_routes(&facts);
        let telemetry = Arc::new(Telemetry::start(export, collector)?);
        if let Some(emitter) = telemetry.logs() {
            request_log.export_to(emitter.clone());
        }
        let spans = Arc::clone(&telemetry);
        let lines = Arc::clone(&request_log);
        let is_first = AtomicBool::new(true);
        let record = Box::new(move |record: &Record| {
            if record.call.is_some() && is_first.swap(false, Ordering::Relaxed) {
                self_telemetry::first_call(record);
            }
            spans.record(record);
            lines.record(record);
        });
        let sinks = Sinks { instruments, record };
        let requests = requests(config, Arc::clone(&limiter), sinks)?;
        let observer = Arc::new(
            Observer::start(Arc::clone(&channel), requests).map_err(StartError::Observer)?,
        );
        let start_writer =
            |path: &PathBuf| SloStateWriter::start(path.clone(), Arc::clone(&observer));
        let slo_state_writer = config.slo_state().map(start_writer);
        drop(observer_ref.set(Arc::downgrade(&observer)));
        let scraper = Scraper::start(&config.scrapes, scrape_sink(&observer))?;
        Ok(Self {
            channel,
            observer,
            telemetry,
            request_log,
            scraper,
            slo_state_writer: slo_state_writer.transpose()?,
            limiter,
        })
    }

    /// Waits until every request has ended. HTTP/2 streams and upgraded connections end in separate tasks, shortly
    /// after their connection was aborted. Without this wait, the observer would stop before it receives their last
    /// events.
    async fn await_last_exchanges(&self) {
        let all_ended = async {
            while self.channel.open_exchanges() > 0 {
                tokio::time::sleep(ABORT_TIMEOUT / 1_000).await;
            }
        };
        drop(tokio::time::timeout(ABORT_TIMEOUT, all_ended).await);
    }

    /// Stops all parts. Runs on blocking threads, because stopping a part waits for its thread. `rest` is the rest of the
    /// grace period, which the observer may use.
    async fn stop(self, rest: Duration) -> bool {
        let Self { observer, telemetry, request_log, scraper, slo_state_writer, .. } = self;
        drop(scraper);
        let started = tokio::time::Instant::now();
        let limit = rest + OBSERVER_TIMEOUT;
        let observed = tokio::task::spawn_blocking(move || observer.stop(limit)).await;
        // The parts stop concurrently, so that all share the rest of the time.
        let left = (rest + FLUSH_TIMEOUT).saturating_sub(started.elapsed()).min(FLUSH_TIMEOUT);
        let (exported, logged, stored) = tokio::join!(
            tokio::task::spawn_blocking(move || telemetry.shutdown(left)),
            tokio::task::spawn_blocking(move || request_log.stop(left)),
            tokio::task::spawn_blocking(
                move || slo_state_writer.is_none_or(|writer| writer.stop(left))
            ),
        );
        let all = [observed, exported, logged, stored];
        all.into_iter().all(|done| done.unwrap_or(false))
    }
}

/// Returns the state of the observer before the first request.
fn requests(
    config: &Config,
    limiter: Arc<CardinalityLimiter>,
    sinks: Sinks,
) -> Result<InFlightRequests, slo_state::SloStateError> {
    let mut requests = InFlightRequests::new(observer_settings(config), limiter, sinks);
    enable_tcp_info(&mut requests);
    if cfg!(feature = "console") {
        console::enable(config, &mut requests);
    }
    if let Some(path) = config.slo_state() {
        slo_state::restore(path, &mut requests)?;
    }
    Ok(requests)
}

fn observer_settings(config: &Config) -> ObserverSettings {
    ObserverSettings {
        memory: config.file.limits.observer_memory.get() / 2,
        objectives: config.slos.clone(),
        routes: config.observed_routes().map(|facts| RouteKey::from_route(facts)).collect(),
        tokenizers: config.tokenizers.clone(),
        contents: config.contents.clone(),
        backends: backends(config),
        costs: config.costs.clone(),
        workload_drift: config.workload_drift.clone(),
    }
}

/// Enables TCP statistics from the kernel. If the kernel does not provide them, logs this once.
fn enable_tcp_info(requests: &mut InFlightRequests) {
    match Kernel::open() {
        Ok(mut kernel) => {
            requests.set_tcp_info_query(Box::new(move |connection| kernel.query(connection)))
        }
        Err(error) => self_telemetry::tcp_info_unavailable(&error),
    }
}

/// Returns a callback that passes scraped engine metrics to the observer. Its reference is weak, because the scraper
/// may run slightly longer.
fn scrape_sink(observer: &Arc<Observer>) -> scrape::Sink {
    let observer = Arc::downgrade(observer);
    Box::new(move |upstream, reading| {
        if let Some(observer) = observer.upgrade() {
            let wall = clock::wall_now();
            observer.with_current_state(|requests, at| {
                requests.backends().record_scrape(at, wall, upstream, reading);
            });
        }
    })
}

async fn bind_admin(
    config: &Arc<ArcSwap<Config>>,
    core: &Core,
    ready: &Arc<AtomicBool>,
    drain: Drain,
) -> Result<Admin, StartError> {
    let resolved = config.load_full();
    let console = (cfg!(feature = "console") && resolved.file.console.enabled)
        .then(|| Arc::new(console::console(&core.observer, ready)));
    let pages = Pages { console, ..views::admin_pages(config, core) };
    let token = resolved.file.admin.token.as_ref().map(|token| token.expose().to_owned());
    let address = resolved.file.admin.address.0;
    let bound = Admin::bind(address, token, Arc::clone(ready), pages, drain).await;
    bound.map_err(|error| {
        StartError::Admin(tokengauge_listen::ListenError::Bind(address.to_string(), error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flush_timeout_is_shorter_than_the_kill_delay_of_a_sidecar() {
        let telemetry = FLUSH_TIMEOUT + tokengauge_telemetry::telemetry::SHUTDOWN_GRACE;
        assert!(telemetry + crate::cli::log::FLUSH_TIMEOUT < Duration::from_secs(2));
    }
}
