//! Parses and formats RFC 3339 timestamps in UTC, as in the log.

const NANOS: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

/// Parses a timestamp such as `2026-01-02T03:04:05.678Z` into nanoseconds since 1970. Digits after the ninth
/// decimal are ignored. Returns `None` for any other format.
pub fn parse(text: &str) -> Option<u64> {
    let (date, clock) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.split('-').map(number);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut clock = clock.split(':').map(number);
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let is_valid = (1970..=2500).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60
        && date.next().is_none()
        && clock.next().is_none();
    if !is_valid {
        return None;
    }
    let seconds = days(year, month, day) * DAY + hour * 3_600 + minute * 60 + second;
    Some(seconds * NANOS + nanos(fraction)?)
}

fn number(digits: &str) -> Option<u64> {
    let all =
        !digits.is_empty() && digits.len() <= 4 && digits.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| digits.parse().ok())?
}

/// Parses the digits after the decimal point.
fn nanos(fraction: &str) -> Option<u64> {
    let mut unit = NANOS;
    let mut nanos = 0;
    for byte in fraction.bytes() {
        unit /= 10;
        nanos += u64::from(byte.is_ascii_digit().then(|| byte - b'0')?) * unit;
    }
    Some(nanos)
}

/// Formats a time as RFC 3339 with milliseconds.
pub fn format(unix_nanos: u64) -> String {
    let (seconds, millis) = (unix_nanos / NANOS, unix_nanos % NANOS / 1_000_000);
    let (year, month, day) = date(seconds / DAY);
    let (hour, minute, second) = (seconds % DAY / 3_600, seconds % 3_600 / 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Returns the days from 1970-01-01 to a date. A year starts in March here, so that the leap day is its last.
const fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Converts days to a date: the inverse of [`days`].
const fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_timestamps() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T00:00:00.000000001Z", 1),
            ("2000-02-29T00:00:00.000000000Z", 951_782_400 * NANOS),
            ("2000-03-01T00:00:00.5Z", 951_868_800 * NANOS + NANOS / 2),
            ("2100-03-01T00:00:00Z", 4_107_542_400 * NANOS),
            ("1970-01-01T00:00:00.1234567899Z", 123_456_789),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn dates_round_trip_over_five_centuries() {
        for day in 0..190_000 {
            let (year, month, of_month) = date(day);
            assert_eq!(days(year, month, of_month), day);
        }
        assert_eq!(format(951_782_400 * NANOS + 7_900_000), "2000-02-29T00:00:00.007Z");
    }

    #[test]
    fn rejects_invalid_timestamps() {
        for text in [
            "",
            "Z",
            "2026-01-02",
            "2026-01-02T03:04:05",
            "2026-01-02T03:04:05+01:00",
            "2026-13-02T03:04:05Z",
            "2026-01-02T03:04:05.xZ",
            "2026-01-02T03:04Z",
            "2026-01-02-03T03:04:05Z",
            "+026-01-02T03:04:05Z",
            "99999-01-02T03:04:05Z",
            "0000-01-02T03:04:05Z",
            "2026-01-02T03:04:05:06Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
