//! The instruments that are updated when a request ends.
//!
//! The attributes of these instruments depend on about twenty values, such as route, model and status. Building each
//! attribute set and looking it up in the SDK takes much longer than recording the values. The bound instruments are
//! therefore cached by these values and found with one lookup.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

use opentelemetry::KeyValue;
use opentelemetry::metrics::BoundCounter;
use rustc_hash::FxHashMap;

use crate::exemplars::{ExemplarRecorder, SeriesId};
use crate::instruments::bound::BoundExemplarHistogram;
use crate::instruments::call::{CallInstruments, LengthBucketInstruments};
use crate::instruments::live::LiveInstruments;
use crate::instruments::result::end_stage;
use crate::span::{failed_for_the_client, method, protocol_version};
use tokengauge_measure::record::{FinishedChoice, LengthBuckets, MetricLabels, Outcome, Record};
use tokengauge_measure::timing::Stage;
use tokengauge_types::event::{ErrorSource, ProxyPosition, Scheme};
use tokengauge_types::label::{Label, Name};

/// Maximum number of cache entries. Instruments without an entry are bound for each request. The limit is enough for
/// all calls of a busy process with five different results each. An entry takes about 1 KiB.
const MAX_CACHED: usize = 1_024;

/// The bound instruments for requests that ended with the same [`FinishedRequestKey`].
#[derive(Debug)]
pub struct FinishedRequestInstruments {
    /// Duration of the client's request. `None` if the record has no end time.
    pub server: Option<BoundExemplarHistogram<f64>>,
    /// Duration of the request to the upstream. `None` if nothing was sent.
    pub client: Option<BoundExemplarHistogram<f64>>,
    pub finished: BoundCounter<u64>,
    /// Series of the counter `finished` that gets an exemplar. `None` if the request succeeded, because only failures
    /// get one.
    pub failed: Option<SeriesId>,
    /// Instruments of the call. `None` for plain HTTP.
    pub call: Option<FinishedCallInstruments>,
}

#[derive(Debug)]
pub struct FinishedCallInstruments {
    pub live: Arc<LiveInstruments>,
    pub call: Arc<CallInstruments>,
    pub by_length: Arc<LengthBucketInstruments>,
    /// The attributes of histograms with the record's `error.type`.
    pub failure: Option<Vec<KeyValue>>,
    /// One counter for each finish reason of the response, in the same order.
    pub choices: Vec<BoundCounter<u64>>,
}

impl FinishedRequestInstruments {
    pub fn record(&self, record: &Record, exemplars: &mut ExemplarRecorder<'_>) {
        let points = &record.points;
        if let Some(end) = points.end {
            if let Some(server) = &self.server {
                server.record(end.since(points.accept).as_secs_f64(), exemplars);
            }
            if let (Some(client), Some(sent)) = (&self.client, points.sent) {
                client.record(end.since(sent).as_secs_f64(), exemplars);
            }
        }
        self.finished.add(1);
        if let Some(failed) = self.failed {
            exemplars.one(failed);
        }
        let (Some(instruments), Some(call)) = (&self.call, &record.call) else {
            return;
        };
        if points.sent.is_some() && call.request.prompt_bytes > 0 {
            let tokens = call.request.prompt_bytes.div_ceil(4);
            instruments.live.estimated_input(tokens);
        }
        instruments.call.record(
            (record, call),
            instruments.failure.as_deref(),
            &instruments.by_length,
            exemplars,
        );
        for stall in &call.stalls.first {
            instruments.live.record_stall_exemplar(stall, exemplars);
        }
        for choice in &instruments.choices {
            choice.add(1);
        }
    }
}

/// All values of a record on which the attributes of the instruments depend. A key of the cache owns its texts, and a
/// key to look up borrows them from the record.
#[derive(Debug, Eq, Hash, PartialEq)]
pub struct FinishedRequestKey<'a> {
    facts: Facts,
    route: Cow<'a, Label>,
    server_address: Cow<'a, Label>,
    error: Option<Cow<'a, Name>>,
    series: Option<Cow<'a, MetricLabels>>,
    response_model: Option<Cow<'a, Name>>,
    choices: Cow<'a, [FinishedChoice]>,
}

/// The values of a key that are not texts from outside.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Facts {
    position: ProxyPosition,
    server_port: u16,
    method: &'static str,
    is_https: bool,
    version: &'static str,
    status: Option<u16>,
    outcome: Outcome,
    error_source: ErrorSource,
    stage: Stage,
    failed_for_the_client: bool,
    is_sent: bool,
    has_end: bool,
    is_turn: bool,
    /// Length ranges of prompt and response. Empty if labels for length ranges are not configured.
    length_buckets: LengthBuckets,
}

impl<'a> FinishedRequestKey<'a> {
    /// Returns the key for a finished request. `has_length_buckets` is `true` if labels for length ranges are
    /// configured.
    pub fn from_record(record: &'a Record, has_length_buckets: bool) -> Self {
        let (route, http, call) = (&*record.route, &record.http, record.call.as_ref());
        let facts = Facts {
            position: route.position,
            server_port: route.server_port,
            method: method(&http.method),
            is_https: http.scheme == Scheme::Https,
            version: protocol_version(http.version),
            status: http.status,
            outcome: record.outcome,
            error_source: record.error_source,
            stage: end_stage(record),
            failed_for_the_client: failed_for_the_client(record),
            is_sent: record.points.sent.is_some(),
            has_end: record.points.end.is_some(),
            is_turn: record.is_turn,
            length_buckets: call
                .filter(|_| has_length_buckets)
                .map_or_else(LengthBuckets::default, |call| call.length_buckets),
        };
        Self {
            facts,
            route: Cow::Borrowed(&route.name),
            server_address: Cow::Borrowed(&route.server_address),
            error: record.error_type.as_ref().map(Cow::Borrowed),
            series: call.map(|call| Cow::Borrowed(&call.series)),
            response_model: call.and_then(|call| call.response_model.as_ref()).map(Cow::Borrowed),
            choices: Cow::Borrowed(call.map_or(&[], |call| &call.choices)),
        }
    }

    fn into_owned(self) -> FinishedRequestKey<'static> {
        FinishedRequestKey {
            facts: self.facts,
            route: Cow::Owned(self.route.into_owned()),
            server_address: Cow::Owned(self.server_address.into_owned()),
            error: self.error.map(|it| Cow::Owned(it.into_owned())),
            series: self.series.map(|it| Cow::Owned(it.into_owned())),
            response_model: self.response_model.map(|it| Cow::Owned(it.into_owned())),
            choices: Cow::Owned(self.choices.into_owned()),
        }
    }
}

/// A cache of instruments. Its size is bounded, so even if a server provokes hash collisions, their cost is bounded,
/// and the fast hasher is safe to use.
#[derive(Debug, Default)]
pub struct FinishedRequestCache(
    RwLock<FxHashMap<FinishedRequestKey<'static>, Arc<FinishedRequestInstruments>>>,
);

impl FinishedRequestCache {
    /// Returns the cached instruments for `key`, or else the instruments that `make` creates. New instruments are
    /// cached if `make` also returns `true` and the cache is not full.
    pub fn obtain(
        &self,
        key: FinishedRequestKey<'_>,
        make: impl FnOnce() -> (FinishedRequestInstruments, bool),
    ) -> Arc<FinishedRequestInstruments> {
        let cached = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = cached.get(&key) {
            return Arc::clone(found);
        }
        drop(cached);
        let (instruments, keep) = make();
        let instruments = Arc::new(instruments);
        let mut cached = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if keep && cached.len() < MAX_CACHED {
            cached.entry(key.into_owned()).or_insert_with(|| Arc::clone(&instruments));
        }
        instruments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use tokengauge_measure::record::ChoiceStatus;

    fn instruments(keep: bool) -> (FinishedRequestInstruments, bool) {
        let meter = opentelemetry_sdk::metrics::SdkMeterProvider::default();
        let meter = opentelemetry::metrics::MeterProvider::meter(&meter, "test");
        let instruments = FinishedRequestInstruments {
            server: None,
            client: None,
            finished: meter.u64_counter("finished").build().bind(&[]),
            failed: None,
            call: None,
        };
        (instruments, keep)
    }

    #[test]
    fn caches_a_key_once_and_only_on_request() {
        let cache = FinishedRequestCache::default();
        let record = testing::streamed();
        let key = || FinishedRequestKey::from_record(&record, true);
        let uncached = cache.obtain(key(), || instruments(false));
        let first = cache.obtain(key(), || instruments(true));
        assert!(!Arc::ptr_eq(&uncached, &first));
        let copy = record.clone();
        let again =
            cache.obtain(FinishedRequestKey::from_record(&copy, true), || panic!("not cached"));
        assert!(Arc::ptr_eq(&first, &again));
    }

    #[test]
    fn keys_differ_in_each_fact_of_an_attribute() {
        let record = testing::streamed();
        let key = |record: &Record| FinishedRequestKey::from_record(record, true).into_owned();
        let differ = |change: fn(&mut Record)| {
            let mut other = record.clone();
            change(&mut other);
            key(&other) != key(&record)
        };
        assert_eq!(key(&record), key(&record.clone()));
        assert!(differ(|record| record.http.status = Some(201)));
        assert!(differ(|record| record.http.method = http::Method::PUT));
        assert!(differ(|record| record.http.scheme = Scheme::Https));
        assert!(differ(|record| record.http.version = http::Version::HTTP_2));
        assert!(differ(|record| record.outcome = Outcome::Cancelled));
        assert!(differ(|record| record.error_source = ErrorSource::Upstream));
        assert!(differ(|record| record.error_type = Name::new("odd")));
        assert!(differ(|record| record.points.sent = None));
        assert!(differ(|record| record.points.end = None));
        assert!(differ(|record| record.is_turn = true));
        assert!(differ(|record| record.call = None));
        assert!(differ(|record| {
            record.call.as_mut().unwrap().response_model = None;
        }));
        assert!(differ(|record| {
            record.call.as_mut().unwrap().choices[0].reason = None;
        }));
        assert!(differ(|record| {
            record.call.as_mut().unwrap().series.model = Label::from_trusted("other");
        }));
        assert!(differ(|record| {
            record.call.as_mut().unwrap().choices[0].status = ChoiceStatus::ToolJsonInvalid;
        }));
        assert!(differ(|record| {
            record.call.as_mut().unwrap().length_buckets.input = None;
        }));
        assert!(!differ(|record| record.http.response_bytes = 1));
    }
}
