//! In flight, queue depth, throughput windows: arithmetic only, `at` passed in.
//!
//! What is in flight is told apart by [`RouteKey`], tokens by [`ModelKey`]. Throughput is tokens in a window ÷ its length, in
//! slots of 1 s, over windows that end at the last full second. A window is covered once the process has run that long
//! (moments count from its start): a flow that began later brought nothing before, so its mean over the whole window is
//! true.

mod flow;
mod lanes;
mod quota;
mod recent;
mod retries;
mod total;

pub use self::quota::{LimitType, RateLimitReading, RateLimitTracker};
pub use self::retries::{RequestKey, Retries, RetrySignal};

use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::load::flow::Track;
use crate::load::lanes::Lanes;
use crate::load::recent::Segment;
use crate::record::MetricLabels;
use crate::timing::OutputRateRange;
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::ProxyPosition;
use tokengauge_types::label::{Label, OTHER};

/// What an exchange in flight is doing.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestPhase {
    /// Held back by our own admission limit.
    Queued,
    /// A stream that has not brought its first token.
    Waiting,
    /// A stream after its first token.
    Streaming,
    /// Anything that is not a streamed generation: whole answers, embeddings, plain HTTP. Outside queue depth.
    Unstreamed,
}

impl RequestPhase {
    pub const ALL: [Self; 4] = [Self::Queued, Self::Waiting, Self::Streaming, Self::Unstreamed];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Waiting => "waiting",
            Self::Streaming => "streaming",
            Self::Unstreamed => "unstreamed",
        }
    }
}

/// What in-flight gauges are told apart by: what is known of an exchange when it begins.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct RouteKey {
    pub route: Label,
    pub vantage: ProxyPosition,
}

/// What throughput is told apart by.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ModelKey {
    pub provider: Label,
    pub model: Label,
    pub route: Label,
    pub vantage: ProxyPosition,
}

impl ModelKey {
    pub fn of(series: &MetricLabels) -> Self {
        Self {
            provider: series.provider.clone(),
            model: series.model.clone(),
            route: series.route.clone(),
            vantage: series.vantage,
        }
    }

    /// Flows in the order of their names, as people look for them.
    pub fn by_name(&self) -> impl Ord + use<'_> {
        let Self { provider, model, route, vantage } = self;
        (model, provider, route, vantage.as_str())
    }
}

/// Load at one moment: what gauges, `/stats` and the console show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    pub lanes: Vec<RouteReading>,
    pub flows: Vec<ModelReading>,
    pub total: TotalReading,
    /// What is left of the caller's limits; the board's to fill in.
    pub quotas: Vec<RateLimitReading>,
}

/// All flows together: the throughput of the system.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TotalReading {
    pub input: Throughput,
    /// Its peak is the highest second of all flows together, not the sum of their peaks.
    pub output: Throughput,
    pub recent: Summary,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RouteReading {
    pub lane: RouteKey,
    /// Exchanges in each state, in the order of [`RequestPhase::ALL`].
    pub active: [u64; RequestPhase::ALL.len()],
    /// Streams without a token for a while: before their first one, and after it.
    pub silence: [StalledStreams; 2],
    /// Requests that wait in the engine behind the route, where it says so and no other route leads there.
    pub backend_waiting: Option<u64>,
}

/// How well a queue's depth is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Precision {
    /// Queued here + waiting in the engine, by its own word.
    Exact,
    /// Queued here + awaiting their first token, which includes prefill.
    Upper,
}

impl Precision {
    pub const ALL: [Self; 2] = [Self::Exact, Self::Upper];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Upper => "upper",
        }
    }
}

/// Streams that are awaited to bring a token.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StalledStreams {
    /// How many of them have stalled.
    pub stalled: u64,
    /// How long the longest has been silent; `None` where none is awaited.
    pub longest: Option<Duration>,
}

impl StalledStreams {
    /// One more such stream.
    pub fn add(&mut self, idle: Duration, stalled: bool) {
        self.stalled += u64::from(stalled);
        self.longest = self.longest.max(Some(idle));
    }
}

impl RouteReading {
    /// As well as it is known: see [`Precision`].
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
            None => Precision::Upper,
        }
    }
}

const fn queue_depth(active: &[u64; RequestPhase::ALL.len()]) -> u64 {
    let [queued, waiting, _, _] = *active;
    queued + waiting
}

#[derive(Clone, Debug, PartialEq)]
pub struct ModelReading {
    pub flow: ModelKey,
    pub input: Throughput,
    pub output: Throughput,
    pub recent: Summary,
}

/// What the exchanges that ended in the last 5 min were like: in the latest ten segments of 30 s, of which one is
/// filling. Percentiles are `None` where no exchange had such a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Of streams that had a first token, in seconds.
    pub time_to_first_token: Option<Percentiles>,
    /// Output TPS of rated streams, in tokens per second.
    pub output_rate: Option<Percentiles>,
    /// Of exchanges that ended well, in seconds.
    pub duration: Option<Percentiles>,
    /// TPOT of streams with two tokens and more, in seconds: the mean inter-token latency of each.
    pub time_per_output_token: Option<Percentiles>,
    /// How many ended.
    pub finished: u64,
    /// Those of them that did not end well, by anybody's fault but the client's.
    pub failed: u64,
    /// Rated streams by the band of their output TPS, in the order of [`OutputRateRange::ALL`].
    pub bands: [u64; OutputRateRange::ALL.len()],
    /// Those that kept up with speech ([`crate::timing::VOICE_RATE`]); they are in the highest band too.
    pub voice: u64,
}

/// Tokens per second over windows that end at the reading's last full second. A mean is `None` before its window is
/// covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Throughput {
    /// The mean of the last ten full seconds, or of those there have been since the start: what a live view shows from
    /// its first second on. Not exported, since its window is no constant.
    pub latest: Option<f64>,
    pub ten_seconds: Option<f64>,
    pub minute: Option<f64>,
    /// Also called *sustained*.
    pub five_minutes: Option<f64>,
    /// The highest 1 s slot of the last 5 min of streamed tokens, told from the first full second on. `None` for
    /// input, which is not streamed.
    pub peak: Option<f64>,
}

/// In seconds or tokens per second, as the field that holds it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    pub p5: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub count: u64,
}

/// The longest window that is kept.
pub const LONGEST_WINDOW: Duration = Duration::from_secs(300);

/// How many flows are told apart in the life of a process; what comes beyond is counted under the name `other`. Models
/// are bounded by their gate at 100, most of them of one provider and on one route, so this leaves each two and a half.
/// A flow in use takes about 200 KiB and at most 410, nearly all of it histograms: 103 MiB if every one were busy at once
/// with everything from the fastest to the slowest; one to five are in use beside most applications.
pub const MOST_FLOWS: usize = 256;

/// Stands for one flow, for the life of the [`Load`] that gave it out: chunks are counted without hashing names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ModelId(usize);

/// What load has to know of an exchange that is over.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FinishedRequest {
    /// It did not end well, by anybody's fault but the client's.
    pub failed: bool,
    /// Of streams that had a first token.
    pub time_to_first_token: Option<Duration>,
    /// Output TPS of rated streams, in tokens per second.
    pub output_rate: Option<f64>,
    /// Of what ended well.
    pub duration: Option<Duration>,
    pub time_per_output_token: Option<Duration>,
}

/// Everything in flight, and the throughput of the last minutes.
#[derive(Debug, Default)]
pub struct Load {
    lanes: Lanes,
    /// A flow keeps its place for ever, so that a [`ModelId`] cannot go stale; what is forgotten is its track.
    places: FxHashMap<ModelKey, ModelId>,
    flows: Vec<(ModelKey, Option<Box<Track>>)>,
}

impl Load {
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a lane known before its first exchange, so that it is told as 0 rather than left out.
    pub fn know(&mut self, lane: &RouteKey) {
        self.lanes.know(lane);
    }

    pub fn enter(&mut self, lane: &RouteKey, state: RequestPhase) {
        self.lanes.enter(lane, state);
    }

    pub fn shift(&mut self, lane: &RouteKey, from: RequestPhase, to: RequestPhase) {
        self.lanes.leave(lane, from);
        self.lanes.enter(lane, to);
    }

    pub fn leave(&mut self, lane: &RouteKey, state: RequestPhase) {
        self.lanes.leave(lane, state);
    }

    /// Queued + awaiting their first token.
    pub fn queue_depth(&self, lane: &RouteKey) -> u64 {
        self.lanes.queue_depth(lane)
    }

    /// The handle of a flow; takes no memory for windows before something is counted.
    pub fn flow(&mut self, flow: &ModelKey) -> ModelId {
        if let Some(known) = self.places.get(flow) {
            return *known;
        }
        if self.places.len() < MOST_FLOWS {
            return self.place(flow.clone());
        }
        // One more per vantage at most: the names are gone, but panels that pick a vantage still find the tokens.
        let other = Label::known(OTHER);
        let other = ModelKey {
            provider: other.clone(),
            model: other.clone(),
            route: other,
            vantage: flow.vantage,
        };
        match self.places.get(&other) {
            Some(known) => *known,
            None => self.place(other),
        }
    }

    /// Output tokens of a stream, at their chunk.
    pub fn output(&mut self, at: MonotonicInstant, flow: ModelId, tokens: u64) {
        if let Some(track) = self.track(flow) {
            track.output(at, tokens);
        }
    }

    /// Output tokens of an answer that came whole, spread evenly over sent…end.
    pub fn output_spread(
        &mut self,
        from: MonotonicInstant,
        to: MonotonicInstant,
        flow: ModelId,
        tokens: u64,
    ) {
        if let Some(track) = self.track(flow) {
            track.output_spread(from, to, tokens);
        }
    }

    /// Input tokens, spread evenly over sent…token (sent…end where no token came).
    pub fn input_spread(
        &mut self,
        from: MonotonicInstant,
        to: MonotonicInstant,
        flow: ModelId,
        tokens: u64,
    ) {
        if let Some(track) = self.track(flow) {
            track.input_spread(from, to, tokens);
        }
    }

    /// An exchange of the flow is over.
    pub fn ended(&mut self, at: MonotonicInstant, flow: ModelId, ended: FinishedRequest) {
        if let Some(track) = self.track(flow) {
            track.ended(at, ended);
        }
    }

    /// Every lane that is known, and every flow that was active within the longest window; the others are forgotten.
    pub fn reading(&mut self, at: MonotonicInstant) -> Reading {
        let mut recent = Segment::default();
        let tell = |(flow, track): &mut (ModelKey, Option<Box<Track>>)| {
            if track.as_ref().is_some_and(|track| track.is_idle(at)) {
                *track = None;
            }
            let track = track.as_ref()?;
            Some(track.reading(at, flow, &mut recent))
        };
        let flows = self.flows.iter_mut().filter_map(tell).collect();
        let tracks = self.flows.iter().filter_map(|(_, track)| track.as_deref());
        let tracks: Vec<&Track> = tracks.collect();
        Reading {
            lanes: self.lanes.reading(),
            flows,
            total: total::reading(at, &tracks, &recent),
            quotas: Vec::new(),
        }
    }

    fn place(&mut self, flow: ModelKey) -> ModelId {
        let id = ModelId(self.flows.len());
        self.flows.push((flow.clone(), None));
        self.places.insert(flow, id);
        id
    }

    fn track(&mut self, flow: ModelId) -> Option<&mut Track> {
        let (_, track) = self.flows.get_mut(flow.0)?;
        Some(track.get_or_insert_with(|| Box::new(Track::new())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(model: &str, vantage: ProxyPosition) -> ModelKey {
        ModelKey {
            provider: Label::known("openai"),
            model: Label::known(model),
            route: Label::known("default"),
            vantage,
        }
    }

    fn lane() -> RouteKey {
        RouteKey { route: Label::known("default"), vantage: ProxyPosition::Outbound }
    }

    #[test]
    fn a_shift_keeps_the_number_in_flight() {
        let mut load = Load::new();
        load.know(&lane());
        load.enter(&lane(), RequestPhase::Waiting);
        load.enter(&lane(), RequestPhase::Waiting);
        load.shift(&lane(), RequestPhase::Waiting, RequestPhase::Streaming);
        assert_eq!(load.queue_depth(&lane()), 1);
        let lanes = load.reading(MonotonicInstant::ZERO).lanes;
        assert_eq!((lanes[0].active, lanes[0].queue_depth()), ([0, 1, 1, 0], 1));
        load.leave(&lane(), RequestPhase::Streaming);
        assert_eq!(load.reading(MonotonicInstant::ZERO).lanes[0].active, [0, 1, 0, 0]);
    }

    #[test]
    fn flows_are_told_apart_and_only_those_in_use_are_told() {
        let mut load = Load::new();
        let (large, small) =
            (flow("large", ProxyPosition::Outbound), flow("small", ProxyPosition::Outbound));
        let (large_id, small_id) = (load.flow(&large), load.flow(&small));
        assert_eq!(load.flow(&large), large_id);
        assert!(load.reading(MonotonicInstant::ZERO).flows.is_empty());
        load.output(MonotonicInstant::from_secs(10), large_id, 20);
        load.input_spread(
            MonotonicInstant::from_secs(10),
            MonotonicInstant::from_secs(11),
            small_id,
            30,
        );
        let flows = load.reading(MonotonicInstant::from_secs(12)).flows;
        assert_eq!([&flows[0].flow, &flows[1].flow], [&large, &small]);
        assert_eq!(flows[0].output.ten_seconds, Some(2.0));
        assert_eq!(flows[1].input.ten_seconds, Some(3.0));
    }

    #[test]
    fn an_idle_flow_is_forgotten_and_its_handle_is_still_good() {
        let mut load = Load::new();
        let id = load.flow(&flow("large", ProxyPosition::Outbound));
        load.output(MonotonicInstant::from_secs(10), id, 20);
        assert_eq!(load.reading(MonotonicInstant::from_secs(310)).flows.len(), 1);
        assert!(load.reading(MonotonicInstant::from_secs(311)).flows.is_empty());
        load.output_spread(
            MonotonicInstant::from_secs(400),
            MonotonicInstant::from_secs(400),
            id,
            50,
        );
        load.ended(MonotonicInstant::from_secs(400), id, FinishedRequest::default());
        let flows = load.reading(MonotonicInstant::from_secs(401)).flows;
        assert_eq!(flows[0].output.ten_seconds, Some(5.0));
        assert_eq!(flows[0].recent.finished, 1);
    }

    #[test]
    fn the_total_has_the_percentiles_of_all_exchanges() {
        let mut load = Load::new();
        let ended = |millis| FinishedRequest {
            duration: Some(Duration::from_millis(millis)),
            ..FinishedRequest::default()
        };
        for (model, count, millis) in [("a", 90, 100), ("b", 10, 9_000)] {
            let id = load.flow(&flow(model, ProxyPosition::Outbound));
            for _ in 0..count {
                load.ended(MonotonicInstant::from_secs(1), id, ended(millis));
            }
        }
        let recent = load.reading(MonotonicInstant::from_secs(2)).total.recent;
        let duration = recent.duration.unwrap();
        assert_eq!((recent.finished, duration.count), (100, 100));
        assert!((duration.p50 - 0.1).abs() < 0.001 && (duration.p95 - 9.0).abs() < 0.05);
    }

    #[test]
    fn beyond_the_bound_a_flow_is_other_but_keeps_its_vantage() {
        let mut load = Load::new();
        for number in 0..10 * MOST_FLOWS {
            for vantage in ProxyPosition::ALL {
                let id = load.flow(&flow(&number.to_string(), vantage));
                load.output(MonotonicInstant::from_secs(1), id, 1);
            }
        }
        let flows = load.reading(MonotonicInstant::from_secs(10)).flows;
        assert_eq!(flows.len(), MOST_FLOWS + ProxyPosition::ALL.len());
        let others = flows.iter().filter(|told| told.flow.model.as_str() == OTHER);
        assert_eq!(others.count(), ProxyPosition::ALL.len());
        let sum: f64 = flows.iter().filter_map(|told| told.output.ten_seconds).sum();
        let all = (10 * MOST_FLOWS * ProxyPosition::ALL.len()) as f64;
        assert!((sum * 10.0 - all).abs() < 1e-6, "nothing is lost");
    }
}
