//! Formats numbers with their units. An undefined value is `–`.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Text for an undefined value.
pub const UNDEFINED: &str = "–";

fn or_undefined<T>(value: Option<T>, format: impl Fn(T) -> String) -> String {
    value.map_or(UNDEFINED.to_owned(), format)
}

/// Formats a rate with one digit below 100.
pub fn rate(per_second: Option<f64>) -> String {
    or_undefined(per_second, |rate| match rate {
        rate if rate < 100.0 => format!("{rate:.1}"),
        rate if rate < 10_000.0 => format!("{rate:.0}"),
        rate => format!("{:.1} k", rate / 1e3),
    })
}

/// Formats a time: in milliseconds below one second, in seconds up to two minutes, and in larger units above.
pub fn seconds(seconds: Option<f64>) -> String {
    or_undefined(seconds, |seconds| match seconds {
        seconds if seconds < 0.009_95 => format!("{:.1} ms", seconds * 1e3),
        seconds if seconds < 0.9995 => format!("{:.0} ms", seconds * 1e3),
        seconds if seconds < 99.5 => format!("{seconds:.1} s"),
        seconds => span(seconds),
    })
}

/// Formats a length of time in whole units: `42 s`, `12 min`, `3 h`, `30 d`.
pub fn span(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7_200.0 => format!("{:.0} min", (seconds / 60.0).floor()),
        seconds if seconds < 172_800.0 => format!("{:.0} h", (seconds / 3_600.0).floor()),
        seconds => format!("{:.0} d", (seconds / 86_400.0).floor()),
    }
}

pub fn percent(share: Option<f64>) -> String {
    or_undefined(share, |share| format!("{:.1} %", share * 100.0))
}

/// Formats a target in percent without trailing zeros: 99 %, 99.9 %.
pub fn target(share: Option<f64>) -> String {
    or_undefined(share, |share| {
        let digits = format!("{:.3}", share * 100.0);
        format!("{} %", digits.trim_end_matches('0').trim_end_matches('.'))
    })
}

/// Formats a number of tokens or requests.
pub fn count(count: Option<u64>) -> String {
    or_undefined(count, |count| match count {
        0..100_000 => count.to_string(),
        100_000..10_000_000 => format!("{} k", count / 1_000),
        _ => format!("{} M", count / 1_000_000),
    })
}

pub fn times(factor: Option<f64>) -> String {
    or_undefined(factor, |factor| {
        if factor < 100.0 { format!("{factor:.1} ×") } else { format!("{factor:.0} ×") }
    })
}

/// Formats an amount of money with at least three significant digits.
pub fn amount(amount: f64) -> String {
    match amount.abs() {
        size if size >= 0.995 || size == 0.0 => format!("{amount:.2}"),
        size if size >= 0.01 => format!("{amount:.3}"),
        _ => format!("{amount:.5}"),
    }
}

/// Formats the time of day of a Unix time in UTC.
pub fn clock(unix_ms: u64) -> String {
    let seconds = unix_ms / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Formats the start of a state and its length so far: `07:25:10 UTC (12 min)`.
pub fn since(since_unix_ms: Option<u64>, now_unix_ms: u64) -> String {
    or_undefined(since_unix_ms, |since| {
        let seconds = now_unix_ms.saturating_sub(since) as f64 / 1e3;
        format!("{} UTC ({})", clock(since), span(seconds))
    })
}

/// Returns the width of the text on the screen, in columns.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Shortens text to `columns` columns of the screen. Shortened text ends in `…`.
pub fn clip(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used >= columns {
            break;
        }
        short.push(c);
    }
    if columns > 0 {
        short.push('…');
    }
    short
}

/// Shortens or extends text to exactly `columns` columns.
pub fn pad(text: &str, columns: usize, right: bool) -> String {
    let text = clip(text, columns);
    let spaces = " ".repeat(columns.saturating_sub(width(&text)));
    if right { spaces + &text } else { text + &spaces }
}

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws values as bars of `columns` characters, scaled from 0 to the highest value. An undefined value is a space. If
/// there are more values than columns, each bar shows the highest of its values.
pub fn sparkline(values: &[Option<f64>], columns: usize) -> String {
    if values.is_empty() || columns == 0 {
        return String::new();
    }
    let per_column = values.len().div_ceil(columns);
    let highest = |values: &[Option<f64>]| {
        values.iter().copied().flatten().filter(|it| it.is_finite()).max_by(f64::total_cmp)
    };
    let top = highest(values).unwrap_or(0.0);
    let bar = |value: f64| {
        let part = if top > 0.0 { (value / top).clamp(0.0, 1.0) } else { 0.0 };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 7"
        )]
        let index = (part * (BARS.len() - 1) as f64).round() as usize;
        BARS.get(index).copied().unwrap_or(' ')
    };
    values.rchunks(per_column).rev().map(|values| highest(values).map_or(' ', bar)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        let times = [0.0003, 0.0123, 0.9996, 1.23, 99.4, 100.0, 750.0, 90_000.0]
            .map(|it| seconds(Some(it)));
        assert_eq!(
            times,
            ["0.3 ms", "12 ms", "1.0 s", "1.2 s", "99.4 s", "100 s", "12 min", "25 h"]
        );
        assert_eq!(
            [rate(Some(12.34)), rate(Some(1234.5)), rate(Some(45_678.0))],
            ["12.3", "1234", "45.7 k"]
        );
        assert_eq!([target(Some(0.999)), target(Some(0.85))], ["99.9 %", "85 %"]);
        assert_eq!(
            [amount(1.2), amount(0.0321), amount(0.0), amount(0.00012)],
            ["1.20", "0.032", "0.00", "0.00012"]
        );
        assert_eq!(since(Some(26_710_000), 27_430_000), "07:25:10 UTC (12 min)");
    }

    #[test]
    fn undefined_is_never_zero() {
        let texts =
            [rate(None), seconds(None), percent(None), target(None), count(None), since(None, 1)];
        assert!(texts.iter().all(|text| text == UNDEFINED), "{texts:?}");
    }

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(
            (clip("模型名", 6), clip("模型名", 5), clip("ab", 1)),
            ("模型名".into(), "模型…".into(), "…".into())
        );
        assert_eq!((pad("模", 4, false), pad("模", 4, true)), ("模  ".into(), "  模".into()));
        assert_eq!(pad("模型", 3, false), "模…");
    }

    #[test]
    fn a_sparkline_shows_gaps_and_peaks() {
        let values = [None, Some(0.0), Some(1.0), Some(4.0), None, Some(8.0)];
        assert_eq!(sparkline(&values, 6), " ▁▂▅ █");
        assert_eq!(sparkline(&values, 3), "▁▅█");
        assert_eq!(sparkline(&[Some(0.0)], 3), "▁");
    }
}
