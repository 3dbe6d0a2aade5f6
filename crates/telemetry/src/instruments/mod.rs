//! Records values of running streams and of finished requests in the SDK's instruments.
//!
//! Values that change with every chunk use instruments that are bound to their series once ([`LiveInstruments`]). The
//! modules `finished` and `call` record the values that are known when a request has ended. Values that are missing in
//! a record are not recorded. Gauges are not recorded here, because `gauges` reads them from a snapshot.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::BoundCounter;

use crate::Config;
use crate::attributes::{pair, route_attributes, series_attributes, sorted, with, word};
use crate::catalog::attributes as key;
use crate::catalog::tokengauge;
use crate::exemplars::{Exemplars, SeriesId};
use crate::instruments::bound::BoundExemplarHistogram;
use crate::instruments::call::CallInstruments;
use crate::instruments::finished::{
    FinishedCallInstruments, FinishedRequestCache, FinishedRequestInstruments, FinishedRequestKey,
};
use crate::instruments::result::{FinishedResult, UpstreamLabels, response_model, status};
use crate::instruments::route::RouteInstruments;
use crate::instruments::set::InstrumentSet;
use crate::metrics_reader::MetricsReader;
use crate::series_limits::{Overflow, SeriesGroup, SeriesLimiter, SharedValues};
use crate::snapshot::SnapshotSource;
use crate::span::{failed_for_the_client, method, protocol_version};
use tokengauge_llm::count::Source;
use tokengauge_llm::frame::ParseError;
use tokengauge_measure::load::{RetrySignal, RouteKey};
use tokengauge_measure::record::{
    Call, ChoiceStatus, FinishedChoice, LengthBuckets, MetricLabels, Outcome, Record,
};
use tokengauge_types::event::RouteFacts;
use tokengauge_types::label::{
    CardinalityLimiter, CardinalityLimits, Dimension, Label, Name, OTHER,
};
use tokengauge_types::label_enum;

mod bound;
mod call;
mod finished;
mod live;
mod result;
mod route;
mod set;

use live::TimingLabels;

pub use live::LiveInstruments;

/// All counters and histograms, with the series to which they are bound.
#[derive(Debug)]
pub struct Instruments {
    set: Arc<InstrumentSet>,
    series_limiter: SeriesLimiter,
    /// Whether metrics of calls have labels for the length ranges of prompt and response.
    has_length_buckets: bool,
    routes: SharedValues<RouteKey, RouteInstruments>,
    live: SharedValues<MetricLabels, LiveInstruments>,
    timings: SharedValues<MetricLabels, TimingLabels>,
    call_instruments: SharedValues<(MetricLabels, [Option<Label>; 2]), CallInstruments>,
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
        config: &Config,
        limits: CardinalityLimits,
        readings: SnapshotSource,
    ) -> (Arc<Self>, MetricsReader) {
        let series_limiter = SeriesLimiter::new(config.gen_ai);
        let exemplars = Arc::new(Exemplars::new(config));
        let shared = (Arc::clone(series_limiter.overflowed()), Arc::clone(&exemplars));
        let (metrics_reader, meter) = MetricsReader::new(config, readings, shared);
        let set = InstrumentSet::new(&meter, config.gen_ai, &exemplars);
        let instruments = Self::with_set(set, series_limiter, limits.length_buckets);
        (Arc::new(instruments), metrics_reader)
    }

    fn with_set(
        set: InstrumentSet,
        series_limiter: SeriesLimiter,
        has_length_buckets: bool,
    ) -> Self {
        for anomaly in ParseError::ALL {
            set.own.parse_errors.add(0, &[word(key::PARSE_ERROR, anomaly.as_str())]);
        }
        for why in ["not_understood", "truncated"] {
            set.own.content_omitted.add(0, &[word(key::OMISSION_REASON, why)]);
        }
        Self {
            set: Arc::new(set),
            series_limiter,
            has_length_buckets,
            routes: SharedValues::default(),
            live: SharedValues::default(),
            timings: SharedValues::default(),
            call_instruments: SharedValues::default(),
            finished_requests: FinishedRequestCache::default(),
        }
    }

    /// Exports the series of all configured routes with the value 0. If a counter started at 1, `rate()` would not
    /// include its first increment.
    pub fn initialize_routes(&self, routes: &[Arc<RouteFacts>]) {
        for route in routes {
            self.route_instruments(&RouteKey::from_route(route));
        }
    }

    pub fn record_start(&self, route: &RouteFacts) {
        self.route_instruments(&RouteKey::from_route(route)).started.add(1);
    }

    /// Returns the instruments for streams with these labels. The caller keeps the instruments for the duration of the
    /// stream.
    pub fn live(&self, series: &MetricLabels) -> Arc<LiveInstruments> {
        if let Some(live) = self.live.get(series) {
            return live;
        }
        let limiter = &self.series_limiter;
        let (replaced, _) = limiter.replace_with_other(series, SeriesGroup::Call, &());
        self.live.obtain(&replaced, |series| {
            let (labels, _) = limiter.replace_with_other(series, SeriesGroup::Timings, &());
            let timings = self.timings.obtain(&labels, TimingLabels::new);
            LiveInstruments::new(Arc::clone(&self.set), series, timings)
        })
    }

    /// Exports the counters that a response will probably update as 0, so that `rate()` includes their first increment.
    /// These are the output tokens from `source` and the successful requests with this status. Does so once for each
    /// series.
    pub fn initialize_response(&self, live: &LiveInstruments, status: u16, source: Source) {
        if live.initialize_response(source) {
            self.finished_counter(&live.series, series_attributes, &FinishedResult::ok(status))
                .0
                .add(0);
        }
    }

    /// Records the time that streams waited for their first token. [`LiveInstruments::record_stream_time`] records the
    /// time after the first token.
    pub fn record_waiting(&self, route_key: &RouteKey, time: Duration) {
        self.route_instruments(route_key).waiting.add(time.as_secs_f64());
    }

    /// Records the number of WebSocket messages from the client and from the upstream.
    pub fn record_messages(&self, route_key: &RouteKey, numbers: [u64; 2]) {
        let route = self.route_instruments(route_key);
        for (counter, number) in route.messages.iter().zip(numbers) {
            counter.add(number);
        }
    }

    /// Counts a request that is a retry of an earlier request.
    pub fn record_retry(&self, route_key: &RouteKey, signal: RetrySignal) {
        self.route_instruments(route_key).record_retry(&self.set, Some(signal));
    }

    /// Records the delay with which a component was scheduled.
    pub fn record_delay(&self, part: Component, late: Duration) {
        let attributes = [word(key::COMPONENT, part.as_str())];
        self.set.own.delay.record(late.as_secs_f64(), &attributes);
    }

    /// Counts a call for whose tokens the configuration has no price.
    pub fn record_unpriced(&self, series: &MetricLabels) {
        let live = self.live(series);
        self.set.own.unpriced.add(1, &live.base);
    }

    /// Adds the amount that a call took from a budget, in the budget's unit. An amount of 0 exports the budget's
    /// counter as 0 before the first call.
    pub fn record_spend(&self, (name, unit): (&Label, &Label), amount: f64) {
        let attributes = crate::attributes::budget_attributes(name, unit);
        self.set.own.budget_used.add(amount, &attributes);
    }

    /// Records parse errors, including those that do not belong to a finished request.
    pub fn record_anomaly(&self, anomaly: ParseError, times: u32) {
        let attributes = [word(key::PARSE_ERROR, anomaly.as_str())];
        self.set.own.parse_errors.add(u64::from(times), &attributes);
    }

    /// Records a finished request. Output tokens are not counted here, but in [`LiveInstruments::record`], even for
    /// responses that are not streamed.
    pub fn record_end(&self, record: &Record, limiter: &CardinalityLimiter) {
        for (anomaly, times) in &record.anomalies {
            self.record_anomaly(*anomaly, *times);
        }
        let call = record.call.as_ref();
        if let Some(content) = call.and_then(|call| call.content.as_deref()) {
            self.left_out("not_understood", content.left_out);
            self.left_out("truncated", content.truncated.into());
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
        let route = self.route_instruments(&RouteKey::from_route(&record.route));
        let exemplars = &mut self.set.exemplars.recorder(record);
        instruments.record(record, exemplars);
        route.record_connections(&self.set, record, exemplars);
    }

    /// Counts parts of a call's content that could not be captured.
    fn left_out(&self, why: &'static str, parts: u64) {
        self.set.own.content_omitted.add(parts, &[word(key::OMISSION_REASON, why)]);
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
        let admitted = |name: &Name| limiter.admit(Dimension::ErrorType, name);
        let error = record.error_type.as_ref().map(admitted);
        let [server, client] = self.http(record, error.as_ref());
        let live = record.call.as_ref().map(|call| self.live(&call.series));
        let result = FinishedResult::from_record(record, error.as_ref());
        let (finished, series) = match &live {
            Some(live) => self.finished_counter(&live.series, series_attributes, &result),
            None => self.finished_counter(
                &RouteKey::from_route(&record.route),
                route_attributes,
                &result,
            ),
        };
        FinishedRequestInstruments {
            server,
            client,
            finished,
            failed: (record.outcome != Outcome::Ok).then_some(series),
            call: live
                .zip(record.call.as_ref())
                .map(|(live, call)| self.finished_call(call, live, limiter, error)),
        }
    }

    fn finished_call(
        &self,
        call: &Call,
        live: Arc<LiveInstruments>,
        limiter: &CardinalityLimiter,
        error: Option<Label>,
    ) -> FinishedCallInstruments {
        let model = call.response_model.as_ref().map(|name| limiter.admit(Dimension::Model, name));
        let (labels, timings) = (&live.series, &live.timings);
        let of_counters =
            self.response_model(labels, &live.response_model, SeriesGroup::ResponseModel, &model);
        let of_histograms = self.response_model(
            &timings.labels,
            &timings.response_model,
            SeriesGroup::ResponseModelTimings,
            &model,
        );
        let key = (labels.clone(), [of_counters, of_histograms]);
        let instruments = self.call_instruments.obtain(&key, |(_, models)| {
            let models = models.each_ref().map(Option::as_ref);
            CallInstruments::new(Arc::clone(&self.set), &live, models)
        });
        let combination = (&model, call.length_buckets);
        let admit = || {
            let group = SeriesGroup::Lengths;
            self.series_limiter.admit_as_is(&timings.labels, group, &combination)
        };
        let length_buckets = if self.has_length_buckets && admit() {
            call.length_buckets
        } else {
            LengthBuckets::default()
        };
        let by_length = instruments.by_length(length_buckets);
        let choice = |choice: &FinishedChoice| {
            let reason = choice.reason.as_ref();
            let reason = reason.map(|reason| limiter.admit(Dimension::FinishReason, reason));
            self.choice_counter(labels, &model, reason.as_ref(), choice.status)
        };
        let choices = call.choices.iter().map(choice).collect();
        let failure = error.map(|error| self.failure_attributes(&timings.labels, &model, &error));
        FinishedCallInstruments { live, call: instruments, by_length, failure, choices }
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

    /// Returns the attributes of the histograms of calls that failed with this error.
    fn failure_attributes(
        &self,
        labels: &MetricLabels,
        model: &Option<Label>,
        error: &Label,
    ) -> Vec<KeyValue> {
        let group = SeriesGroup::Failure;
        let (labels, step) = self.series_limiter.replace_with_other(labels, group, &(model, error));
        let error = crate::attributes::label(key::ERROR_TYPE, error);
        let own: Vec<_> = response_model(model, step).into_iter().chain([error]).collect();
        with(&series_attributes(&labels), &own)
    }

    /// Binds the counter of choices with this finish reason and this result.
    fn choice_counter(
        &self,
        labels: &MetricLabels,
        model: &Option<Label>,
        reason: Option<&Label>,
        status: ChoiceStatus,
    ) -> BoundCounter<u64> {
        let own = (model, reason, status);
        let (labels, step) =
            self.series_limiter.replace_with_other(labels, SeriesGroup::Choice, &own);
        let reason = reason.map(|reason| crate::attributes::label(key::FINISH_REASON, reason));
        let result = word(key::CHOICE_RESULT, status.as_str());
        let own: Vec<_> =
            response_model(model, step).into_iter().chain(reason).chain([result]).collect();
        self.set.own.choices.bind(&with(&series_attributes(&labels), &own))
    }

    /// Binds the counter of finished requests.
    fn finished_counter<L: Overflow>(
        &self,
        labels: &L,
        attributes_of: impl Fn(&L) -> Vec<KeyValue>,
        result: &FinishedResult<'_>,
    ) -> (BoundCounter<u64>, SeriesId) {
        let (labels, step) =
            self.series_limiter.replace_with_other(labels, SeriesGroup::Finish, result);
        let attributes = with(&attributes_of(&labels), &result.attributes(step));
        let exemplars = &self.set.exemplars;
        let series = exemplars.series(&tokengauge::REQUESTS_FINISHED, &attributes);
        (self.set.own.finished.bind(&attributes), series)
    }

    /// Binds the HTTP histograms of the semantic conventions: one for the client's request, and one for the request to
    /// the upstream. A call inside a WebSocket has neither.
    fn http(
        &self,
        record: &Record,
        error: Option<&Label>,
    ) -> [Option<BoundExemplarHistogram<f64>>; 2] {
        let (points, http) = (&record.points, &record.http);
        if points.end.is_none() || record.is_turn {
            return [None, None];
        }
        let labels = UpstreamLabels::from_route(&record.route);
        let request = (method(&http.method), http.scheme.as_str(), protocol_version(http.version));
        let result = (http.status, error, failed_for_the_client(record));
        let (labels, step) =
            self.series_limiter.replace_with_other(&labels, SeriesGroup::Http, &(request, result));
        let outcome = |has_failed: bool| {
            let error = error.filter(|_| has_failed);
            let error = error.map(|error| crate::attributes::label(key::ERROR_TYPE, error));
            status(http.status, step).into_iter().chain(error)
        };
        let mut server = route_attributes(&labels.route_key);
        server.push(word(key::METHOD, method(&http.method)));
        let mut client = server.clone();
        server.push(word(key::SCHEME, http.scheme.as_str()));
        server.push(word(key::PROTOCOL_VERSION, protocol_version(http.version)));
        server.extend(outcome(failed_for_the_client(record)));
        client.push(crate::attributes::label(key::SERVER_ADDRESS, &labels.server_address));
        client.push(pair(key::SERVER_PORT, i64::from(labels.server_port)));
        client.extend(outcome(true));
        [
            Some(self.set.http_server.bind(&sorted(server))),
            points.sent.map(|_| self.set.http_client.bind(&sorted(client))),
        ]
    }

    fn route_instruments(&self, route_key: &RouteKey) -> Arc<RouteInstruments> {
        if let Some(known) = self.routes.get(route_key) {
            return known;
        }
        let (replaced, _) =
            self.series_limiter.replace_with_other(route_key, SeriesGroup::Route, &());
        self.routes.obtain(&replaced, |route_key| RouteInstruments::new(&self.set, route_key))
    }
}

#[cfg(test)]
mod tests;
