//! The instruments that an exchange's end moves, found in one step.
//!
//! Attribute sets stand on some twenty facts of a record. Building each set anew and having the SDK find it costs far
//! more than recording; so the whole bundle of bound instruments is kept under those facts.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, PoisonError, RwLock};

use opentelemetry::metrics::BoundCounter;
use rustc_hash::FxBuildHasher;

use crate::exemplars::{ExemplarRecorder, SeriesId};
use crate::instruments::call::CallInstruments;
use crate::instruments::end_stage;
use crate::instruments::exemplar_histogram::BoundExemplarHistogram;
use crate::instruments::length_buckets::LengthBucketInstruments;
use crate::instruments::live::LiveInstruments;
use crate::span::{failed_for_the_client, method, protocol_version};
use tokengauge_measure::record::{Bands, Became, Outcome, Record, Series};
use tokengauge_measure::timing::Stage;
use tokengauge_types::event::{ErrorSource, ProxyPosition, Scheme};
use tokengauge_types::label::{Label, Name};

/// How many ways to end are kept; an exchange that ends in a further one has its instruments bound for itself alone.
/// Half of [`super::bounded`]'s combinations, each of which is rare; a kept one takes about 1 KiB.
const MOST_KEPT: usize = 1_024;

/// What one way to end moves, bound.
#[derive(Debug)]
pub struct EndInstruments {
    /// `None` for a record without an end.
    pub server: Option<BoundExemplarHistogram<f64>>,
    /// `None` where nothing was sent.
    pub client: Option<BoundExemplarHistogram<f64>>,
    pub finished: BoundCounter<u64>,
    /// The counter's series, where the end is one that somebody will want an example of.
    pub failed: Option<SeriesId>,
    /// `None` for plain HTTP.
    pub call: Option<CallEnd>,
}

#[derive(Debug)]
pub struct CallEnd {
    pub live: Arc<LiveInstruments>,
    pub ended: Arc<CallInstruments>,
    pub banded: Arc<LengthBucketInstruments>,
    /// The admitted `error.type`.
    pub error: Option<Label>,
    /// One for each finish reason of the record, in its order.
    pub choices: Vec<BoundCounter<u64>>,
}

impl EndInstruments {
    pub fn record(&self, record: &Record, marks: &mut ExemplarRecorder<'_>) {
        let points = &record.points;
        if let Some(end) = points.end {
            if let Some(server) = &self.server {
                server.record(end.since(points.accept).as_secs_f64(), marks);
            }
            if let (Some(client), Some(sent)) = (&self.client, points.sent) {
                client.record(end.since(sent).as_secs_f64(), marks);
            }
        }
        self.finished.add(1);
        if let Some(failed) = self.failed {
            marks.one(failed);
        }
        let (Some(closing), Some(call)) = (&self.call, &record.call) else {
            return;
        };
        if points.sent.is_some() && call.request.prompt_bytes > 0 {
            let tokens = call.request.prompt_bytes.div_ceil(4);
            closing.live.estimated_input(tokens);
        }
        closing.ended.record((record, call), closing.error.as_ref(), &closing.banded, marks);
        for stall in &call.stalls.first {
            closing.live.mark(stall, marks);
        }
        for choice in &closing.choices {
            choice.add(1);
        }
    }
}

/// Everything that the attributes of an exchange's last records stand on, as the record has it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct EndKey<'a> {
    plain: ScalarKey,
    route: &'a Label,
    server_address: &'a Label,
    error: Option<&'a Name>,
    series: Option<&'a Series>,
    response_model: Option<&'a Name>,
    finish_reasons: &'a [Name],
    choices: &'a [Became],
}

/// The part that is copied.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ScalarKey {
    vantage: ProxyPosition,
    server_port: u16,
    method: &'static str,
    https: bool,
    version: &'static str,
    status: Option<u16>,
    outcome: Outcome,
    fault: ErrorSource,
    stage: Stage,
    failed_for_the_client: bool,
    sent: bool,
    ended: bool,
    /// None where calls are not told apart by them.
    bands: Bands,
}

impl<'a> EndKey<'a> {
    /// `banded`: calls are told apart by their lengths.
    pub fn of(record: &'a Record, banded: bool) -> Self {
        let (route, http, call) = (&*record.route, &record.http, record.call.as_ref());
        Self {
            plain: ScalarKey {
                vantage: route.vantage,
                server_port: route.server_port,
                method: method(&http.method),
                https: http.scheme == Scheme::Https,
                version: protocol_version(http.version),
                status: http.status,
                outcome: record.outcome,
                fault: record.fault,
                stage: end_stage(record),
                failed_for_the_client: failed_for_the_client(record),
                sent: record.points.sent.is_some(),
                ended: record.points.end.is_some(),
                bands: call.filter(|_| banded).map_or_else(Bands::default, |call| call.bands),
            },
            route: &route.name,
            server_address: &route.server_address,
            error: record.error_type.as_ref(),
            series: call.map(|call| &call.series),
            response_model: call.and_then(|call| call.response_model.as_ref()),
            finish_reasons: call.map_or(&[], |call| &call.finish_reasons),
            choices: call.map_or(&[], |call| &call.choices),
        }
    }
}

/// A [`EndKey`] that has outlived its record.
#[derive(Debug)]
struct CachedEnd {
    plain: ScalarKey,
    route: Label,
    server_address: Label,
    error: Option<Name>,
    series: Option<Series>,
    response_model: Option<Name>,
    finish_reasons: Vec<Name>,
    choices: Vec<Became>,
    closing: Arc<EndInstruments>,
}

impl CachedEnd {
    fn new(shape: &EndKey<'_>, closing: Arc<EndInstruments>) -> Self {
        Self {
            plain: shape.plain,
            route: shape.route.clone(),
            server_address: shape.server_address.clone(),
            error: shape.error.cloned(),
            series: shape.series.cloned(),
            response_model: shape.response_model.cloned(),
            finish_reasons: shape.finish_reasons.to_vec(),
            choices: shape.choices.to_vec(),
            closing,
        }
    }

    fn shape(&self) -> EndKey<'_> {
        EndKey {
            plain: self.plain,
            route: &self.route,
            server_address: &self.server_address,
            error: self.error.as_ref(),
            series: self.series.as_ref(),
            response_model: self.response_model.as_ref(),
            finish_reasons: &self.finish_reasons,
            choices: &self.choices,
        }
    }
}

/// EndInstrumentsCache by the hash of their shape. One place for each hash: of two shapes with the same one the first has it.
#[derive(Debug, Default)]
pub struct EndInstrumentsCache(RwLock<HashMap<u64, CachedEnd, FxBuildHasher>>);

impl EndInstrumentsCache {
    /// What is kept under `shape`, or what `make` makes; that is kept if `make` says so and there is a place.
    pub fn obtain(
        &self,
        shape: &EndKey<'_>,
        make: impl FnOnce() -> (EndInstruments, bool),
    ) -> Arc<EndInstruments> {
        let hash = FxBuildHasher.hash_one(shape);
        let kept = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = kept.get(&hash).filter(|kept| kept.shape() == *shape) {
            return Arc::clone(&found.closing);
        }
        drop(kept);
        let (closing, keep) = make();
        let closing = Arc::new(closing);
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if keep && kept.len() < MOST_KEPT {
            kept.entry(hash).or_insert_with(|| CachedEnd::new(shape, Arc::clone(&closing)));
        }
        closing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn closing(keep: bool) -> (EndInstruments, bool) {
        let meter = opentelemetry_sdk::metrics::SdkMeterProvider::default();
        let meter = opentelemetry::metrics::MeterProvider::meter(&meter, "test");
        let closing = EndInstruments {
            server: None,
            client: None,
            finished: meter.u64_counter("finished").build().bind(&[]),
            failed: None,
            call: None,
        };
        (closing, keep)
    }

    #[test]
    fn a_shape_is_kept_once_and_only_if_told_so() {
        let closings = EndInstrumentsCache::default();
        let record = testing::streamed();
        let shape = EndKey::of(&record, true);
        let told = closings.obtain(&shape, || closing(false));
        let first = closings.obtain(&shape, || closing(true));
        assert!(!Arc::ptr_eq(&told, &first));
        let copy = record.clone();
        let again = closings.obtain(&EndKey::of(&copy, true), || panic!("it is kept"));
        assert!(Arc::ptr_eq(&first, &again));
    }

    #[test]
    fn whatever_an_attribute_stands_on_tells_shapes_apart() {
        let record = testing::streamed();
        let differ = |change: fn(&mut Record)| {
            let mut other = record.clone();
            change(&mut other);
            EndKey::of(&other, true) != EndKey::of(&record, true)
        };
        assert!(differ(|record| record.http.status = Some(201)));
        assert!(differ(|record| record.http.method = http::Method::PUT));
        assert!(differ(|record| record.http.scheme = Scheme::Https));
        assert!(differ(|record| record.http.version = http::Version::HTTP_2));
        assert!(differ(|record| record.outcome = Outcome::Cancelled));
        assert!(differ(|record| record.fault = ErrorSource::Upstream));
        assert!(differ(|record| record.error_type = Name::new("odd")));
        assert!(differ(|record| record.points.sent = None));
        assert!(differ(|record| record.points.end = None));
        assert!(differ(|record| record.call = None));
        assert!(differ(|record| {
            record.call.as_mut().unwrap().response_model = None;
        }));
        assert!(differ(|record| {
            record.call.as_mut().unwrap().finish_reasons.clear();
        }));
        assert!(differ(|record| {
            record.call.as_mut().unwrap().series.model = Label::known("other");
        }));
        assert!(differ(|record| {
            record.call.as_mut().unwrap().choices = vec![Became::ToolJsonInvalid];
        }));
        assert!(differ(|record| {
            record.call.as_mut().unwrap().bands.input = None;
        }));
        assert!(!differ(|record| record.http.response_bytes = 1));
    }
}
