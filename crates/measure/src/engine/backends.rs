//! State of the backend behind each upstream: the latest metrics of its inference engine, and its warm-up state.

use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::engine::warm::{self, Machine};
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
    pub warm: Option<warm::Config>,
}

impl Backend {
    /// Returns whether the two configurations differ at most in their routes. In this case, a reload keeps the
    /// backend's state.
    fn watches_as(&self, other: &Self) -> bool {
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
    pub asked: Option<[u64; ScrapeResult::ALL.len()]>,
    /// Number of implausible metric values so far.
    #[serde(skip)]
    pub implausible: u64,
}

#[derive(Debug, Default)]
pub struct Backends {
    all: Vec<Known>,
    /// Index into `all` by route.
    of_route: FxHashMap<Label, usize>,
}

/// Configuration and state of one backend.
#[derive(Debug)]
struct Known {
    backend: Backend,
    engine: Option<Engine>,
    last: Option<(MonotonicInstant, EngineMetrics)>,
    prefix_cache: Option<f64>,
    asked: [u64; ScrapeResult::ALL.len()],
    implausible: u64,
    machine: Option<Machine>,
}

impl Backends {
    /// Applies a new configuration. A backend whose configuration is unchanged keeps its metrics and warm-up state.
    pub fn replace(&mut self, backends: Vec<Backend>) {
        let mut before = std::mem::take(&mut self.all);
        let mut known = |backend: Backend| {
            let stays = |known: &Known| known.backend.watches_as(&backend);
            match before.iter().position(stays) {
                Some(place) => Known { backend, ..before.swap_remove(place) },
                None => Known::new(backend),
            }
        };
        self.all = backends.into_iter().map(&mut known).collect();
        self.of_route.clear();
        for (place, known) in self.all.iter().enumerate() {
            for route in &known.backend.routes {
                self.of_route.insert(route.clone(), place);
            }
        }
    }

    /// Records the result of a scrape of `upstream`. `wall` is the wall-clock time of `at`.
    pub fn asked(
        &mut self,
        at: MonotonicInstant,
        wall: WallTime,
        upstream: &Label,
        told: Result<EngineReading, ScrapeResult>,
    ) {
        let Some(known) = self.find(upstream) else {
            return;
        };
        let how = told.as_ref().map_or_else(|failed| *failed, |_| ScrapeResult::Ok);
        for (kind, number) in ScrapeResult::ALL.into_iter().zip(&mut known.asked) {
            *number += u64::from(kind == how);
        }
        if let Ok(told) = told {
            known.told(at, wall, told);
        }
    }

    /// Records that the proxy admitted a call on `route`. Returns the call's upstream, and the warm-up state of the
    /// backend at `at`. `None` if warm-up detection is off.
    pub fn admitted(
        &mut self,
        at: MonotonicInstant,
        route: &Label,
    ) -> Option<(Label, WarmupState)> {
        let known = self.all.get_mut(*self.of_route.get(route)?)?;
        let found = known.machine.as_mut()?.admitted(at);
        Some((known.backend.upstream.clone(), found))
    }

    /// Records that an admitted call ended, with any outcome.
    pub fn left(&mut self, at: MonotonicInstant, upstream: &Label) {
        if let Some(machine) = self.machine(upstream) {
            machine.left(at);
        }
    }

    /// Records that a call succeeded; see [`Machine::answered`].
    pub fn answered(
        &mut self,
        at: MonotonicInstant,
        upstream: &Label,
        found: WarmupState,
        load: Option<Duration>,
    ) -> WarmupState {
        match self.machine(upstream) {
            Some(machine) => machine.answered(at, found, load),
            None => found,
        }
    }

    /// Returns the number of requests that wait in the engine behind `route`. `None` if several routes share the
    /// upstream, because the engine does not report its queue per route.
    pub fn waiting(&self, at: MonotonicInstant, route: &Label) -> Option<u64> {
        let known = self.all.get(*self.of_route.get(route)?)?;
        let alone = known.backend.routes.len() == 1;
        known.fresh(at).filter(|_| alone)?.waiting
    }

    /// Returns all backends, in the order of the configuration.
    pub fn readings(&self, at: MonotonicInstant) -> Vec<Reading> {
        self.all.iter().map(|known| known.reading(at)).collect()
    }

    fn find(&mut self, upstream: &Label) -> Option<&mut Known> {
        self.all.iter_mut().find(|known| known.backend.upstream == *upstream)
    }

    fn machine(&mut self, upstream: &Label) -> Option<&mut Machine> {
        self.find(upstream)?.machine.as_mut()
    }
}

impl Known {
    fn new(backend: Backend) -> Self {
        let machine = backend.warm.map(Machine::new);
        Self {
            backend,
            engine: None,
            last: None,
            prefix_cache: None,
            asked: Default::default(),
            implausible: 0,
            machine,
        }
    }

    fn told(&mut self, at: MonotonicInstant, wall: WallTime, told: EngineReading) {
        let EngineReading { engine, numbers, implausible } = told;
        self.implausible += implausible;
        let before = self.last.filter(|_| self.engine == Some(engine));
        let before = before.map(|(_, numbers)| numbers);
        let share = share(before, numbers);
        // A prefix cache cannot have more hits than queries, so a ratio above 1 is implausible.
        self.prefix_cache = share.filter(|share| *share <= 1.0);
        self.implausible += u64::from(share.is_some() && self.prefix_cache.is_none());
        self.engine = Some(engine);
        self.last = Some((at, numbers));
        if let Some(machine) = &mut self.machine {
            machine.told(at, wall, numbers.started, numbers.asleep);
        }
    }

    /// Returns the engine's latest metrics; `None` if the last scrape is stale.
    fn fresh(&self, at: MonotonicInstant) -> Option<&EngineMetrics> {
        let (read, numbers) = self.last.as_ref()?;
        (at.since(*read) <= self.backend.stale_after?).then_some(numbers)
    }

    fn reading(&self, at: MonotonicInstant) -> Reading {
        let fresh = self.fresh(at);
        let age = |(read, _): &(MonotonicInstant, EngineMetrics)| at.since(*read).as_secs_f64();
        Reading {
            upstream: self.backend.upstream.clone(),
            engine: self.engine,
            scrape_age: self.last.as_ref().map(age),
            waiting: fresh.and_then(|numbers| numbers.waiting),
            running: fresh.and_then(|numbers| numbers.running),
            kv_cache: fresh.and_then(|numbers| numbers.kv_cache),
            prefix_cache: fresh.and(self.prefix_cache),
            asleep: fresh.and_then(|numbers| numbers.asleep),
            warm: self.machine.as_ref().map(|machine| machine.state(at)),
            asked: self.backend.stale_after.map(|_| self.asked),
            implausible: self.implausible,
        }
    }
}

/// Returns the hit ratio of the prefix cache between two scrapes. `None` if there were no cache queries in between, or
/// if the engine reset its counters.
fn share(before: Option<EngineMetrics>, now: EngineMetrics) -> Option<f64> {
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
        Label::known("gpu")
    }

    fn backend(routes: &[&str]) -> Backend {
        Backend {
            upstream: gpu(),
            routes: routes.iter().map(|route| Label::known(route)).collect(),
            stale_after: Some(STALE),
            warm: None,
        }
    }

    fn backends(routes: &[&str]) -> Backends {
        let mut backends = Backends::default();
        backends.replace(vec![backend(routes)]);
        backends
    }

    fn told(waiting: u64, queries: f64, hits: f64) -> Result<EngineReading, ScrapeResult> {
        Ok(EngineReading {
            engine: Engine::Vllm,
            numbers: EngineMetrics {
                waiting: Some(waiting),
                kv_cache: Some(0.5),
                prefix: Some(PrefixCacheUsage::Counted { queries, hits }),
                ..EngineMetrics::default()
            },
            implausible: 0,
        })
    }

    fn ask(backends: &mut Backends, at: u64, told: Result<EngineReading, ScrapeResult>) -> Reading {
        backends.asked(MonotonicInstant::from_secs(at), WALL, &gpu(), told);
        backends.readings(MonotonicInstant::from_secs(at)).remove(0)
    }

    #[test]
    fn a_hit_rate_covers_the_last_interval() {
        let mut backends = backends(&["chat"]);
        let mut share = |at, queries, hits| {
            let reading = ask(&mut backends, at, told(0, queries, hits));
            (reading.prefix_cache, reading.implausible)
        };
        assert_eq!(share(0, 1_000.0, 900.0), (None, 0), "since when is not known");
        assert_eq!(share(5, 1_100.0, 925.0), (Some(0.25), 0));
        assert_eq!(share(10, 1_100.0, 925.0), (None, 0), "nothing was looked up");
        assert_eq!(share(15, 50.0, 10.0), (None, 0), "counters have begun anew");
        assert_eq!(share(20, 60.0, 20.0), (Some(1.0), 0));
        assert_eq!(share(25, 61.0, 30.0), (None, 1), "more hits than queries");
        assert_eq!(share(30, 71.0, 30.0), (Some(0.0), 1));
    }

    #[test]
    fn counters_of_a_new_process_are_not_compared_even_if_they_are_higher() {
        let mut backends = backends(&["chat"]);
        let mut share = |at, queries, started: u64| {
            let mut told = told(0, queries, 0.0).unwrap();
            told.numbers.started = Some(WallTime::from_unix_nanos(started));
            ask(&mut backends, at, Ok(told)).prefix_cache
        };
        assert_eq!(share(0, 10.0, 1), None);
        assert_eq!(share(5, 20.0, 2), None);
        assert_eq!(share(10, 30.0, 2), Some(0.0));
    }

    #[test]
    fn a_stale_reading_reports_only_its_age() {
        let mut backends = backends(&["chat"]);
        let before = backends.readings(MonotonicInstant::from_secs(9)).remove(0);
        assert_eq!((before.scrape_age, before.engine), (None, None));
        assert_eq!(before.asked, Some([0; 8]), "told as 0 from the start on");
        ask(&mut backends, 10, told(4, 0.0, 0.0));
        let fresh = ask(&mut backends, 25, Err(ScrapeResult::Timeout));
        assert_eq!((fresh.waiting, fresh.scrape_age), (Some(4), Some(15.0)));
        assert_eq!(fresh.asked, Some([1, 0, 1, 0, 0, 0, 0, 0]));
        let stale = ask(&mut backends, 26, Err(ScrapeResult::Timeout));
        assert_eq!((stale.waiting, stale.kv_cache), (None, None));
        assert_eq!((stale.scrape_age, stale.engine), (Some(16.0), Some(Engine::Vllm)));
        let back = ask(&mut backends, 30, told(1, 0.0, 0.0));
        assert_eq!((back.waiting, back.scrape_age), (Some(1), Some(0.0)));
    }

    #[test]
    fn the_engine_queue_belongs_to_a_route_only_if_no_other_route_uses_the_engine() {
        let chat = Label::known("chat");
        let mut alone = backends(&["chat"]);
        assert_eq!(alone.waiting(MonotonicInstant::ZERO, &chat), None);
        ask(&mut alone, 0, told(7, 0.0, 0.0));
        assert_eq!(alone.waiting(MonotonicInstant::from_secs(15), &chat), Some(7));
        assert_eq!(alone.waiting(MonotonicInstant::from_secs(16), &chat), None);
        assert_eq!(alone.waiting(MonotonicInstant::ZERO, &Label::known("other")), None);
        let mut shared = backends(&["chat", "batch"]);
        ask(&mut shared, 0, told(7, 0.0, 0.0));
        assert_eq!(shared.waiting(MonotonicInstant::ZERO, &chat), None);
    }

    #[test]
    fn a_reload_keeps_the_state_of_remaining_backends() {
        let mut backends = backends(&["chat"]);
        ask(&mut backends, 0, told(7, 0.0, 0.0));
        backends.replace(vec![backend(&["batch"])]);
        assert_eq!(backends.readings(MonotonicInstant::ZERO)[0].waiting, Some(7));
        let waiting = |route| backends.waiting(MonotonicInstant::ZERO, &Label::known(route));
        assert_eq!((waiting("chat"), waiting("batch")), (None, Some(7)));
        let slower = Backend { stale_after: Some(STALE * 2), ..backend(&["batch"]) };
        backends.replace(vec![slower]);
        assert_eq!(backends.readings(MonotonicInstant::ZERO)[0].waiting, None);
    }

    #[test]
    fn a_call_has_a_warmup_state_only_if_tracking_is_enabled() {
        let chat = Label::known("chat");
        let mut unasked = backends(&["chat"]);
        assert_eq!(unasked.admitted(MonotonicInstant::ZERO, &chat), None);
        let mut backends = Backends::default();
        backends.replace(vec![Backend {
            stale_after: None,
            warm: Some(warm::Config::default()),
            ..backend(&["chat"])
        }]);
        let found = backends.admitted(MonotonicInstant::ZERO, &chat);
        assert_eq!(found, Some((gpu(), WarmupState::Warming)));
        backends.left(MonotonicInstant::ZERO, &gpu());
        let load = Some(Duration::from_secs(2));
        let state = backends.answered(MonotonicInstant::ZERO, &gpu(), WarmupState::Warming, load);
        assert_eq!(state, WarmupState::Cold);
        let reading = backends.readings(MonotonicInstant::ZERO).remove(0);
        assert_eq!((reading.warm, reading.asked), (Some(WarmupState::Warming), None));
    }
}
