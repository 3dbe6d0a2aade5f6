//! Calendar days in UTC.

use std::fmt;
use std::str::FromStr;

use time::{Date, Month, OffsetDateTime};

use tokengauge_types::clock::WallTime;
use tokengauge_types::serde_as_str;
use tokengauge_types::value::ValueError;

/// A day from 1970 to 9999.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Day(Date);

impl Day {
    pub fn from_wall_time(wall: WallTime) -> Self {
        let instant = OffsetDateTime::from_unix_timestamp_nanos(wall.unix_nanos().into());
        Self(instant.map_or(Date::MAX, OffsetDateTime::date))
    }
}

impl FromStr for Day {
    type Err = ValueError;

    /// Parses `YYYY-MM-DD`.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        parse(text).map(Self).ok_or_else(|| {
            let hint = "write year, month and day, such as 2026-01-31";
            ValueError::new(format!("\"{text}\" is not a date"), hint)
        })
    }
}

fn parse(text: &str) -> Option<Date> {
    let mut parts = text.split('-');
    let mut part = |length: usize| -> Option<u16> {
        let digits = parts.next().filter(|part| part.len() == length)?;
        let only_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| only_digits)
    };
    let (year @ 1970.., month, day) = (part(4)?, part(2)?, part(2)?) else {
        return None;
    };
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let date = Date::from_calendar_date(year.into(), month, u8::try_from(day).ok()?).ok()?;
    parts.next().is_none().then_some(date)
}

/// Formats the day as `YYYY-MM-DD`.
impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

serde_as_str!(Day, { "type": "string", "format": "date" });

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000_000_000;

    fn day(number: u64) -> Day {
        Day::from_wall_time(WallTime::from_unix_nanos(number * DAY + DAY / 2))
    }

    #[test]
    fn days_match_the_calendar() {
        for (text, days) in [
            ("1970-01-01", 0),
            ("1970-12-31", 364),
            ("2000-02-29", 11_016),
            ("2024-03-01", 19_783),
            ("2026-11-22", 20_779),
        ] {
            assert_eq!(text.parse(), Ok(day(days)), "{text}");
            assert_eq!(day(days).to_string(), text);
        }
    }

    #[test]
    fn every_day_of_five_centuries_is_formatted_as_it_is_parsed() {
        for number in 0..213_503 {
            let day = day(number);
            assert_eq!(day.to_string().parse(), Ok(day));
        }
    }

    #[test]
    fn an_invalid_day_is_rejected() {
        for text in [
            "",
            "2024",
            "2024-1-1",
            "2024-13-01",
            "2023-02-29",
            "2024-04-31",
            "2024-01-00",
            "2024-01-01-01",
            "+024-01-01",
            "1969-12-31",
            "24-01-2024",
        ] {
            assert!(text.parse::<Day>().is_err(), "{text}");
        }
    }
}
