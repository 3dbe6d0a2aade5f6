//! Scrapes the metrics pages of inference engines. This happens on a separate runtime, so that a large or late page
//! delays neither requests nor exports.
//!
//! [`engine::read`] parses the pages. Each endpoint has a task that sends one request at a time, each on a new
//! connection.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::forward::{self, HttpProbe, ProbeError, SetupError};
use tokengauge_measure::engine::{self, Engine, EngineReading, MAX_PAGE_BYTES, ScrapeResult};
use tokengauge_telemetry::self_telemetry;
use tokengauge_types::label::Label;
use tokengauge_types::sync::lock;

/// Value of the `Accept` header. Prefers the Prometheus text format, because OpenMetrics is longer and has no
/// additional content.
const ACCEPT: &str = "text/plain;version=0.0.4,application/openmetrics-text;q=0.5,*/*;q=0.1";

/// One metrics endpoint.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScrapeConfig {
    pub upstream: Label,
    /// Address and connection settings of the metrics endpoint, with the path of the metrics page.
    pub to: forward::UpstreamConfig,
    /// Name of the engine. If `None`, the engine is detected from the names of its metrics.
    pub engine: Option<Engine>,
    pub interval: Duration,
    pub timeout: Duration,
}

impl ScrapeConfig {
    /// Default scrape interval, short enough to see a queue build up. Each scrape costs an engine a few milliseconds of
    /// one core.
    pub const INTERVAL: Duration = Duration::from_secs(5);

    /// Default scrape timeout. Older values no longer describe the present state of the engine. Scrapes are slow under
    /// load, because an engine serves metrics from the process that accepts requests.
    pub const TIMEOUT: Duration = Duration::from_secs(2);

    pub const PATH: &str = "/metrics";

    /// Returns the age after which scraped values are stale: after three failed scrapes in a row. Two scrapes may fail
    /// in a busy moment.
    pub fn stale_after(&self) -> Duration {
        self.interval * 3 + self.timeout
    }
}

/// Callback for the result of each scrape. The first argument is the name of the upstream.
pub type Sink = Box<dyn Fn(&Label, Result<EngineReading, ScrapeResult>) + Send + Sync>;

/// Why endpoints cannot be scraped.
#[derive(Debug, thiserror::Error)]
pub enum ScraperStartError {
    #[error("upstream {0}: metrics")]
    Setup(Label, #[source] SetupError),
    #[error("cannot start the scrape thread")]
    Thread(#[source] io::Error),
}

/// Scrapes all endpoints, each at its own interval. Dropping this value stops all scrapes.
pub struct Scraper {
    sink: Arc<Sink>,
    state: Mutex<ScraperState>,
}

#[derive(Debug, Default)]
struct ScraperState {
    /// Runtime of the scrape tasks. `None` until there is an endpoint, so that a proxy without endpoints has no extra
    /// thread.
    runtime: Option<Runtime>,
    tasks: Vec<(ScrapeConfig, JoinHandle<()>)>,
}

impl Scraper {
    /// Starts one task per endpoint.
    ///
    /// # Errors
    /// Returns an error if an endpoint cannot be set up or the thread cannot be started.
    pub fn start(endpoints: &[ScrapeConfig], sink: Sink) -> Result<Self, ScraperStartError> {
        let scraper = Self { sink: Arc::new(sink), state: Mutex::default() };
        scraper.reload(endpoints)?;
        Ok(scraper)
    }

    /// Replaces the endpoints. Scrapes of unchanged endpoints continue without interruption.
    ///
    /// # Errors
    /// Returns the same errors as [`start`](Self::start). If there is an error, the endpoints do not change.
    pub fn reload(&self, endpoints: &[ScrapeConfig]) -> Result<(), ScraperStartError> {
        let mut state = lock(&self.state);
        let ScraperState { runtime, tasks } = &mut *state;
        let is_new = |config: &&ScrapeConfig| !tasks.iter().any(|(known, _)| known == *config);
        let set_up =
            |config: &ScrapeConfig| match HttpProbe::new(&config.to, ACCEPT, MAX_PAGE_BYTES) {
                Ok(probe) => Ok((config.clone(), probe)),
                Err(error) => Err(ScraperStartError::Setup(config.upstream.clone(), error)),
            };
        let new = endpoints.iter().filter(is_new).map(set_up);
        let new = new.collect::<Result<Vec<_>, _>>()?;
        if !new.is_empty() && runtime.is_none() {
            *runtime = Some(start_runtime().map_err(ScraperStartError::Thread)?);
        }
        tasks.retain(|(config, task)| {
            let is_kept = endpoints.contains(config);
            if !is_kept {
                task.abort();
            }
            is_kept
        });
        if let Some(runtime) = runtime {
            tasks.extend(new.into_iter().map(|(config, probe)| {
                let task = scrape_periodically(config.clone(), probe, Arc::clone(&self.sink));
                (config, runtime.spawn(task))
            }));
        }
        Ok(())
    }
}

impl Drop for Scraper {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Shuts the runtime down in the background, because this code may run on another runtime. The results of
        // pending scrapes are not needed.
        if let Some(runtime) = state.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for Scraper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scraper").field("state", &self.state).finish_non_exhaustive()
    }
}

fn start_runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        // DNS lookups are blocking calls, one at a time per endpoint. Only a few are slow at the same time.
        .max_blocking_threads(4)
        .thread_name("engines")
        .enable_all()
        .build()
}

async fn scrape_periodically(config: ScrapeConfig, probe: HttpProbe, sink: Arc<Sink>) {
    let mut ticks = tokio::time::interval(config.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut previous = None;
    loop {
        ticks.tick().await;
        let reading = scrape(&config, &probe).await;
        let result = reading.as_ref().map_or_else(ScrapeError::kind, |_| ScrapeResult::Ok);
        if previous.replace(result) != Some(result) {
            log_change(&config, &reading);
        }
        sink(&config.upstream, reading.map_err(|error| error.kind()));
    }
}

/// Why a scrape failed.
#[derive(Debug, thiserror::Error)]
enum ScrapeError {
    #[error(transparent)]
    Probe(#[from] ProbeError),
    #[error("no complete response within {0:?}")]
    Timeout(Duration),
    #[error("the response has {}", if *.0 == ScrapeResult::UnknownEngine { "no known metric of the engine" } else { "no metrics" })]
    Invalid(ScrapeResult),
}

async fn scrape(config: &ScrapeConfig, probe: &HttpProbe) -> Result<EngineReading, ScrapeError> {
    let page = tokio::time::timeout(config.timeout, probe.fetch())
        .await
        .map_err(|_| ScrapeError::Timeout(config.timeout))??;
    engine::read(&page, config.engine).map_err(ScrapeError::Invalid)
}

impl ScrapeError {
    const fn kind(&self) -> ScrapeResult {
        match self {
            Self::Probe(ProbeError::Unreachable(_)) => ScrapeResult::Unreachable,
            Self::Probe(ProbeError::Redirect(_)) => ScrapeResult::Redirect,
            Self::Probe(ProbeError::Status(_)) => ScrapeResult::HttpError,
            Self::Probe(ProbeError::TooLarge(_)) => ScrapeResult::TooLarge,
            Self::Probe(ProbeError::TimedOut) | Self::Timeout(_) => ScrapeResult::Timeout,
            Self::Invalid(result) => *result,
        }
    }
}

/// Logs when scrapes of an endpoint start to fail, and when they succeed again.
fn log_change(config: &ScrapeConfig, reading: &Result<EngineReading, ScrapeError>) {
    let upstream = config.upstream.as_str();
    match reading {
        Ok(reading) => self_telemetry::scrape_succeeded(upstream, reading.engine.as_str()),
        Err(error) => self_telemetry::scrape_failed(upstream, &error.to_string()),
    }
}
