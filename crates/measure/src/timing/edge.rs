//! Time between the receipt of a request at an earlier proxy and at this proxy.
//!
//! Earlier proxies report their time in the header `X-Request-Start` or `X-Queue-Start`. No standard defines the
//! format: nginx writes `t=1512379167.574`, Apache `t=1512379167574000`, Heroku `1512379167574`. The unit can be
//! seconds, milliseconds, microseconds or nanoseconds since 1970. It follows from the magnitude, because units differ
//! by a factor of 1,000.

use std::time::Duration;

use tokengauge_types::clock::WallTime;

/// Longest plausible wait. No load balancer holds a request longer, so a longer wait means a wrong clock or an invented
/// value.
const MAX_WAIT: Duration = Duration::from_secs(3_600);

/// Exclusive upper bound of numbers that are read as seconds. As a time, this bound lies in the year 5138.
const MAX_SECONDS: f64 = 1e11;

/// Returns `accept` − the earliest valid time in `starts`. `None` if no time is valid.
///
/// The earliest time counts, because each proxy on the path may have added its own. A time after `accept` is invalid:
/// the two clocks disagree by an unknown amount, so the wait is unknown and not 0.
pub fn edge_wait<'a>(
    starts: impl IntoIterator<Item = &'a str>,
    accept: WallTime,
) -> Option<Duration> {
    let accept = Duration::from_nanos(accept.unix_nanos());
    let waited = |text| accept.checked_sub(start(text)?);
    let waits = starts.into_iter().filter_map(waited);
    waits.filter(|wait| *wait <= MAX_WAIT).max()
}

/// Parses a start time into the time since 1970.
fn start(text: &str) -> Option<Duration> {
    let text = text.trim();
    let number = text.strip_prefix("t=").unwrap_or(text);
    // Rejects signs, exponents and words such as `inf` that parse as floats.
    if !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    let number: f64 = number.parse().ok()?;
    let units = [1.0, 1e3, 1e6, 1e9];
    let per_second = units.into_iter().find(|unit| number < MAX_SECONDS * unit)?;
    Duration::try_from_secs_f64(number / per_second).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2017-12-04T09:19:28Z.
    const ACCEPT: WallTime = WallTime::from_unix_nanos(1_512_379_168_000_000_000);

    fn waited(starts: &[&str]) -> Option<u128> {
        let wait = edge_wait(starts.iter().copied(), ACCEPT)?;
        // Rounds to the resolution of a 64-bit float for such numbers.
        Some((wait + Duration::from_micros(1)).as_micros() / 10 * 10)
    }

    #[test]
    fn every_known_notation_yields_the_same_instant() {
        for text in [
            "t=1512379167.574",
            "1512379167.574",
            "t=1512379167574",
            "1512379167574",
            " 1512379167574.0 ",
            "t=1512379167574000",
            "1512379167574000",
            "1512379167574000000",
        ] {
            assert_eq!(waited(&[text]), Some(426_000), "{text}");
        }
        assert_eq!(waited(&["1512379167"]), Some(1_000_000));
        assert_eq!(waited(&["1512379168000"]), Some(0), "no time at all is a time");
    }

    #[test]
    fn implausible_times_are_absent_not_0() {
        for text in [
            "",
            "t=",
            "t",
            ".",
            "now",
            "-1512379167",
            "+1512379167",
            "1512379167,5",
            "1.5e9",
            "NaN",
            "inf",
            "infinity",
            "1.2.3",
            "0x59",
            "t=t=1512379167",
            "1512379167s",
            // A moment later, a year later, slightly more than an hour earlier, and 1970.
            "1512379168.001",
            "1543915168",
            "1512375567.9",
            "0",
            "60",
            "99999999999999999999999999999999999999",
        ] {
            assert_eq!(waited(&[text]), None, "{text}");
        }
        assert_eq!(waited(&["1512375568"]), Some(3_600_000_000), "an hour is one yet");
    }

    #[test]
    fn the_earliest_plausible_time_counts() {
        let (early, late) = ("t=1512379166.5", "1512379167500");
        assert_eq!(waited(&[early, late]), Some(1_500_000));
        assert_eq!(waited(&[late, early]), Some(1_500_000));
        assert_eq!(waited(&["0", late]), Some(500_000));
        assert_eq!(waited(&[]), None);
    }

    proptest! {
        #[test]
        fn any_start_within_the_hour_is_parsed_in_every_unit(ago in 0_u64..3_600_000, at in 1_000_000_000_u64..4_000_000_000) {
            let accept = WallTime::from_unix_nanos(at * 1_000_000_000);
            let start = at * 1_000 - ago;
            let spellings = [
                format!("t={}.{:03}", start / 1_000, start % 1_000),
                start.to_string(),
                format!("t={start}000"),
                format!("{start}000000"),
            ];
            for text in spellings {
                let wait = edge_wait([text.as_str()], accept);
                let wait = wait.or((ago < 1).then_some(Duration::ZERO)).unwrap();
                prop_assert!(wait.as_micros().abs_diff(u128::from(ago) * 1_000) <= 1, "{text}: {wait:?}");
            }
        }

        #[test]
        fn the_parsed_wait_is_at_most_an_hour_for_any_text(text in ".{0,40}") {
            prop_assert!(edge_wait([text.as_str()], ACCEPT).is_none_or(|wait| wait <= MAX_WAIT));
        }
    }
}
