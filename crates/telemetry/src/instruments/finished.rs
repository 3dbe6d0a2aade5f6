//! The instruments that are updated when a request ends.
//!
//! The attributes of these instruments depend on about twenty values, such as route, model and status. Building each
//! attribute set and looking it up in the SDK takes much longer than recording the values. The bound instruments are
//! therefore cached by these values and found with one lookup.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

use rustc_hash::FxHashMap;

use crate::exemplars::ExemplarRecorder;
use crate::instruments::live::LiveInstruments;
use crate::instruments::result::end_stage;
use crate::instruments::table::{InstrumentTable, Scope};
use crate::span::{failed_for_the_client, method, protocol_version};
use tokengauge_llm::count::Source;
use tokengauge_measure::record::{FinishedChoice, LengthBuckets, MetricLabels, Outcome, Record};
use tokengauge_measure::timing::Stage;
use tokengauge_types::event::{ErrorSource, ProxyPosition, Scheme};
use tokengauge_types::label::{Label, Name};

/// Maximum number of cache entries. Instruments without an entry are bound for each request. The limit is enough for
/// all calls of a busy process with five different results each. An entry takes 3 to 5 KiB with its series.
const MAX_CACHED: usize = 1_024;

/// The bound instruments for requests that ended with the same [`FinishedRequestKey`].
#[derive(Debug)]
pub struct FinishedRequestInstruments {
    /// The series of all metrics of the request. One scope for each of its choices, and one for each other label set.
    pub scopes: Vec<Arc<Scope>>,
    /// The instruments for the stream of the call. `None` for plain HTTP.
    pub live: Option<Arc<LiveInstruments>>,
}

impl FinishedRequestInstruments {
    pub fn record(
        &self,
        table: &InstrumentTable,
        record: &Record,
        exemplars: &mut ExemplarRecorder<'_>,
    ) {
        let call = record.call.as_ref();
        for scope in &self.scopes {
            scope.record(table, (record, call), exemplars);
        }
        let (Some(live), Some(call)) = (&self.live, call) else { return };
        if record.timestamps.sent.is_some() && call.request.prompt_bytes > 0 {
            live.record_estimated_input(call.request.prompt_bytes.div_ceil(4));
        }
        for stall in &call.stalls.first {
            live.record_stall_exemplar(stall, exemplars);
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
    cost: Option<(Cow<'a, Label>, Source)>,
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
            is_sent: record.timestamps.sent.is_some(),
            has_end: record.timestamps.end.is_some(),
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
            cost: call
                .and_then(|call| call.cost.as_ref())
                .map(|cost| (Cow::Borrowed(&cost.currency), cost.source)),
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
            cost: self.cost.map(|(currency, source)| (Cow::Owned(currency.into_owned()), source)),
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
        (FinishedRequestInstruments { scopes: Vec::new(), live: None }, keep)
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
        assert!(differ(|record| record.timestamps.sent = None));
        assert!(differ(|record| record.timestamps.end = None));
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
        assert!(differ(|record| {
            record.call.as_mut().unwrap().cost.as_mut().unwrap().source = Source::Estimated;
        }));
        assert!(!differ(|record| record.http.response_bytes = 1));
    }
}
