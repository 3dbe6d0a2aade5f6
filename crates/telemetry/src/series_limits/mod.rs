//! Bounds the size of a scrape page, and with it the number of series, by replacing labels with `other`.
//!
//! The cardinality limiter bounds the values of each label, but combinations of admitted values multiply. New
//! combinations are therefore admitted in order of arrival, as long as the page has room for all their series. The
//! fuller the page, the fewer labels a new combination keeps: the tenant is replaced first, then the variant, then the
//! model, and finally the route. Status and error type are never replaced, because they show what is wrong.
//!
//! A histogram takes about twenty lines, and a counter one. Histograms of calls are therefore admitted separately, up
//! to a lower limit: with many tenants, tokens, cost and requests keep the tenant longer than times and rates do.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustc_hash::FxBuildHasher;

use crate::catalog::Metric;
use crate::catalog::attributes::{self as key, Values};
use crate::config::MetricSelection;
use tokengauge_llm::dialect::Operation;
use tokengauge_measure::load::RouteKey;
use tokengauge_measure::record::MetricLabels;
use tokengauge_types::event::ProxyPosition;
use tokengauge_types::label::{Label, OTHER};
use tokengauge_types::sync::lock;

mod estimate;
mod group;

pub use estimate::{ExpectedTraffic, PageEstimate, estimate};
pub use group::{MAX_PAGE_BYTES, SeriesGroup};
use group::{PageSize, VALUE_BYTES, label_bytes};

/// Maximum number of routes, of upstreams, and of SLOs in a configuration, and of routes for which gauges are
/// exported. A configuration has a few of each, but each reload can add new names.
pub const MAX_CONFIGURED: usize = 512;

/// Maximum number of combinations whose labels were all replaced by `other`. They differ in the operation, in whether
/// the response is streamed, in the position, in whether a tenant and a variant are present, and in the response model:
/// none, the first one, or `other`.
const MAX_REPLACED: usize = Operation::ALL.len() * 2 * ProxyPosition::ALL.len() * 2 * 2 * 3;

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

/// Labels that can be replaced by `other`.
pub trait Overflow: Clone + Hash {
    fn replaced_with_other(&self, step: OverflowStep) -> Self;

    /// Returns the length in bytes of all label values, and of the keys of labels that can be absent.
    fn text_bytes(&self) -> usize;

    /// Returns whether calls with these labels are streamed.
    fn is_stream(&self) -> bool {
        false
    }
}

/// Admits combinations of labels until their series fill a scrape page. Further combinations lose labels to `other`.
#[derive(Debug)]
pub struct SeriesLimiter {
    hasher: RandomState,
    /// Size of one combination that is not streamed, and of a streamed one, by [`SeriesGroup`].
    sizes: [[PageSize; 2]; SeriesGroup::ALL.len()],
    admitted: Mutex<Admitted>,
    overflowed: Arc<AtomicU64>,
}

/// Keyed 64-bit hashes of the admitted combinations. With 80,000 hashes, two are equal with a probability of 2 × 10⁻¹⁰,
/// and one more combination is then admitted.
#[derive(Debug, Default)]
struct Admitted {
    hashes: HashSet<u64, FxBuildHasher>,
    /// Sizes in bytes of histograms of calls, and of all other series.
    timing_bytes: usize,
    other_bytes: usize,
}

impl OverflowStep {
    const ALL: [Self; 5] = [Self::Nothing, Self::Tenant, Self::Variant, Self::Model, Self::Route];
}

impl Admitted {
    const fn bytes_mut(&mut self, group: SeriesGroup) -> &mut usize {
        if group.is_timing() { &mut self.timing_bytes } else { &mut self.other_bytes }
    }
}

/// Returns the maximum number of series of `metric`. At the start, the SDK allocates a hash table for all of them: about
/// 33 bytes for each, of which it writes 1.
pub fn max_series(metric: &Metric, selection: MetricSelection) -> usize {
    let is_used = |group: &SeriesGroup| group.is_used(selection.profile);
    let groups =
        || SeriesGroup::ALL.into_iter().filter(is_used).filter(|group| group.contains(metric));
    let on_page = MAX_PAGE_BYTES / PageSize::of_series(metric, selection.profile).bytes
        + MAX_REPLACED * metric.combinations();
    if groups().any(SeriesGroup::has_results) {
        return on_page;
    }
    let combinations = |group: SeriesGroup| {
        let smallest = [false, true].map(|it| group.size(it, selection).bytes);
        group.max_bytes() / smallest.into_iter().filter(|it| *it > 0).min().unwrap_or(1)
    };
    let combinations = match groups().map(combinations).sum() {
        0 if metric.attributes().all(|it| matches!(it.values, Values::Closed(_))) => 1,
        // The counter of a budget is never removed, and each reload can add 256 new names.
        0 => 2 * MAX_CONFIGURED,
        admitted => admitted + MAX_REPLACED,
    };
    on_page.min(combinations * metric.combinations())
}

impl SeriesLimiter {
    pub fn new(selection: MetricSelection) -> Self {
        let sizes = |group: SeriesGroup| [false, true].map(|stream| group.size(stream, selection));
        Self {
            hasher: RandomState::new(),
            sizes: SeriesGroup::ALL.map(sizes),
            admitted: Mutex::default(),
            overflowed: Arc::default(),
        }
    }

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

    /// Admits a combination whose labels cannot be replaced.
    pub fn admit_always<L: Overflow>(&self, labels: &L, group: SeriesGroup, own: &impl Hash) {
        let hash = self.hash(&(group, labels, own));
        let mut admitted = lock(&self.admitted);
        if admitted.hashes.insert(hash) {
            *admitted.bytes_mut(group) += self.size(labels, group);
        }
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
        let bytes = *admitted.bytes_mut(group) + self.size(labels, group);
        let fits = bytes <= group.max_bytes() / 100 * group.share(step);
        if fits {
            admitted.hashes.insert(hash);
            *admitted.bytes_mut(group) = bytes;
        }
        fits
    }

    /// Returns the usual size in bytes of the series of one combination.
    fn size(&self, labels: &impl Overflow, group: SeriesGroup) -> usize {
        let [other, streamed] = self.sizes.get(group as usize).copied().unwrap_or_default();
        let size = if labels.is_stream() { streamed } else { other };
        size.with_values(labels.text_bytes())
    }

    fn hash(&self, value: &impl Hash) -> u64 {
        self.hasher.hash_one(value)
    }

    fn count(&self) {
        self.overflowed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Overflow for MetricLabels {
    fn replaced_with_other(&self, step: OverflowStep) -> Self {
        let other = || Label::from_trusted(OTHER);
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

    fn text_bytes(&self) -> usize {
        let optional = [(key::TENANT, &self.tenant), (key::VARIANT, &self.variant)];
        let optional = optional.into_iter().filter_map(|(attribute, value)| {
            Some(label_bytes(attribute) + value.as_ref()?.as_str().len())
        });
        let names = [&self.provider, &self.model, &self.route, &self.server_address];
        let names = names.into_iter().map(|label| label.as_str().len());
        // The port and the flag have five characters. The response model is about as long as the model.
        let fixed = self.operation.as_str().len() + self.position.as_str().len() + 5 + 5;
        let fixed = fixed + self.model.as_str().len().saturating_sub(VALUE_BYTES);
        fixed + names.chain(optional).sum::<usize>()
    }

    fn is_stream(&self) -> bool {
        self.stream
    }
}

impl Overflow for RouteKey {
    fn replaced_with_other(&self, step: OverflowStep) -> Self {
        match step {
            OverflowStep::Nothing
            | OverflowStep::Tenant
            | OverflowStep::Variant
            | OverflowStep::Model => self.clone(),
            OverflowStep::Route => Self { route: Label::from_trusted(OTHER), ..self.clone() },
        }
    }

    fn text_bytes(&self) -> usize {
        self.route.as_str().len() + self.position.as_str().len()
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
    use super::group::{MAX_OTHER_BYTES, MAX_TIMING_BYTES};
    use super::*;
    use crate::TelemetryConfig;
    use crate::catalog;
    use crate::config::Profile;
    use crate::testing;
    use tokengauge_measure::load::MAX_MODEL_KEYS;

    fn labels(model: usize, tenant: usize) -> MetricLabels {
        MetricLabels {
            model: Label::from_trusted(&format!("model-{model}")),
            tenant: Some(Label::from_trusted(&format!("tenant-{tenant}"))),
            variant: Some(Label::from_trusted("a")),
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

    /// Returns at which step the counters and the histograms of calls are admitted, of twenty tenants each.
    fn steps(limiter: &SeriesLimiter, models: usize) -> [[usize; OverflowStep::ALL.len()]; 2] {
        let mut steps = [[0; OverflowStep::ALL.len()]; 2];
        for model in 0..models {
            for tenant in 0..20 {
                let (replaced, step) =
                    limiter.replace_with_other(&labels(model, tenant), SeriesGroup::Call, &());
                steps[0][step as usize] += 1;
                let (_, step) = limiter.replace_with_other(&replaced, SeriesGroup::Timings, &());
                steps[1][step as usize] += 1;
                for status in [200, 429, 500] {
                    limiter.replace_with_other(&replaced, SeriesGroup::Finish, &status);
                }
            }
        }
        steps
    }

    #[test]
    fn calls_and_their_results_fill_a_page() {
        let limiter = SeriesLimiter::new(TelemetryConfig::default().selection());
        let all = steps(&limiter, 1_000);
        for [nothing, tenant, _, model, route] in all {
            assert!(nothing > 0 && tenant > 0 && model > 0, "{all:?}");
            assert_eq!(route, 0, "one route is not replaced");
        }
        let admitted = limiter.admitted.lock().unwrap();
        let (timings, others) = (admitted.timing_bytes, admitted.other_bytes);
        assert!(timings > MAX_TIMING_BYTES / 10 * 8 && timings <= MAX_TIMING_BYTES, "{timings}");
        assert!(others > MAX_OTHER_BYTES / 10 * 8 && others <= MAX_OTHER_BYTES, "{others}");
        drop(admitted);
        let (known, step) = limiter.replace_with_other(&labels(0, 0), SeriesGroup::Call, &());
        assert_eq!((known, step), (labels(0, 0), OverflowStep::Nothing), "admitted before");
    }

    #[test]
    fn counters_keep_the_tenant_longer_than_histograms() {
        let limiter = SeriesLimiter::new(TelemetryConfig::default().selection());
        let [counters, histograms] = steps(&limiter, 10).map(|[nothing, ..]| nothing);
        assert!(counters > 2 * histograms && histograms > 5, "{counters} {histograms}");
    }

    #[test]
    fn many_models_without_tenants_keep_their_labels() {
        let limiter = SeriesLimiter::new(TelemetryConfig::default().selection());
        for model in 0..80 {
            for stream in [false, true] {
                let labels =
                    MetricLabels { stream, tenant: None, variant: None, ..labels(model, 0) };
                let keeps = |group| limiter.replace_with_other(&labels, group, &()).0 == labels;
                assert!(keeps(SeriesGroup::Call), "{model}");
                assert!(model >= 15 || keeps(SeriesGroup::Timings), "{model}");
            }
        }
        assert_eq!(limiter.overflowed().load(Ordering::Relaxed), 0);
    }

    #[test]
    fn limits_of_metrics_include_all_that_is_exported() {
        let selection = TelemetryConfig::default().selection();
        for metric in catalog::metrics() {
            let at_least = match metric {
                metric if metric.has(key::OPERATION) => MAX_REPLACED,
                metric if metric.has(key::REQUEST_MODEL) => MAX_MODEL_KEYS,
                metric if metric.has(key::ROUTE) || metric.has(key::SLO) => MAX_CONFIGURED,
                metric if metric.has(key::UPSTREAM) || metric.has(key::BUDGET) => MAX_CONFIGURED,
                _ => 1,
            };
            let at_least = at_least * metric.combinations();
            let on_page = MAX_OTHER_BYTES / PageSize::of_series(metric, Profile::Full).bytes;
            let at_least = at_least.min(on_page);
            assert!(max_series(metric, selection) >= at_least, "{}", metric.name);
            if metric.attributes().next().is_none() {
                assert_eq!(max_series(metric, selection), 1, "{}", metric.name);
            }
        }
    }

    /// The SDK writes one byte per slot of a hash table. At most 7 of 8 slots are used, and their number is a power of
    /// two.
    #[test]
    fn instruments_write_about_a_megabyte_at_the_start() {
        let selection = TelemetryConfig::default().selection();
        let slots = |metric| (max_series(metric, selection) * 8 / 7).next_power_of_two();
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
