//! Bounded sets of series, so that the SDK's own limit (2,000 label sets, the rest in one nameless point) never acts.
//!
//! Each label value is bounded by the gate, but combinations of admitted values multiply. So combinations are admitted
//! too: first come, first served up to a bound, then with the values that came from outside called `other`.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustc_hash::FxBuildHasher;

use crate::catalog::Metric;
use crate::catalog::attributes as key;
use tokengauge_llm::dialect::Operation;
use tokengauge_types::event::ProxyPosition;
use tokengauge_types::label::CardinalityLimits;

/// Routes at once are few; reloads add some over the life of a process.
const LANES: usize = 512;

/// Places for calls whose provider and model are called `other`: those differ by operation, stream and route only.
const FOLDED: usize = 256;

/// Failures, and combinations of how exchanges end: a few error codes and statuses for each of many models.
const COMBINATIONS: usize = 2_048;

/// How many series there can be.
#[derive(Clone, Copy, Debug)]
pub struct SeriesLimits {
    /// Calls with their own names.
    pub series: usize,
    /// Calls of which provider and model are `other`, on top of those.
    pub folded: usize,
    /// Pairs of a call and the model that answered.
    pub ended: usize,
    pub lanes: usize,
    pub combinations: usize,
    /// Whether calls are told apart by bands of their lengths.
    pub bands: bool,
}

impl SeriesLimits {
    pub const fn of(limits: CardinalityLimits) -> Self {
        let shapes = Operation::ALL.len() * 2;
        let series = (limits.models + 1) * shapes;
        Self {
            series,
            folded: FOLDED,
            // An alias and the dated model behind it.
            ended: 2 * series,
            lanes: LANES,
            combinations: COMBINATIONS,
            bands: limits.length_bands,
        }
    }

    /// The SDK's limit for one metric: as many as this module can let through.
    pub fn limit(&self, metric: &Metric) -> usize {
        // With route and server `other` as well, only operation, stream and vantage are left.
        let last_resort = Operation::ALL.len() * 2 * ProxyPosition::ALL.len();
        let calls = self.series + self.folded + last_resort;
        let lanes = self.lanes + ProxyPosition::ALL.len();
        let base = if metric.has(key::RESPONSE_MODEL) {
            // Beyond the pairs, each call without a name of who answered, and with `other`.
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
        } else if metric.has(key::INPUT_BAND) {
            self.combinations * metric.combinations
        } else {
            0
        };
        base * metric.combinations + several
    }
}

/// Shared values by key, at most so many. The hasher is one that a hostile caller could make collide: the bound keeps
/// what that costs small, and the names in the keys have passed the gate.
#[derive(Debug)]
pub struct BoundedCache<K, V>(RwLock<HashMap<K, Arc<V>, FxBuildHasher>>);

impl<K: Clone + Eq + Hash, V> BoundedCache<K, V> {
    /// The value at `key`, made if there is none and there are fewer than `limit`.
    pub fn obtain(&self, key: &K, limit: usize, make: impl FnOnce(&K) -> V) -> Option<Arc<V>> {
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

/// CombinationLimiter that were let through, at most so many. Kept as hashes: of 2,048 64-bit hashes two are equal with a
/// chance of 10⁻¹³, and then one combination more gets through.
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
    fn a_cache_shares_its_values_and_stops_at_its_limit() {
        let cache = BoundedCache::default();
        let one = cache.obtain(&1, 2, |key| key * 10).unwrap();
        assert!(Arc::ptr_eq(&one, &cache.obtain(&1, 2, |_| 0).unwrap()));
        assert_eq!(cache.obtain(&2, 2, |key| key * 10).as_deref(), Some(&20));
        assert_eq!(cache.obtain(&3, 2, |key| key * 10), None);
        assert_eq!(cache.obtain(&3, 3, |key| key * 10).as_deref(), Some(&30));
    }

    #[test]
    fn combinations_stop_at_their_limit_and_known_ones_go_on() {
        let combinations = CombinationLimiter::default();
        assert!(combinations.admit(2, &"a") && combinations.admit(2, &"b"));
        assert!(!combinations.admit(2, &"c"));
        assert!(combinations.admit(2, &"a"));
    }
}
