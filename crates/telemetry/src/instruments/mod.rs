//! Records live values and finished exchanges in the SDK's instruments.
//!
//! Values that change with every chunk have instruments that are bound to their series once ([`LiveInstruments`]). The
//! modules `end` and `call` record the values that are known when an exchange has ended. Gauges are not recorded here:
//! `gauges` reads them from a snapshot. Values that are missing in a record are not recorded.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::metrics::BoundCounter;

use crate::Config;
use crate::attributes::{lane_of, of_lane, pair, sorted, with, word};
use crate::catalog::attributes as key;
use crate::catalog::tokengauge;
use crate::exemplars::{Exemplars, SeriesId};
use crate::instruments::bound::BoundExemplarHistogram;
use crate::instruments::call::CallInstruments;
use crate::instruments::end::{CallEnd, EndInstruments, EndInstrumentsCache, EndKey};
use crate::instruments::route::RouteInstruments;
use crate::instruments::set::InstrumentSet;
use crate::metrics_reader::MetricsReader;
use crate::series_limits::{BoundedCache, CombinationLimiter, SeriesLimits};
use crate::snapshot::SnapshotSource;
use crate::span::{failed_for_the_client, method, protocol_version};
use tokengauge_llm::frame::ParseError;
use tokengauge_measure::load::{RetrySignal, RouteKey};
use tokengauge_measure::record::{
    Call, ChoiceStatus, LengthBuckets, MetricLabels, Outcome, Record,
};
use tokengauge_measure::timing::Stage;
use tokengauge_types::event::RouteFacts;
use tokengauge_types::label::{
    CardinalityLimiter, CardinalityLimits, Dimension, Label, Name, OTHER,
};
use tokengauge_types::label_values;

mod bound;
mod call;
mod end;
mod live;
mod route;
mod set;

pub use live::LiveInstruments;

/// All synchronous instruments, with the series to which they are bound.
#[derive(Debug)]
pub struct Instruments {
    set: Arc<InstrumentSet>,
    limits: SeriesLimits,
    lanes: BoundedCache<RouteKey, RouteInstruments>,
    live: BoundedCache<MetricLabels, LiveInstruments>,
    ended: BoundedCache<(MetricLabels, Option<Label>), CallInstruments>,
    closings: EndInstrumentsCache,
    failures: CombinationLimiter,
    finishes: CombinationLimiter,
    choices: CombinationLimiter,
    lengths: CombinationLimiter,
    http: CombinationLimiter,
    /// How often a combination of admitted label values exceeded its limit.
    folded: Arc<AtomicU64>,
}

/// A component of this proxy whose scheduling delay is measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Component {
    /// The tokio runtime of the data path.
    Runtime,
    /// The observer thread.
    Observer,
}

label_values!(Component { Runtime = "runtime", Observer = "observer" });

impl Instruments {
    /// Creates all instruments, and the reader for [`crate::Telemetry`]. `limits` must be the limits of the label
    /// limiter.
    pub fn new(
        config: &Config,
        limits: CardinalityLimits,
        readings: SnapshotSource,
    ) -> (Arc<Self>, MetricsReader) {
        let limits = SeriesLimits::new(limits);
        let folded = Arc::new(AtomicU64::new(0));
        let exemplars = Arc::new(Exemplars::new(config));
        let shared = (Arc::clone(&folded), Arc::clone(&exemplars));
        let (metrics_reader, meter) = MetricsReader::new(config, limits, readings, shared);
        let set = InstrumentSet::new(&meter, config.gen_ai, &exemplars);
        let instruments = Self::with_set(set, limits, folded);
        (Arc::new(instruments), metrics_reader)
    }

    fn with_set(set: InstrumentSet, limits: SeriesLimits, folded: Arc<AtomicU64>) -> Self {
        for anomaly in ParseError::ALL {
            set.own.anomalies.add(0, &[word(key::PARSE_ERROR, anomaly.as_str())]);
        }
        for why in ["not_understood", "truncated"] {
            set.own.left_out.add(0, &[word(key::OMISSION_REASON, why)]);
        }
        Self {
            set: Arc::new(set),
            limits,
            lanes: BoundedCache::default(),
            live: BoundedCache::default(),
            ended: BoundedCache::default(),
            closings: EndInstrumentsCache::default(),
            failures: CombinationLimiter::default(),
            finishes: CombinationLimiter::default(),
            choices: CombinationLimiter::default(),
            lengths: CombinationLimiter::default(),
            http: CombinationLimiter::default(),
            folded,
        }
    }

    /// Exports the series that follow from the configuration with the value 0. If a counter started at 1, `rate()`
    /// would not see its first increment.
    pub fn initialize_routes(&self, routes: &[Arc<RouteFacts>]) {
        for route in routes {
            self.lane(&lane_of(route));
        }
    }

    /// Records the start of an exchange.
    pub fn record_start(&self, route: &RouteFacts) {
        self.lane(&lane_of(route)).started.add(1);
    }

    /// Returns the instruments of one series. The caller keeps them for the duration of the stream.
    pub fn live(&self, series: &MetricLabels) -> Arc<LiveInstruments> {
        let make = |series: &MetricLabels| LiveInstruments::new(Arc::clone(&self.set), series);
        if let Some(live) = self.live.obtain_within(series, self.limits.series, make) {
            return live;
        }
        self.fold();
        let other = Label::known(OTHER);
        // If there are too many series, tenant and variant are replaced first. They multiply the number of series, and
        // the model is more important.
        let together = MetricLabels {
            tenant: series.tenant.as_ref().map(|_| other.clone()),
            variant: series.variant.as_ref().map(|_| other.clone()),
            ..series.clone()
        };
        let unnamed =
            MetricLabels { provider: other.clone(), model: other.clone(), ..together.clone() };
        let SeriesLimits { series: limit, folded, .. } = self.limits;
        self.live
            .obtain_within(&together, limit + folded / 2, make)
            .or_else(|| self.live.obtain_within(&unnamed, limit + folded, make))
            .unwrap_or_else(|| {
                let (route, server_address) = (other.clone(), other);
                let last_resort = MetricLabels { route, server_address, server_port: 0, ..unnamed };
                self.live.obtain(&last_resort, make)
            })
    }

    /// Records the time that streams spent before their first token. [`LiveInstruments::record_stream_time`] records
    /// the time after the first token.
    pub fn record_waiting(&self, lane: &RouteKey, time: Duration) {
        self.lane(lane).waiting.add(time.as_secs_f64());
    }

    /// Records the number of WebSocket messages from the client and from the upstream.
    pub fn record_messages(&self, lane: &RouteKey, numbers: [u64; 2]) {
        let lane = self.lane(lane);
        for (counter, number) in lane.messages.iter().zip(numbers) {
            counter.add(number);
        }
    }

    /// Records the start of an exchange that is a retry of an earlier exchange.
    pub fn record_retry(&self, lane: &RouteKey, sign: RetrySignal) {
        self.lane(lane).record_retry(&self.set, Some(sign));
    }

    /// Records the delay with which a component was scheduled.
    pub fn record_delay(&self, part: Component, late: Duration) {
        let attributes = [word(key::COMPONENT, part.as_str())];
        self.set.own.delay.record(late.as_secs_f64(), &attributes);
    }

    /// Exports the spending from a budget as 0 until the first call.
    pub fn register_budget(&self, name: &Label, unit: &Label) {
        self.record_spend((name, unit), 0.0);
    }

    /// Records a call for whose tokens the configuration has no price.
    pub fn record_unpriced(&self, series: &MetricLabels) {
        let live = self.live(series);
        self.set.own.unpriced.add(1, &live.base);
    }

    /// Records the amount that a call took from a budget, in the budget's unit.
    pub fn record_spend(&self, (name, unit): (&Label, &Label), amount: f64) {
        let attributes = crate::attributes::of_budget(name, unit);
        self.set.own.budget_used.add(amount, &attributes);
    }

    /// Records parse errors. They need not belong to a record.
    pub fn record_anomaly(&self, anomaly: ParseError, times: u32) {
        let attributes = [word(key::PARSE_ERROR, anomaly.as_str())];
        self.set.own.anomalies.add(u64::from(times), &attributes);
    }

    /// Records the end of an exchange. The counters of output tokens are not updated here, but in
    /// [`LiveInstruments::record`], even for non-streaming responses.
    pub fn record_end(&self, record: &Record, gate: &CardinalityLimiter) {
        for (anomaly, times) in &record.anomalies {
            self.record_anomaly(*anomaly, *times);
        }
        let call = record.call.as_ref();
        if let Some(content) = call.and_then(|call| call.content.as_deref()) {
            self.left_out("not_understood", content.left_out);
            self.left_out("truncated", content.truncated.into());
        }
        let closing = self.closings.obtain(&EndKey::of(record, self.limits.bands), || {
            let overflow_before = self.overflow_count(gate);
            let closing = self.closing(record, gate);
            // Each replacement of a value by `other` must be counted, so the instruments of such an end are not cached.
            (closing, self.overflow_count(gate) == overflow_before)
        });
        let lane = self.lane(&lane_of(&record.route));
        let exemplars = &mut self.set.exemplars.recorder(record);
        closing.record(record, exemplars);
        lane.record_connections(&self.set, record, exemplars);
    }

    /// Records parts of the content that could not be captured.
    fn left_out(&self, why: &'static str, parts: u64) {
        self.set.own.left_out.add(parts, &[word(key::OMISSION_REASON, why)]);
    }

    /// Returns how often a value or a combination was replaced by `other`.
    fn overflow_count(&self, gate: &CardinalityLimiter) -> u64 {
        let values: u64 = gate.refused().iter().map(|(_, times)| times).sum();
        values + self.folded.load(Ordering::Relaxed)
    }

    fn closing(&self, record: &Record, gate: &CardinalityLimiter) -> EndInstruments {
        let admitted = |name: &Name| gate.admit(Dimension::ErrorType, name);
        let error = record.error_type.as_ref().map(admitted);
        let [server, client] = self.http(record, error.as_ref());
        let live = record.call.as_ref().map(|call| self.live(&call.series));
        let (finished, series) = self.count(record, live.as_deref(), error.as_ref());
        EndInstruments {
            server,
            client,
            finished,
            failed: (record.outcome != Outcome::Ok).then_some(series),
            call: live
                .zip(record.call.as_ref())
                .map(|(live, call)| self.call_closing(call, live, gate, error)),
        }
    }

    fn call_closing(
        &self,
        call: &Call,
        live: Arc<LiveInstruments>,
        gate: &CardinalityLimiter,
        error: Option<Label>,
    ) -> CallEnd {
        let model = call.response_model.as_ref().map(|name| gate.admit(Dimension::Model, name));
        let ended = self.ended(&live, model.clone());
        let error = error.map(|label| {
            self.or_other(&self.failures, (&live.series, &model, &label), label.clone())
        });
        let combination = (&live.series, &model, call.bands);
        let bands = if self.limits.bands && self.admit(&self.lengths, combination) {
            call.bands
        } else {
            LengthBuckets::default()
        };
        let banded = ended.banded(bands);
        let choice = |(reason, became): (&Name, &ChoiceStatus)| {
            let label = gate.admit(Dimension::FinishReason, reason);
            let label = self.or_other(&self.choices, (&live.series, &model, &label), label.clone());
            ended.choice(&label, *became)
        };
        let choices = call.finish_reasons.iter().zip(&call.choices);
        let choices = choices.map(choice).collect();
        CallEnd { live, ended, banded, error, choices }
    }

    /// Returns the label if its combination is admitted, and `other` if not.
    fn or_other(&self, set: &CombinationLimiter, combination: impl Hash, label: Label) -> Label {
        if self.admit(set, combination) { label } else { Label::known(OTHER) }
    }

    /// Returns whether a combination is admitted. Counts the combination if it is not.
    fn admit(&self, set: &CombinationLimiter, combination: impl Hash) -> bool {
        let admitted = set.admit(self.limits.combinations, &combination);
        if !admitted {
            self.fold();
        }
        admitted
    }

    fn ended(&self, live: &LiveInstruments, model: Option<Label>) -> Arc<CallInstruments> {
        let make = |(_, model): &(MetricLabels, Option<Label>)| {
            CallInstruments::new(Arc::clone(&self.set), live, model.as_ref())
        };
        let named = (live.series.clone(), model);
        self.ended.obtain_within(&named, self.limits.ended, make).unwrap_or_else(|| {
            self.fold();
            let (series, model) = named;
            self.ended.obtain(&(series, model.map(|_| Label::known(OTHER))), make)
        })
    }

    fn count(
        &self,
        record: &Record,
        live: Option<&LiveInstruments>,
        error: Option<&Label>,
    ) -> (BoundCounter<u64>, SeriesId) {
        let lane = of_lane(&lane_of(&record.route));
        let base = live.map_or(lane.as_slice(), |live| live.base.as_slice());
        let (outcome, fault, stage) = (record.outcome, record.fault, end_stage(record));
        let series = live.map(|live| &live.series);
        let combination =
            (series, &record.route.name, outcome, fault, stage, (error, record.http.status));
        let mut own =
            vec![word(key::OUTCOME, outcome.as_str()), word(key::ERROR_SOURCE, fault.as_str())];
        if self.admit(&self.finishes, combination) {
            own.push(word(key::STAGE, stage.as_str()));
            own.extend(record.http.status.map(|status| pair(key::STATUS, i64::from(status))));
            own.extend(error.map(|error| crate::attributes::label(key::ERROR_TYPE, error)));
        } else {
            own.extend(error.map(|_| word(key::ERROR_TYPE, OTHER)));
        }
        let attributes = with(base, &own);
        let exemplars = &self.set.exemplars;
        let series = exemplars.series(&tokengauge::REQUESTS_FINISHED, &attributes);
        (self.set.own.finished.bind(&attributes), series)
    }

    /// Binds the HTTP metrics of the semantic conventions for the client's request and for the request to the upstream.
    fn http(
        &self,
        record: &Record,
        error: Option<&Label>,
    ) -> [Option<BoundExemplarHistogram<f64>>; 2] {
        let (points, http) = (&record.points, &record.http);
        if points.end.is_none() {
            return [None, None];
        }
        let combination = (&record.route.name, method(&http.method), http.status, error);
        let named = self.admit(&self.http, combination);
        let outcome = |failed: bool| {
            let status = http.status.filter(|_| named);
            let status = status.map(|status| pair(key::STATUS, i64::from(status)));
            let other = Label::known(OTHER);
            let error = error.filter(|_| failed).map(|error| if named { error } else { &other });
            status
                .into_iter()
                .chain(error.map(|error| crate::attributes::label(key::ERROR_TYPE, error)))
        };
        let mut server = of_lane(&lane_of(&record.route));
        server.push(word(key::METHOD, method(&http.method)));
        let mut client = server.clone();
        server.push(word(key::SCHEME, http.scheme.as_str()));
        server.push(word(key::PROTOCOL_VERSION, protocol_version(http.version)));
        server.extend(outcome(failed_for_the_client(record)));
        client.push(crate::attributes::label(key::SERVER_ADDRESS, &record.route.server_address));
        client.push(pair(key::SERVER_PORT, i64::from(record.route.server_port)));
        client.extend(outcome(true));
        [
            Some(self.set.http_server.bind(&sorted(server))),
            points.sent.map(|_| self.set.http_client.bind(&sorted(client))),
        ]
    }

    fn lane(&self, lane: &RouteKey) -> Arc<RouteInstruments> {
        let make = |lane: &RouteKey| RouteInstruments::new(&self.set, lane);
        self.lanes.obtain_within(lane, self.limits.lanes, make).unwrap_or_else(|| {
            self.fold();
            self.lanes.obtain(&RouteKey { route: Label::known(OTHER), ..lane.clone() }, make)
        })
    }

    fn fold(&self) {
        self.folded.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the stage in which an exchange ended, which is the stage after the last timestamp that it reached.
fn end_stage(record: &Record) -> Stage {
    let points = &record.points;
    let streamed = record.call.as_ref().is_some_and(|call| call.streamed);
    let next = [
        (points.admit, Stage::Admission),
        (points.sent, Stage::Connect),
        (points.head.or(points.uploaded), Stage::Upload),
        (points.head, Stage::Headers),
        (points.byte, Stage::FirstByte),
        (points.event.or(points.token), Stage::FirstEvent),
        (points.token, Stage::FirstToken),
        (points.visible, Stage::Reasoning),
    ];
    if record.outcome == Outcome::Ok {
        return Stage::Tail;
    }
    let expected = if streamed { next.len() } else { 5 };
    let missing = next.into_iter().take(expected).find(|(point, _)| point.is_none());
    match missing {
        Some((_, stage)) => stage,
        None if streamed => Stage::Decode,
        None => Stage::Tail,
    }
}

#[cfg(test)]
mod tests;
