//! Durations in PromQL notation, and the divisor that shortens them in failover tests.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// A duration in milliseconds, which is the finest unit in PromQL.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Span(u64);

/// PromQL units with their length in milliseconds, in the order that PromQL requires. A year has 365 days.
const UNITS: [(&str, u64); 7] = [
    ("y", 31_536_000_000),
    ("w", 604_800_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Units that the output uses. Weeks and years are omitted, because `37d` is easier to read than `5w2d`.
const OUTPUT_UNITS: &[&str] = &["d", "h", "m", "s", "ms"];

impl Span {
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds * 1_000)
    }

    pub const fn minutes(minutes: u64) -> Self {
        Self::seconds(minutes * 60)
    }

    pub const fn hours(hours: u64) -> Self {
        Self::minutes(hours * 60)
    }

    pub const fn millis(self) -> u64 {
        self.0
    }
}

impl FromStr for Span {
    type Err = String;

    /// Parses a PromQL duration such as `5m`, `1h30m` or `250ms`. Each unit occurs at most once, and longer units come
    /// first.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "\"{text}\" is not a duration; write a number and a unit (ms, s, m, h, d), such as 30s or 5m"
            )
        };
        let mut units = UNITS.iter();
        let mut sum = 0_u64;
        let mut rest = text;
        while !rest.is_empty() {
            let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            let number = rest.strip_suffix(digits).and_then(|it| it.parse::<u64>().ok());
            let after = digits.trim_start_matches(|c: char| c.is_ascii_lowercase());
            let unit = digits.strip_suffix(after).unwrap_or_default();
            let scale = units.find(|(name, _)| *name == unit);
            let (Some(number), Some((_, scale))) = (number, scale) else {
                return Err(wrong());
            };
            sum = sum.saturating_add(number.saturating_mul(*scale));
            rest = after;
        }
        if sum == 0 { Err(wrong()) } else { Ok(Self(sum)) }
    }
}

/// Writes a duration such as `1h30m`. A duration of 0 is `0s`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        for (unit, scale) in UNITS.iter().filter(|(unit, _)| OUTPUT_UNITS.contains(unit)) {
            if rest >= *scale {
                write!(f, "{}{unit}", rest / scale)?;
                rest %= scale;
            }
        }
        if self.0 == 0 { f.write_str("0s") } else { Ok(()) }
    }
}

/// Divisor of all durations in the rules, which makes a failover test faster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Divisor(pub NonZeroU32);

impl Divisor {
    /// Divides a duration and rounds the result to the nearest millisecond. The result is at least 1 ms, because PromQL
    /// rejects a window of 0.
    pub fn divide(self, span: Span) -> Span {
        let by = u64::from(self.0.get());
        Span(((span.0 + by / 2) / by).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_formats_promql_durations() {
        for (text, millis, expected) in [
            ("5m", 300_000, "5m"),
            ("1h30m", 5_400_000, "1h30m"),
            ("90m", 5_400_000, "1h30m"),
            ("250ms", 250, "250ms"),
            ("30d", 2_592_000_000, "30d"),
            ("1w", 604_800_000, "7d"),
            ("1d1ms", 86_400_001, "1d1ms"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!((span.millis(), span.to_string()), (millis, expected.to_owned()));
        }
        for wrong in ["", "5", "m", "0s", "5 m", "1m1h", "1m1m", "1x", "-5m", "1.5h", "5min"] {
            assert!(wrong.parse::<Span>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn division_rounds_to_milliseconds_and_never_to_zero() {
        let by = |n| Divisor(NonZeroU32::new(n).unwrap());
        assert_eq!(by(60).divide(Span::hours(1)), Span::minutes(1));
        assert_eq!(by(7).divide(Span::minutes(5)).to_string(), "42s857ms");
        assert_eq!(by(1000).divide(Span(1)).to_string(), "1ms");
    }
}
