//! Asks engines for their own metrics, on a runtime of its own: neither the data path nor an export waits for a page that
//! is large, late or never comes.
//!
//! What a page says is read by [`engine::read`]; here is only the asking. One task for each endpoint,
//! one question at a time, over a connection of its own.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::forward::{self, HttpProbe, ProbeError, SetupError};
use tokengauge_measure::engine::{self, Asked, Engine, LARGEST_BODY, Told};
use tokengauge_telemetry::self_telemetry;
use tokengauge_types::label::Label;

/// The plain format first: OpenMetrics says the same at greater length.
const FORMATS: &str = "text/plain;version=0.0.4,application/openmetrics-text;q=0.5,*/*;q=0.1";

/// One endpoint.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Config {
    pub upstream: Label,
    /// Its path is the page's.
    pub to: forward::Config,
    /// `None` where it is recognised by its names.
    pub engine: Option<Engine>,
    pub interval: Duration,
    pub timeout: Duration,
}

impl Config {
    /// A queue that builds up is seen within this; a page costs an engine some milliseconds of one core.
    pub const INTERVAL: Duration = Duration::from_secs(5);

    /// Engines answer from the process that also takes requests: under load it may be late, and a page that is later than
    /// this is no longer about now.
    pub const TIMEOUT: Duration = Duration::from_secs(2);

    pub const PATH: &str = "/metrics";

    /// When a reading says no longer how it is: two questions may fail in a busy moment, a third says that something is
    /// wrong.
    pub fn stale_after(&self) -> Duration {
        self.interval * 3 + self.timeout
    }
}

/// What a question came to, and what the engine behind which upstream said.
pub type Tell = Box<dyn Fn(&Label, Result<Told, Asked>) + Send + Sync>;

/// Why endpoints cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("upstream {0}: its metrics: {1}")]
    Setup(Label, SetupError),
    #[error("the thread that asks engines for their metrics cannot be started: {0}")]
    Thread(io::Error),
}

/// Asks all endpoints, each in its interval, until it is dropped.
pub struct Scraper {
    tell: Arc<Tell>,
    at_work: Mutex<AtWork>,
}

#[derive(Debug, Default)]
struct AtWork {
    /// Made for the first endpoint: who scrapes nothing has no thread for it.
    runtime: Option<Runtime>,
    tasks: Vec<(Config, JoinHandle<()>)>,
}

impl Scraper {
    /// # Errors
    /// Where an endpoint cannot be set up, or the thread not be made.
    pub fn start(endpoints: &[Config], tell: Tell) -> Result<Self, Error> {
        let scraper = Self { tell: Arc::new(tell), at_work: Mutex::default() };
        scraper.reload(endpoints)?;
        Ok(scraper)
    }

    /// Asks these from now on; those that stay the same are asked on without a break.
    ///
    /// # Errors
    /// As [`start`](Self::start); then nothing changes.
    pub fn reload(&self, endpoints: &[Config]) -> Result<(), Error> {
        let mut at_work = self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
        let AtWork { runtime, tasks } = &mut *at_work;
        let stays = |config: &Config| endpoints.contains(config);
        let is_new = |config: &&Config| !tasks.iter().any(|(known, _)| known == *config);
        let set_up = |config: &Config| match HttpProbe::new(&config.to, FORMATS, LARGEST_BODY) {
            Ok(asker) => Ok((config.clone(), asker)),
            Err(error) => Err(Error::Setup(config.upstream.clone(), error)),
        };
        let new = endpoints.iter().filter(is_new).map(set_up);
        let new = new.collect::<Result<Vec<_>, _>>()?;
        if !new.is_empty() && runtime.is_none() {
            *runtime = Some(thread().map_err(Error::Thread)?);
        }
        tasks.retain(|(config, task)| {
            let stays = stays(config);
            if !stays {
                task.abort();
            }
            stays
        });
        if let Some(runtime) = runtime {
            tasks.extend(new.into_iter().map(|(config, asker)| {
                let asking = ask_on(config.clone(), asker, Arc::clone(&self.tell));
                (config, runtime.spawn(asking))
            }));
        }
        Ok(())
    }
}

impl Drop for Scraper {
    fn drop(&mut self) {
        let at_work = self.at_work.get_mut();
        let at_work = at_work.unwrap_or_else(PoisonError::into_inner);
        // Not waited for: whoever drops this may stand on another runtime, and nothing that is asked for is lost.
        if let Some(runtime) = at_work.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for Scraper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scraper").field("at_work", &self.at_work).finish_non_exhaustive()
    }
}

fn thread() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        // Names are resolved by blocking calls, one at a time for each endpoint; few are slow at once.
        .max_blocking_threads(4)
        .thread_name("engines")
        .enable_all()
        .build()
}

async fn ask_on(config: Config, asker: HttpProbe, tell: Arc<Tell>) {
    let mut turns = tokio::time::interval(config.interval);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = None;
    loop {
        turns.tick().await;
        let told = ask(&config, &asker).await;
        let now = told.as_ref().map_or_else(Problem::kind, |_| Asked::Ok);
        if before.replace(now) != Some(now) {
            say(&config, &told);
        }
        tell(&config.upstream, told.map_err(|problem| problem.kind()));
    }
}

/// Why nothing was read.
#[derive(Debug)]
enum Problem {
    ProbeError(ProbeError),
    Timeout(Duration),
    Unread(Asked),
}

async fn ask(config: &Config, asker: &HttpProbe) -> Result<Told, Problem> {
    let page = tokio::time::timeout(config.timeout, asker.ask())
        .await
        .map_err(|_| Problem::Timeout(config.timeout))?
        .map_err(Problem::ProbeError)?;
    engine::read(&page, config.engine).map_err(Problem::Unread)
}

impl Problem {
    const fn kind(&self) -> Asked {
        match self {
            Self::ProbeError(ProbeError::Unreachable(_)) => Asked::Unreachable,
            Self::ProbeError(ProbeError::Redirect(_)) => Asked::Redirect,
            Self::ProbeError(ProbeError::Status(_)) => Asked::Status,
            Self::ProbeError(ProbeError::TooLarge(_)) => Asked::TooLarge,
            Self::ProbeError(ProbeError::TimedOut) | Self::Timeout(_) => Asked::Timeout,
            Self::Unread(how) => *how,
        }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ProbeError(unanswered) => unanswered.fmt(f),
            Self::Timeout(limit) => write!(f, "there is no whole answer within {limit:?}"),
            Self::Unread(Asked::Unknown) => {
                f.write_str("no name in its answer is one of the engine's")
            }
            Self::Unread(_) => f.write_str("its answer holds no metrics"),
        }
    }
}

fn say(config: &Config, told: &Result<Told, Problem>) {
    let upstream = config.upstream.as_str();
    match told {
        Ok(told) => {
            let engine = told.engine.as_str();
            self_telemetry::scrape_succeeded(upstream, engine);
        }
        Err(problem) => {
            let problem = problem.to_string();
            self_telemetry::scrape_failed(upstream, &problem);
        }
    }
}
