//! Calendar days in UTC.

use std::fmt;
use std::str::FromStr;

use tokengauge_types::clock::WallTime;

const NANOS: u64 = 86_400_000_000_000;

/// Number of days since 1970-01-01.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Day(i64);

impl Day {
    pub fn of(wall: WallTime) -> Self {
        Self(i64::try_from(wall.unix_nanos() / NANOS).unwrap_or(i64::MAX))
    }

    /// Returns the given date, or `None` if the date does not exist or its year is outside 1970 to 9999. Uses H.
    /// Hinnant's `days_from_civil` (<https://howardhinnant.github.io/date_algorithms.html>), in which a year begins
    /// with March.
    pub fn new(year: i64, month: i64, day: i64) -> Option<Self> {
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let last = match month {
            4 | 6 | 9 | 11 => 30,
            2 if leap => 29,
            2 => 28,
            1..=12 => 31,
            _ => return None,
        };
        if !(1970..=9999).contains(&year) || !(1..=last).contains(&day) {
            return None;
        }
        let year = if month <= 2 { year - 1 } else { year };
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        let days = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
        Some(Self(era * 146_097 + days - 719_468))
    }
}

impl FromStr for Day {
    type Err = ();

    /// Parses `YYYY-MM-DD`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('-');
        let mut part = |length: usize| -> Option<i64> {
            let digits = parts.next().filter(|part| part.len() == length)?;
            let only_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| only_digits)
        };
        let (year, month, day) = (part(4), part(2), part(2));
        let whole = parts.next().is_none();
        let day = year.zip(month).zip(day).filter(|_| whole);
        day.and_then(|((year, month), day)| Self::new(year, month, day)).ok_or(())
    }
}

/// Formats the day as `YYYY-MM-DD`.
impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.0 + 719_468;
        let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let shifted = (5 * of_year + 2) / 153;
        let day = of_year - (153 * shifted + 2) / 5 + 1;
        let month = (shifted + 2) % 12 + 1;
        let year = era * 400 + year + i64::from(month <= 2);
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_as_the_calendar_has_them() {
        for (text, days) in [
            ("1970-01-01", 0),
            ("1970-12-31", 364),
            ("2000-02-29", 11_016),
            ("2024-03-01", 19_783),
            ("2026-11-22", 20_779),
        ] {
            let day: Day = text.parse().unwrap();
            assert_eq!(day, Day(days), "{text}");
            assert_eq!(day.to_string(), text);
            let noon = WallTime::from_unix_nanos(u64::try_from(days).unwrap() * NANOS + NANOS / 2);
            assert_eq!(Day::of(noon), day);
        }
    }

    #[test]
    fn every_day_of_eight_centuries_is_written_as_it_is_read() {
        let first: Day = "1970-01-01".parse().unwrap();
        for number in 0..292_194 {
            let day = Day(first.0 + number);
            assert_eq!(day.to_string().parse(), Ok(day));
        }
    }

    #[test]
    fn what_is_no_day_is_none() {
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
            "24-01-2024",
        ] {
            assert_eq!(text.parse::<Day>(), Err(()), "{text}");
        }
    }
}
