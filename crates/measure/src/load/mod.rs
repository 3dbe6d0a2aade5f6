//! In-flight requests, queue depth and throughput. Arithmetic only; time is passed in as `at`.
//!
//! In-flight requests are labelled by [`RouteKey`], tokens by [`ModelKey`]. Throughput is the tokens in a window ÷ the
//! window's length. Windows consist of 1 s slots and end at the last full second.
//!
//! A window is reported once the process has run for its length. A model key that appears later had no tokens before,
//! so its mean over the whole window is correct.

mod model;
mod quota;
mod recent;
mod retries;
mod routes;

pub use self::model::ModelLoad;
pub use self::quota::{LimitType, RateLimitReading, RateLimitTracker};
pub use self::retries::{RequestKey, Retries, RetrySignal};

use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::load::model::throughput;
use crate::load::recent::Segment;
use crate::record::MetricLabels;
use crate::timing::OutputRateRange;
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{ProxyPosition, RouteFacts};
use tokengauge_types::label::{Label, OTHER};
use tokengauge_types::label_enum;

label_enum! {
    /// Phase of a request in flight.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum RequestPhase {
        /// Waiting for a permit of the proxy's concurrency limit.
        Queued = "queued",
        /// A stream before its first token.
        Waiting = "waiting",
        /// A stream after its first token.
        Streaming = "streaming",
        /// Any other request: non-streaming responses, embeddings, plain HTTP. Not part of the queue depth.
        Unstreamed = "unstreamed",
    }
}

/// Route key: the label set of the in-flight gauges, which is known when a request begins.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct RouteKey {
    pub route: Label,
    pub position: ProxyPosition,
}

impl RouteKey {
    pub fn from_route(route: &RouteFacts) -> Self {
        Self { route: route.name.clone(), position: route.position }
    }
}

/// Model key: the label set of the throughput metrics.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ModelKey {
    pub provider: Label,
    pub model: Label,
    pub route: Label,
    pub position: ProxyPosition,
}

impl ModelKey {
    pub fn from_labels(series: &MetricLabels) -> Self {
        Self {
            provider: series.provider.clone(),
            model: series.model.clone(),
            route: series.route.clone(),
            position: series.position,
        }
    }

    /// Returns a sort key that orders model keys by model, provider and route.
    pub fn by_name(&self) -> impl Ord + use<'_> {
        let Self { provider, model, route, position } = self;
        (model, provider, route, position.as_str())
    }
}

/// Load at one instant, for gauges, `/stats` and the console.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    pub routes: Vec<RouteReading>,
    pub models: Vec<ModelReading>,
    pub total: TotalReading,
    /// Remaining rate limits that providers reported in response headers. [`Load`] leaves this list empty;
    /// `InFlightRequests` fills it.
    pub quotas: Vec<RateLimitReading>,
}

/// The load of the whole system, summed over all model keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TotalReading {
    pub input: Throughput,
    /// Output throughput. The peak is the highest second of all model keys together, not the sum of their peaks.
    pub output: Throughput,
    pub recent: Summary,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RouteReading {
    pub route_key: RouteKey,
    /// Requests in each phase, in the order of [`RequestPhase::ALL`].
    pub active: [u64; RequestPhase::ALL.len()],
    /// Streams that wait for a token: first those before their first token, then those after it.
    pub stalled_streams: [StalledStreams; 2],
    /// Requests that wait in the engine behind the route. `None` if the engine does not report its queue, or if another
    /// route shares the engine.
    pub backend_waiting: Option<u64>,
}

label_enum! {
    /// Precision of a queue depth.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum Precision {
        /// Requests queued in the proxy + requests waiting in the engine, as reported by the engine.
        Exact = "exact",
        /// Requests queued in the proxy + streams before their first token. Too high, because prefill is included.
        UpperBound = "upper_bound",
    }
}

/// Streams that are waiting for a token.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StalledStreams {
    /// Number of these streams that are stalled.
    pub stalled: u64,
    /// Longest wait of a stream for a token; `None` if no stream is waiting.
    pub longest: Option<Duration>,
}

impl StalledStreams {
    pub fn add(&mut self, idle: Duration, stalled: bool) {
        self.stalled += u64::from(stalled);
        self.longest = self.longest.max(Some(idle));
    }
}

impl RouteReading {
    /// Returns the queue depth, as precise as [`Precision`] states.
    pub const fn queue_depth(&self) -> u64 {
        let [queued, _, _, _] = self.active;
        match self.backend_waiting {
            Some(waiting) => queued.saturating_add(waiting),
            None => queue_depth(&self.active),
        }
    }

    pub const fn bound(&self) -> Precision {
        match self.backend_waiting {
            Some(_) => Precision::Exact,
            None => Precision::UpperBound,
        }
    }
}

const fn queue_depth(active: &[u64; RequestPhase::ALL.len()]) -> u64 {
    let [queued, waiting, _, _] = *active;
    queued + waiting
}

#[derive(Clone, Debug, PartialEq)]
pub struct ModelReading {
    pub model_key: ModelKey,
    pub input: Throughput,
    pub output: Throughput,
    pub recent: Summary,
    /// Streams in flight. `InFlightRequests` fills it.
    pub streams: ActiveStreams,
}

/// Streams in flight that wait for a token.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ActiveStreams {
    /// Streams that wait for less than the stall threshold of their route.
    pub flowing: u64,
    pub stalled: u64,
}

/// Statistics of the requests that ended in the last 4½ to 5 min: ten segments of 30 s, the last of which is still
/// filling. Percentiles are `None` if no request had the value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Time to first token in seconds, of streams with at least one token.
    pub time_to_first_token: Option<Percentiles>,
    /// Output TPS of rated streams, in tokens per second.
    pub output_rate: Option<Percentiles>,
    /// Duration of successful requests, in seconds.
    pub duration: Option<Percentiles>,
    /// Time per output token in seconds: the mean inter-token latency of each stream with two or more tokens.
    pub time_per_output_token: Option<Percentiles>,
    /// Number of requests that ended.
    pub finished: u64,
    /// Number of failed requests. Failures caused by the client do not count.
    pub failed: u64,
    /// Number of streams per range of output TPS, in the order of [`OutputRateRange::ALL`].
    pub output_rate_ranges: [u64; OutputRateRange::ALL.len()],
    /// Number of streams fast enough for speech, at least [`crate::timing::VOICE_RATE`]. These streams also count in
    /// the highest range.
    pub voice: u64,
}

/// Tokens per second over windows that end at the last full second. A mean is `None` until the process has run for its
/// window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Throughput {
    /// Mean of the last ten full seconds, or of all seconds since the start if these are fewer. Only live views show
    /// this value. It is not exported as a metric, because its window is not constant.
    pub latest: Option<f64>,
    pub ten_seconds: Option<f64>,
    pub minute: Option<f64>,
    /// Also called *sustained* throughput.
    pub five_minutes: Option<f64>,
    /// Highest tokens per second of one full second in the last 5 min. `None` for input tokens.
    pub peak: Option<f64>,
}

/// Percentiles. The unit is seconds or tokens per second, as documented at the field that holds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    pub p5: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub count: u64,
}

/// Length of the longest window.
pub const MAX_WINDOW: Duration = Duration::from_secs(300);

/// Largest number of model keys in the life of a process. Further ones are counted under the name `other`.
///
/// The cardinality limiter bounds models at 100, most of them with one provider and one route. The limit leaves about
/// two and a half keys for each model.
///
/// A key in use takes about 200 KiB and at most 410 KiB, nearly all of it histograms. The worst case is 103 MiB, with
/// all keys busy and values from the fastest to the slowest. Most applications use one to five keys.
pub const MAX_MODEL_KEYS: usize = 256;

/// Handle of a model key, valid for the life of the [`Load`] that returned it. With a handle, counting a chunk needs no
/// hashing of names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ModelId(usize);

/// Facts about a finished request that load statistics need.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FinishedRequest {
    /// Whether the request failed for a reason other than the client.
    pub failed: bool,
    /// Time to first token of streams that had one.
    pub time_to_first_token: Option<Duration>,
    /// Output TPS of rated streams, in tokens per second.
    pub output_rate: Option<f64>,
    /// Duration of successful requests.
    pub duration: Option<Duration>,
    pub time_per_output_token: Option<Duration>,
}

/// In-flight requests and the throughput of the last minutes.
#[derive(Debug, Default)]
pub struct Load {
    /// Number of requests in each phase, by route key.
    routes: FxHashMap<RouteKey, [u64; RequestPhase::ALL.len()]>,
    /// Index of each model key in `models`. Entries are never removed, so that a [`ModelId`] always stays valid.
    ids: FxHashMap<ModelKey, ModelId>,
    models: Vec<(ModelKey, Option<Box<ModelLoad>>)>,
}

impl Load {
    /// Returns the handle of a model key. Its windows are created when something is counted.
    pub fn model_id(&mut self, model_key: &ModelKey) -> ModelId {
        if let Some(known) = self.ids.get(model_key) {
            return *known;
        }
        if self.ids.len() < MAX_MODEL_KEYS {
            return self.insert(model_key.clone());
        }
        // At most one more key per position. The names are lost, but dashboard panels that filter by position still
        // include the tokens.
        let other = Label::from_trusted(OTHER);
        let other = ModelKey {
            provider: other.clone(),
            model: other.clone(),
            route: other,
            position: model_key.position,
        };
        match self.ids.get(&other) {
            Some(known) => *known,
            None => self.insert(other),
        }
    }

    /// Returns all route keys, and the model keys that were active in the last 5 min. Frees the windows of the other
    /// model keys.
    pub fn reading(&mut self, at: MonotonicInstant) -> Reading {
        let mut recent = Segment::default();
        let reading = |(model_key, track): &mut (ModelKey, Option<Box<ModelLoad>>)| {
            if track.as_ref().is_some_and(|track| track.is_idle(at)) {
                *track = None;
            }
            let track = track.as_ref()?;
            Some(track.reading(at, model_key, &mut recent))
        };
        let models = self.models.iter_mut().filter_map(reading).collect();
        let tracks = self.models.iter().filter_map(|(_, track)| track.as_deref());
        let tracks: Vec<&ModelLoad> = tracks.collect();
        // Means add up, but model keys peak at different times.
        let [input, output] = throughput(at, &tracks);
        Reading {
            routes: self.route_readings(),
            models,
            total: TotalReading { input, output, recent: recent.summary() },
            quotas: Vec::new(),
        }
    }

    /// Keeps the windows of a model key that has streams in flight, so that its gauges are reported although no token
    /// arrives.
    pub fn keep(&mut self, model_key: &ModelKey, at: MonotonicInstant) {
        let id = self.model_id(model_key);
        if let Some(model) = self.model(id) {
            model.keep(at);
        }
    }

    /// Returns the token counts of a model key. `None` if another [`Load`] created the handle.
    pub fn model(&mut self, id: ModelId) -> Option<&mut ModelLoad> {
        let (_, model) = self.models.get_mut(id.0)?;
        Some(model.get_or_insert_with(|| Box::new(ModelLoad::new())))
    }

    fn insert(&mut self, model_key: ModelKey) -> ModelId {
        let id = ModelId(self.models.len());
        self.models.push((model_key.clone(), None));
        self.ids.insert(model_key, id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model_key(model: &str, position: ProxyPosition) -> ModelKey {
        ModelKey {
            provider: Label::from_trusted("openai"),
            model: Label::from_trusted(model),
            route: Label::from_trusted("default"),
            position,
        }
    }

    fn route_key() -> RouteKey {
        RouteKey { route: Label::from_trusted("default"), position: ProxyPosition::Outbound }
    }

    #[test]
    fn a_transition_keeps_the_number_in_flight() {
        let mut load = Load::default();
        load.register(&route_key());
        load.enter(&route_key(), RequestPhase::Waiting);
        load.enter(&route_key(), RequestPhase::Waiting);
        load.transition(&route_key(), RequestPhase::Waiting, RequestPhase::Streaming);
        assert_eq!(load.queue_depth(&route_key()), 1);
        let routes = load.reading(MonotonicInstant::ZERO).routes;
        assert_eq!((routes[0].active, routes[0].queue_depth()), ([0, 1, 1, 0], 1));
        load.leave(&route_key(), RequestPhase::Streaming);
        assert_eq!(load.reading(MonotonicInstant::ZERO).routes[0].active, [0, 1, 0, 0]);
    }

    #[test]
    fn models_are_separate_and_only_active_models_are_reported() {
        let mut load = Load::default();
        let (large, small) = (
            model_key("large", ProxyPosition::Outbound),
            model_key("small", ProxyPosition::Outbound),
        );
        let (large_id, small_id) = (load.model_id(&large), load.model_id(&small));
        assert_eq!(load.model_id(&large), large_id);
        assert!(load.reading(MonotonicInstant::ZERO).models.is_empty());
        load.model(large_id).unwrap().output(MonotonicInstant::from_secs(10), 20);
        let second = MonotonicInstant::from_secs(10)..MonotonicInstant::from_secs(11);
        load.model(small_id).unwrap().input_spread(second, 30);
        let models = load.reading(MonotonicInstant::from_secs(12)).models;
        assert_eq!([&models[0].model_key, &models[1].model_key], [&large, &small]);
        assert_eq!(models[0].output.ten_seconds, Some(2.0));
        assert_eq!(models[1].input.ten_seconds, Some(3.0));
    }

    #[test]
    fn an_idle_model_is_removed_and_its_handle_stays_valid() {
        let mut load = Load::default();
        let id = load.model_id(&model_key("large", ProxyPosition::Outbound));
        load.model(id).unwrap().output(MonotonicInstant::from_secs(10), 20);
        assert_eq!(load.reading(MonotonicInstant::from_secs(310)).models.len(), 1);
        assert!(load.reading(MonotonicInstant::from_secs(311)).models.is_empty());
        let at = MonotonicInstant::from_secs(400);
        let model = load.model(id).unwrap();
        model.output_spread(at..at, 50);
        model.ended(at, FinishedRequest::default());
        let models = load.reading(MonotonicInstant::from_secs(401)).models;
        assert_eq!(models[0].output.ten_seconds, Some(5.0));
        assert_eq!(models[0].recent.finished, 1);
    }

    #[test]
    fn the_total_has_the_percentiles_of_all_exchanges() {
        let mut load = Load::default();
        let ended = |millis| FinishedRequest {
            duration: Some(Duration::from_millis(millis)),
            ..FinishedRequest::default()
        };
        for (model, count, millis) in [("a", 90, 100), ("b", 10, 9_000)] {
            let id = load.model_id(&model_key(model, ProxyPosition::Outbound));
            for _ in 0..count {
                load.model(id).unwrap().ended(MonotonicInstant::from_secs(1), ended(millis));
            }
        }
        let recent = load.reading(MonotonicInstant::from_secs(2)).total.recent;
        let duration = recent.duration.unwrap();
        assert_eq!((recent.finished, duration.count), (100, 100));
        assert!((duration.p50 - 0.1).abs() < 0.001 && (duration.p95 - 9.0).abs() < 0.05);
    }

    #[test]
    fn beyond_the_limit_a_model_is_other_but_keeps_its_position() {
        let mut load = Load::default();
        for number in 0..10 * MAX_MODEL_KEYS {
            for position in ProxyPosition::ALL {
                let id = load.model_id(&model_key(&number.to_string(), position));
                load.model(id).unwrap().output(MonotonicInstant::from_secs(1), 1);
            }
        }
        let models = load.reading(MonotonicInstant::from_secs(10)).models;
        assert_eq!(models.len(), MAX_MODEL_KEYS + ProxyPosition::ALL.len());
        let others = models.iter().filter(|reading| reading.model_key.model.as_str() == OTHER);
        assert_eq!(others.count(), ProxyPosition::ALL.len());
        let sum: f64 = models.iter().filter_map(|reading| reading.output.ten_seconds).sum();
        let all = (10 * MAX_MODEL_KEYS * ProxyPosition::ALL.len()) as f64;
        assert!((sum * 10.0 - all).abs() < 1e-6, "nothing is lost");
    }
}
