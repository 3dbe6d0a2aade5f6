//! Stores exemplars: links from a histogram bucket or a counter to the trace of a request that it counted.
//!
//! The OpenTelemetry SDK for Rust creates no exemplars, so this module stores them. For values that are recorded when a
//! request ends, it keeps the latest exemplar of each bucket and of each counter. A collection copies the exemplars and
//! assigns them to the points of a metric by name and attributes. By default, only requests whose traces are exported
//! create exemplars, because a link to another trace would lead nowhere.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash, Hasher};
use std::mem;
use std::sync::{Mutex, MutexGuard};

use opentelemetry::KeyValue;
use rustc_hash::FxHashMap;

use crate::catalog::Metric;
use crate::config::{ExemplarFilter, Signal, TelemetryConfig};
use crate::sampling::Sampler;
use crate::span;
use tokengauge_measure::record::Record;
use tokengauge_types::clock::WallTime;
use tokengauge_types::sync::lock;

/// Maximum number of exemplars in one generation of the store. One kind of call has about a hundred exemplars: one for
/// each of 4 buckets in 25 series. The exemplars of the latest 70 kinds of calls are therefore kept. A hash table with
/// 8,192 slots holds this number without growing, and both generations together take less than 1 MB.
const MAX_EXEMPLARS_PER_GENERATION: usize = 7_168;

/// A link from a value to the trace of the request that caused it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    pub trace_id: [u8; 16],
    /// Id of the CLIENT span, or of the SERVER span if the request has no CLIENT span.
    pub span_id: [u8; 8],
    /// The value that the request added to the series.
    pub value: f64,
    /// Time at which the request ended.
    pub time: WallTime,
}

/// Identifies a series by a keyed hash of the metric's name and the series' attributes. If two series had the same
/// hash, each would link to traces of the other. With 100,000 series, the probability of this is 10⁻⁹.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SeriesId(u64);

#[derive(Debug)]
pub struct Exemplars {
    hasher: RandomState,
    eligible: ExemplarPolicy,
    slots: Mutex<ExemplarStore>,
}

/// Which requests create exemplars.
#[derive(Clone, Copy, Debug)]
enum ExemplarPolicy {
    None,
    /// Requests whose traces this sampler keeps.
    Sampled(Sampler),
    All,
}

/// A series and the index of a bucket. A counter uses only index 0.
type Slot = (SeriesId, usize);

/// The latest exemplars, in two generations. When the young generation is full, it becomes the old generation, and the
/// previous old generation is dropped. The store therefore keeps recent exemplars without storing their age.
#[derive(Debug, Default)]
struct ExemplarStore {
    young: FxHashMap<Slot, Exemplar>,
    old: FxHashMap<Slot, Exemplar>,
}

/// Records the exemplars of one request. The recorder holds the lock of the store, so it must be dropped soon.
#[derive(Debug)]
pub struct ExemplarRecorder<'a>(Option<ActiveRecorder<'a>>);

#[derive(Debug)]
struct ActiveRecorder<'a> {
    slots: MutexGuard<'a, ExemplarStore>,
    exemplar: Exemplar,
}

impl Exemplars {
    pub fn new(config: &TelemetryConfig) -> Self {
        let eligible = match config.exemplars {
            ExemplarFilter::AlwaysOff => ExemplarPolicy::None,
            ExemplarFilter::AlwaysOn => ExemplarPolicy::All,
            ExemplarFilter::TraceBased if config.sends(Signal::Traces) => {
                ExemplarPolicy::Sampled(config.sampler)
            }
            ExemplarFilter::TraceBased => ExemplarPolicy::None,
        };
        Self { hasher: RandomState::new(), eligible, slots: Mutex::default() }
    }

    /// Returns the id of a series. `attributes` must be sorted by key, because the id depends on their order.
    pub fn series(&self, metric: &Metric, attributes: &[KeyValue]) -> SeriesId {
        SeriesId::new(&self.hasher, metric.name, attributes)
    }

    /// Returns a recorder for one finished request. If the configuration excludes the request from exemplars, the
    /// recorder records nothing.
    pub fn recorder(&self, record: &Record) -> ExemplarRecorder<'_> {
        let eligible = match self.eligible {
            ExemplarPolicy::None => false,
            ExemplarPolicy::Sampled(sampler) => sampler.decide(record).is_some(),
            ExemplarPolicy::All => true,
        };
        let Some(end) = record.timestamps.end.filter(|_| eligible) else {
            return ExemplarRecorder::none();
        };
        ExemplarRecorder(Some(ActiveRecorder {
            slots: lock(&self.slots),
            exemplar: Exemplar {
                trace_id: record.trace.trace_id,
                span_id: span::innermost_span_id(record),
                value: 0.0,
                time: record.wall + end.since(record.timestamps.accept),
            },
        }))
    }

    /// Copies the current exemplars.
    pub fn snapshot(&self) -> ExemplarSnapshot {
        let mut all = lock(&self.slots).all();
        all.sort_unstable_by_key(|(slot, _)| *slot);
        ExemplarSnapshot { hasher: self.hasher.clone(), all }
    }
}

impl SeriesId {
    fn new<'a>(
        hasher: &RandomState,
        metric: &str,
        attributes: impl IntoIterator<Item = &'a KeyValue>,
    ) -> Self {
        let mut hasher = hasher.build_hasher();
        metric.hash(&mut hasher);
        for attribute in attributes {
            attribute.hash(&mut hasher);
        }
        Self(hasher.finish())
    }
}

impl ExemplarStore {
    fn put(&mut self, slot: Slot, exemplar: Exemplar) {
        if self.young.len() >= MAX_EXEMPLARS_PER_GENERATION && !self.young.contains_key(&slot) {
            mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert(slot, exemplar);
    }

    fn all(&self) -> Vec<(Slot, Exemplar)> {
        let outlived = |(slot, _): &(&Slot, &Exemplar)| !self.young.contains_key(*slot);
        let all = self.young.iter().chain(self.old.iter().filter(outlived));
        all.map(|(slot, exemplar)| (*slot, *exemplar)).collect()
    }
}

impl ExemplarRecorder<'_> {
    /// Returns a recorder that records nothing.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Records `value` as the latest exemplar of its bucket in a histogram. `bounds` are the upper bounds of the
    /// buckets.
    pub fn bucket(&mut self, series: SeriesId, bounds: &[f64], value: f64) {
        // The SDK ignores values that are not finite, so they have no bucket.
        if value.is_finite() {
            let bucket = bounds.partition_point(|bound| *bound < value);
            self.put((series, bucket), value);
        }
    }

    /// Records an exemplar for the increment of a counter by 1.
    pub fn one(&mut self, series: SeriesId) {
        self.put((series, 0), 1.0);
    }

    fn put(&mut self, slot: Slot, value: f64) {
        if let Some(ActiveRecorder { slots, exemplar }) = &mut self.0 {
            let exemplar = Exemplar { value, ..*exemplar };
            slots.put(slot, exemplar);
        }
    }
}

/// A copy of all exemplars, for one collection.
#[derive(Debug)]
pub struct ExemplarSnapshot {
    hasher: RandomState,
    /// Sorted by series, and then by bucket.
    all: Vec<(Slot, Exemplar)>,
}

impl ExemplarSnapshot {
    /// Returns the exemplars of one series in the order of buckets, each with the index of its bucket.
    pub fn of_series<'a>(
        &self,
        metric: &str,
        attributes: impl IntoIterator<Item = &'a KeyValue>,
    ) -> impl Iterator<Item = (usize, &Exemplar)> {
        let series =
            (!self.all.is_empty()).then(|| SeriesId::new(&self.hasher, metric, attributes));
        let start = self.all.partition_point(|((other, _), _)| Some(*other) < series);
        let rest = self.all.get(start..).unwrap_or_default().iter();
        rest.take_while(move |((other, _), _)| Some(*other) == series)
            .map(|((_, bucket), exemplar)| (*bucket, exemplar))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::tokengauge;
    use crate::testing;
    use tokengauge_measure::record::Outcome;
    use tokengauge_types::event::{Ending, RejectReason};

    const BOUNDS: &[f64] = &[0.5, 1.5];

    fn exemplars(variables: &[(&str, &str)]) -> Exemplars {
        let (config, problems) = TelemetryConfig::from_env(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        assert!(problems.is_empty(), "{problems:?}");
        Exemplars::new(&config)
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");

    fn attributes(value: &'static str) -> [KeyValue; 1] {
        [KeyValue::new("key", value)]
    }

    /// Returns the values of one series' exemplars, each with its bucket.
    fn values(exemplars: &Exemplars, of: &'static str) -> Vec<(usize, f64)> {
        let snapshot = exemplars.snapshot();
        let attributes = attributes(of);
        let found = snapshot.of_series(tokengauge::TIME_TO_FIRST_TOKEN.name, &attributes);
        found.map(|(bucket, exemplar)| (bucket, exemplar.value)).collect()
    }

    #[test]
    fn keeps_the_latest_of_each_bucket_of_each_series() {
        let exemplars = exemplars(&[ENDPOINT]);
        let series = |of| exemplars.series(&tokengauge::TIME_TO_FIRST_TOKEN, &attributes(of));
        let mut marks = exemplars.recorder(&testing::streamed());
        for value in [0.1, 0.5, 0.6, 9.0, f64::NAN, f64::INFINITY] {
            marks.bucket(series("a"), BOUNDS, value);
        }
        marks.one(series("b"));
        drop(marks);
        let mut marks = exemplars.recorder(&testing::streamed());
        marks.bucket(series("a"), BOUNDS, 1.5);
        drop(marks);
        // A value equal to a bound belongs to the bucket below the bound.
        assert_eq!(values(&exemplars, "a"), [(0, 0.5), (1, 1.5), (2, 9.0)]);
        assert_eq!(values(&exemplars, "b"), [(0, 1.0)]);
        assert_eq!(values(&exemplars, "c"), []);
        let snapshot = exemplars.snapshot();
        assert_eq!(snapshot.of_series("other", &attributes("a")).count(), 0);
    }

    #[test]
    fn refers_to_the_client_span_and_the_end_time() {
        let exemplars = exemplars(&[ENDPOINT]);
        let series = exemplars.series(&tokengauge::TIME_TO_FIRST_TOKEN, &[]);
        let left = |record: &Record| {
            exemplars.recorder(record).one(series);
            let snapshot = exemplars.snapshot();
            let (_, exemplar) =
                snapshot.of_series(tokengauge::TIME_TO_FIRST_TOKEN.name, []).next().unwrap();
            *exemplar
        };
        let mut record = testing::streamed();
        assert_eq!(
            left(&record),
            Exemplar {
                trace_id: *b"0123456789abcdef",
                span_id: *b"client00",
                value: 1.0,
                time: WallTime::from_unix_nanos(1_800_000_002_500_000_000),
            }
        );
        record.ending = Ending::Rejected(RejectReason::NoRoute);
        assert_eq!(left(&record).span_id, *b"server00", "the record has no CLIENT span");
    }

    #[test]
    fn only_exported_traces_leave_exemplars_by_default() {
        let (filter, off) = ("OTEL_METRICS_EXEMPLAR_FILTER", ("OTEL_TRACES_SAMPLER", "always_off"));
        let failed = Record { outcome: Outcome::Error, ..testing::streamed() };
        let unended = |mut record: Record| {
            record.timestamps.end = None;
            record
        };
        let cases = [
            (vec![ENDPOINT], [true, true]),
            (vec![ENDPOINT, off], [false, true]),
            (vec![ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")], [false, false]),
            (vec![], [false, false]),
            (vec![(filter, "always_on")], [true, true]),
            (vec![ENDPOINT, (filter, "always_off")], [false, false]),
            (vec![ENDPOINT, off, (filter, "trace_based")], [false, true]),
            (vec![ENDPOINT, off, (filter, "always_on")], [true, true]),
        ];
        for (variables, expected) in cases {
            let leaves = [testing::streamed(), failed.clone()].map(|record| {
                assert!(exemplars(&variables).recorder(&unended(record.clone())).0.is_none());
                exemplars(&variables).recorder(&record).0.is_some()
            });
            assert_eq!(leaves, expected, "{variables:?}");
        }
    }

    /// A hash table with 2ⁿ slots holds at most 7/8 × 2ⁿ entries, and needs one additional byte per slot.
    #[test]
    fn both_generations_fit_in_a_megabyte() {
        let slots = MAX_EXEMPLARS_PER_GENERATION.next_power_of_two();
        assert_eq!(
            MAX_EXEMPLARS_PER_GENERATION,
            slots / 8 * 7,
            "the next entry would double the table"
        );
        assert!(2 * slots * (size_of::<(Slot, Exemplar)>() + 1) < 1_000_000);
    }

    #[test]
    fn keeps_recently_updated_slots() {
        let mut slots = ExemplarStore::default();
        let exemplar = |value| Exemplar {
            trace_id: [1; 16],
            span_id: [1; 8],
            value,
            time: WallTime::from_unix_nanos(0),
        };
        let slot = |number: usize| (SeriesId(number as u64), 0);
        let busy = slot(usize::MAX);
        for number in 0..5 * MAX_EXEMPLARS_PER_GENERATION {
            slots.put(slot(number), exemplar(0.0));
            slots.put(busy, exemplar(number as f64));
            assert!(
                slots.young.len() <= MAX_EXEMPLARS_PER_GENERATION
                    && slots.old.len() <= MAX_EXEMPLARS_PER_GENERATION
            );
        }
        let all: FxHashMap<_, _> = slots.all().into_iter().collect();
        assert_eq!(all.len(), slots.all().len(), "each slot occurs once");
        assert_eq!(all[&busy], exemplar((5 * MAX_EXEMPLARS_PER_GENERATION - 1) as f64));
        let latest = 5 * MAX_EXEMPLARS_PER_GENERATION - MAX_EXEMPLARS_PER_GENERATION / 2
            ..5 * MAX_EXEMPLARS_PER_GENERATION;
        assert!(latest.into_iter().all(|number| all.contains_key(&slot(number))));
        assert!(!all.contains_key(&slot(0)));
    }
}
