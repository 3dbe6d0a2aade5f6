//! Rate limits that providers report.

use crate::document::RateLimit;
use crate::now::as_f64;
use tokengauge_measure::load::{self, RateLimitReading};

/// Returns the rate limits, the ones with the highest use first.
pub fn rate_limits(load: &load::Reading, at_unix_ms: u64) -> Vec<RateLimit> {
    let mut limits: Vec<_> =
        load.quotas.iter().map(|reading| rate_limit(reading, at_unix_ms)).collect();
    let names = |it: &RateLimit| (it.provider.clone(), it.model.clone(), it.limit_type.clone());
    limits.sort_by(|a, b| {
        let used = |it: &RateLimit| it.used_share.unwrap_or(0.0);
        used(b).total_cmp(&used(a)).then_with(|| names(a).cmp(&names(b)))
    });
    limits
}

fn rate_limit(reading: &RateLimitReading, at_unix_ms: u64) -> RateLimit {
    let allowance = reading.allowance;
    RateLimit {
        provider: reading.model_key.provider.shared(),
        model: reading.model_key.model.shared(),
        limit_type: reading.limited.as_str().into(),
        limit: allowance.limit,
        remaining: allowance.remaining,
        used_share: used_share(reading),
        resets_unix_ms: allowance.reset.map(|reset| {
            at_unix_ms + u64::try_from(reset.as_millis()).unwrap_or(u64::MAX - at_unix_ms)
        }),
    }
}

/// Returns 1 − remaining ÷ limit. `None` if the provider does not report both.
pub fn used_share(reading: &RateLimitReading) -> Option<f64> {
    let (limit, remaining) = reading.allowance.limit.zip(reading.allowance.remaining)?;
    (limit > 0).then(|| (1.0 - as_f64(remaining) / as_f64(limit)).max(0.0))
}
