//! Remaining rate limits at each provider, from the headers of the latest responses.
//!
//! The limits belong to an account that others may use too, so a value is only as fresh as the last response. Each
//! value therefore expires. The time until reset is recomputed at each read.

use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::load::{MAX_MODEL_KEYS, ModelKey};
use tokengauge_llm::dialect::{RateLimit, RateLimits};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::label_enum;

/// Shortest time for which a value is reported, even if the limit was reset before. Some providers refill continuously
/// and report resets within milliseconds, which no scrape could catch. Until the next response, the reported remainder
/// may be too low.
const MIN_VALIDITY: Duration = Duration::from_secs(60);

/// Longest time for which a value is reported without an update. Later the value is outdated, because other users of
/// the account consume the same limit.
const MAX_VALIDITY: Duration = Duration::from_secs(300);

label_enum! {
    /// Kind of usage that a provider limits.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum LimitType {
        Requests = "requests",
        /// Input and output tokens together.
        Tokens = "tokens",
        InputTokens = "input_tokens",
        OutputTokens = "output_tokens",
    }
}

impl LimitType {
    pub const fn limit_in(self, quota: &RateLimits) -> RateLimit {
        match self {
            Self::Requests => quota.requests,
            Self::Tokens => quota.tokens,
            Self::InputTokens => quota.input_tokens,
            Self::OutputTokens => quota.output_tokens,
        }
    }
}

/// One rate limit of one model key.
#[derive(Clone, Debug, PartialEq)]
pub struct RateLimitReading {
    pub model_key: ModelKey,
    pub limited: LimitType,
    /// Values of the limit. `reset` is the time from now until the reset. `None` if the provider did not report a
    /// reset, or if it has passed.
    pub allowance: RateLimit,
}

/// Latest value of every rate limit, for at most [`MAX_MODEL_KEYS`] model keys. A further key evicts the key with the
/// oldest value.
#[derive(Debug, Default)]
pub struct RateLimitTracker(FxHashMap<ModelKey, [Option<RecordedLimit>; LimitType::ALL.len()]>);

#[derive(Clone, Copy, Debug)]
struct RecordedLimit {
    at: MonotonicInstant,
    allowance: RateLimit,
}

impl RateLimitTracker {
    /// Records the rate limits in the headers of a response received at `at`.
    pub fn record_limits(
        &mut self,
        at: MonotonicInstant,
        model_key: &ModelKey,
        quota: &RateLimits,
    ) {
        if self.0.len() >= MAX_MODEL_KEYS && !self.0.contains_key(model_key) {
            self.evict_oldest(at);
        }
        let known = self.0.entry(model_key.clone()).or_default();
        for (slot, limited) in known.iter_mut().zip(LimitType::ALL) {
            let allowance = limited.limit_in(quota);
            let newer = slot.is_none_or(|recorded| recorded.at <= at);
            if newer && allowance != RateLimit::default() {
                *slot = Some(RecordedLimit { at, allowance });
            }
        }
    }

    /// Returns all unexpired values, in the order of [`LimitType::ALL`] for each model key.
    pub fn reading(&mut self, at: MonotonicInstant) -> Vec<RateLimitReading> {
        self.forget(at);
        let mut readings = Vec::new();
        for (model_key, known) in &self.0 {
            for (recorded, limited) in known.iter().zip(LimitType::ALL) {
                let fresh = recorded.filter(|recorded| recorded.is_fresh(at));
                readings.extend(fresh.map(|recorded| RateLimitReading {
                    model_key: model_key.clone(),
                    limited,
                    allowance: recorded.now(at),
                }));
            }
        }
        readings
    }

    fn forget(&mut self, at: MonotonicInstant) {
        self.0.retain(|_, known| known.iter().flatten().any(|recorded| recorded.is_fresh(at)));
    }

    fn evict_oldest(&mut self, at: MonotonicInstant) {
        self.forget(at);
        if self.0.len() < MAX_MODEL_KEYS {
            return;
        }
        let latest = |known: &[Option<RecordedLimit>]| {
            known.iter().flatten().map(|recorded| recorded.at).max()
        };
        let oldest = self.0.iter().min_by_key(|(_, known)| latest(*known));
        if let Some(model_key) = oldest.map(|(model_key, _)| model_key.clone()) {
            self.0.remove(&model_key);
        }
    }
}

impl RecordedLimit {
    fn is_fresh(&self, at: MonotonicInstant) -> bool {
        let reset = self.allowance.reset.unwrap_or(MAX_VALIDITY);
        at.since(self.at) <= reset.clamp(MIN_VALIDITY, MAX_VALIDITY)
    }

    fn now(&self, at: MonotonicInstant) -> RateLimit {
        let passed = at.since(self.at);
        let left = |reset: Duration| reset.checked_sub(passed).filter(|left| !left.is_zero());
        RateLimit { reset: self.allowance.reset.and_then(left), ..self.allowance }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_types::event::ProxyPosition;
    use tokengauge_types::label::Label;

    fn model_key(model: &str) -> ModelKey {
        ModelKey {
            provider: Label::from_trusted("openai"),
            model: Label::from_trusted(model),
            route: Label::from_trusted("default"),
            position: ProxyPosition::Outbound,
        }
    }

    const fn left(remaining: u64, reset: Option<Duration>) -> RateLimit {
        RateLimit { limit: Some(500), remaining: Some(remaining), reset }
    }

    fn requests(remaining: u64, reset: Option<u64>) -> RateLimits {
        RateLimits {
            requests: left(remaining, reset.map(Duration::from_secs)),
            ..RateLimits::default()
        }
    }

    const AT: MonotonicInstant = MonotonicInstant::from_secs(1_000);

    /// Returns the limit type, the remaining amount and the seconds until reset, as reported `after` seconds later.
    fn readings(
        quotas: &mut RateLimitTracker,
        after: u64,
    ) -> Vec<(LimitType, Option<u64>, Option<u64>)> {
        let readings = quotas.reading(AT + Duration::from_secs(after));
        let fields = |reading: &RateLimitReading| {
            let allowance = reading.allowance;
            let reset = allowance.reset.map(|reset| reset.as_secs());
            (reading.limited, allowance.remaining, reset)
        };
        readings.iter().map(fields).collect()
    }

    #[test]
    fn the_latest_response_counts_in_any_order_of_arrival() {
        let mut quotas = RateLimitTracker::default();
        assert_eq!(readings(&mut quotas, 0), []);
        quotas.record_limits(AT, &model_key("a"), &requests(40, None));
        quotas.record_limits(
            AT.saturating_sub(Duration::from_secs(1)),
            &model_key("a"),
            &requests(90, None),
        );
        assert_eq!(readings(&mut quotas, 0), [(LimitType::Requests, Some(40), None)]);
        quotas.record_limits(AT + Duration::from_secs(1), &model_key("a"), &requests(39, None));
        assert_eq!(readings(&mut quotas, 1), [(LimitType::Requests, Some(39), None)]);
    }

    #[test]
    fn a_value_missing_in_a_response_keeps_its_last_value() {
        let mut quotas = RateLimitTracker::default();
        quotas.record_limits(AT, &model_key("a"), &requests(40, None));
        let tokens = RateLimits {
            input_tokens: left(0, Some(Duration::from_secs(90))),
            ..RateLimits::default()
        };
        quotas.record_limits(AT + Duration::from_secs(10), &model_key("a"), &tokens);
        assert_eq!(
            readings(&mut quotas, 20),
            [(LimitType::Requests, Some(40), None), (LimitType::InputTokens, Some(0), Some(80))],
            "nothing left is a number"
        );
    }

    #[test]
    fn a_limit_is_reported_until_its_reset_within_one_to_five_minutes() {
        for (reset, last) in
            [(Some(0), 60), (Some(1), 60), (Some(90), 90), (Some(9_000), 300), (None, 300)]
        {
            let mut quotas = RateLimitTracker::default();
            quotas.record_limits(AT, &model_key("a"), &requests(7, reset));
            assert_eq!(readings(&mut quotas, last).len(), 1, "{reset:?}");
            assert_eq!(readings(&mut quotas, last + 1), [], "{reset:?}");
            assert!(quotas.0.is_empty(), "and then forgotten");
        }
        let mut quotas = RateLimitTracker::default();
        quotas.record_limits(AT, &model_key("a"), &requests(7, Some(1)));
        assert_eq!(
            readings(&mut quotas, 1),
            [(LimitType::Requests, Some(7), None)],
            "a reset that is over"
        );
    }

    #[test]
    fn beyond_the_limit_the_oldest_entry_is_removed() {
        let mut quotas = RateLimitTracker::default();
        for number in 0..2 * MAX_MODEL_KEYS as u64 {
            let at = AT + Duration::from_millis(number);
            quotas.record_limits(at, &model_key(&number.to_string()), &requests(number, None));
            assert!(quotas.0.len() <= MAX_MODEL_KEYS);
        }
        let least =
            readings(&mut quotas, 1).iter().map(|(_, remaining, _)| remaining.unwrap()).min();
        assert_eq!(least, Some(MAX_MODEL_KEYS as u64), "the first half is gone");
    }
}
