//! How long a request was on its way before it reached this proxy, by what a proxy before it wrote down.
//!
//! `X-Request-Start` and `X-Queue-Start` say when the request was received there. No standard says how; in use are
//! seconds, milliseconds, microseconds and nanoseconds since 1970, with or without a fraction, and with or without `t=`
//! before them: nginx writes `t=1512379167.574`, Apache `t=1512379167574000`, Heroku `1512379167574`. Which unit it is,
//! the magnitude tells: between any two of them lies a factor of 1,000.

use std::time::Duration;

use tokengauge_types::clock::WallTime;

/// Older than this is a clock that is wrong, or a client that made it up: no load balancer holds a request for so long.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Below it a number counts seconds: until the year 5138.
const SECONDS_BELOW: f64 = 1e11;

/// accept − the earliest of `starts` that can be one; `None` where none can.
///
/// The earliest, because each proxy on the way may have written its own. A start after `accept` is none: two clocks
/// disagree there by nobody knows how much, and that is not 0.
pub fn edge_wait<'a>(
    starts: impl IntoIterator<Item = &'a str>,
    accept: WallTime,
) -> Option<Duration> {
    let accept = Duration::from_nanos(accept.unix_nanos());
    let waited = |text| accept.checked_sub(start(text)?);
    let waits = starts.into_iter().filter_map(waited);
    waits.filter(|wait| *wait <= LONGEST).max()
}

/// Since 1970.
fn start(text: &str) -> Option<Duration> {
    let text = text.trim();
    let number = text.strip_prefix("t=").unwrap_or(text);
    // Neither a sign nor an exponent, nor any of the words that are numbers to a computer.
    if !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    let number: f64 = number.parse().ok()?;
    let units = [1.0, 1e3, 1e6, 1e9];
    let per_second = units.into_iter().find(|unit| number < SECONDS_BELOW * unit)?;
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
        // What a 64-bit float resolves of such a number.
        Some((wait + Duration::from_micros(1)).as_micros() / 10 * 10)
    }

    #[test]
    fn every_spelling_in_use_is_the_same_instant() {
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
    fn what_cannot_be_is_not_recorded_and_never_0() {
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
            // A moment later, a year later, an hour and a bit earlier, 1970.
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
    fn of_several_the_earliest_that_can_be_counts() {
        let (early, late) = ("t=1512379166.5", "1512379167500");
        assert_eq!(waited(&[early, late]), Some(1_500_000));
        assert_eq!(waited(&[late, early]), Some(1_500_000));
        assert_eq!(waited(&["0", late]), Some(500_000));
        assert_eq!(waited(&[]), None);
    }

    proptest! {
        #[test]
        fn any_start_within_the_hour_is_read_back_in_every_unit(ago in 0_u64..3_600_000, at in 1_000_000_000_u64..4_000_000_000) {
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
        fn whatever_it_says_it_is_at_most_an_hour(text in ".{0,40}") {
            prop_assert!(edge_wait([text.as_str()], ACCEPT).is_none_or(|wait| wait <= LONGEST));
        }
    }
}
