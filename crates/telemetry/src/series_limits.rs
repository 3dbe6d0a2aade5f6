//! Bounds the number of time series, so that the SDK's own limit never applies. After 2,000 attribute sets of a metric,
//! the SDK would merge all further sets into one point without attributes.
//!
//! The cardinality limiter bounds the values of each label, but combinations of admitted values multiply. Combinations
//! are therefore admitted in order of arrival, up to a limit. Beyond the limit, values from outside (such as the model)
//! are replaced by `other`.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustc_hash::FxBuildHasher;

use crate::catalog::Metric;
use crate::catalog::attributes as key;
use tokengauge_llm::dialect::Operation;
use tokengauge_types::event::ProxyPosition;
use tokengauge_types::label::CardinalityLimits;

/// Maximum number of routes. A configuration has few routes, and each reload can add some more.
const LANES: usize = 512;

/// Maximum number of series for calls whose provider and model were replaced by `other`. They differ only by operation,
/// stream and route.
const FOLDED: usize = 256;

/// Maximum number of combinations of results of exchanges. This allows a few error codes and statuses for each of many
/// models.
const COMBINATIONS: usize = 2_048;

/// Maximum number of series of each kind.
#[derive(Clone, Copy, Debug)]
pub struct SeriesLimits {
    /// Series of calls with their own provider and model.
    pub series: usize,
    /// Further series of calls whose provider and model were replaced by `other`.
    pub folded: usize,
    /// Pairs of a call's series and a response model.
    pub ended: usize,
    pub lanes: usize,
    pub combinations: usize,
    /// Whether calls have labels for length buckets.
    pub bands: bool,
}

impl SeriesLimits {
    pub const fn new(limits: CardinalityLimits) -> Self {
        let shapes = Operation::ALL.len() * 2;
        let series = (limits.models + 1) * shapes;
        Self {
            series,
            folded: FOLDED,
            // A model alias often has a second response model, the dated model behind the alias.
            ended: 2 * series,
            lanes: LANES,
            combinations: COMBINATIONS,
            bands: limits.length_bands,
        }
    }

    /// Returns the SDK's limit for a metric, which is the maximum number of series that this module admits.
    pub fn limit(&self, metric: &Metric) -> usize {
        // If route and server are `other`, too, series differ only by operation, stream and position.
        let last_resort = Operation::ALL.len() * 2 * ProxyPosition::ALL.len();
        let calls = self.series + self.folded + last_resort;
        let lanes = self.lanes + ProxyPosition::ALL.len();
        let base = if metric.has(key::RESPONSE_MODEL) {
            // In addition to the pairs, each call can have no response model or the response model `other`.
            self.ended + 2 * calls
        } else if metric.has(key::OPERATION) {
            calls + lanes
        } else if metric.has(key::REQUEST_MODEL) {
            calls
        } else if metric.has(key::ROUTE) {
            lanes
        } else if [key::SLO, key::UPSTREAM, key::BUDGET]
            .into_iter()
            .any(|configured| metric.has(configured))
        {
            LANES
        } else {
            1
        };
        let several = if metric.has(key::ERROR_TYPE) || metric.has(key::FINISH_REASON) {
            self.combinations + base
        } else if metric.has(key::INPUT_LENGTH_BUCKET) {
            self.combinations * metric.combinations
        } else {
            0
        };
        base * metric.combinations + several
    }
}

/// A cache of shared values, with a maximum number of keys. A client could provoke collisions in the fast hasher. Their
/// cost is bounded by the maximum, and the names in the keys were admitted by the cardinality limiter.
#[derive(Debug)]
pub struct BoundedCache<K, V>(RwLock<HashMap<K, Arc<V>, FxBuildHasher>>);

impl<K: Clone + Eq + Hash, V> BoundedCache<K, V> {
    /// Returns the value for `key`. If it is missing, creates it with `make`.
    pub fn obtain(&self, key: &K, make: impl FnOnce(&K) -> V) -> Arc<V> {
        let value = self.obtain_within(key, usize::MAX, make);
        value.expect("no map has `usize::MAX` entries")
    }

    /// Returns the value for `key`. If it is missing and the cache has fewer than `limit` values, creates it with
    /// `make`.
    pub fn obtain_within(
        &self,
        key: &K,
        limit: usize,
        make: impl FnOnce(&K) -> V,
    ) -> Option<Arc<V>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        if known.is_some() {
            return known;
        }
        let mut values = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = values.get(key) {
            return Some(Arc::clone(value));
        }
        if values.len() >= limit {
            return None;
        }
        let value = Arc::new(make(key));
        values.insert(key.clone(), Arc::clone(&value));
        Some(value)
    }
}

impl<K, V> Default for BoundedCache<K, V> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

/// Admits combinations up to a limit. Stores a 64-bit hash of each combination. With 2,048 combinations, the
/// probability of a collision is 10⁻¹³. After a collision, one combination too many is admitted.
#[derive(Debug, Default)]
pub struct CombinationLimiter {
    hasher: RandomState,
    admitted: Mutex<HashSet<u64>>,
}

impl CombinationLimiter {
    pub fn admit(&self, limit: usize, combination: &impl Hash) -> bool {
        let hash = self.hasher.hash_one(combination);
        let mut admitted = self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        if admitted.contains(&hash) {
            return true;
        }
        admitted.len() < limit && admitted.insert(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_values_up_to_the_limit() {
        let cache = BoundedCache::default();
        let one = cache.obtain_within(&1, 2, |key| key * 10).unwrap();
        assert!(Arc::ptr_eq(&one, &cache.obtain_within(&1, 2, |_| 0).unwrap()));
        assert_eq!(cache.obtain_within(&2, 2, |key| key * 10).as_deref(), Some(&20));
        assert_eq!(cache.obtain_within(&3, 2, |key| key * 10), None);
        assert_eq!(cache.obtain_within(&3, 3, |key| key * 10).as_deref(), Some(&30));
    }

    #[test]
    fn admits_known_combinations_beyond_the_limit() {
        let combinations = CombinationLimiter::default();
        assert!(combinations.admit(2, &"a") && combinations.admit(2, &"b"));
        assert!(!combinations.admit(2, &"c"));
        assert!(combinations.admit(2, &"a"));
    }
}
