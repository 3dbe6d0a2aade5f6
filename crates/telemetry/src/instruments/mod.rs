//! Samples and finished exchanges → instruments.
//!
//! What moves with every chunk is bound to its series once ([`Live`]); what is recorded at the end goes through
//! `closing` and `ended`; what is a state rather than an event is read from a snapshot ([`observed`]). Nothing in here is a judgement:
//! a number that the record does not have is not recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::metrics::BoundCounter;

use crate::Config;
use crate::collector::Collector;
use crate::exemplars::{Exemplars, Series as Marked};
use crate::instruments::attributes::{lane_of, of_lane, pair, sorted, with, word};
use crate::instruments::bounded::{Bounds, Cache, Combinations};
use crate::instruments::closing::{CallClosing, Closing, Closings, Shape};
use crate::instruments::ended::Ended;
use crate::instruments::family::Family;
use crate::instruments::lane::LaneCounters;
use crate::instruments::traced::BoundTraced;
use crate::names::attributes as key;
use crate::names::ours;
use crate::snapshot::Readings;
use crate::span::{failed_for_the_client, method, protocol_version};
use tokengauge_llm::frame::Anomaly;
use tokengauge_measure::load::{Lane, Sign};
use tokengauge_measure::record::{Bands, Became, Call, Outcome, Record, Series};
use tokengauge_measure::timing::Stage;
use tokengauge_types::event::RouteFacts;
use tokengauge_types::label::{Dimension, Gate, Label, Limits, Name, OTHER};

mod attributes;
mod backends;
mod banded;
pub mod bounded;
mod closing;
mod drift;
mod ended;
mod family;
mod lane;
mod live;
mod network;
pub mod observed;
mod process;
mod quota;
mod slot;
mod spending;
mod traced;

pub use live::Live;

/// Every synchronous instrument, and the series they have.
#[derive(Debug)]
pub struct Instruments {
    family: Arc<Family>,
    bounds: Bounds,
    lanes: Cache<Lane, LaneCounters>,
    live: Cache<Series, Live>,
    ended: Cache<(Series, Option<Label>), Ended>,
    closings: Closings,
    failures: Combinations,
    finishes: Combinations,
    choices: Combinations,
    lengths: Combinations,
    http: Combinations,
    /// How often a combination of admitted values was one too many.
    folded: Arc<AtomicU64>,
}

/// A part of this proxy whose delays are known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    /// The runtime that moves the bytes.
    Runtime,
    /// The thread that observes them.
    Observer,
}

impl Part {
    pub const ALL: [Self; 2] = [Self::Runtime, Self::Observer];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Runtime => "runtime",
            Self::Observer => "observer",
        }
    }
}

impl Instruments {
    /// `limits` are the gate's: they bound the number of series. The collector is what [`crate::Telemetry`]
    /// starts with.
    pub fn new(config: &Config, limits: Limits, readings: Readings) -> (Arc<Self>, Collector) {
        let bounds = Bounds::of(limits);
        let folded = Arc::new(AtomicU64::new(0));
        let exemplars = Arc::new(Exemplars::new(config));
        let beside = (Arc::clone(&folded), Arc::clone(&exemplars));
        let (collector, meter) = Collector::new(config, bounds, readings, beside);
        let family = Family::new(&meter, config.gen_ai, &exemplars);
        let instruments = Self::of_family(family, bounds, folded);
        (Arc::new(instruments), collector)
    }

    fn of_family(family: Family, bounds: Bounds, folded: Arc<AtomicU64>) -> Self {
        for anomaly in Anomaly::ALL {
            family.anomalies.add(0, &[word(key::ANOMALY, anomaly.as_str())]);
        }
        for why in ["not_understood", "truncated"] {
            family.left_out.add(0, &[word(key::OMISSION, why)]);
        }
        Self {
            family: Arc::new(family),
            bounds,
            lanes: Cache::default(),
            live: Cache::default(),
            ended: Cache::default(),
            closings: Closings::default(),
            failures: Combinations::default(),
            finishes: Combinations::default(),
            choices: Combinations::default(),
            lengths: Combinations::default(),
            http: Combinations::default(),
            folded,
        }
    }

    /// Exports every combination that is known from the configuration as 0: a series that is born at 1 loses its first
    /// event in `rate()`.
    pub fn prime(&self, routes: &[Arc<RouteFacts>]) {
        for route in routes {
            self.lane(&lane_of(route));
        }
    }

    /// An exchange began.
    pub fn started(&self, route: &RouteFacts) {
        self.lane(&lane_of(route)).started.add(1);
    }

    /// The handles for one series; made at the first call, shared afterwards. Keep it for the length of the stream.
    pub fn live(&self, series: &Series) -> Arc<Live> {
        let make = |series: &Series| Live::new(Arc::clone(&self.family), series);
        let found = self.live.obtain(series, self.bounds.series, make);
        if let Some(live) = found {
            return live;
        }
        self.fold();
        let other = Label::known(OTHER);
        // Who multiplies the calls is given up first: of the model more is read.
        let together = Series {
            tenant: series.tenant.as_ref().map(|_| other.clone()),
            variant: series.variant.as_ref().map(|_| other.clone()),
            ..series.clone()
        };
        let unnamed = Series { provider: other.clone(), model: other.clone(), ..together.clone() };
        let limit = self.bounds.series + self.bounds.folded;
        let half = self.bounds.series + self.bounds.folded / 2;
        let last_resort = Series {
            route: other.clone(),
            server_address: other,
            server_port: 0,
            ..unnamed.clone()
        };
        self.live
            .obtain(&together, half, make)
            .or_else(|| self.live.obtain(&unnamed, limit, make))
            .or_else(|| self.live.obtain(&last_resort, usize::MAX, make))
            .unwrap_or_else(|| Arc::new(make(&last_resort)))
    }

    /// Stream-seconds went by in which a first token was awaited. Those after it are told by [`Live::streaming`].
    pub fn waiting(&self, lane: &Lane, time: Duration) {
        self.lane(lane).waiting.add(time.as_secs_f64());
    }

    /// Messages went by over a WebSocket: from the client, and from the upstream.
    pub fn messages(&self, lane: &Lane, numbers: [u64; 2]) {
        let lane = self.lane(lane);
        for (counter, number) in lane.messages.iter().zip(numbers) {
            counter.add(number);
        }
    }

    /// An exchange began that repeats an earlier one.
    pub fn retried(&self, lane: &Lane, sign: Sign) {
        self.lane(lane).retried(sign);
    }

    /// A part of this proxy had its turn so much later than that was due.
    pub fn late(&self, part: Part, late: Duration) {
        let attributes = [word(key::PART, part.as_str())];
        self.family.delay.record(late.as_secs_f64(), &attributes);
    }

    /// Budgets that are known from here on: told as 0.
    pub fn budget(&self, name: &Label, unit: &Label) {
        self.spent((name, unit), 0.0);
    }

    /// A call of this series used tokens that have no price.
    pub fn unpriced(&self, series: &Series) {
        let live = self.live(series);
        self.family.unpriced.add(1, &live.base);
    }

    /// A call took so much from a budget, in its unit.
    pub fn spent(&self, (name, unit): (&Label, &Label), amount: f64) {
        let attributes = spending::of(name, unit);
        self.family.budget_used.add(amount, &attributes);
    }

    /// Something odd went by, outside any record or in one.
    pub fn odd(&self, anomaly: Anomaly, times: u32) {
        let attributes = [word(key::ANOMALY, anomaly.as_str())];
        self.family.anomalies.add(u64::from(times), &attributes);
    }

    /// An exchange is over. Does not touch the counters of output tokens: those move only by [`Live::sample`], for
    /// whole answers too.
    pub fn finished(&self, record: &Record, gate: &Gate) {
        for (anomaly, times) in &record.anomalies {
            self.odd(*anomaly, *times);
        }
        let call = record.call.as_ref();
        if let Some(content) = call.and_then(|call| call.content.as_deref()) {
            self.left_out("not_understood", content.left_out);
            self.left_out("truncated", content.truncated.into());
        }
        let closing = self.closings.obtain(&Shape::of(record, self.bounds.bands), || {
            let refused_before = self.refusals(gate);
            let closing = self.closing(record, gate);
            // What had to be called `other` is told each time.
            (closing, self.refusals(gate) == refused_before)
        });
        let lane = self.lane(&lane_of(&record.route));
        let marks = &mut self.family.exemplars.marks(record);
        closing.record(record, marks);
        lane.connections.record(&self.family, record, marks);
    }

    /// Content that was to be captured was not.
    fn left_out(&self, why: &'static str, parts: u64) {
        self.family.left_out.add(parts, &[word(key::OMISSION, why)]);
    }

    /// How often a value or a combination had to be called `other`.
    fn refusals(&self, gate: &Gate) -> u64 {
        let values: u64 = gate.refused().iter().map(|(_, times)| times).sum();
        values + self.folded.load(Ordering::Relaxed)
    }

    fn closing(&self, record: &Record, gate: &Gate) -> Closing {
        let admitted = |name: &Name| gate.admit(Dimension::ErrorType, name);
        let error = record.error_type.as_ref().map(admitted);
        let [server, client] = self.http(record, error.as_ref());
        let live = record.call.as_ref().map(|call| self.live(&call.series));
        let (finished, series) = self.count(record, live.as_deref(), error.as_ref());
        Closing {
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
        live: Arc<Live>,
        gate: &Gate,
        error: Option<Label>,
    ) -> CallClosing {
        let model = call.response_model.as_ref().map(|name| gate.admit(Dimension::Model, name));
        let ended = self.ended(&live, model.clone());
        let error = error.map(|label| {
            self.or_other(&self.failures, (&live.series, &model, &label), label.clone())
        });
        let bands = if self.bounds.bands && self.is_banded(&live, model.as_ref(), call.bands) {
            call.bands
        } else {
            Bands::default()
        };
        let banded = ended.banded(bands);
        let choice = |(reason, became): (&Name, &Became)| {
            let label = gate.admit(Dimension::FinishReason, reason);
            let label = self.or_other(&self.choices, (&live.series, &model, &label), label.clone());
            ended.choice(&label, *became)
        };
        let choices = call.finish_reasons.iter().zip(&call.choices);
        let choices = choices.map(choice).collect();
        CallClosing { live, ended, banded, error, choices }
    }

    /// Whether there is a place for calls of these lengths; else they are told without them.
    fn is_banded(&self, live: &Live, model: Option<&Label>, bands: Bands) -> bool {
        let combination = (&live.series, model, bands);
        let admitted = self.lengths.admit(self.bounds.combinations, &combination);
        if !admitted {
            self.fold();
        }
        admitted
    }

    /// The label itself where its combination is known or has a place, else `other`.
    fn or_other(
        &self,
        set: &Combinations,
        combination: impl std::hash::Hash,
        label: Label,
    ) -> Label {
        if set.admit(self.bounds.combinations, &combination) {
            return label;
        }
        self.fold();
        Label::known(OTHER)
    }

    fn ended(&self, live: &Live, model: Option<Label>) -> Arc<Ended> {
        let make = |(_, model): &(Series, Option<Label>)| {
            Ended::new(Arc::clone(&self.family), live, model.as_ref())
        };
        let named = (live.series.clone(), model.clone());
        let found = self.ended.obtain(&named, self.bounds.ended, make);
        if let Some(ended) = found {
            return ended;
        }
        self.fold();
        let model = model.map(|_| Label::known(OTHER));
        let folded = (live.series.clone(), model.clone());
        let ended = self.ended.obtain(&folded, usize::MAX, make);
        ended
            .unwrap_or_else(|| Arc::new(Ended::new(Arc::clone(&self.family), live, model.as_ref())))
    }

    fn count(
        &self,
        record: &Record,
        live: Option<&Live>,
        error: Option<&Label>,
    ) -> (BoundCounter<u64>, Marked) {
        let lane = of_lane(&lane_of(&record.route));
        let base = live.map_or(lane.as_slice(), |live| live.base.as_slice());
        let (outcome, fault, stage) = (record.outcome, record.fault, end_stage(record));
        let series = live.map(|live| &live.series);
        let combination =
            (series, &record.route.name, outcome, fault, stage, (error, record.http.status));
        let mut own = vec![word(key::OUTCOME, outcome.as_str()), word(key::FAULT, fault.as_str())];
        if self.finishes.admit(self.bounds.combinations, &combination) {
            own.push(word(key::STAGE, stage.as_str()));
            own.extend(record.http.status.map(|status| pair(key::STATUS, i64::from(status))));
            own.extend(error.map(|error| attributes::label(key::ERROR_TYPE, error)));
        } else {
            self.fold();
            own.extend(error.map(|_| word(key::ERROR_TYPE, OTHER)));
        }
        let attributes = with(base, &own);
        let exemplars = &self.family.exemplars;
        let series = exemplars.series(&ours::REQUESTS_FINISHED, &attributes);
        (self.family.finished.bind(&attributes), series)
    }

    /// The standard's HTTP metrics, for every exchange: as the client's request, and as the upstream's answer.
    fn http(&self, record: &Record, error: Option<&Label>) -> [Option<BoundTraced<f64>>; 2] {
        let (points, http) = (&record.points, &record.http);
        if points.end.is_none() {
            return [None, None];
        }
        let combination = (&record.route.name, method(&http.method), http.status, error);
        let named = self.http.admit(self.bounds.combinations, &combination);
        let outcome = |failed: bool| {
            let status = http.status.filter(|_| named);
            let status = status.map(|status| pair(key::STATUS, i64::from(status)));
            let other = Label::known(OTHER);
            let error = error.filter(|_| failed).map(|error| if named { error } else { &other });
            status.into_iter().chain(error.map(|error| attributes::label(key::ERROR_TYPE, error)))
        };
        if !named {
            self.fold();
        }
        let mut server = of_lane(&lane_of(&record.route));
        server.push(word(key::METHOD, method(&http.method)));
        let mut client = server.clone();
        server.push(word(key::SCHEME, http.scheme.as_str()));
        server.push(word(key::PROTOCOL_VERSION, protocol_version(http.version)));
        server.extend(outcome(failed_for_the_client(record)));
        client.push(attributes::label(key::SERVER_ADDRESS, &record.route.server_address));
        client.push(pair(key::SERVER_PORT, i64::from(record.route.server_port)));
        client.extend(outcome(true));
        [
            Some(self.family.http_server.bind(&sorted(server))),
            points.sent.map(|_| self.family.http_client.bind(&sorted(client))),
        ]
    }

    fn lane(&self, lane: &Lane) -> Arc<LaneCounters> {
        let make = |lane: &Lane| LaneCounters::new(&self.family, lane);
        let found = self.lanes.obtain(lane, self.bounds.lanes, make);
        found.unwrap_or_else(|| {
            self.fold();
            let other = Lane { route: Label::known(OTHER), ..lane.clone() };
            let folded = self.lanes.obtain(&other, usize::MAX, make);
            folded.unwrap_or_else(|| Arc::new(make(&other)))
        })
    }

    fn fold(&self) {
        self.folded.fetch_add(1, Ordering::Relaxed);
    }
}

/// The stage in which an exchange ended: the one after the last point that it reached.
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
        (points.visible, Stage::Thinking),
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
