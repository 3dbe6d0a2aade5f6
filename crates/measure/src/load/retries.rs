//! Requests that were made before: a storm of them is load that nobody asked for.
//!
//! Three signs, of which the first that is there counts, so that an exchange counts once:
//!
//! - `x-stainless-retry-count` above 0: the SDKs of OpenAI, Anthropic and others say it themselves.
//! - an `idempotency-key` that was there within ten minutes: by its very meaning that is the same request.
//! - an `x-request-id` of a request that *did not end well* within ten minutes, with the same route, method, path and
//!   length. More than the id, and not after success, because gateways and agents give one id to all the calls that
//!   they make for one request of theirs: those differ, or run beside each other, or follow upon success, and are no
//!   retries. A retry that overtakes the end of what it repeats is therefore missed; none is made up.
//!
//! Ids are kept as hashes with a secret key and go nowhere.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use rustc_hash::FxHashMap;

use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::RequestHead;

/// The longest backoff of common SDKs and job queues; ids that come again later than that name something else.
const WINDOW: Duration = Duration::from_secs(600);

/// Of each kind; the oldest is forgotten first. Fourteen a second over the whole window, 400 KiB at most.
const MOST: usize = 8_192;

/// By what a retry is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RetrySignal {
    RetryCount,
    IdempotencyKey,
    RequestId,
}

impl RetrySignal {
    pub const ALL: [Self; 3] = [Self::RetryCount, Self::IdempotencyKey, Self::RequestId];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RetryCount => "retry_count",
            Self::IdempotencyKey => "idempotency_key",
            Self::RequestId => "request_id",
        }
    }
}

/// Stands for a request that has an id, to say later that it did not end well.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RequestKey(u64);

/// The requests of the last minutes, as far as they can be known again.
#[derive(Debug, Default)]
pub struct Retries {
    hasher: RandomState,
    keys: Recent,
    failed: Recent,
}

impl Retries {
    /// A request came: whether it was made before, and what to call it by in [`failed`](Self::failed).
    pub fn opened(
        &mut self,
        at: MonotonicInstant,
        open: &RequestHead,
    ) -> (Option<RetrySignal>, Option<RequestKey>) {
        let header = |name| open.headers.get(name);
        let call = (&open.route.name, &open.method, &open.path);
        let counted = header("x-stainless-retry-count")
            .and_then(|count| count.trim().parse::<u32>().ok())
            .is_some_and(|count| count > 0);
        // Noted whatever else is said: the first attempt says nothing else.
        let repeated = header("idempotency-key").is_some_and(|key| {
            let hash = self.hasher.hash_one((call, key));
            let repeated = self.keys.knows(at, hash);
            self.keys.note(at, hash);
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

    /// The request did not end well: whoever comes with its id again tries again.
    pub fn failed(&mut self, at: MonotonicInstant, RequestKey(hash): RequestKey) {
        self.failed.note(at, hash);
    }
}

/// Hashes that were noted within the window, so many at most.
#[derive(Debug, Default)]
struct Recent {
    noted: FxHashMap<u64, MonotonicInstant>,
    /// In the order of their noting; one that was noted again stands there twice.
    order: VecDeque<(MonotonicInstant, u64)>,
}

impl Recent {
    fn note(&mut self, at: MonotonicInstant, hash: u64) {
        self.noted.insert(hash, at);
        self.order.push_back((at, hash));
        while let Some((noted, oldest)) = self.order.front().copied() {
            if self.order.len() <= MOST && at.since(noted) <= WINDOW {
                return;
            }
            self.order.pop_front();
            if self.noted.get(&oldest) == Some(&noted) {
                self.noted.remove(&oldest);
            }
        }
    }

    fn knows(&self, at: MonotonicInstant, hash: u64) -> bool {
        let noted = self.noted.get(&hash);
        noted.is_some_and(|noted| at.since(*noted) <= WINDOW)
    }

    /// Whether it is known; from here on it is not.
    fn take(&mut self, at: MonotonicInstant, hash: u64) -> bool {
        let known = self.knows(at, hash);
        self.noted.remove(&hash);
        known
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use tokengauge_types::clock::WallTime;
    use tokengauge_types::event::{
        CallerIdentity, ProxyPosition, RouteFacts, Scheme, TraceContext,
    };
    use tokengauge_types::label::{Label, Name};

    const AT: MonotonicInstant = MonotonicInstant::from_secs(1_000);

    fn open(length: u64, headers: &[(&'static str, &str)]) -> RequestHead {
        let named = |(name, value): &(&'static str, &str)| Some((*name, Name::new(value)?));
        RequestHead {
            wall: WallTime::default(),
            method: http::Method::POST,
            path: Name::new("/v1/chat/completions").unwrap(),
            model: None,
            host: None,
            version: http::Version::HTTP_11,
            scheme: Scheme::Http,
            headers: headers.iter().filter_map(named).collect(),
            length: Some(length),
            client: None,
            connection: None,
            route: Arc::new(RouteFacts {
                name: Label::known("default"),
                vantage: ProxyPosition::Outbound,
                server_address: Label::known("localhost"),
                server_port: 80,
                provider: None,
                dialect: None,
                stripped: 0,
                base_path: Label::known(""),
                stall_after: Duration::MAX,
                hung_after: Duration::MAX,
            }),
            trace: TraceContext::default(),
            conversation: None,
            who: CallerIdentity::default(),
            cell: Arc::default(),
        }
    }

    fn after(seconds: u64) -> MonotonicInstant {
        AT + Duration::from_secs(seconds)
    }

    #[test]
    fn an_sdk_that_counts_its_retries_is_believed() {
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
    fn a_key_that_comes_again_within_the_window_is_a_retry_however_the_first_one_ended() {
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
    fn an_id_that_comes_again_is_a_retry_only_after_a_failure_of_the_same_request() {
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
    fn an_exchange_counts_once_and_its_key_is_noted_all_the_same() {
        let mut retries = Retries::default();
        let headers = |count| [("x-stainless-retry-count", count), ("idempotency-key", "k")];
        assert_eq!(retries.opened(AT, &open(5, &headers("0"))).0, None);
        assert_eq!(retries.opened(AT, &open(5, &headers("1"))).0, Some(RetrySignal::RetryCount));
        let silent = [("idempotency-key", "k")];
        assert_eq!(retries.opened(AT, &open(5, &silent)).0, Some(RetrySignal::IdempotencyKey));
    }

    #[test]
    fn what_is_kept_is_bounded_in_number_and_in_time() {
        let mut recent = Recent::default();
        for hash in 0..3 * MOST as u64 {
            recent.note(AT, hash % (2 * MOST as u64));
            assert!(recent.order.len() <= MOST && recent.noted.len() <= MOST);
        }
        assert!(!recent.knows(AT, MOST as u64 + 1) && recent.knows(AT, 1));
        assert!(recent.take(AT, 1) && !recent.take(AT, 1));
        recent.note(after(601), 7);
        assert_eq!((recent.order.len(), recent.noted.len()), (1, 1));
    }
}
