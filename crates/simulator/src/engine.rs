//! A model at work: what runs, what waits, and what it tells of itself.

use std::fmt::Write;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Response;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::answer::Answer;
use crate::profile::Profile;
use tokengauge_types::clock::MonotonicInstant;

const MINUTE: Duration = Duration::from_secs(60);

/// One model at work.
#[derive(Debug)]
pub struct Engine {
    pub profile: Profile,
    running: AtomicU32,
    waiting: AtomicU32,
    slots: Option<Arc<Semaphore>>,
    /// Prompt tokens looked up in the prefix cache, and found there.
    looked_up: AtomicU64,
    found: AtomicU64,
    limit: Option<Mutex<Limit>>,
}

impl Engine {
    pub fn new(profile: Profile) -> Self {
        let slots = |it: u32| Arc::new(Semaphore::new(it as usize));
        Self {
            running: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            slots: profile.slots.map(slots),
            looked_up: AtomicU64::new(0),
            found: AtomicU64::new(0),
            limit: profile.requests_per_minute.map(Limit::new).map(Mutex::new),
            profile,
        }
    }

    /// Counts a request against the limit of requests per minute, where there is one.
    pub fn admit(&self, at: MonotonicInstant) -> Result<Option<Allowance>, Allowance> {
        let Some(limit) = &self.limit else {
            return Ok(None);
        };
        // Arithmetic cannot leave it half done.
        let mut limit = limit.lock().unwrap_or_else(PoisonError::into_inner);
        limit.take(at).map(Some)
    }

    /// A place in the batch, when there is one. Who leaves before has none, and waits no longer.
    pub async fn enter(self: &Arc<Self>) -> Busy {
        let permit = match &self.slots {
            None => None,
            Some(slots) => {
                let _waiting = Waiting::new(self);
                // The semaphore is never closed.
                Arc::clone(slots).acquire_owned().await.ok()
            }
        };
        self.busy(permit)
    }

    /// A place in the batch beyond all slots.
    #[cfg(test)]
    pub fn enter_now(self: &Arc<Self>) -> Busy {
        self.busy(None)
    }

    fn busy(self: &Arc<Self>, permit: Option<OwnedSemaphorePermit>) -> Busy {
        self.running.fetch_add(1, Ordering::Relaxed);
        Busy { engine: Arc::clone(self), _permit: permit }
    }
}

/// Somebody in the queue, until dropped.
struct Waiting<'a>(&'a Engine);

impl<'a> Waiting<'a> {
    fn new(engine: &'a Engine) -> Self {
        engine.waiting.fetch_add(1, Ordering::Relaxed);
        Self(engine)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A place in an engine's batch, until dropped.
#[derive(Debug)]
pub struct Busy {
    engine: Arc<Engine>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Busy {
    pub fn profile(&self) -> &Profile {
        &self.engine.profile
    }

    /// Answers that are being generated, this one included.
    pub fn batch(&self) -> u32 {
        self.engine.running.load(Ordering::Relaxed)
    }

    /// Looks a prompt up in the prefix cache: how many of its tokens are there.
    pub fn found(&self, prompt_tokens: u64) -> u64 {
        let most = u32::try_from(prompt_tokens).unwrap_or(u32::MAX);
        let found = Duration::from_secs(most.into()).mul_f64(self.engine.profile.prefix_hits);
        let found = found.as_secs().min(prompt_tokens);
        let engine = &self.engine;
        engine.looked_up.fetch_add(prompt_tokens, Ordering::Relaxed);
        engine.found.fetch_add(found, Ordering::Relaxed);
        found
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.engine.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// So many requests a minute: a bucket that holds a minute's worth and fills up steadily, as OpenAI's does.
#[derive(Debug)]
struct Limit {
    per_minute: u32,
    /// When the bucket will be full again, if nothing more is taken from it.
    full: MonotonicInstant,
}

impl Limit {
    const fn new(per_minute: u32) -> Self {
        Self { per_minute, full: MonotonicInstant::ZERO }
    }

    /// Takes one request from the bucket; without one in it, what is left all the same.
    fn take(&mut self, at: MonotonicInstant) -> Result<Allowance, Allowance> {
        let one = MINUTE / self.per_minute.max(1);
        let missing = self.full.since(at);
        let allowed = missing + one <= MINUTE;
        if allowed {
            self.full = at + missing + one;
        }
        let reset = self.full.since(at);
        let left = (MINUTE - reset.min(MINUTE)).as_nanos() / one.as_nanos().max(1);
        let allowance = Allowance {
            limit: self.per_minute,
            left: u32::try_from(left).unwrap_or(self.per_minute),
            reset,
        };
        if allowed { Ok(allowance) } else { Err(allowance) }
    }
}

/// What is left of a limit, as OpenAI's headers tell it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Allowance {
    pub limit: u32,
    pub left: u32,
    /// Until all of it is there again.
    pub reset: Duration,
}

impl Allowance {
    pub fn told(self, mut response: Response<Answer>) -> Response<Answer> {
        self.tell(response.headers_mut());
        response
    }

    fn tell(self, headers: &mut HeaderMap) {
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

/// What the engines tell of themselves, in the names and the format of vLLM's `/metrics`. A model without `slots` has
/// no limit that its use of the KV cache could be a share of, and tells none.
pub fn page(engines: &[Arc<Engine>]) -> String {
    let mut page = String::new();
    family(&mut page, engines, "num_requests_running", "gauge", |it| {
        Some(f64::from(it.running.load(Ordering::Relaxed)))
    });
    family(&mut page, engines, "num_requests_waiting", "gauge", |it| {
        Some(f64::from(it.waiting.load(Ordering::Relaxed)))
    });
    family(&mut page, engines, "kv_cache_usage_perc", "gauge", |it| {
        let running = f64::from(it.running.load(Ordering::Relaxed));
        Some(running / f64::from(it.profile.slots?))
    });
    let counter = "counter";
    family(&mut page, engines, "prefix_cache_queries_total", counter, |it| {
        Some(it.looked_up.load(Ordering::Relaxed) as f64)
    });
    family(&mut page, engines, "prefix_cache_hits_total", counter, |it| {
        Some(it.found.load(Ordering::Relaxed) as f64)
    });
    page
}

fn family(
    page: &mut String,
    engines: &[Arc<Engine>],
    name: &str,
    kind: &str,
    value: impl Fn(&Engine) -> Option<f64>,
) {
    // Writing to a `String` cannot fail.
    let _ok = writeln!(page, "# TYPE vllm:{name} {kind}");
    for engine in engines {
        if let Some(value) = value(engine) {
            let model = engine.profile.name.replace('\\', r"\\").replace('"', "\\\"");
            let _ok =
                writeln!(page, "vllm:{name}{{engine=\"0\",model_name=\"{model}\"}} {value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(text: &str) -> Arc<Engine> {
        Arc::new(Engine::new(text.parse().unwrap()))
    }

    fn told(engine: &Arc<Engine>, name: &str) -> Option<f64> {
        let page = page(std::slice::from_ref(engine));
        let line = page.lines().find(|it| it.starts_with(&format!("vllm:{name}{{")))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    #[tokio::test]
    async fn beyond_the_slots_requests_wait_and_the_page_says_so() {
        let engine = engine("m:slots=2");
        let first = engine.enter().await;
        let _second = engine.enter().await;
        let third = {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move { engine.enter().await })
        };
        while told(&engine, "num_requests_waiting") != Some(1.0) {
            tokio::task::yield_now().await;
        }
        assert_eq!(told(&engine, "num_requests_running"), Some(2.0));
        assert_eq!(told(&engine, "kv_cache_usage_perc"), Some(1.0));
        drop(first);
        let third = third.await.unwrap();
        assert_eq!(told(&engine, "num_requests_waiting"), Some(0.0));
        assert_eq!(told(&engine, "num_requests_running"), Some(2.0));
        drop(third);
        assert_eq!(told(&engine, "kv_cache_usage_perc"), Some(0.5));
    }

    #[tokio::test]
    async fn who_leaves_the_queue_is_not_in_it() {
        let engine = engine("m:slots=1");
        let _only = engine.enter().await;
        let waiting = {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move { engine.enter().await })
        };
        while told(&engine, "num_requests_waiting") != Some(1.0) {
            tokio::task::yield_now().await;
        }
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        assert_eq!(told(&engine, "num_requests_waiting"), Some(0.0));
        assert_eq!(told(&engine, "num_requests_running"), Some(1.0));
    }

    #[test]
    fn a_share_of_each_prompt_is_in_the_cache() {
        let engine = engine("m:prefix-hits=0.25");
        assert_eq!(engine.enter_now().found(1_000), 250);
        assert_eq!(told(&engine, "prefix_cache_queries_total"), Some(1_000.0));
        assert_eq!(told(&engine, "prefix_cache_hits_total"), Some(250.0));
        assert_eq!(told(&engine, "kv_cache_usage_perc"), None);
    }

    #[test]
    fn a_minute_s_requests_are_taken_and_come_back_steadily() {
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
