//! Bounds the number of series, so that the SDK's own limit never applies. The SDK has a limit of 2,000 attribute sets,
//! and merges all further ones into one point without attributes.
//!
//! The label limiter bounds each value, but combinations of admitted values multiply. Combinations are therefore
//! admitted first come, first served up to a limit. Beyond the limit, values from outside are replaced by `other`.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustc_hash::FxBuildHasher;

use crate::catalog::Metric;
use crate::catalog::attributes as key;
use tokengauge_llm::dialect::Operation;
use tokengauge_types::event::ProxyPosition;
use tokengauge_types::label::CardinalityLimits;

/// Maximum number of routes. A configuration has few, and reloads add some over the life of a process.
const LANES: usize = 512;

/// Maximum series of calls whose provider and model are `other`. They differ by operation, stream and route only.
const FOLDED: usize = 256;

/// Maximum combinations of results of exchanges: a few error codes and statuses for each of many models.
const COMBINATIONS: usize = 2_048;

/// Maximum number of series of each kind.
#[derive(Clone, Copy, Debug)]
pub struct SeriesLimits {
    /// Calls with their own provider and model.
    pub series: usize,
    /// Further calls whose provider and model are `other`.
    pub folded: usize,
    /// Pairs of a call and its response model.
    pub ended: usize,
    pub lanes: usize,
    pub combinations: usize,
    /// Whether calls are labelled by length buckets.
    pub bands: bool,
}

impl SeriesLimits {
    pub const fn new(limits: CardinalityLimits) -> Self {
        let shapes = Operation::ALL.len() * 2;
        let series = (limits.models + 1) * shapes;
        Self {
            series,
            folded: FOLDED,
            // A model alias can have a second response model: the dated model behind the alias.
            ended: 2 * series,
            lanes: LANES,
            combinations: COMBINATIONS,
            bands: limits.length_bands,
        }
    }

    /// Returns the SDK's limit for one metric: the maximum number of series that this module admits.
    pub fn limit(&self, metric: &Metric) -> usize {
        // With route and server `other` as well, series differ by operation, stream and position only.
        let last_resort = Operation::ALL.len() * 2 * ProxyPosition::ALL.len();
        let calls = self.series + self.folded + last_resort;
        let lanes = self.lanes + ProxyPosition::ALL.len();
        let base = if metric.has(key::RESPONSE_MODEL) {
            // In addition to the pairs, each call without a response model, and with the response model `other`.
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

/// Shared values by key, up to a limit. A client could provoke collisions in the fast hasher. The limit bounds their
/// cost, and the label limiter has admitted the names in the keys.
#[derive(Debug)]
pub struct BoundedCache<K, V>(RwLock<HashMap<K, Arc<V>, FxBuildHasher>>);

impl<K: Clone + Eq + Hash, V> BoundedCache<K, V> {
    /// Returns the value at `key`, and creates it if it is missing.
    pub fn obtain(&self, key: &K, make: impl FnOnce(&K) -> V) -> Arc<V> {
        let value = self.obtain_within(key, usize::MAX, make);
        value.expect("no map has `usize::MAX` entries")
    }

    /// Returns the value at `key`, and creates it if there are fewer than `limit`.
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

/// Admits combinations up to a limit. Stores 64-bit hashes. Two of 2,048 hashes collide with a probability of 10⁻¹³, in
/// which case one more combination is admitted.
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
