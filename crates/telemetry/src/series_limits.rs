//! Bounds the number of series of all instruments together, by replacing labels with `other`.
//!
//! The cardinality limiter bounds the values of each label, but combinations of admitted values multiply. New
//! combinations are therefore admitted in order of arrival. The more combinations exist, the fewer labels a new
//! combination keeps: the tenant is replaced first, then the variant, then the model, and finally the route. Status and
//! error type are never replaced, because they show what is wrong.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustc_hash::FxBuildHasher;

use crate::catalog::attributes::{self as key, Values};
use crate::catalog::{self, Metric};
use tokengauge_llm::dialect::Operation;
use tokengauge_measure::load::RouteKey;
use tokengauge_measure::record::MetricLabels;
use tokengauge_types::event::ProxyPosition;
use tokengauge_types::label::{Label, OTHER};
use tokengauge_types::sync::lock;

/// Maximum number of points of all instruments: 223 kinds of calls with all their points, such as 100 models that
/// stream or not. A typical call fills half of its points. A point takes 1 KiB, and 0.9 KiB more in each snapshot,
/// the last of which is kept. A full process with a scrape and an export therefore takes 60 to 110 MB, which fits into
/// the 256 MiB of a sidecar. Combinations whose labels were all replaced by `other` are admitted even beyond the
/// maximum.
pub const MAX_POINTS: usize = 40_000;

/// Maximum number of routes, of upstreams, and of SLOs in a configuration, and of routes for which gauges are
/// exported. A configuration has a few of each, but each reload can add new names.
pub const MAX_CONFIGURED: usize = 512;

/// Maximum number of combinations whose labels were all replaced by `other`. They differ in the operation, in whether
/// the response is streamed, in the position, and in whether a tenant, a variant and a response model are present.
const MAX_REPLACED: usize = Operation::ALL.len() * 2 * ProxyPosition::ALL.len() * 2 * 2 * 2;

/// Points that each combination of call labels reserves for failed calls, whose responses name no model.
const UNNAMED_POINTS: usize = 16;

/// Which labels of a combination are replaced by `other`. Each step includes the labels of the previous steps.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum OverflowStep {
    Nothing,
    Tenant,
    Variant,
    /// The model, and the provider.
    Model,
    /// The route, and the server.
    Route,
}

/// The instruments for which a combination of labels creates series.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SeriesGroup {
    Route,
    /// The instruments of calls with the same labels, for the first response model.
    Call,
    /// The instruments of calls with the same labels, for a further response model.
    ResponseModel,
    /// The instruments with labels for the length ranges of prompt and response.
    Lengths,
    /// The instruments of calls that depend on the error type.
    Failure,
    /// The counter of finished requests.
    Finish,
    /// The counter of finished choices.
    Choice,
    /// The HTTP metrics of the semantic conventions.
    Http,
}

/// Labels that can be replaced by `other`.
pub trait Overflow: Clone + Hash {
    fn replaced_with_other(&self, step: OverflowStep) -> Self;
}

/// Admits combinations of labels up to [`MAX_POINTS`]. Further combinations lose labels to `other`.
#[derive(Debug)]
pub struct SeriesLimiter {
    hasher: RandomState,
    /// Number of points (series) of one combination, by [`SeriesGroup`].
    points: [usize; SeriesGroup::ALL.len()],
    admitted: Mutex<Admitted>,
    overflowed: Arc<AtomicU64>,
}

/// Keyed 64-bit hashes of the admitted combinations. With 40,000 hashes, two are equal with a probability of 4 × 10⁻¹¹,
/// and one more combination is then admitted.
#[derive(Debug, Default)]
struct Admitted {
    hashes: HashSet<u64, FxBuildHasher>,
    points: usize,
}

impl OverflowStep {
    const ALL: [Self; 5] = [Self::Nothing, Self::Tenant, Self::Variant, Self::Model, Self::Route];
}

impl SeriesGroup {
    const ALL: [Self; 8] = [
        Self::Route,
        Self::Call,
        Self::ResponseModel,
        Self::Lengths,
        Self::Failure,
        Self::Finish,
        Self::Choice,
        Self::Http,
    ];

    /// Returns whether each combination of the group has series of `metric`.
    fn contains(self, metric: &Metric) -> bool {
        let has = |attribute| metric.has(attribute);
        let is_response_model = has(key::RESPONSE_MODEL) && !has(key::FINISH_REASON);
        match self {
            Self::Route => has(key::ROUTE) && !has(key::OPERATION) && !has(key::METHOD),
            Self::Call => {
                let is_live =
                    has(key::OPERATION) && !has(key::RESPONSE_MODEL) && !has(key::OUTCOME);
                is_live || is_response_model
            }
            Self::ResponseModel => is_response_model,
            Self::Lengths => has(key::INPUT_LENGTH_BUCKET),
            Self::Failure => has(key::RESPONSE_MODEL) && has(key::ERROR_TYPE),
            Self::Finish => has(key::OUTCOME),
            Self::Choice => has(key::FINISH_REASON),
            Self::Http => has(key::METHOD),
        }
    }

    /// Returns the maximum number of points of one combination.
    pub fn points(self) -> usize {
        let metrics = catalog::metrics().filter(|metric| self.contains(metric));
        let points = metrics.map(|metric| metric.combinations).sum();
        match self {
            Self::Call => points + UNNAMED_POINTS,
            Self::Route | Self::ResponseModel | Self::Lengths | Self::Failure => points,
            Self::Finish | Self::Choice => 1,
            Self::Http => 2,
        }
    }

    /// Returns whether the series of a combination also differ in values from traffic, such as the error type.
    const fn has_results(self) -> bool {
        match self {
            Self::Route | Self::Call | Self::ResponseModel | Self::Lengths => false,
            Self::Failure | Self::Finish | Self::Choice | Self::Http => true,
        }
    }

    /// Returns the percentage of [`MAX_POINTS`] up to which new combinations are admitted at this step. Results of
    /// requests have a higher percentage, because a new status or error matters more than a new model.
    const fn share(self, step: OverflowStep) -> usize {
        let is_important = self.has_results() || matches!(self, Self::Route);
        match (step, is_important) {
            (OverflowStep::Nothing, false) => 50,
            (OverflowStep::Tenant, false) => 60,
            (OverflowStep::Variant, false) => 67,
            (OverflowStep::Model, false) => 75,
            (OverflowStep::Nothing, true) => 80,
            (OverflowStep::Tenant, true) => 85,
            (OverflowStep::Variant, true) => 90,
            (OverflowStep::Model, true) => 95,
            (OverflowStep::Route, _) => 100,
        }
    }
}

/// Returns the maximum number of series of `metric`. At the start, the SDK allocates a hash table for all of them: about
/// 33 bytes for each, of which it writes 1.
pub fn max_series(metric: &Metric) -> usize {
    let groups = || SeriesGroup::ALL.into_iter().filter(|group| group.contains(metric));
    if groups().any(SeriesGroup::has_results) {
        return MAX_POINTS;
    }
    let combinations = match groups().map(|group| MAX_POINTS / group.points()).sum() {
        0 if metric.attributes().all(|it| matches!(it.values, Values::Closed(_))) => 1,
        // The counter of a budget is never removed, and each reload can add 256 new names.
        0 => 2 * MAX_CONFIGURED,
        admitted => admitted + MAX_REPLACED,
    };
    MAX_POINTS.min(combinations * metric.combinations)
}

impl SeriesLimiter {
    /// Returns the labels with which values are recorded, and which of them were replaced by `other`. `own` is
    /// never replaced.
    ///
    /// A combination with all labels replaced is always admitted. Such combinations differ only in keywords, statuses
    /// and admitted error types.
    pub fn replace_with_other<L: Overflow>(
        &self,
        labels: &L,
        group: SeriesGroup,
        own: &impl Hash,
    ) -> (L, OverflowStep) {
        for step in OverflowStep::ALL {
            let candidate = labels.replaced_with_other(step);
            if self.admit(&candidate, group, step, own) || step == OverflowStep::Route {
                if step != OverflowStep::Nothing && self.hash(&candidate) != self.hash(labels) {
                    self.count();
                }
                return (candidate, step);
            }
        }
        unreachable!("the last step is always admitted")
    }

    /// Returns whether a combination is admitted with all its labels. If not, the overflow is counted.
    pub fn admit_as_is<L: Overflow>(
        &self,
        labels: &L,
        group: SeriesGroup,
        own: &impl Hash,
    ) -> bool {
        let is_admitted = self.admit(labels, group, OverflowStep::Nothing, own);
        if !is_admitted {
            self.count();
        }
        is_admitted
    }

    /// Returns how often labels of a combination were replaced by `other`.
    pub fn overflowed(&self) -> &Arc<AtomicU64> {
        &self.overflowed
    }

    fn admit<L: Overflow>(
        &self,
        labels: &L,
        group: SeriesGroup,
        step: OverflowStep,
        own: &impl Hash,
    ) -> bool {
        let hash = self.hash(&(group, labels, own));
        let mut admitted = lock(&self.admitted);
        if admitted.hashes.contains(&hash) {
            return true;
        }
        let own_points = self.points.get(group as usize).copied().unwrap_or_default();
        let points = admitted.points + own_points;
        let fits = points <= MAX_POINTS / 100 * group.share(step);
        if fits {
            admitted.hashes.insert(hash);
            admitted.points = points;
        }
        fits
    }

    fn hash(&self, value: &impl Hash) -> u64 {
        self.hasher.hash_one(value)
    }

    fn count(&self) {
        self.overflowed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Default for SeriesLimiter {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            points: SeriesGroup::ALL.map(SeriesGroup::points),
            admitted: Mutex::default(),
            overflowed: Arc::default(),
        }
    }
}

impl Overflow for MetricLabels {
    fn replaced_with_other(&self, step: OverflowStep) -> Self {
        let other = || Label::known(OTHER);
        let mut labels = self.clone();
        if step >= OverflowStep::Tenant {
            labels.tenant = labels.tenant.map(|_| other());
        }
        if step >= OverflowStep::Variant {
            labels.variant = labels.variant.map(|_| other());
        }
        if step >= OverflowStep::Model {
            (labels.provider, labels.model) = (other(), other());
        }
        if step >= OverflowStep::Route {
            (labels.route, labels.server_address, labels.server_port) = (other(), other(), 0);
        }
        labels
    }
}

impl Overflow for RouteKey {
    fn replaced_with_other(&self, step: OverflowStep) -> Self {
        match step {
            OverflowStep::Nothing
            | OverflowStep::Tenant
            | OverflowStep::Variant
            | OverflowStep::Model => self.clone(),
            OverflowStep::Route => Self { route: Label::known(OTHER), ..self.clone() },
        }
    }
}

/// A map of shared values. The number of keys is bounded, because label and series limits apply before a key is added.
/// Even if a client provokes hash collisions, their cost is therefore bounded, so the fast hasher is safe to use.
#[derive(Debug)]
pub struct SharedValues<K, V>(RwLock<HashMap<K, Arc<V>, FxBuildHasher>>);

impl<K: Clone + Eq + Hash, V> SharedValues<K, V> {
    /// Returns the value at `key` if it exists.
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Returns the value for `key`. Creates the value if it is missing.
    pub fn obtain(&self, key: &K, make: impl FnOnce(&K) -> V) -> Arc<V> {
        if let Some(known) = self.get(key) {
            return known;
        }
        let mut values = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let value = values.entry(key.clone()).or_insert_with(|| Arc::new(make(key)));
        Arc::clone(value)
    }
}

impl<K, V> Default for SharedValues<K, V> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use tokengauge_measure::load::MAX_MODEL_KEYS;

    fn labels(model: usize, tenant: usize) -> MetricLabels {
        MetricLabels {
            model: Label::known(&format!("model-{model}")),
            tenant: Some(Label::known(&format!("tenant-{tenant}"))),
            variant: Some(Label::known("a")),
            ..testing::series()
        }
    }

    #[test]
    fn labels_are_replaced_one_after_the_other() {
        let labels = labels(1, 1);
        let replaced = OverflowStep::ALL.map(|step| {
            let it = labels.replaced_with_other(step);
            let labels =
                [it.tenant.as_ref(), it.variant.as_ref(), Some(&it.model), Some(&it.route)];
            labels.map(|label| label.unwrap().as_str() == OTHER)
        });
        let expected: [[bool; 4]; 5] =
            std::array::from_fn(|step| std::array::from_fn(|label| label < step));
        assert_eq!(replaced, expected);
        assert_eq!(
            testing::series().replaced_with_other(OverflowStep::Variant),
            testing::series(),
            "absent"
        );
    }

    #[test]
    fn calls_and_their_results_stay_below_the_bound() {
        let limiter = SeriesLimiter::default();
        let mut steps = [0; OverflowStep::ALL.len()];
        for model in 0..1_000 {
            for tenant in 0..20 {
                let (replaced, step) =
                    limiter.replace_with_other(&labels(model, tenant), SeriesGroup::Call, &());
                steps[step as usize] += 1;
                for status in [200, 429, 500] {
                    limiter.replace_with_other(&replaced, SeriesGroup::Finish, &status);
                }
            }
        }
        let [nothing, tenant, variant, model, route] = steps;
        assert!(nothing > 100 && tenant > 0 && variant > 0 && model > 0, "{steps:?}");
        assert_eq!(route, 0, "one route is not replaced");
        let points = limiter.admitted.lock().unwrap().points;
        assert!(points > MAX_POINTS / 2 && points <= MAX_POINTS, "{points}");
        let (known, step) = limiter.replace_with_other(&labels(0, 0), SeriesGroup::Call, &());
        assert_eq!((known, step), (labels(0, 0), OverflowStep::Nothing), "admitted before");
    }

    #[test]
    fn a_hundred_models_that_stream_or_not_keep_their_labels() {
        let limiter = SeriesLimiter::default();
        for model in 0..100 {
            for stream in [false, true] {
                let labels =
                    MetricLabels { stream, tenant: None, variant: None, ..labels(model, 0) };
                assert_eq!(limiter.replace_with_other(&labels, SeriesGroup::Call, &()).0, labels);
                for status in [200, 400, 429, 500, 503] {
                    assert_eq!(
                        limiter.replace_with_other(&labels, SeriesGroup::Finish, &status).0,
                        labels
                    );
                }
            }
        }
        assert_eq!(limiter.overflowed().load(Ordering::Relaxed), 0);
    }

    #[test]
    fn limits_of_metrics_include_all_that_is_exported() {
        for metric in catalog::metrics() {
            let at_least = match metric {
                metric if metric.has(key::OPERATION) => MAX_REPLACED,
                metric if metric.has(key::REQUEST_MODEL) => MAX_MODEL_KEYS,
                metric if metric.has(key::ROUTE) || metric.has(key::SLO) => MAX_CONFIGURED,
                metric if metric.has(key::UPSTREAM) || metric.has(key::BUDGET) => MAX_CONFIGURED,
                _ => 1,
            };
            let at_least = MAX_POINTS.min(at_least * metric.combinations);
            assert!(max_series(metric) >= at_least, "{}", metric.name);
            if metric.attributes().next().is_none() {
                assert_eq!(max_series(metric), 1, "{}", metric.name);
            }
        }
    }

    /// The SDK writes one byte per slot of a hash table. At most 7 of 8 slots are used, and their number is a power of
    /// two.
    #[test]
    fn instruments_write_about_a_megabyte_at_the_start() {
        let slots = |metric| (max_series(metric) * 8 / 7).next_power_of_two();
        let bytes: usize = catalog::metrics().map(slots).sum();
        assert!(bytes < 1_100_000, "{bytes}");
    }

    #[test]
    fn values_are_shared() {
        let values = SharedValues::default();
        let one = values.obtain(&1, |key| key * 10);
        assert!(Arc::ptr_eq(&one, &values.obtain(&1, |_| 0)));
        assert_eq!((values.get(&1).as_deref(), values.get(&2)), (Some(&10), None));
    }
}
