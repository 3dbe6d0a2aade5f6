//! Retry detection. A storm of retries is load that does not come from users.
//!
//! A request counts once, by the first of three signals that is present:
//!
//! - `x-stainless-retry-count` above 0. The SDKs of OpenAI, Anthropic and others set it.
//! - An `idempotency-key` that was seen within ten minutes. By definition it marks the same request.
//! - An `x-request-id` of a request that *failed* within ten minutes, with the same route, method, path and length.
//!
//! The id alone is not enough for the third signal, and neither is an id seen in a success. Gateways and agents give
//! one id to all calls that they make for one of their requests. Such calls differ, run in parallel or follow a
//! success, and are not retries.
//!
//! A retry that arrives before the first attempt ends is therefore missed. No retry is reported falsely.
//!
//! Ids are kept as hashes with a secret key and never leave the process.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use rustc_hash::FxHashMap;

use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::RequestHead;
use tokengauge_types::label_enum;

/// Longest backoff of common SDKs and job queues. An id that appears again later belongs to a different request.
const WINDOW: Duration = Duration::from_secs(600);

/// Maximum number of stored hashes of each kind; the oldest is evicted first. The limit is enough for fourteen requests
/// per second over the whole window, and takes at most 400 KiB.
const MAX_HASHES: usize = 8_192;

label_enum! {
    /// Signal that identifies a retry.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum RetrySignal {
        RetryCount = "retry_count",
        IdempotencyKey = "idempotency_key",
        RequestId = "request_id",
    }
}

/// Key of a request that has an id. Pass it to [`Retries::failed`] if the request fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RequestKey(u64);

/// Recent requests, stored as hashes so that a retry of the same request is recognised.
#[derive(Debug, Default)]
pub struct Retries {
    hasher: RandomState,
    keys: Recent,
    failed: Recent,
}

impl Retries {
    /// Records a new request. Returns the signal that marks it as a retry, if any, and its key for
    /// [`failed`](Self::failed) if it has an id.
    pub fn opened(
        &mut self,
        at: MonotonicInstant,
        open: &RequestHead,
    ) -> (Option<RetrySignal>, Option<RequestKey>) {
        let header = |name| open.headers.get(name);
        let call = (&open.route.name, &open.method, &open.path);
        let counted = open.headers.resend_count().is_some_and(|count| count > 0);
        // Always record the key: the first attempt carries no other signal.
        let repeated = header("idempotency-key").is_some_and(|key| {
            let hash = self.hasher.hash_one((call, key));
            let repeated = self.keys.contains(at, hash);
            self.keys.record(at, hash);
            repeated
        });
        let identity = header("x-request-id")
            .map(|id| RequestKey(self.hasher.hash_one((call, open.length, id))));
        let failed = identity.is_some_and(|RequestKey(hash)| self.failed.take(at, hash));
        let signs = [
            (counted, RetrySignal::RetryCount),
            (repeated, RetrySignal::IdempotencyKey),
            (failed, RetrySignal::RequestId),
        ];
        let sign = signs.into_iter().find(|(is, _)| *is);
        (sign.map(|(_, sign)| sign), identity)
    }

    /// Records that a request failed. A later request with the same id then counts as a retry.
    pub fn failed(&mut self, at: MonotonicInstant, RequestKey(hash): RequestKey) {
        self.failed.record(at, hash);
    }
}

/// Hashes recorded within the window, at most `MAX_HASHES`.
#[derive(Debug, Default)]
struct Recent {
    recorded: FxHashMap<u64, MonotonicInstant>,
    /// Hashes in the order in which they were recorded. A hash that was recorded twice has two entries.
    order: VecDeque<(MonotonicInstant, u64)>,
}

impl Recent {
    fn record(&mut self, at: MonotonicInstant, hash: u64) {
        self.recorded.insert(hash, at);
        self.order.push_back((at, hash));
        while let Some((recorded, oldest)) = self.order.front().copied() {
            if self.order.len() <= MAX_HASHES && at.since(recorded) <= WINDOW {
                return;
            }
            self.order.pop_front();
            if self.recorded.get(&oldest) == Some(&recorded) {
                self.recorded.remove(&oldest);
            }
        }
    }

    fn contains(&self, at: MonotonicInstant, hash: u64) -> bool {
        let recorded = self.recorded.get(&hash);
        recorded.is_some_and(|recorded| at.since(*recorded) <= WINDOW)
    }

    /// Returns whether the hash is known, and removes it.
    fn take(&mut self, at: MonotonicInstant, hash: u64) -> bool {
        let known = self.contains(at, hash);
        self.recorded.remove(&hash);
        known
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use tokengauge_types::clock::WallTime;
    use tokengauge_types::event::{CallerIdentity, RouteFacts, Scheme, SessionRule, TraceContext};
    use tokengauge_types::label::Name;

    const AT: MonotonicInstant = MonotonicInstant::from_secs(1_000);

    fn open(length: u64, headers: &[(&'static str, &str)]) -> RequestHead {
        let named = |(name, value): &(&'static str, &str)| Some((*name, Name::new(value)?));
        RequestHead {
            wall: WallTime::default(),
            method: http::Method::POST,
            path: Name::new("/v1/chat/completions").unwrap(),
            whole_path: None,
            model: None,
            host: None,
            version: http::Version::HTTP_11,
            scheme: Scheme::Http,
            headers: headers.iter().filter_map(named).collect(),
            length: Some(length),
            client: None,
            connection: None,
            route: Arc::new(RouteFacts::for_upstream("default", "localhost", 80)),
            trace: TraceContext::default(),
            conversation: None,
            identity: CallerIdentity::default(),
            session_rule: SessionRule::default(),
            body_wait: Arc::default(),
        }
    }

    fn after(seconds: u64) -> MonotonicInstant {
        AT + Duration::from_secs(seconds)
    }

    #[test]
    fn the_retry_count_of_an_sdk_is_used() {
        let mut retries = Retries::default();
        let sign = |retries: &mut Retries, count| {
            retries.opened(AT, &open(1, &[("x-stainless-retry-count", count)])).0
        };
        for first in ["0", "", "-1", "many", "1e9"] {
            assert_eq!(sign(&mut retries, first), None, "{first:?}");
        }
        for later in ["1", "2", " 3 "] {
            assert_eq!(sign(&mut retries, later), Some(RetrySignal::RetryCount), "{later:?}");
        }
    }

    #[test]
    fn a_repeated_key_within_the_window_is_a_retry_after_any_outcome() {
        let mut retries = Retries::default();
        let mut sign =
            |at, length, key| retries.opened(at, &open(length, &[("idempotency-key", key)])).0;
        assert_eq!(sign(AT, 5, "a"), None);
        assert_eq!(sign(AT, 5, "b"), None);
        assert_eq!(sign(after(600), 6, "a"), Some(RetrySignal::IdempotencyKey));
        assert_eq!(
            sign(after(1_200), 5, "a"),
            Some(RetrySignal::IdempotencyKey),
            "counted from the last one"
        );
        assert_eq!(sign(after(1_200), 5, "b"), None, "too long ago");
    }

    #[test]
    fn a_repeated_id_is_a_retry_only_after_a_failure_of_the_same_request() {
        let mut retries = Retries::default();
        let id = [("x-request-id", "r1")];
        let (sign, first) = retries.opened(AT, &open(5, &id));
        assert_eq!(sign, None);
        assert_eq!(retries.opened(AT, &open(5, &id)).0, None, "beside the first");
        retries.failed(after(1), first.unwrap());
        assert_eq!(
            retries.opened(after(2), &open(6, &id)).0,
            None,
            "another request of the same caller"
        );
        let other = [("x-request-id", "r2")];
        assert_eq!(retries.opened(after(2), &open(5, &other)).0, None);
        let (sign, second) = retries.opened(after(3), &open(5, &id));
        assert_eq!((sign, second), (Some(RetrySignal::RequestId), first));
        assert_eq!(retries.opened(after(4), &open(5, &id)).0, None, "one failure, one retry");
        retries.failed(after(5), second.unwrap());
        assert_eq!(retries.opened(after(606), &open(5, &id)).0, None, "too long ago");
    }

    #[test]
    fn an_exchange_counts_once_and_its_key_is_still_stored() {
        let mut retries = Retries::default();
        let headers = |count| [("x-stainless-retry-count", count), ("idempotency-key", "k")];
        assert_eq!(retries.opened(AT, &open(5, &headers("0"))).0, None);
        assert_eq!(retries.opened(AT, &open(5, &headers("1"))).0, Some(RetrySignal::RetryCount));
        let silent = [("idempotency-key", "k")];
        assert_eq!(retries.opened(AT, &open(5, &silent)).0, Some(RetrySignal::IdempotencyKey));
    }

    #[test]
    fn stored_keys_are_bounded_in_number_and_age() {
        let mut recent = Recent::default();
        for hash in 0..3 * MAX_HASHES as u64 {
            recent.record(AT, hash % (2 * MAX_HASHES as u64));
            assert!(recent.order.len() <= MAX_HASHES && recent.recorded.len() <= MAX_HASHES);
        }
        assert!(!recent.contains(AT, MAX_HASHES as u64 + 1) && recent.contains(AT, 1));
        assert!(recent.take(AT, 1) && !recent.take(AT, 1));
        recent.record(after(601), 7);
        assert_eq!((recent.order.len(), recent.recorded.len()), (1, 1));
    }
}
