//! Reads the provider's rate limits from response headers.
//!
//! Three groups of headers are read:
//!
//! - `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`: OpenAI, Azure, Groq and most other providers.
//! - `anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}`: Anthropic.
//! - `ratelimit-{…}` and `x-ratelimit-{…}` without a unit: limits on requests.

use std::time::Duration;

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use tokengauge_types::event::Headers;

/// Maximum time until a reset. No provider has a window of more than a month, so a later reset is an error.
const MAX_RESET_TIME: Duration = Duration::from_secs(40 * 86_400);

/// A provider's limits on requests and tokens. A limit that no header reports is empty.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct RateLimits {
    pub requests: RateLimit,
    pub tokens: RateLimit,
    /// Separate limit on input tokens, which only some providers have.
    pub input_tokens: RateLimit,
    pub output_tokens: RateLimit,
}

/// The limit on requests or tokens, how much of it remains, and the time until its reset.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct RateLimit {
    pub limit: Option<u64>,
    pub remaining: Option<u64>,
    /// Time until the whole limit is available again.
    pub reset: Option<Duration>,
}

/// Possible header names of one limit: the parts before and after `limit`, `remaining` or `reset`. The first header
/// that is present applies.
type HeaderNames = &'static [(&'static str, &'static str)];

/// How the names of all headers with limits begin.
const PREFIXES: [&str; 4] = ["x-ratelimit-", "anthropic-ratelimit-", "ratelimit-", "x-tokenlimit-"];

const REQUESTS: HeaderNames = &[
    ("x-ratelimit-", "-requests"),
    ("anthropic-ratelimit-requests-", ""),
    ("x-ratelimit-", ""),
    ("ratelimit-", ""),
];

const TOKENS: HeaderNames =
    &[("x-ratelimit-", "-tokens"), ("anthropic-ratelimit-tokens-", ""), ("x-tokenlimit-", "")];

const INPUT_TOKENS: HeaderNames = &[("anthropic-ratelimit-input-tokens-", "")];

const OUTPUT_TOKENS: HeaderNames = &[("anthropic-ratelimit-output-tokens-", "")];

impl RateLimits {
    /// Reads the limits. Returns `None` if no header reports a limit. `now` is the time since 1970, which is subtracted
    /// from absolute reset times.
    pub fn read(headers: &Headers, now: Duration) -> Option<Self> {
        let is_limit = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        let limits: Vec<_> = headers.iter().filter(|(name, _)| is_limit(name)).collect();
        let limits = Self {
            requests: RateLimit::read(REQUESTS, &limits, now),
            tokens: RateLimit::read(TOKENS, &limits, now),
            input_tokens: RateLimit::read(INPUT_TOKENS, &limits, now),
            output_tokens: RateLimit::read(OUTPUT_TOKENS, &limits, now),
        };
        (limits != Self::default()).then_some(limits)
    }
}

impl RateLimit {
    fn read(names: HeaderNames, headers: &[(&str, &str)], now: Duration) -> Self {
        let first = |kind: &str| {
            names.iter().find_map(|(before, after)| {
                let is_named = |name: &str| {
                    name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after))
                        == Some(kind)
                };
                headers.iter().find_map(|(name, value)| is_named(name).then_some(*value))
            })
        };
        Self {
            limit: first("limit").and_then(count),
            remaining: first("remaining").and_then(count),
            reset: first("reset").and_then(|text| until(text, now)),
        }
    }
}

fn count(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Parses the time until a reset: a duration (`1m12.5s`, `20ms`), a number of seconds (`17`, `0.5`), a date
/// (`2026-01-31T12:00:00Z`) or seconds since 1970.
fn until(text: &str, now: Duration) -> Option<Duration> {
    let text = text.trim();
    let in_time = |at: Duration| at.saturating_sub(now);
    let reset = if let Ok(seconds) = text.parse::<f64>() {
        let length = Duration::try_from_secs_f64(seconds).ok()?;
        // No window lasts a year, so a larger number is the time since 1970.
        if length > Duration::from_secs(365 * 86_400) { in_time(length) } else { length }
    } else if let Some(at) = date(text) {
        in_time(at)
    } else {
        length(text)?
    };
    (reset <= MAX_RESET_TIME).then_some(reset)
}

/// Parses numbers with the units d, h, m, s, ms and us, such as `1m12.5s`.
fn length(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at_checked(digits)?;
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(letters)?;
        let unit = match unit {
            "d" => 86_400.0,
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            _ => return None,
        };
        let part = number.parse::<f64>().ok()? * unit;
        sum = sum.checked_add(Duration::try_from_secs_f64(part).ok()?)?;
        rest = after;
    }
    (!text.is_empty()).then_some(sum)
}

/// Parses a time in RFC 3339 format as the time since 1970.
fn date(text: &str) -> Option<Duration> {
    let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    Duration::try_from(at - OffsetDateTime::UNIX_EPOCH).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_types::label::Name;

    /// 2026-01-31T12:00:00Z.
    const NOW: Duration = Duration::from_secs(1_769_860_800);

    fn quota(pairs: &[(&'static str, &str)]) -> Option<RateLimits> {
        let named = |(name, value): &(&'static str, &str)| Some((*name, Name::new(value)?));
        let headers: Headers = pairs.iter().filter_map(named).collect();
        RateLimits::read(&headers, NOW)
    }

    const fn seconds(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    #[test]
    fn reads_the_common_headers() {
        let read = quota(&[
            ("x-ratelimit-limit-requests", "500"),
            ("x-ratelimit-remaining-requests", "499"),
            ("x-ratelimit-reset-requests", "120ms"),
            ("x-ratelimit-limit-tokens", "30000"),
            ("x-ratelimit-remaining-tokens", "29000"),
            ("x-ratelimit-reset-tokens", "1m2s"),
        ]);
        let expected = RateLimits {
            requests: RateLimit {
                limit: Some(500),
                remaining: Some(499),
                reset: Some(Duration::from_millis(120)),
            },
            tokens: RateLimit { limit: Some(30_000), remaining: Some(29_000), reset: seconds(62) },
            ..RateLimits::default()
        };
        assert_eq!(read, Some(expected));
    }

    #[test]
    fn reads_anthropic_headers() {
        let read = quota(&[
            ("anthropic-ratelimit-requests-remaining", "49"),
            ("anthropic-ratelimit-input-tokens-limit", "40000"),
            ("anthropic-ratelimit-output-tokens-reset", "2026-01-31T12:00:30Z"),
        ])
        .unwrap();
        assert_eq!(read.requests.remaining, Some(49));
        assert_eq!(read.input_tokens.limit, Some(40_000));
        assert_eq!(read.output_tokens.reset, seconds(30));
    }

    #[test]
    fn leaves_unreported_limits_empty() {
        assert_eq!(quota(&[]), None);
        assert_eq!(quota(&[("x-ratelimit-remaining-requests", "many")]), None);
        let zero = quota(&[("x-ratelimit-remaining-requests", "0")]).unwrap();
        assert_eq!(zero.requests.remaining, Some(0), "a remaining limit of 0 is reported");
    }

    #[test]
    fn parses_durations_and_dates() {
        for (text, expected) in [
            ("17", seconds(17)),
            ("0.5", Some(Duration::from_millis(500))),
            ("1h0m1s", seconds(3_601)),
            ("2d", seconds(172_800)),
            ("1769860810", seconds(10)),
            ("2026-01-31T12:01:00+00:00", seconds(60)),
            ("2026-01-31T11:00:00Z", seconds(0)),
            ("2026-02-31T11:00:00", None),
            ("", None),
            ("-1", None),
            ("5 parsecs", None),
            ("1e300", None),
            ("9999-12-31T00:00:00Z", None),
        ] {
            assert_eq!(until(text, NOW), expected, "{text}");
        }
        assert_eq!(date("1970-01-01T00:00:00Z"), seconds(0));
        assert_eq!(date("2000-02-29T00:00:00Z"), seconds(951_782_400));
        assert_eq!(date("2026-01-31T12:00:00Z"), Some(NOW));
    }
}
