//! Labels of a time axis: calendar times in UTC, or the time since the start of a run.

use ::time::{Date, Month, OffsetDateTime};

use crate::time;

/// Maximum number of labels. A label such as `10-31 06:00` is up to 90 of the 900 units of a plot wide.
const MAX_TICKS: f64 = 7.0;
const MINUTE: u32 = 60;
const HOUR: u32 = 3_600;
const DAY: u32 = 86_400;
/// Distances of labels in seconds. Longer distances are months.
const STEPS: [u32; 23] = [
    1,
    2,
    5,
    10,
    15,
    30,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    3 * DAY,
    7 * DAY,
    10 * DAY,
    14 * DAY,
];
/// Distances of labels in months.
const MONTH_STEPS: [u8; 5] = [1, 2, 3, 6, 12];
/// Mean length of a month in seconds.
const MONTH_SECONDS: f64 = 365.25 / 12.0 * 86_400.0;

/// A label on an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    /// Position in seconds since the start of the axis.
    pub(super) at: f64,
    pub(super) label: String,
}

/// Returns calendar labels for an axis that starts at `from` (RFC 3339) and is `seconds` long.
pub(super) fn calendar(from: &str, seconds: f64) -> Vec<Tick> {
    let Some(start) = time::parse(from) else {
        return Vec::new();
    };
    let start = start as f64 / 1e9;
    let Some(step) = step(seconds) else {
        return months(start, seconds);
    };
    let first = (start / f64::from(step)).ceil() * f64::from(step);
    let format: fn(OffsetDateTime) -> String = match step {
        0..MINUTE => |it| format!("{:02}:{:02}:{:02}", it.hour(), it.minute(), it.second()),
        MINUTE..DAY => |it| {
            let (month, day) = (u8::from(it.month()), it.day());
            format!("{month:02}-{day:02} {:02}:{:02}", it.hour(), it.minute())
        },
        DAY.. => |it| it.date().to_string(),
    };
    let places = (0..=9_u8).map(|place| first + f64::from(place) * f64::from(step));
    let ticks = places.take_while(|at| *at <= start + seconds);
    ticks.filter_map(|at| Some(Tick { at: at - start, label: format(date_time(at)?) })).collect()
}

/// Returns labels with the time since the start of an axis of `seconds`.
pub(super) fn elapsed(seconds: f64) -> Vec<Tick> {
    let step = f64::from(step(seconds).unwrap_or(28 * DAY));
    let (unit, name) = match step {
        step if step < f64::from(MINUTE) => (1.0, "s"),
        step if step < f64::from(HOUR) => (f64::from(MINUTE), "min"),
        step if step < f64::from(DAY) => (f64::from(HOUR), "h"),
        _ => (f64::from(DAY), "d"),
    };
    let places = (0..=20_u8).map(|place| f64::from(place) * step).take_while(|at| *at <= seconds);
    places.map(|at| Tick { at, label: format!("{:.0} {name}", at / unit) }).collect()
}

/// Returns the smallest distance that gives few enough labels. Returns `None` if only months are long enough.
fn step(seconds: f64) -> Option<u32> {
    STEPS.into_iter().find(|step| seconds / f64::from(*step) <= MAX_TICKS)
}

/// Returns labels at the first day of months.
fn months(start: f64, seconds: f64) -> Vec<Tick> {
    let fits = |step: &u8| seconds / MONTH_SECONDS / f64::from(*step) <= MAX_TICKS;
    let step = MONTH_STEPS.into_iter().find(fits).unwrap_or(12);
    let (Some(first), Some(last)) = (date_time(start), date_time(start + seconds)) else {
        return Vec::new();
    };
    let months =
        (first.year()..=last.year()).flat_map(|year| (1..=12).map(move |month| (year, month)));
    let labelled = months.filter(|(_, month)| (month - 1) % step == 0);
    let tick = |(year, month): (i32, u8)| {
        let day = Date::from_calendar_date(year, Month::try_from(month).ok()?, 1).ok()?;
        let at = day.midnight().assume_utc().unix_timestamp() as f64 - start;
        let label = format!("{year}-{month:02}");
        (0.0..=seconds).contains(&at).then_some(Tick { at, label })
    };
    labelled.filter_map(tick).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
fn date_time(unix_seconds: f64) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(unix_seconds as i64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(from: &str, seconds: f64) -> Vec<String> {
        calendar(from, seconds).into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn labels_are_calendar_times() {
        let minute = labels("2026-01-01T10:00:03.500Z", 60.0);
        assert_eq!(
            minute,
            ["10:00:10", "10:00:20", "10:00:30", "10:00:40", "10:00:50", "10:01:00"]
        );
        let hours = labels("2026-10-31T20:30:00Z", 6.0 * 3_600.0);
        assert_eq!(
            hours,
            [
                "10-31 21:00",
                "10-31 22:00",
                "10-31 23:00",
                "11-01 00:00",
                "11-01 01:00",
                "11-01 02:00"
            ]
        );
        // 1,000,000 s are 11.6 days.
        let days = labels("2026-10-01T00:00:00Z", 1e6);
        assert_eq!(days.first().map(String::as_str), Some("2026-10-02"));
        assert!(days.iter().all(|label| label.starts_with("2026-10-")), "{days:?}");
        let months = labels("2026-03-15T00:00:00Z", 150.0 * 86_400.0);
        assert_eq!(months, ["2026-04", "2026-05", "2026-06", "2026-07", "2026-08"]);
        let years = labels("2020-03-15T00:00:00Z", 6.0 * 365.25 * 86_400.0);
        assert_eq!(years, ["2021-01", "2022-01", "2023-01", "2024-01", "2025-01", "2026-01"]);
    }

    #[test]
    fn labels_are_inside_the_axis_and_few() {
        for seconds in [0.001, 1.0, 59.0, 3_601.0, 86_400.0, 1e6, 4e6, 1e7, 1e8, 3e9] {
            for ticks in [calendar("2026-01-31T23:59:59.999Z", seconds), elapsed(seconds)] {
                assert!(ticks.len() <= 100, "{seconds}: {ticks:?}");
                assert!(ticks.iter().all(|tick| (0.0..=seconds).contains(&tick.at)), "{ticks:?}");
            }
        }
    }

    #[test]
    fn elapsed_times_have_a_unit() {
        let labels = |seconds| -> Vec<String> {
            elapsed(seconds).into_iter().map(|tick| tick.label).collect()
        };
        assert_eq!(labels(30.0), ["0 s", "5 s", "10 s", "15 s", "20 s", "25 s", "30 s"]);
        assert_eq!(labels(7_200.0).last().map(String::as_str), Some("120 min"));
        assert_eq!(labels(1e6).last().map(String::as_str), Some("10 d"));
    }
}
