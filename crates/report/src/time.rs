//! Parses and formats the timestamps of the log: RFC 3339 in UTC.

use ::time::OffsetDateTime;
use ::time::format_description::well_known::Rfc3339;

/// Parses a timestamp such as `2026-01-02T03:04:05.678Z` into nanoseconds since 1970. More than nine decimals are
/// ignored. Returns `None` for other formats, and for times before 1970 or after 2554.
pub fn parse(text: &str) -> Option<u64> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok().filter(|_| text.ends_with('Z'))?;
    u64::try_from(time.unix_timestamp_nanos()).ok()
}

/// Formats a time as RFC 3339 with milliseconds.
pub fn format(unix_nanos: u64) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(unix_nanos.into());
    let time = time.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (hour, minute, second, millis) = time.to_hms_milli();
    format!("{}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z", time.date())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NANOS: u64 = 1_000_000_000;

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
    fn formats_milliseconds() {
        assert_eq!(format(951_782_400 * NANOS + 7_900_000), "2000-02-29T00:00:00.007Z");
        assert_eq!(parse(&format(u64::MAX / NANOS * NANOS)), Some(u64::MAX / NANOS * NANOS));
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
            "2026-02-30T03:04:05Z",
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
