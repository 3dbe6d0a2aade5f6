//! Times in documents.

use std::time::Duration;

/// Rounds a sum of seconds or another value to six decimals, which keeps documents short.
pub fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Returns seconds with microseconds as the last digits, which keeps documents short.
#[expect(clippy::cast_precision_loss, reason = "2^52 µs are 142 years")]
pub fn seconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e6
}
