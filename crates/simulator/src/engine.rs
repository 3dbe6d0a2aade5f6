//! Simulates the inference engine of a model: its batch, queue, rate limit and metrics.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::profile::Profile;
use tokengauge_types::clock::MonotonicInstant;

const MINUTE: Duration = Duration::from_secs(60);

/// The inference engine of one model. All requests for the model share it.
#[derive(Debug)]
pub struct Engine {
    pub profile: Profile,
    running: AtomicU32,
    waiting: AtomicU32,
    slots: Option<Arc<Semaphore>>,
    /// Number of prompt tokens that were looked up in the prefix cache. `found` counts the tokens that were in the
    /// cache.
    prefix_lookups: AtomicU64,
    found: AtomicU64,
    limit: Option<Mutex<RateLimiter>>,
}

impl Engine {
    pub fn new(profile: Profile) -> Self {
        let slots = |it: u32| Arc::new(Semaphore::new(it as usize));
        Self {
            running: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            slots: profile.slots.map(slots),
            prefix_lookups: AtomicU64::new(0),
            found: AtomicU64::new(0),
            limit: profile.requests_per_minute.map(RateLimiter::new).map(Mutex::new),
            profile,
        }
    }

    /// Counts a request against the rate limit. Returns the state of the limit, or `None` if the model has no limit.
    /// The error is the state of a limit that rejects the request.
    pub fn admit(&self, at: MonotonicInstant) -> Result<Option<RateLimitState>, RateLimitState> {
        let Some(limit) = &self.limit else { return Ok(None) };
        // An update of the limiter cannot panic half-way, so its state is valid even if the lock is poisoned.
        let mut limit = limit.lock().unwrap_or_else(PoisonError::into_inner);
        limit.take(at).map(Some)
    }

    /// Waits for a free slot in the engine's batch. Dropping the future removes the request from the queue.
    pub async fn take_slot(self: &Arc<Self>) -> BatchSlot {
        let permit = match &self.slots {
            None => None,
            Some(slots) => {
                let _waiting = QueuedRequest::new(self);
                // `acquire_owned` fails only if the semaphore is closed, and the engine never closes it.
                Arc::clone(slots).acquire_owned().await.ok()
            }
        };
        self.slot(permit)
    }

    fn slot(self: &Arc<Self>, permit: Option<OwnedSemaphorePermit>) -> BatchSlot {
        self.running.fetch_add(1, Ordering::Relaxed);
        BatchSlot { engine: Arc::clone(self), _permit: permit }
    }
}

/// Counts a request as queued while this guard exists.
struct QueuedRequest<'a>(&'a Engine);

impl<'a> QueuedRequest<'a> {
    fn new(engine: &'a Engine) -> Self {
        engine.waiting.fetch_add(1, Ordering::Relaxed);
        Self(engine)
    }
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A slot in the engine's batch, which generates one response. The slot becomes free when this value is dropped.
#[derive(Debug)]
pub struct BatchSlot {
    engine: Arc<Engine>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl BatchSlot {
    pub fn profile(&self) -> &Profile {
        &self.engine.profile
    }

    /// Returns the number of responses that the engine generates now, including this one.
    pub fn batch(&self) -> u32 {
        self.engine.running.load(Ordering::Relaxed)
    }

    /// Looks up a prompt in the simulated prefix cache. Returns the number of prompt tokens that are in the cache.
    pub fn look_up_prefix(&self, prompt_tokens: u64) -> u64 {
        let most = u32::try_from(prompt_tokens).unwrap_or(u32::MAX);
        let found = Duration::from_secs(most.into()).mul_f64(self.engine.profile.prefix_hits);
        let found = found.as_secs().min(prompt_tokens);
        let engine = &self.engine;
        engine.prefix_lookups.fetch_add(prompt_tokens, Ordering::Relaxed);
        engine.found.fetch_add(found, Ordering::Relaxed);
        found
    }
}

impl Drop for BatchSlot {
    fn drop(&mut self) {
        self.engine.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Rate limit with a bucket of requests, like OpenAI's. A full bucket allows the requests of one minute. The bucket
/// refills steadily.
#[derive(Debug)]
struct RateLimiter {
    per_minute: u32,
    /// Time at which the bucket is full again if no other request arrives.
    full: MonotonicInstant,
}

impl RateLimiter {
    const fn new(per_minute: u32) -> Self {
        Self { per_minute, full: MonotonicInstant::ZERO }
    }

    /// Takes one request from the bucket, and returns the new state of the bucket. If the bucket is empty, returns its
    /// state as an error.
    fn take(&mut self, at: MonotonicInstant) -> Result<RateLimitState, RateLimitState> {
        let one = MINUTE / self.per_minute.max(1);
        let missing = self.full.since(at);
        let allowed = missing + one <= MINUTE;
        if allowed {
            self.full = at + missing + one;
        }
        let reset = self.full.since(at);
        let left = (MINUTE - reset.min(MINUTE)).as_nanos() / one.as_nanos().max(1);
        let allowance = RateLimitState {
            limit: self.per_minute,
            left: u32::try_from(left).unwrap_or(self.per_minute),
            reset,
        };
        if allowed { Ok(allowance) } else { Err(allowance) }
    }
}

/// State of the rate limit after a request. Response headers report this state, like OpenAI's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RateLimitState {
    pub limit: u32,
    pub left: u32,
    /// Time until the bucket is full again.
    pub reset: Duration,
}

impl RateLimitState {
    pub fn add_to(self, headers: &mut HeaderMap) {
        for (name, value) in [
            ("x-ratelimit-limit-requests", self.limit.to_string()),
            ("x-ratelimit-remaining-requests", self.left.to_string()),
            ("x-ratelimit-reset-requests", format!("{}ms", self.reset.as_millis())),
        ] {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
    }
}

/// A metric of an engine: the name without the prefix `vllm:`, the type, and a function that reads the value.
type Metric = (&'static str, &'static str, fn(&Engine) -> Option<f64>);

/// Metrics that the simulated engine exports. The utilization of the KV cache is absent if the model has no limit
/// (`slots`).
const METRICS: [Metric; 5] = [
    ("num_requests_running", "gauge", |it| Some(load(&it.running))),
    ("num_requests_waiting", "gauge", |it| Some(load(&it.waiting))),
    ("kv_cache_usage_perc", "gauge", |it| Some(load(&it.running) / f64::from(it.profile.slots?))),
    ("prefix_cache_queries_total", "counter", |it| Some(total(&it.prefix_lookups))),
    ("prefix_cache_hits_total", "counter", |it| Some(total(&it.found))),
];

fn load(requests: &AtomicU32) -> f64 {
    requests.load(Ordering::Relaxed).into()
}

fn total(tokens: &AtomicU64) -> f64 {
    tokens.load(Ordering::Relaxed) as f64
}

/// Returns the metrics of all engines in the format of vLLM's `/metrics` page.
pub fn metrics_page(engines: &[Arc<Engine>]) -> String {
    let mut page = String::new();
    for (name, kind, value) in METRICS {
        page += &format!("# TYPE vllm:{name} {kind}\n");
        for engine in engines {
            if let Some(value) = value(engine) {
                let model = engine.profile.name.replace('\\', r"\\").replace('"', "\\\"");
                let labels = format!("{{engine=\"0\",model_name=\"{model}\"}}");
                page += &format!("vllm:{name}{labels} {value:?}\n");
            }
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Engine {
        /// Takes a slot without waiting, even if no slot is free.
        pub fn take_slot_beyond_limit(self: &Arc<Self>) -> BatchSlot {
            self.slot(None)
        }
    }

    fn engine(text: &str) -> Arc<Engine> {
        Arc::new(Engine::new(text.parse().unwrap()))
    }

    fn metric(engine: &Arc<Engine>, name: &str) -> Option<f64> {
        let page = metrics_page(std::slice::from_ref(engine));
        let line = page.lines().find(|it| it.starts_with(&format!("vllm:{name}{{")))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    #[tokio::test]
    async fn requests_beyond_the_slots_wait_and_are_reported() {
        let engine = engine("m:slots=2");
        let first = engine.take_slot().await;
        let _second = engine.take_slot().await;
        let third = {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move { engine.take_slot().await })
        };
        while metric(&engine, "num_requests_waiting") != Some(1.0) {
            tokio::task::yield_now().await;
        }
        assert_eq!(metric(&engine, "num_requests_running"), Some(2.0));
        assert_eq!(metric(&engine, "kv_cache_usage_perc"), Some(1.0));
        drop(first);
        let third = third.await.unwrap();
        assert_eq!(metric(&engine, "num_requests_waiting"), Some(0.0));
        assert_eq!(metric(&engine, "num_requests_running"), Some(2.0));
        drop(third);
        assert_eq!(metric(&engine, "kv_cache_usage_perc"), Some(0.5));
    }

    #[tokio::test]
    async fn a_cancelled_request_leaves_the_queue() {
        let engine = engine("m:slots=1");
        let _only = engine.take_slot().await;
        let waiting = {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move { engine.take_slot().await })
        };
        while metric(&engine, "num_requests_waiting") != Some(1.0) {
            tokio::task::yield_now().await;
        }
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        assert_eq!(metric(&engine, "num_requests_waiting"), Some(0.0));
        assert_eq!(metric(&engine, "num_requests_running"), Some(1.0));
    }

    #[test]
    fn part_of_each_prompt_is_in_the_prefix_cache() {
        let engine = engine("m:prefix-hits=0.25");
        assert_eq!(engine.take_slot_beyond_limit().look_up_prefix(1_000), 250);
        assert_eq!(metric(&engine, "prefix_cache_queries_total"), Some(1_000.0));
        assert_eq!(metric(&engine, "prefix_cache_hits_total"), Some(250.0));
        assert_eq!(metric(&engine, "kv_cache_usage_perc"), None);
    }

    #[test]
    fn rate_limit_refills_steadily() {
        let engine = engine("m:requests-per-minute=60");
        let at = MonotonicInstant::ZERO + Duration::from_secs(1_000);
        let first = engine.admit(at).unwrap().unwrap();
        assert_eq!((first.limit, first.left), (60, 59));
        assert_eq!(first.reset, Duration::from_secs(1));
        for _ in 1..60 {
            assert!(engine.admit(at).is_ok());
        }
        let spent = engine.admit(at).unwrap_err();
        assert_eq!((spent.left, spent.reset), (0, MINUTE));
        assert!(engine.admit(at + Duration::from_millis(900)).is_err());
        let later = engine.admit(at + Duration::from_secs(2)).unwrap().unwrap();
        assert_eq!(later.left, 1);
        assert_eq!(self::engine("m").admit(at), Ok(None));
    }
}
