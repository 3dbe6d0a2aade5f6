//! State of the backend behind each upstream: the latest metrics of its inference engine, and its warm-up state.

use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::engine::warm::{self, WarmupTracker};
use crate::engine::{Engine, EngineMetrics, EngineReading, PrefixCacheUsage, ScrapeResult};
use crate::record::WarmupState;
use tokengauge_types::clock::{MonotonicInstant, WallTime};
use tokengauge_types::label::Label;

/// Configuration for observing one upstream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Backend {
    pub upstream: Label,
    /// Routes that forward to this upstream.
    pub routes: Vec<Label>,
    /// Age from which the engine's metrics are ignored as stale. `None` if the proxy does not scrape this backend.
    pub stale_after: Option<Duration>,
    /// Warm-up detection; `None` if it is off.
    pub warm: Option<warm::WarmupConfig>,
}

impl Backend {
    /// Returns whether the two configurations differ at most in their routes. In this case, a reload keeps the
    /// backend's state.
    fn has_same_settings(&self, other: &Self) -> bool {
        let Self { upstream, routes: _, stale_after, warm } = self;
        (upstream, stale_after, warm) == (&other.upstream, &other.stale_after, &other.warm)
    }
}

/// State of one backend at one instant. A metric is `None` if the engine does not report it, or if the scrape is stale.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    pub upstream: Label,
    /// Engine whose metric names were last recognised.
    pub engine: Option<Engine>,
    /// Seconds since the last successful scrape; `None` before the first one.
    #[serde(rename = "scrape_age_seconds")]
    pub scrape_age: Option<f64>,
    /// Requests that wait in the engine.
    pub waiting: Option<u64>,
    /// Requests that the engine is processing.
    pub running: Option<u64>,
    /// Used fraction of the KV cache, from 0 to 1.
    #[serde(rename = "kv_cache_utilization")]
    pub kv_cache: Option<f64>,
    /// Hit ratio of the prefix cache between the last two scrapes, from 0 to 1.
    #[serde(rename = "prefix_cache_hit_ratio")]
    pub prefix_cache: Option<f64>,
    pub asleep: Option<bool>,
    #[serde(rename = "warmup_state")]
    pub warm: Option<WarmupState>,
    /// Number of scrapes by result, in the order of [`ScrapeResult::ALL`]. `None` if the backend is not scraped.
    #[serde(skip)]
    pub scrapes: Option<[u64; ScrapeResult::ALL.len()]>,
    /// Number of implausible metric values so far.
    #[serde(skip)]
    pub implausible: u64,
}

#[derive(Debug, Default)]
pub struct Backends {
    all: Vec<BackendState>,
    /// Index into `all` by route.
    of_route: FxHashMap<Label, usize>,
}

/// Configuration and state of one backend.
#[derive(Debug)]
struct BackendState {
    backend: Backend,
    engine: Option<Engine>,
    last: Option<(MonotonicInstant, EngineMetrics)>,
    prefix_cache: Option<f64>,
    scrapes: [u64; ScrapeResult::ALL.len()],
    implausible: u64,
    warmup: Option<WarmupTracker>,
}

impl Backends {
    /// Applies a new configuration. A backend whose configuration is unchanged keeps its metrics and warm-up state.
    pub fn replace(&mut self, backends: Vec<Backend>) {
        let mut before = std::mem::take(&mut self.all);
        let mut state_of = |backend: Backend| {
            let stays = |state: &BackendState| state.backend.has_same_settings(&backend);
            match before.iter().position(stays) {
                Some(place) => BackendState { backend, ..before.swap_remove(place) },
                None => BackendState::new(backend),
            }
        };
        self.all = backends.into_iter().map(&mut state_of).collect();
        self.of_route.clear();
        for (place, state) in self.all.iter().enumerate() {
            for route in &state.backend.routes {
                self.of_route.insert(route.clone(), place);
            }
        }
    }

    /// Records the result of a scrape of `upstream`. `wall` is the wall-clock time of `at`.
    pub fn record_scrape(
        &mut self,
        at: MonotonicInstant,
        wall: WallTime,
        upstream: &Label,
        result: Result<EngineReading, ScrapeResult>,
    ) {
        let Some(state) = self.find(upstream) else {
            return;
        };
        let outcome = result.as_ref().map_or_else(|failed| *failed, |_| ScrapeResult::Ok);
        for (kind, number) in ScrapeResult::ALL.into_iter().zip(&mut state.scrapes) {
            *number += u64::from(kind == outcome);
        }
        if let Ok(reading) = result {
            state.apply_scrape(at, wall, reading);
        }
    }

    /// Records that the proxy admitted a call on `route`. Returns the call's upstream, and the warm-up state of the
    /// backend at `at`. `None` if warm-up detection is off.
    pub fn record_admission(
        &mut self,
        at: MonotonicInstant,
        route: &Label,
    ) -> Option<(Label, WarmupState)> {
        let state = self.all.get_mut(*self.of_route.get(route)?)?;
        let found = state.warmup.as_mut()?.record_admission(at);
        Some((state.backend.upstream.clone(), found))
    }

    /// Records that an admitted call ended, with any outcome.
    pub fn record_end(&mut self, at: MonotonicInstant, upstream: &Label) {
        if let Some(tracker) = self.warmup_tracker(upstream) {
            tracker.record_end(at);
        }
    }

    /// Records that a call succeeded; see [`WarmupTracker::record_success`].
    pub fn record_success(
        &mut self,
        at: MonotonicInstant,
        upstream: &Label,
        found: WarmupState,
        load: Option<Duration>,
    ) -> WarmupState {
        match self.warmup_tracker(upstream) {
            Some(tracker) => tracker.record_success(at, found, load),
            None => found,
        }
    }

    /// Returns the number of requests that wait in the engine behind `route`. `None` if several routes share the
    /// upstream, because the engine does not report its queue per route.
    pub fn waiting(&self, at: MonotonicInstant, route: &Label) -> Option<u64> {
        let state = self.all.get(*self.of_route.get(route)?)?;
        let alone = state.backend.routes.len() == 1;
        state.fresh(at).filter(|_| alone)?.waiting
    }

    /// Returns all backends, in the order of the configuration.
    pub fn readings(&self, at: MonotonicInstant) -> Vec<Reading> {
        self.all.iter().map(|state| state.reading(at)).collect()
    }

    fn find(&mut self, upstream: &Label) -> Option<&mut BackendState> {
        self.all.iter_mut().find(|state| state.backend.upstream == *upstream)
    }

    fn warmup_tracker(&mut self, upstream: &Label) -> Option<&mut WarmupTracker> {
        self.find(upstream)?.warmup.as_mut()
    }
}

impl BackendState {
    fn new(backend: Backend) -> Self {
        let warmup = backend.warm.map(WarmupTracker::new);
        Self {
            backend,
            engine: None,
            last: None,
            prefix_cache: None,
            scrapes: Default::default(),
            implausible: 0,
            warmup,
        }
    }

    fn apply_scrape(&mut self, at: MonotonicInstant, wall: WallTime, reading: EngineReading) {
        let EngineReading { engine, metrics, implausible } = reading;
        self.implausible += implausible;
        let before = self.last.filter(|_| self.engine == Some(engine));
        let before = before.map(|(_, metrics)| metrics);
        let ratio = hit_ratio(before, metrics);
        // A prefix cache cannot have more hits than queries, so a ratio above 1 is implausible.
        self.prefix_cache = ratio.filter(|ratio| *ratio <= 1.0);
        self.implausible += u64::from(ratio.is_some() && self.prefix_cache.is_none());
        self.engine = Some(engine);
        self.last = Some((at, metrics));
        if let Some(tracker) = &mut self.warmup {
            tracker.apply_scrape(at, wall, metrics.started, metrics.asleep);
        }
    }

    /// Returns the engine's latest metrics; `None` if the last scrape is stale.
    fn fresh(&self, at: MonotonicInstant) -> Option<&EngineMetrics> {
        let (read, metrics) = self.last.as_ref()?;
        (at.since(*read) <= self.backend.stale_after?).then_some(metrics)
    }

    fn reading(&self, at: MonotonicInstant) -> Reading {
        let fresh = self.fresh(at);
        let age = |(read, _): &(MonotonicInstant, EngineMetrics)| at.since(*read).as_secs_f64();
        Reading {
            upstream: self.backend.upstream.clone(),
            engine: self.engine,
            scrape_age: self.last.as_ref().map(age),
            waiting: fresh.and_then(|metrics| metrics.waiting),
            running: fresh.and_then(|metrics| metrics.running),
            kv_cache: fresh.and_then(|metrics| metrics.kv_cache),
            prefix_cache: fresh.and(self.prefix_cache),
            asleep: fresh.and_then(|metrics| metrics.asleep),
            warm: self.warmup.as_ref().map(|tracker| tracker.state(at)),
            scrapes: self.backend.stale_after.map(|_| self.scrapes),
            implausible: self.implausible,
        }
    }
}

/// Returns the hit ratio of the prefix cache between two scrapes. `None` if there were no cache queries in between, or
/// if the engine reset its counters.
fn hit_ratio(before: Option<EngineMetrics>, now: EngineMetrics) -> Option<f64> {
    let (queries, hits) = match now.prefix? {
        PrefixCacheUsage::Share(share) => return Some(share),
        PrefixCacheUsage::Counted { queries, hits } => (queries, hits),
    };
    let before = before?;
    let PrefixCacheUsage::Counted { queries: queries_before, hits: hits_before } = before.prefix?
    else {
        return None;
    };
    let (queries, hits) = (queries - queries_before, hits - hits_before);
    let was_reset = hits < 0.0 || before.started != now.started;
    (queries > 0.0 && !was_reset).then(|| hits / queries)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALE: Duration = Duration::from_secs(15);
    const WALL: WallTime = WallTime::from_unix_nanos(1_700_000_000_000_000_000);

    fn gpu() -> Label {
        Label::from_trusted("gpu")
    }

    fn backend(routes: &[&str]) -> Backend {
        Backend {
            upstream: gpu(),
            routes: routes.iter().map(|route| Label::from_trusted(route)).collect(),
            stale_after: Some(STALE),
            warm: None,
        }
    }

    fn backends(routes: &[&str]) -> Backends {
        let mut backends = Backends::default();
        backends.replace(vec![backend(routes)]);
        backends
    }

    fn scrape(waiting: u64, queries: f64, hits: f64) -> Result<EngineReading, ScrapeResult> {
        Ok(EngineReading {
            engine: Engine::Vllm,
            metrics: EngineMetrics {
                waiting: Some(waiting),
                kv_cache: Some(0.5),
                prefix: Some(PrefixCacheUsage::Counted { queries, hits }),
                ..EngineMetrics::default()
            },
            implausible: 0,
        })
    }

    fn record(
        backends: &mut Backends,
        at: u64,
        result: Result<EngineReading, ScrapeResult>,
    ) -> Reading {
        backends.record_scrape(MonotonicInstant::from_secs(at), WALL, &gpu(), result);
        backends.readings(MonotonicInstant::from_secs(at)).remove(0)
    }

    #[test]
    fn a_hit_rate_covers_the_last_interval() {
        let mut backends = backends(&["chat"]);
        let mut hit_ratio = |at, queries, hits| {
            let reading = record(&mut backends, at, scrape(0, queries, hits));
            (reading.prefix_cache, reading.implausible)
        };
        assert_eq!(hit_ratio(0, 1_000.0, 900.0), (None, 0), "since when is not known");
        assert_eq!(hit_ratio(5, 1_100.0, 925.0), (Some(0.25), 0));
        assert_eq!(hit_ratio(10, 1_100.0, 925.0), (None, 0), "nothing was looked up");
        assert_eq!(hit_ratio(15, 50.0, 10.0), (None, 0), "counters have begun anew");
        assert_eq!(hit_ratio(20, 60.0, 20.0), (Some(1.0), 0));
        assert_eq!(hit_ratio(25, 61.0, 30.0), (None, 1), "more hits than queries");
        assert_eq!(hit_ratio(30, 71.0, 30.0), (Some(0.0), 1));
    }

    #[test]
    fn counters_of_a_new_process_are_not_compared_even_if_they_are_higher() {
        let mut backends = backends(&["chat"]);
        let mut hit_ratio = |at, queries, started: u64| {
            let mut reading = scrape(0, queries, 0.0).unwrap();
            reading.metrics.started = Some(WallTime::from_unix_nanos(started));
            record(&mut backends, at, Ok(reading)).prefix_cache
        };
        assert_eq!(hit_ratio(0, 10.0, 1), None);
        assert_eq!(hit_ratio(5, 20.0, 2), None);
        assert_eq!(hit_ratio(10, 30.0, 2), Some(0.0));
    }

    #[test]
    fn a_stale_reading_reports_only_its_age() {
        let mut backends = backends(&["chat"]);
        let before = backends.readings(MonotonicInstant::from_secs(9)).remove(0);
        assert_eq!((before.scrape_age, before.engine), (None, None));
        assert_eq!(before.scrapes, Some([0; 8]), "reported as 0 from the start");
        record(&mut backends, 10, scrape(4, 0.0, 0.0));
        let fresh = record(&mut backends, 25, Err(ScrapeResult::Timeout));
        assert_eq!((fresh.waiting, fresh.scrape_age), (Some(4), Some(15.0)));
        assert_eq!(fresh.scrapes, Some([1, 0, 1, 0, 0, 0, 0, 0]));
        let stale = record(&mut backends, 26, Err(ScrapeResult::Timeout));
        assert_eq!((stale.waiting, stale.kv_cache), (None, None));
        assert_eq!((stale.scrape_age, stale.engine), (Some(16.0), Some(Engine::Vllm)));
        let back = record(&mut backends, 30, scrape(1, 0.0, 0.0));
        assert_eq!((back.waiting, back.scrape_age), (Some(1), Some(0.0)));
    }

    #[test]
    fn the_engine_queue_belongs_to_a_route_only_if_no_other_route_uses_the_engine() {
        let chat = Label::from_trusted("chat");
        let mut alone = backends(&["chat"]);
        assert_eq!(alone.waiting(MonotonicInstant::ZERO, &chat), None);
        record(&mut alone, 0, scrape(7, 0.0, 0.0));
        assert_eq!(alone.waiting(MonotonicInstant::from_secs(15), &chat), Some(7));
        assert_eq!(alone.waiting(MonotonicInstant::from_secs(16), &chat), None);
        assert_eq!(alone.waiting(MonotonicInstant::ZERO, &Label::from_trusted("other")), None);
        let mut shared = backends(&["chat", "batch"]);
        record(&mut shared, 0, scrape(7, 0.0, 0.0));
        assert_eq!(shared.waiting(MonotonicInstant::ZERO, &chat), None);
    }

    #[test]
    fn a_reload_keeps_the_state_of_remaining_backends() {
        let mut backends = backends(&["chat"]);
        record(&mut backends, 0, scrape(7, 0.0, 0.0));
        backends.replace(vec![backend(&["batch"])]);
        assert_eq!(backends.readings(MonotonicInstant::ZERO)[0].waiting, Some(7));
        let waiting = |route| backends.waiting(MonotonicInstant::ZERO, &Label::from_trusted(route));
        assert_eq!((waiting("chat"), waiting("batch")), (None, Some(7)));
        let slower = Backend { stale_after: Some(STALE * 2), ..backend(&["batch"]) };
        backends.replace(vec![slower]);
        assert_eq!(backends.readings(MonotonicInstant::ZERO)[0].waiting, None);
    }

    #[test]
    fn a_call_has_a_warmup_state_only_if_tracking_is_enabled() {
        let chat = Label::from_trusted("chat");
        let mut untracked = backends(&["chat"]);
        assert_eq!(untracked.record_admission(MonotonicInstant::ZERO, &chat), None);
        let mut backends = Backends::default();
        backends.replace(vec![Backend {
            stale_after: None,
            warm: Some(warm::WarmupConfig::default()),
            ..backend(&["chat"])
        }]);
        let found = backends.record_admission(MonotonicInstant::ZERO, &chat);
        assert_eq!(found, Some((gpu(), WarmupState::Warming)));
        backends.record_end(MonotonicInstant::ZERO, &gpu());
        let load = Some(Duration::from_secs(2));
        let state =
            backends.record_success(MonotonicInstant::ZERO, &gpu(), WarmupState::Warming, load);
        assert_eq!(state, WarmupState::Cold);
        let reading = backends.readings(MonotonicInstant::ZERO).remove(0);
        assert_eq!((reading.warm, reading.scrapes), (Some(WarmupState::Warming), None));
    }
}
