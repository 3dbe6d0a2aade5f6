//! Formats timestamps.

const NANOS: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

/// Formats a time as RFC 3339 in UTC with nanoseconds.
pub fn rfc3339(unix_nanos: u64) -> String {
    let (seconds, nanos) = (unix_nanos / NANOS, unix_nanos % NANOS);
    let (year, month, day) = date(seconds / DAY);
    let (hour, minute, second) = (seconds % DAY / 3_600, seconds % 3_600 / 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

/// Converts days since 1970-01-01 to a date. Internally, years start in March, so that the leap day is the last day.
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
    fn formats_dates() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (951_868_800, "2000-03-01T00:00:00.000000000Z"),
            (1_769_860_800, "2026-01-31T12:00:00.000000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000000Z"),
        ] {
            assert_eq!(rfc3339(seconds * NANOS), expected);
        }
        assert_eq!(rfc3339(NANOS + 20_000_003), "1970-01-01T00:00:01.020000003Z");
    }
}
