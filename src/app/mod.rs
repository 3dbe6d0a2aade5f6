//! Builds everything in order, owns the tasks, shuts down in reverse.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::admin::{self, Admin};
use crate::config::Config;
use crate::console::{Live, View};
use crate::forward::{self, Client, Forwarder, Propagation, RouteTable};
use crate::route;
use crate::scrape::{self, Scraper};
use crate::tcp::Kernel;
use tokengauge_listen::{Connections, Listener, Peer};
use tokengauge_measure::load;
use tokengauge_measure::record::Record;
use tokengauge_measure::slo;
use tokengauge_observe::tee::{self, ObservationChannel};
use tokengauge_observe::{InFlightRequests, Observer, Sinks, StreamPhase};
use tokengauge_telemetry::self_telemetry;
use tokengauge_telemetry::{Instruments, RequestLog, StateSnapshot, Telemetry, request_log};
use tokengauge_types::event::{RouteFacts, Scheme};
use tokengauge_types::label::{Gate, Label, Name};

mod drain;
mod engines;
mod pages;
mod readings;
mod routing;
mod slo_state;

use self::engines::{backends, tell};
use self::pages::pages;
use self::readings::readings;
use self::routing::{lane, unrouted, ways};
use self::slo_state::{SloStateWriter, reserved};

/// How long a shutdown waits for telemetry to be delivered. Kubernetes kills a sidecar 2 s after SIGTERM once the grace
/// period is eaten up.
pub const FLUSH: Duration = Duration::from_millis(1_500);

/// How long a shutdown waits for the ends of what it has cut: each is one wake of a task, also on a busy single core.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The running proxy.
#[derive(Debug)]
pub struct App {
    addresses: Vec<SocketAddr>,
    admin: SocketAddr,
    beat: JoinHandle<()>,
    ready: Arc<AtomicBool>,
    stop: watch::Sender<bool>,
    serving: Vec<JoinHandle<Connections>>,
    admin_task: JoinHandle<()>,
    forwarder: Arc<Forwarder>,
    ways: Arc<ArcSwap<RouteTable>>,
    config: Arc<ArcSwap<Config>>,
    core: Core,
}

/// What observes and exports: apart from the servers, because it starts before them and ends after them.
#[derive(Debug)]
struct Core {
    channel: Arc<ObservationChannel>,
    observer: Arc<Observer>,
    telemetry: Arc<Telemetry>,
    request_log: Arc<RequestLog>,
    scraper: Scraper,
    /// Writes error budgets, where they are kept over a restart.
    slo_state_writer: Option<SloStateWriter>,
    gate: Arc<Gate>,
}

/// How a shutdown went.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ended {
    /// Exchanges that were still going on when the time was up.
    pub cut: u64,
    /// Whether all telemetry was delivered, and all of the request log and the error budgets written, in time.
    pub flushed: bool,
}

/// Why the proxy cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Listen(#[from] tokengauge_listen::Error),
    #[error("the admin port cannot listen on {0}: {1}")]
    Admin(SocketAddr, std::io::Error),
    #[error("upstream {0}: {1}")]
    Upstream(Label, forward::SetupError),
    #[error(transparent)]
    Route(#[from] route::Error),
    #[error(transparent)]
    Telemetry(#[from] tokengauge_telemetry::telemetry::StartError),
    #[error(transparent)]
    RequestLog(#[from] request_log::Error),
    #[error(transparent)]
    Scrape(#[from] scrape::Error),
    #[error(transparent)]
    Budgets(#[from] slo_state::Error),
    #[error("the observer's thread cannot be started: {0}")]
    Observer(std::io::Error),
}

impl App {
    /// Opens everything; requests are taken when this returns.
    ///
    /// # Errors
    /// Where a socket, a certificate or a thread cannot be had; nothing is left running then.
    pub async fn start(
        config: Config,
        export: tokengauge_telemetry::Config,
    ) -> Result<Self, StartError> {
        let ways = Arc::new(ArcSwap::from_pointee(ways(&config, None)?));
        let listeners =
            config.listeners.iter().map(Listener::bind).collect::<Result<Vec<_>, _>>()?;
        let refusals: Vec<_> = listeners.iter().map(Listener::refused).collect();
        let refused = move || refusals.iter().map(|refused| refused()).sum();
        let sampler = export.sampler;
        let propagation = Propagation::new(
            config.propagators.clone(),
            Box::new(move |trace| sampler.head(trace)),
        );
        let drained = drain::Since::default();
        let since = drained.clone();
        let others = Box::new(move || StateSnapshot {
            refused_requests: refused(),
            draining: since.elapsed(),
            ..StateSnapshot::default()
        });
        let core = Core::start(&config, export, others)?;
        let forwarder = Forwarder::new(forward::Parts {
            ways: Arc::clone(&ways),
            channel: Arc::clone(&core.channel),
            unrouted: Arc::new(unrouted(&config)),
            propagation,
        });
        let ready = Arc::new(AtomicBool::new(true));
        let config = Arc::new(ArcSwap::from_pointee(config));
        let drain = drain::drain(drain::Parts {
            ready: Arc::clone(&ready),
            since: drained,
            channel: Arc::clone(&core.channel),
            ebbs: listeners.iter().map(Listener::ebb).collect(),
        });
        let admin = bind_admin(&config, &core, &ready, drain).await?;
        let addresses = listeners.iter().filter_map(Listener::local_addr).collect();
        let stop = watch::Sender::new(false);
        let serving =
            listeners.into_iter().map(|listener| serve(listener, &forwarder, &stop)).collect();
        Ok(Self {
            addresses,
            admin: admin.address(),
            ready,
            stop,
            serving,
            admin_task: tokio::spawn(admin.serve()),
            beat: tokio::spawn(core.observer.run_heartbeat()),
            forwarder,
            ways,
            config,
            core,
        })
    }

    /// Where clients connect over TCP: the first such listener.
    pub fn listen_addr(&self) -> Option<SocketAddr> {
        self.addresses.first().copied()
    }

    /// Where clients connect over TCP.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub const fn admin_addr(&self) -> SocketAddr {
        self.admin
    }

    /// Load and objectives, with everything said so far taken in.
    pub fn readings(&self) -> (load::Reading, Vec<slo::Reading>) {
        self.core.observer.with_current_state(InFlightRequests::reading)
    }

    /// Reads without borrowing the app: for a console that outlives nothing.
    pub fn reader(
        &self,
    ) -> impl Fn() -> (load::Reading, Vec<slo::Reading>) + Send + Sync + 'static {
        let observer = Arc::clone(&self.core.observer);
        move || observer.with_current_state(InFlightRequests::reading)
    }

    /// What the console shows, read without borrowing the app.
    pub fn console(&self) -> impl Fn() -> View + Send + Sync + 'static {
        let observer = Arc::clone(&self.core.observer);
        move || {
            observer.with_current_state(|requests, at| {
                let (load, slo) = requests.reading(at);
                let streams = requests.streams(at);
                let live = streams.iter().map(|stream| Live {
                    model: stream.model.as_ref().map(Name::as_str),
                    waiting: matches!(stream.phase, StreamPhase::Queued | StreamPhase::Waiting),
                });
                View::of(&load, &slo, live)
            })
        }
    }

    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Puts a new configuration's routes, upstreams, objectives, tokenisers, baseline and request log in force; connections and exchanges go on.
    ///
    /// # Errors
    /// Where its routes or upstreams cannot be set up, or its request log not be opened; then nothing changes.
    /// Where the thread that asks engines cannot be started; then nothing has changed but the request log.
    pub fn reload(&self, new: Config) -> Result<(), StartError> {
        let ways = ways(&new, Some(&self.ways.load()))?;
        self.core.request_log.reload(new.request_log.as_ref(), &new.fingerprint())?;
        self.core.scraper.reload(&new.scrapes)?;
        self.core.observer.with_current_state(|requests, at| {
            for route in &new.routes {
                requests.track_route(&lane(&route.facts));
            }
            requests.set_objectives(at, new.objectives.clone());
            requests.set_tokenizers(new.tokenizers.clone());
            requests.set_content_capture(new.contents.clone());
            requests.set_backends(backends(&new));
            requests.set_costs(new.costs.clone());
            requests.set_drift_config(new.drift.clone());
        });
        let ways = Arc::new(ways);
        let before = self.ways.swap(Arc::clone(&ways));
        ways.enforce(&before);
        self.config.store(Arc::new(new));
        Ok(())
    }

    /// Not ready → no new connections → streams finish, for at most `drain` → telemetry is delivered → the end.
    pub async fn shutdown(self, drain: Duration) -> Ended {
        let Self { ready, stop, serving, admin_task, beat, forwarder, core, .. } = self;
        ready.store(false, Ordering::Release);
        self_telemetry::shutdown_started(core.channel.open_exchanges(), drain);
        stop.send_replace(true);
        forwarder.drain();
        let deadline = tokio::time::Instant::now() + drain;
        let mut open = Vec::new();
        for task in serving {
            let Ok(connections) = task.await else {
                continue;
            };
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            if connections.finish(left).await > 0 {
                open.push(connections);
            }
        }
        let cut = core.channel.open_exchanges();
        forwarder.cut();
        for connections in open {
            connections.cut().await;
        }
        beat.abort();
        core.ends().await;
        let flushed = core.stop().await;
        admin_task.abort();
        let ended = Ended { cut, flushed };
        self_telemetry::stopped(cut, flushed);
        ended
    }
}

impl Core {
    /// `others` tells what neither the observer nor the request log knows.
    fn start(
        config: &Config,
        export: tokengauge_telemetry::Config,
        others: Box<dyn Fn() -> StateSnapshot + Send + Sync>,
    ) -> Result<Self, StartError> {
        let channel = Arc::new(ObservationChannel::new(tee::Config {
            budget_bytes: config.observer_memory,
            ..tee::Config::default()
        }));
        let gate = Arc::new(Gate::new(config.labels, reserved(config)));
        let desk = Arc::new(OnceLock::new());
        let request_log =
            Arc::new(RequestLog::start(config.request_log.as_ref(), &config.fingerprint())?);
        let others = {
            let request_log = Arc::clone(&request_log);
            Box::new(move || StateSnapshot { request_log: request_log.counts(), ..others() })
        };
        let (instruments, collector) =
            Instruments::new(&export, config.labels, readings(&desk, &channel, &gate, others));
        let facts: Vec<Arc<RouteFacts>> =
            config.routes.iter().map(|route| Arc::clone(&route.facts)).collect();
        instruments.initialize_routes(&facts);
        let telemetry = Arc::new(Telemetry::start(export, collector)?);
        let spans = Arc::clone(&telemetry);
        let lines = Arc::clone(&request_log);
        let record = Box::new(move |record: &Record| {
            spans.record(record);
            lines.record(record);
        });
        let sinks = Sinks { instruments, record };
        let requests = requests(config, Arc::clone(&gate), sinks)?;
        let observer = Arc::new(
            Observer::start(Arc::clone(&channel), requests).map_err(StartError::Observer)?,
        );
        let keep = |path: &PathBuf| SloStateWriter::start(path.clone(), Arc::clone(&observer));
        let slo_state_writer = config.slo_state.as_ref().map(keep);
        drop(desk.set(Arc::downgrade(&observer)));
        let scraper = Scraper::start(&config.scrapes, tell(&observer))?;
        Ok(Self {
            channel,
            observer,
            telemetry,
            request_log,
            scraper,
            slo_state_writer: slo_state_writer.transpose()?,
            gate,
        })
    }

    /// Waits until every exchange has said its end. Those of HTTP/2 and of upgrades end in tasks of their own, a little
    /// after the connection that was cut: what they say after the observer's last look would be told nowhere.
    async fn ends(&self) {
        let all = async {
            while self.channel.open_exchanges() > 0 {
                tokio::time::sleep(LAST_WORDS / 1_000).await;
            }
        };
        drop(tokio::time::timeout(LAST_WORDS, all).await);
    }

    /// All join threads, so not on a worker.
    async fn stop(self) -> bool {
        let Self {
            channel: _,
            observer,
            telemetry,
            request_log,
            scraper,
            slo_state_writer,
            gate: _,
        } = self;
        drop(scraper);
        let observed = tokio::task::spawn_blocking(move || observer.stop()).await;
        // At once, so that neither eats up the other's time.
        let (delivered, logged, kept) = tokio::join!(
            tokio::task::spawn_blocking(move || telemetry.shutdown(FLUSH)),
            tokio::task::spawn_blocking(move || request_log.stop(FLUSH)),
            tokio::task::spawn_blocking(move || slo_state_writer.is_none_or(|it| it.stop(FLUSH))),
        );
        let all = [delivered, logged, kept];
        observed.is_ok() && all.into_iter().all(|done| done.unwrap_or(false))
    }
}

/// The requests as it is before the first exchange.
fn requests(
    config: &Config,
    gate: Arc<Gate>,
    sinks: Sinks,
) -> Result<InFlightRequests, slo_state::Error> {
    let mut requests = InFlightRequests::new(config.objectives.clone(), gate, sinks);
    requests.set_tokenizers(config.tokenizers.clone());
    ask_kernel(&mut requests);
    requests.set_content_capture(config.contents.clone());
    requests.set_backends(backends(config));
    requests.set_costs(config.costs.clone());
    requests.set_drift_config(config.drift.clone());
    for route in &config.routes {
        requests.track_route(&lane(&route.facts));
    }
    if let Some(path) = &config.slo_state {
        slo_state::take_up(path, &mut requests)?;
    }
    Ok(requests)
}

/// The kernel is asked where it can be; where it cannot, that is said once.
fn ask_kernel(requests: &mut InFlightRequests) {
    match Kernel::open() {
        Ok(mut kernel) => {
            requests.set_tcp_info_query(Box::new(move |connection| kernel.ask(connection)))
        }
        Err(error) => self_telemetry::tcp_info_unavailable(&error),
    }
}

fn serve(
    listener: Listener,
    forwarder: &Arc<Forwarder>,
    stop: &watch::Sender<bool>,
) -> JoinHandle<Connections> {
    let forwarder = Arc::clone(forwarder);
    let mut stop = stop.subscribe();
    let service_for = move |peer: Peer| {
        let scheme = if peer.tls { Scheme::Https } else { Scheme::Http };
        forwarder.service(Client { connection: peer.connection, scheme })
    };
    tokio::spawn(async move {
        listener
            .serve(service_for, async move {
                // A sender that is gone means that the app is: stop as well.
                drop(stop.wait_for(|stop| *stop).await);
            })
            .await
    })
}

async fn bind_admin(
    config: &Arc<ArcSwap<Config>>,
    core: &Core,
    ready: &Arc<AtomicBool>,
    drain: admin::Drain,
) -> Result<Admin, StartError> {
    let resolved = config.load_full();
    let pages = pages(config, core);
    let token = resolved.admin.token.as_ref().map(|token| token.expose().to_owned());
    let address = resolved.admin.address;
    let bound = Admin::bind(address, token, Arc::clone(ready), pages, drain).await;
    bound.map_err(|error| StartError::Admin(address, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_is_over_within_the_two_seconds_that_a_sidecar_has_at_worst() {
        assert!(FLUSH + tokengauge_telemetry::telemetry::GRACE < Duration::from_secs(2));
    }
}
