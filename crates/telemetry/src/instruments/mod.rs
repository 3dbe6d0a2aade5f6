//! Records values of running streams and of finished requests in the SDK's instruments.
//!
//! Values that change with every chunk use instruments that are bound to their series once ([`LiveInstruments`]). The
//! values that are known when a request has ended are rows of the catalog, and `table` records them. Gauges are not
//! recorded here, because `catalog::state` reads them from a snapshot.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opentelemetry::KeyValue;

use crate::TelemetryConfig;
use crate::attributes::{
    budget_attributes, label, pair, route_attributes, series_attributes, sorted, with, word,
};
use crate::catalog::attributes as key;
use crate::catalog::values::Number;
use crate::catalog::{health, tokengauge};
use crate::config::Profile;
use crate::exemplars::Exemplars;
use crate::instruments::finished::{
    FinishedRequestCache, FinishedRequestInstruments, FinishedRequestKey,
};
use crate::instruments::result::{FinishedResult, UpstreamLabels, response_model, status};
use crate::instruments::route::RouteInstruments;
use crate::instruments::table::{InstrumentTable, LabelSet, Scope};
use crate::metrics_reader::MetricsReader;
use crate::series_limits::{Overflow, SeriesGroup, SeriesLimiter, SharedValues};
use crate::snapshot::SnapshotSource;
use crate::span::{failed_for_the_client, method, protocol_version};
use tokengauge_llm::count::Source;
use tokengauge_llm::frame::ParseError;
use tokengauge_measure::load::{RetrySignal, RouteKey};
use tokengauge_measure::record::{
    Call, ChoiceStatus, Cost, FinishedChoice, LengthBucket, LengthBuckets, MetricLabels, Record,
};
use tokengauge_types::event::RouteFacts;
use tokengauge_types::label::{
    CardinalityLimiter, CardinalityLimits, Dimension, Label, Name, OTHER,
};
use tokengauge_types::label_enum;

mod finished;
mod live;
mod mcp;
mod result;
mod route;
mod table;

use live::TimingLabels;

pub use live::LiveInstruments;

/// All counters and histograms, with the series to which they are bound.
#[derive(Debug)]
pub struct Instruments {
    table: Arc<InstrumentTable>,
    series_limiter: SeriesLimiter,
    /// Whether metrics of calls have labels for the length ranges of prompt and response.
    has_length_buckets: bool,
    /// With the lean profile, only counters of finished calls have the labels for tenant and variant.
    profile: Profile,
    routes: SharedValues<RouteKey, RouteInstruments>,
    live: SharedValues<MetricLabels, LiveInstruments>,
    timings: SharedValues<MetricLabels, TimingLabels>,
    /// The series of finished calls by label set and attributes, which several results share.
    calls: SharedValues<(LabelSet, Arc<[KeyValue]>), Scope>,
    finished_requests: FinishedRequestCache,
}

label_enum! {
    /// A component of this proxy whose scheduling delay is measured.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum Component {
        /// The tokio runtime of the data path.
        Runtime = "runtime",
        Observer = "observer",
    }
}

impl Instruments {
    /// Creates all instruments, and the metrics reader for [`crate::Telemetry`]. `limits` must be the limits of the
    /// [`CardinalityLimiter`] that [`Self::record_end`] gets.
    pub fn new(
        config: &TelemetryConfig,
        limits: CardinalityLimits,
        readings: SnapshotSource,
    ) -> (Arc<Self>, MetricsReader) {
        let series_limiter = SeriesLimiter::new(config.selection());
        let exemplars = Arc::new(Exemplars::new(config));
        let shared = (Arc::clone(series_limiter.overflowed()), Arc::clone(&exemplars));
        let (metrics_reader, meter) = MetricsReader::new(config, readings, shared);
        let table = InstrumentTable::new(&meter, config.selection(), &exemplars);
        let instruments = Self {
            table: Arc::new(table),
            series_limiter,
            has_length_buckets: limits.length_buckets && config.profile == Profile::Full,
            profile: config.profile,
            routes: SharedValues::default(),
            live: SharedValues::default(),
            timings: SharedValues::default(),
            calls: SharedValues::default(),
            finished_requests: FinishedRequestCache::default(),
        };
        ParseError::ALL.into_iter().for_each(|anomaly| instruments.record_anomaly(anomaly, 0));
        for why in ["not_understood", "truncated"] {
            instruments.record_omitted(why, 0);
        }
        (Arc::new(instruments), metrics_reader)
    }

    /// Exports the series of all configured routes with the value 0. If a counter started at 1, `rate()` would not
    /// include its first increment.
    pub fn initialize_routes(&self, routes: &[Arc<RouteFacts>]) {
        for route in routes {
            self.route_instruments(&RouteKey::from_route(route));
        }
    }

    pub fn record_start(&self, route: &RouteFacts) {
        self.route_instruments(&RouteKey::from_route(route)).started.record(1.0);
    }

    /// Returns the instruments for streams with these labels. The caller keeps the instruments for the duration of the
    /// stream.
    pub fn live(&self, series: &MetricLabels) -> Arc<LiveInstruments> {
        if let Some(live) = self.live.get(series) {
            return live;
        }
        let limiter = &self.series_limiter;
        let group = match self.profile {
            Profile::Full => SeriesGroup::Call,
            Profile::Lean => SeriesGroup::ResponseModel,
        };
        let (replaced, _) = limiter.replace_with_other(series, group, &());
        self.live.obtain(&replaced, |series| {
            let mut shared = self.shared_labels(series);
            if self.profile == Profile::Lean {
                shared = limiter.replace_with_other(&shared, SeriesGroup::Live, &()).0;
            }
            let (labels, _) = limiter.replace_with_other(&shared, SeriesGroup::Timings, &());
            let timings = self.timings.obtain(&labels, TimingLabels::new);
            LiveInstruments::new(Arc::clone(&self.table), (series, &shared), timings)
        })
    }

    /// Exports the counters that a response will probably update as 0, so that `rate()` includes their first increment.
    /// These are the output tokens from `source` and the successful requests with this status. Does so once for each
    /// series.
    pub fn initialize_response(&self, live: &LiveInstruments, status: u16, source: Source) {
        if live.initialize_response(source) {
            let result = FinishedResult::ok(status);
            let base = self.finish_attributes(&live.series, series_attributes, &result);
            self.table.record(&tokengauge::REQUESTS_FINISHED, &base, &[], 0);
        }
    }

    /// Records the time that streams waited for their first token. [`LiveInstruments::record_stream_time`] records the
    /// time after the first token.
    pub fn record_waiting(&self, route_key: &RouteKey, time: Duration) {
        self.route_instruments(route_key).waiting.record(time.as_secs_f64());
    }

    /// Records the number of WebSocket messages from the client and from the upstream.
    pub fn record_messages(&self, route_key: &RouteKey, numbers: [u64; 2]) {
        let route = self.route_instruments(route_key);
        for (counter, number) in route.messages.iter().zip(numbers) {
            counter.record(number.into_f64());
        }
    }

    /// Counts a request that is a retry of an earlier request.
    pub fn record_retry(&self, route_key: &RouteKey, signal: RetrySignal) {
        self.route_instruments(route_key).record_retry(signal);
    }

    /// Records the delay with which a component was scheduled.
    pub fn record_delay(&self, part: Component, late: Duration) {
        self.table.record(&health::SELF_SCHEDULING_DELAY, &[], &[part.as_str()], late);
    }

    /// Counts a call for whose tokens the configuration has no price.
    pub fn record_unpriced(&self, series: &MetricLabels) {
        self.live(series).record_unpriced();
    }

    /// Adds the amount that a call took from a budget, in the budget's unit. An amount of 0 exports the budget's
    /// counter as 0 before the first call.
    pub fn record_spend(&self, (name, unit): (&Label, &Label), amount: f64) {
        self.table.record(&tokengauge::BUDGET_USED, &budget_attributes(name, unit), &[], amount);
    }

    /// Records parse errors, including those that do not belong to a finished request.
    pub fn record_anomaly(&self, anomaly: ParseError, times: u32) {
        let labels = [anomaly.as_str()];
        self.table.record(&health::SELF_PARSE_ERRORS, &[], &labels, u64::from(times));
    }

    /// Records a finished request. Output tokens are not counted here, but in [`LiveInstruments::record`], even for
    /// responses that are not streamed.
    pub fn record_end(&self, record: &Record, limiter: &CardinalityLimiter) {
        for (anomaly, times) in &record.anomalies {
            self.record_anomaly(*anomaly, *times);
        }
        let call = record.call.as_ref();
        if let Some(content) = call.and_then(|call| call.content.as_deref()) {
            let parts =
                [("not_understood", content.left_out), ("truncated", content.truncated.into())];
            for (why, parts) in parts.into_iter().filter(|(_, parts)| *parts > 0) {
                self.record_omitted(why, parts);
            }
        }
        let instruments = self.finished_requests.obtain(
            FinishedRequestKey::from_record(record, self.has_length_buckets),
            || {
                let overflow_before = self.overflow_count(limiter);
                let instruments = self.finished_request(record, limiter);
                // Each replacement of a value by `other` must be counted, so the instruments of such a request are not
                // cached.
                (instruments, self.overflow_count(limiter) == overflow_before)
            },
        );
        if let Some(mcp) = &record.mcp {
            self.record_mcp(record, mcp, limiter);
        }
        let exemplars = &mut self.table.exemplars.recorder(record);
        instruments.record(&self.table, record, exemplars);
    }

    /// Counts parts of a call's content that could not be captured.
    fn record_omitted(&self, why: &'static str, parts: u64) {
        self.table.record(&health::SELF_CONTENT_OMITTED, &[], &[why], parts);
    }

    /// Returns how often a value, or labels of a combination, were replaced by `other`.
    fn overflow_count(&self, limiter: &CardinalityLimiter) -> u64 {
        let values: u64 = limiter.refused().iter().map(|(_, times)| times).sum();
        values + self.series_limiter.overflowed().load(Ordering::Relaxed)
    }

    fn finished_request(
        &self,
        record: &Record,
        limiter: &CardinalityLimiter,
    ) -> FinishedRequestInstruments {
        let route_key = RouteKey::from_route(&record.route);
        let admitted = |name: &Name| limiter.admit(Dimension::ErrorType, name);
        let error = record.error_type.as_ref().map(admitted);
        let mut scopes = self.http(record, error.as_ref());
        let live = record.call.as_ref().map(|call| self.live(&call.series));
        let result = FinishedResult::from_record(record, error.as_ref());
        let finish = match &live {
            Some(live) => self.finish_attributes(&live.series, series_attributes, &result),
            None => self.finish_attributes(&route_key, route_attributes, &result),
        };
        scopes.push(self.bound_scope(LabelSet::Finish, &finish));
        if let (Some(live), Some(call)) = (&live, &record.call) {
            scopes.extend(self.finished_call(call, live, limiter, error.as_ref()));
        }
        scopes.push(Arc::clone(&self.route_instruments(&route_key).finished));
        FinishedRequestInstruments { scopes, live }
    }

    fn finished_call(
        &self,
        call: &Call,
        live: &LiveInstruments,
        limiter: &CardinalityLimiter,
        error: Option<&Label>,
    ) -> Vec<Arc<Scope>> {
        let model = call.response_model.as_ref().map(|name| limiter.admit(Dimension::Model, name));
        let (labels, timing_labels) = (&live.series, &live.timings.labels);
        let group = SeriesGroup::ResponseModel;
        let of_counters = self.response_model(labels, &live.response_model, group, &model);
        let group = SeriesGroup::ResponseModelTimings;
        let first = &live.timings.response_model;
        let of_histograms = self.response_model(timing_labels, first, group, &model);
        let with_model = |base: &[KeyValue], model: Option<Label>| {
            with(base, model.map(|model| label(key::RESPONSE_MODEL, &model)).as_slice())
        };
        let counters = with_model(&series_attributes(labels), of_counters);
        let timings = with_model(&live.timings.base, of_histograms);
        let lengths = self.length_attributes(call, timing_labels, &model);
        let choice = |choice: &FinishedChoice| {
            let reason = choice.reason.as_ref();
            let reason = reason.map(|reason| limiter.admit(Dimension::FinishReason, reason));
            self.choice(labels, (&model, reason.as_ref(), choice.status))
        };
        let cost = |cost: &Cost| {
            let source = word(key::TOKEN_SOURCE, cost.source.as_str());
            with(&counters, &[label(key::CURRENCY, &cost.currency), source])
        };
        let mut scopes: Vec<_> = call.choices.iter().map(choice).collect();
        scopes.extend(call.cost.as_ref().map(|it| self.shared_scope(LabelSet::Cost, cost(it))));
        scopes.push(self.shared_scope(LabelSet::Lengths, with(&timings, &lengths)));
        scopes.push(match error {
            Some(error) => self.failure(timing_labels, &model, error),
            None => self.shared_scope(LabelSet::Failure, timings.clone()),
        });
        scopes.push(self.shared_scope(LabelSet::Timings, timings));
        scopes.push(self.shared_scope(LabelSet::Counters, counters));
        scopes
    }

    fn bound_scope(&self, set: LabelSet, base: &[KeyValue]) -> Arc<Scope> {
        Arc::new(self.table.bound_scope(set, base))
    }

    /// Returns a scope that all results of a call with the same attributes share.
    fn shared_scope(&self, set: LabelSet, base: Vec<KeyValue>) -> Arc<Scope> {
        let new = |(set, base): &(_, Arc<_>)| self.table.scope(*set, Arc::clone(base));
        self.calls.obtain(&(set, base.into()), new)
    }

    /// Returns the labels for the length ranges of prompt and response. There are none if they are not configured, or
    /// if the limit on series does not admit them.
    fn length_attributes(
        &self,
        call: &Call,
        labels: &MetricLabels,
        model: &Option<Label>,
    ) -> Vec<KeyValue> {
        let LengthBuckets { input, output } = call.length_buckets;
        let combination = (model, call.length_buckets);
        let is_admitted = self.has_length_buckets
            && self.series_limiter.admit_as_is(labels, SeriesGroup::Lengths, &combination);
        [(key::INPUT_LENGTH_BUCKET, input), (key::OUTPUT_LENGTH_BUCKET, output)]
            .into_iter()
            .filter_map(|(key, bucket)| Some(word(key, bucket.map(LengthBucket::as_str)?)))
            .filter(|_| is_admitted)
            .collect()
    }

    /// Returns the response model that a series gets. The limit on series already includes the first response model of
    /// the labels. Each further response model must be admitted, and is replaced by `other` if it is not. A call
    /// without a response model is always admitted.
    fn response_model(
        &self,
        labels: &MetricLabels,
        first: &OnceLock<Label>,
        group: SeriesGroup,
        model: &Option<Label>,
    ) -> Option<Label> {
        let Some(model) = model else {
            if group == SeriesGroup::ResponseModelTimings {
                self.series_limiter.admit_always(labels, SeriesGroup::UnnamedTimings, &());
            }
            return None;
        };
        let is_admitted = first.get_or_init(|| model.clone()) == model
            || model.as_str() == OTHER
            || self.series_limiter.admit_as_is(labels, group, model);
        Some(if is_admitted { model.clone() } else { Label::from_trusted(OTHER) })
    }

    /// Returns the histograms of calls that failed with this error.
    fn failure(&self, labels: &MetricLabels, model: &Option<Label>, error: &Label) -> Arc<Scope> {
        let group = SeriesGroup::Failure;
        let (labels, step) = self.series_limiter.replace_with_other(labels, group, &(model, error));
        let own: Vec<_> = response_model(model, step)
            .into_iter()
            .chain([label(key::ERROR_TYPE, error)])
            .collect();
        let base = with(&series_attributes(&labels), &own);
        Arc::new(self.table.scope(LabelSet::Failure, base.into()))
    }

    /// Returns the labels of series that calls of several tenants and variants share with the lean profile.
    fn shared_labels(&self, labels: &MetricLabels) -> MetricLabels {
        match self.profile {
            Profile::Full => labels.clone(),
            Profile::Lean => labels.without_identity(),
        }
    }

    /// Returns the counter of choices with this response model, finish reason and status.
    fn choice(
        &self,
        labels: &MetricLabels,
        own: (&Option<Label>, Option<&Label>, ChoiceStatus),
    ) -> Arc<Scope> {
        let labels = self.shared_labels(labels);
        let (labels, step) =
            self.series_limiter.replace_with_other(&labels, SeriesGroup::Choice, &own);
        let (model, reason, status) = own;
        let reason = reason.map(|reason| label(key::FINISH_REASON, reason));
        let result = word(key::CHOICE_RESULT, status.as_str());
        let own: Vec<_> =
            response_model(model, step).into_iter().chain(reason).chain([result]).collect();
        self.bound_scope(LabelSet::Choice, &with(&series_attributes(&labels), &own))
    }

    /// Returns the attributes of the counter of finished requests.
    fn finish_attributes<L: Overflow>(
        &self,
        labels: &L,
        attributes_of: impl Fn(&L) -> Vec<KeyValue>,
        result: &FinishedResult<'_>,
    ) -> Vec<KeyValue> {
        let (labels, step) =
            self.series_limiter.replace_with_other(labels, SeriesGroup::Finish, result);
        with(&attributes_of(&labels), &result.attributes(step))
    }

    /// Returns the HTTP histograms of the semantic conventions: one for the client's request, and one for the request to
    /// the upstream. A call inside a WebSocket has neither.
    fn http(&self, record: &Record, error: Option<&Label>) -> Vec<Arc<Scope>> {
        let http = &record.http;
        if record.timestamps.end.is_none() || record.is_turn {
            return Vec::new();
        }
        let labels = UpstreamLabels::from_route(&record.route);
        let request = (method(&http.method), http.scheme.as_str(), protocol_version(http.version));
        let result = (http.status, error, failed_for_the_client(record));
        let (labels, step) =
            self.series_limiter.replace_with_other(&labels, SeriesGroup::Http, &(request, result));
        let outcome = |has_failed: bool| {
            let error = error.filter(|_| has_failed).map(|error| label(key::ERROR_TYPE, error));
            status(http.status, step).into_iter().chain(error)
        };
        let mut server = route_attributes(&labels.route_key);
        server.push(word(key::METHOD, method(&http.method)));
        let mut client = server.clone();
        server.push(word(key::SCHEME, http.scheme.as_str()));
        server.push(word(key::PROTOCOL_VERSION, protocol_version(http.version)));
        server.extend(outcome(failed_for_the_client(record)));
        client.push(label(key::SERVER_ADDRESS, &labels.server_address));
        client.push(pair(key::SERVER_PORT, i64::from(labels.server_port)));
        client.extend(outcome(true));
        let client =
            record.timestamps.sent.map(|_| self.bound_scope(LabelSet::HttpClient, &sorted(client)));
        let server = self.bound_scope(LabelSet::HttpServer, &sorted(server));
        client.into_iter().chain([server]).collect()
    }

    fn route_instruments(&self, route_key: &RouteKey) -> Arc<RouteInstruments> {
        if let Some(known) = self.routes.get(route_key) {
            return known;
        }
        let (replaced, _) =
            self.series_limiter.replace_with_other(route_key, SeriesGroup::Route, &());
        self.routes.obtain(&replaced, |route_key| RouteInstruments::new(&self.table, route_key))
    }
}

#[cfg(test)]
mod tests;
