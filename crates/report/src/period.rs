//! Parses the period of a report: `--since` and `--until`.

use std::str::FromStr;
use std::time::Duration;

use ::time::format_description::well_known::Rfc3339;
use ::time::{Date, Month, OffsetDateTime};

use crate::window::StartRange;
use tokengauge_types::clock::WallTime;
use tokengauge_types::value::DurationValue;

/// Start or end of a period.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bound {
    /// Nanoseconds since 1970.
    At(u64),
    /// Time before now.
    Ago(Duration),
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "\"{0}\" is not a time; write a day such as 2026-10-31 or a month such as 2026-10 (both start at midnight UTC), \
     a time with its zone such as 2026-10-31T12:00:00Z, or a duration before now such as 30d"
)]
pub struct InvalidBound(String);

impl FromStr for Bound {
    type Err = InvalidBound;

    fn from_str(text: &str) -> Result<Self, InvalidBound> {
        let time = OffsetDateTime::parse(text, &Rfc3339).ok();
        let time = time.or_else(|| Some(date(text)?.midnight().assume_utc()));
        let at =
            time.and_then(|time| u64::try_from(time.unix_timestamp_nanos()).ok()).map(Self::At);
        let ago = || text.parse().ok().map(|DurationValue(time)| Self::Ago(time));
        at.or_else(ago).ok_or_else(|| InvalidBound(text.to_owned()))
    }
}

/// Parses `YYYY-MM-DD`, or `YYYY-MM` as the first day of the month.
fn date(text: &str) -> Option<Date> {
    let mut parts = text.split('-');
    let mut number = |digits: usize| -> Option<u16> {
        let part = parts.next().filter(|part| part.len() == digits)?;
        part.parse().ok().filter(|_| part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let year = number(4)?;
    let month = Month::try_from(u8::try_from(number(2)?).ok()?).ok()?;
    let day = if text.len() > "2026-10".len() { number(2)? } else { 1 };
    let date = Date::from_calendar_date(year.into(), month, u8::try_from(day).ok()?).ok()?;
    parts.next().is_none().then_some(date)
}

impl Bound {
    fn resolve(self, now: WallTime) -> u64 {
        match self {
            Self::At(at) => at,
            Self::Ago(time) => {
                let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                now.unix_nanos().saturating_sub(nanos)
            }
        }
    }
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("--since is not before --until: {since} and {until}; the end of the period is exclusive")]
pub struct EmptyPeriod {
    since: String,
    until: String,
}

/// Returns the period from `since` (inclusive) until `until` (exclusive).
///
/// # Errors
/// Fails if the period is empty.
pub fn range(
    since: Option<Bound>,
    until: Option<Bound>,
    now: WallTime,
) -> Result<StartRange, EmptyPeriod> {
    let from = since.map_or(StartRange::ALL.from, |bound| bound.resolve(now));
    let until = until.map_or(StartRange::ALL.until, |bound| bound.resolve(now));
    if from >= until {
        let [since, until] = [from, until].map(crate::time::format);
        return Err(EmptyPeriod { since, until });
    }
    Ok(StartRange { from, until })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<String> {
        match text.parse().ok()? {
            Bound::At(at) => Some(crate::time::format(at)),
            Bound::Ago(time) => Some(format!("{} s ago", time.as_secs())),
        }
    }

    #[test]
    fn parses_days_months_times_and_durations() {
        for (text, expected) in [
            ("2026-10-31", "2026-10-31T00:00:00.000Z"),
            ("2026-10", "2026-10-01T00:00:00.000Z"),
            ("2026-10-31T12:00:00Z", "2026-10-31T12:00:00.000Z"),
            ("2026-10-31T00:30:00.25+02:00", "2026-10-30T22:30:00.250Z"),
            ("30d", "2592000 s ago"),
            ("90m", "5400 s ago"),
        ] {
            assert_eq!(parsed(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "",
            "2026",
            "2026-13",
            "2026-02-30",
            "2026-1-1",
            "2026-10-31T12:00",
            "soon",
            "2026-10-",
            "+026-10",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
        let message = "yesterday".parse::<Bound>().unwrap_err().to_string();
        assert!(message.starts_with("\"yesterday\" is not a time; write"), "{message}");
    }

    #[test]
    fn a_period_has_a_start_before_its_end() {
        let now = WallTime::from_unix_nanos(100_000_000_000);
        let at = |seconds: u64| Some(Bound::At(seconds * 1_000_000_000));
        let ago = |seconds| Some(Bound::Ago(Duration::from_secs(seconds)));
        let range = |since, until| range(since, until, now);
        assert_eq!(range(None, None), Ok(StartRange::ALL));
        assert_eq!(range(ago(30), None).map(|range| range.from), Ok(70_000_000_000));
        assert!(range(at(50), at(51)).is_ok());
        assert!(range(at(50), at(50)).is_err());
        assert!(range(ago(30), ago(40)).is_err());
        assert!(range(ago(1_000), None).is_ok(), "before 1970");
    }
}
