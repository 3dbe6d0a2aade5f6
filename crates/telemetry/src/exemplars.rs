//! Exemplars: from a bucket of a histogram to the trace of an exchange that fell into it.
//!
//! The SDK makes none. They are kept beside it, for what is recorded when an exchange ends: the latest of each bucket of
//! each series, and of each counter. A collection takes them along, and finds them again by the metric's name and the
//! attributes of each point. Only traces that are kept leave any: another id leads nowhere.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use opentelemetry::KeyValue;
use rustc_hash::FxHashMap;

use crate::catalog::Metric;
use crate::config::{Config, ExemplarFilter};
use crate::sampling::Sampler;
use crate::span;
use tokengauge_measure::record::Record;
use tokengauge_types::clock::WallTime;

/// How many places (a bucket of a series, or a counter) one generation holds. A kind of call fills about a hundred: 25
/// series, 4 buckets of each. So the latest 70 kinds of calls keep theirs. As many as a hash table of 8,192 places takes:
/// both generations together are never more than 1 MB.
const GENERATION: usize = 7_168;

/// What leads from a number to one exchange.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    pub trace_id: [u8; 16],
    /// Of the CLIENT span; of the SERVER span where there is no other.
    pub span_id: [u8; 8],
    /// What the exchange added to the series.
    pub value: f64,
    /// When the exchange ended.
    pub time: WallTime,
}

/// A series, as a keyed hash of its metric's name and its attributes. That two of 100,000 series are equal has a chance
/// of 10⁻⁹, and then a bucket leads to a trace of the other.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SeriesId(u64);

/// The exemplars of all series.
pub struct Exemplars {
    hasher: RandomState,
    eligible: ExemplarPolicy,
    places: Mutex<ExemplarStore>,
}

/// Which exchanges leave exemplars.
#[derive(Clone, Copy, Debug)]
enum ExemplarPolicy {
    None,
    /// Those whose traces this sampler keeps.
    Sampled(Sampler),
    All,
}

/// A bucket of a series; a counter has only the first.
type Slot = (SeriesId, usize);

/// Two generations: when the young one is full it becomes the old one, and what was not seen since is forgotten. So what
/// is kept is what moved last, without any bookkeeping of ages.
#[derive(Debug, Default)]
struct ExemplarStore {
    young: FxHashMap<Slot, Exemplar>,
    old: FxHashMap<Slot, Exemplar>,
}

/// What one exchange leaves at the series that it moves. Holds the exemplars' lock: short-lived.
#[derive(Debug)]
pub struct ExemplarRecorder<'a>(Option<ActiveRecorder<'a>>);

#[derive(Debug)]
struct ActiveRecorder<'a> {
    places: MutexGuard<'a, ExemplarStore>,
    exemplar: Exemplar,
}

impl Exemplars {
    pub fn new(config: &Config) -> Self {
        let eligible = match config.exemplars {
            ExemplarFilter::AlwaysOff => ExemplarPolicy::None,
            ExemplarFilter::AlwaysOn => ExemplarPolicy::All,
            ExemplarFilter::TraceBased if config.sends_traces() => {
                ExemplarPolicy::Sampled(config.sampler)
            }
            ExemplarFilter::TraceBased => ExemplarPolicy::None,
        };
        Self { hasher: RandomState::new(), eligible, places: Mutex::default() }
    }

    /// `attributes` in the order of their keys, as the SDK gives them back.
    pub fn series(&self, metric: &Metric, attributes: &[KeyValue]) -> SeriesId {
        SeriesId::new(&self.hasher, metric.name, attributes)
    }

    /// For one finished exchange.
    pub fn marks(&self, record: &Record) -> ExemplarRecorder<'_> {
        let eligible = match self.eligible {
            ExemplarPolicy::None => false,
            ExemplarPolicy::Sampled(sampler) => sampler.decide(record).is_some(),
            ExemplarPolicy::All => true,
        };
        let Some(end) = record.points.end.filter(|_| eligible) else {
            return ExemplarRecorder::none();
        };
        ExemplarRecorder(Some(ActiveRecorder {
            places: self.places(),
            exemplar: Exemplar {
                trace_id: record.trace.trace_id,
                span_id: span::innermost_span_id(record),
                value: 0.0,
                time: record.wall + end.since(record.points.accept),
            },
        }))
    }

    /// All there are now.
    pub fn taken(&self) -> ExemplarSnapshot {
        let mut all = self.places().all();
        all.sort_unstable_by_key(|(place, _)| *place);
        ExemplarSnapshot { hasher: self.hasher.clone(), all }
    }

    fn places(&self) -> MutexGuard<'_, ExemplarStore> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn put(&mut self, place: Slot, exemplar: Exemplar) {
        if self.young.len() >= GENERATION && !self.young.contains_key(&place) {
            mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert(place, exemplar);
    }

    fn all(&self) -> Vec<(Slot, Exemplar)> {
        let outlived = |(place, _): &(&Slot, &Exemplar)| !self.young.contains_key(*place);
        let all = self.young.iter().chain(self.old.iter().filter(outlived));
        all.map(|(place, exemplar)| (*place, *exemplar)).collect()
    }
}

impl ExemplarRecorder<'_> {
    /// Of an exchange that leaves nothing.
    pub const fn none() -> Self {
        Self(None)
    }

    /// `value` was recorded in a histogram whose buckets end at `bounds`.
    pub fn bucket(&mut self, series: SeriesId, bounds: &[f64], value: f64) {
        // What is no number the SDK does not record.
        if value.is_finite() {
            let bucket = bounds.partition_point(|bound| *bound < value);
            self.put((series, bucket), value);
        }
    }

    /// 1 was added to a counter.
    pub fn one(&mut self, series: SeriesId) {
        self.put((series, 0), 1.0);
    }

    fn put(&mut self, place: Slot, value: f64) {
        if let Some(ActiveRecorder { places, exemplar }) = &mut self.0 {
            let exemplar = Exemplar { value, ..*exemplar };
            places.put(place, exemplar);
        }
    }
}

/// The exemplars of one collection.
pub struct ExemplarSnapshot {
    hasher: RandomState,
    /// Sorted.
    all: Vec<(Slot, Exemplar)>,
}

impl ExemplarSnapshot {
    /// Those of one series, each with its bucket, in their order.
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

impl fmt::Debug for Exemplars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exemplars").field("eligible", &self.eligible).finish_non_exhaustive()
    }
}

impl fmt::Debug for ExemplarSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExemplarSnapshot").field(&self.all.len()).finish()
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
        let (config, problems) = Config::from_env(|name| {
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

    /// The values of one series by bucket.
    fn values(exemplars: &Exemplars, of: &'static str) -> Vec<(usize, f64)> {
        let taken = exemplars.taken();
        let attributes = attributes(of);
        let found = taken.of_series(tokengauge::TIME_TO.name, &attributes);
        found.map(|(bucket, exemplar)| (bucket, exemplar.value)).collect()
    }

    #[test]
    fn each_bucket_of_each_series_has_the_latest() {
        let exemplars = exemplars(&[ENDPOINT]);
        let series = |of| exemplars.series(&tokengauge::TIME_TO, &attributes(of));
        let mut marks = exemplars.marks(&testing::streamed());
        for value in [0.1, 0.5, 0.6, 9.0, f64::NAN, f64::INFINITY] {
            marks.bucket(series("a"), BOUNDS, value);
        }
        marks.one(series("b"));
        drop(marks);
        let mut marks = exemplars.marks(&testing::streamed());
        marks.bucket(series("a"), BOUNDS, 1.5);
        drop(marks);
        // A value at a bound belongs to the bucket that ends there.
        assert_eq!(values(&exemplars, "a"), [(0, 0.5), (1, 1.5), (2, 9.0)]);
        assert_eq!(values(&exemplars, "b"), [(0, 1.0)]);
        assert_eq!(values(&exemplars, "c"), []);
        let taken = exemplars.taken();
        assert_eq!(taken.of_series("other", &attributes("a")).count(), 0);
    }

    #[test]
    fn it_leads_to_the_client_span_at_the_exchanges_end() {
        let exemplars = exemplars(&[ENDPOINT]);
        let series = exemplars.series(&tokengauge::TIME_TO, &[]);
        let left = |record: &Record| {
            exemplars.marks(record).one(series);
            let taken = exemplars.taken();
            let (_, exemplar) = taken.of_series(tokengauge::TIME_TO.name, []).next().unwrap();
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
        assert_eq!(left(&record).span_id, *b"server00", "it has no other span");
    }

    #[test]
    fn only_traces_that_are_kept_and_go_somewhere_leave_any_unless_told_otherwise() {
        let (filter, off) = ("OTEL_METRICS_EXEMPLAR_FILTER", ("OTEL_TRACES_SAMPLER", "always_off"));
        let failed = Record { outcome: Outcome::Error, ..testing::streamed() };
        let unended = |mut record: Record| {
            record.points.end = None;
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
                assert!(exemplars(&variables).marks(&unended(record.clone())).0.is_none());
                exemplars(&variables).marks(&record).0.is_some()
            });
            assert_eq!(leaves, expected, "{variables:?}");
        }
    }

    /// A table of 2^n places takes 7/8 of them, and a byte for each.
    #[test]
    fn both_generations_are_below_a_megabyte() {
        let places = GENERATION.next_power_of_two();
        assert_eq!(GENERATION, places / 8 * 7, "the next entry would double the table");
        assert!(2 * places * (size_of::<(Slot, Exemplar)>() + 1) < 1_000_000);
    }

    #[test]
    fn what_moved_last_is_kept_and_the_rest_is_forgotten() {
        let mut places = ExemplarStore::default();
        let exemplar = |value| Exemplar {
            trace_id: [1; 16],
            span_id: [1; 8],
            value,
            time: WallTime::from_unix_nanos(0),
        };
        let place = |number: usize| (SeriesId(number as u64), 0);
        let busy = place(usize::MAX);
        for number in 0..5 * GENERATION {
            places.put(place(number), exemplar(0.0));
            places.put(busy, exemplar(number as f64));
            assert!(places.young.len() <= GENERATION && places.old.len() <= GENERATION);
        }
        let all: FxHashMap<_, _> = places.all().into_iter().collect();
        assert_eq!(all.len(), places.all().len(), "each place once");
        assert_eq!(all[&busy], exemplar((5 * GENERATION - 1) as f64));
        let latest = 5 * GENERATION - GENERATION / 2..5 * GENERATION;
        assert!(latest.into_iter().all(|number| all.contains_key(&place(number))));
        assert!(!all.contains_key(&place(0)));
    }
}
