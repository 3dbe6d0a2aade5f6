//! Formats the timestamps of log lines.

use time::OffsetDateTime;

/// Formats a time as RFC 3339 in UTC with nanoseconds.
pub fn rfc3339(unix_nanos: u64) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(unix_nanos.into());
    // Every `u64` is a valid time: the last one is in the year 2554.
    let time = time.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (hour, minute, second, nanos) = time.to_hms_nano();
    format!("{}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z", time.date())
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
            assert_eq!(rfc3339(seconds * 1_000_000_000), expected);
        }
        assert_eq!(rfc3339(1_020_000_003), "1970-01-01T00:00:01.020000003Z");
    }
}
