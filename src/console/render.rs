//! A view as text: a table that fits the terminal, or plain lines.

use std::fmt::Write;
use std::time::Duration;

use crate::console::{Budget, Row, View};

/// What stands where there is no value.
const UNDEFINED: &str = "–";

/// Models shown at most, so that the view fits a screen.
const MOST_ROWS: usize = 12;

/// Objectives shown at most.
const MOST_BUDGETS: usize = 8;

/// Narrower than this, names are cut rather than columns dropped.
const NARROWEST_NAME: usize = 10;

/// The view as a table of at most `width` characters per line.
pub fn render(view: &View, width: usize, colour: bool) -> String {
    let models = Table {
        name: "MODEL",
        columns: &MODEL_COLUMNS,
        rows: view.rows.iter().take(MOST_ROWS).map(model_row).collect(),
        hidden: view.rows.len().saturating_sub(MOST_ROWS),
    };
    let objectives = Table {
        name: "OBJECTIVE",
        columns: &BUDGET_COLUMNS,
        rows: view.budgets.iter().take(MOST_BUDGETS).map(budget_row).collect(),
        hidden: view.budgets.len().saturating_sub(MOST_BUDGETS),
    };
    let totals = &view.totals;
    let mut out = String::new();
    let summary = format!(
        "all models: {} tok/s · {} in flight · {} awaiting a first token · {} finished · {} failed",
        rate(totals.output),
        totals.in_flight,
        totals.queue,
        totals.finished,
        totals.failed
    );
    line(&mut out, &clip(&summary, width));
    out.push('\n');
    models.render(width, colour, &mut out);
    if !view.budgets.is_empty() {
        out.push('\n');
        objectives.render(width, colour, &mut out);
    }
    out
}

/// The view as one line per model and objective, for a log or a pipe.
pub fn render_lines(view: &View, since_start: Duration) -> String {
    let mut out = String::new();
    let at = since_start.as_secs();
    for row in view.rows.iter().take(MOST_ROWS) {
        let text = format!(
            "t={at}s model={} tps={} peak={} tps_per_stream={} ttft_p50={} ttft_p95={} queue={} in_flight={} finished={} failed={}",
            row.model,
            rate(row.output),
            rate(row.peak),
            rate(row.per_stream),
            dense(&seconds(row.first_token_p50)),
            dense(&seconds(row.first_token_p95)),
            row.queue,
            row.in_flight,
            row.finished,
            row.failed
        );
        line(&mut out, &text);
    }
    for budget in view.budgets.iter().take(MOST_BUDGETS) {
        let text = format!(
            "t={at}s objective={} good={} bad={} budget_left={}",
            budget.objective,
            budget.good,
            budget.bad,
            dense(&percent(budget.left))
        );
        line(&mut out, &text);
    }
    out
}

/// Without spaces, so that a line splits into its words.
fn dense(text: &str) -> String {
    text.replace(' ', "")
}

/// One column: its title, its width, and how dearly it is kept when the terminal is narrow (1 longest).
struct Column {
    title: &'static str,
    width: usize,
    rank: u8,
}

const fn column(title: &'static str, width: usize, rank: u8) -> Column {
    Column { title, width, rank }
}

const MODEL_COLUMNS: [Column; 9] = [
    column("TOK/S", 8, 1),
    column("PEAK", 8, 8),
    column("PER STREAM", 11, 6),
    column("TTFT P50", 9, 2),
    column("P95", 9, 3),
    column("QUEUE", 6, 4),
    column("IN FLIGHT", 10, 5),
    column("DONE", 7, 7),
    column("FAILED", 7, 4),
];

const BUDGET_COLUMNS: [Column; 7] = [
    column("TARGET", 8, 4),
    column("GOOD", 8, 5),
    column("BAD", 7, 3),
    column("BUDGET LEFT", 12, 1),
    column("BURN 5M", 8, 2),
    column("BURN 1H", 8, 6),
    column("SPENT IN", 9, 7),
];

#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Plain,
    Warning,
    Bad,
}

struct Cells<const N: usize> {
    name: String,
    cells: [(String, Mood); N],
}

struct Table<'a, const N: usize> {
    name: &'static str,
    columns: &'a [Column; N],
    rows: Vec<Cells<N>>,
    /// Rows left out.
    hidden: usize,
}

impl<const N: usize> Table<'_, N> {
    fn render(&self, width: usize, colour: bool, out: &mut String) {
        let lowest = self.lowest_rank_that_fits(width);
        let shown = || self.columns.iter().map(|column| column.rank <= lowest);
        let taken: usize = self
            .columns
            .iter()
            .filter(|column| column.rank <= lowest)
            .map(|column| column.width)
            .sum();
        let names = self.rows.iter().map(|row| row.name.chars().count());
        let longest = names.chain([self.name.len()]).max().unwrap_or_default();
        let name_width = longest.min(width.saturating_sub(taken)).max(1);

        let mut head = pad_right(self.name, name_width);
        for (column, _) in self.columns.iter().zip(shown()).filter(|(_, shown)| *shown) {
            head.push_str(&pad_left(column.title, column.width));
        }
        line(out, &paint(&clip(&head, width), "1", colour));
        for row in &self.rows {
            let mut text = pad_right(&clip(&row.name, name_width), name_width);
            for ((column, (cell, mood)), _) in
                self.columns.iter().zip(&row.cells).zip(shown()).filter(|(_, shown)| *shown)
            {
                text.push_str(&tint(&pad_left(cell, column.width), *mood, colour));
            }
            line(out, &text);
        }
        if self.rows.is_empty() {
            line(out, "nothing yet");
        }
        if self.hidden > 0 {
            line(out, &format!("and {} more", self.hidden));
        }
    }

    fn lowest_rank_that_fits(&self, width: usize) -> u8 {
        let fits = |rank: &u8| {
            let taken = self
                .columns
                .iter()
                .filter(|column| column.rank <= *rank)
                .map(|column| column.width);
            taken.sum::<usize>() + NARROWEST_NAME <= width
        };
        (1..=9).rev().find(fits).unwrap_or(1)
    }
}

fn model_row(row: &Row) -> Cells<9> {
    let plain = |text: String| (text, Mood::Plain);
    let failed = if row.failed > 0 { Mood::Bad } else { Mood::Plain };
    Cells {
        name: row.model.clone(),
        cells: [
            plain(rate(row.output)),
            plain(rate(row.peak)),
            plain(rate(row.per_stream)),
            plain(seconds(row.first_token_p50)),
            plain(seconds(row.first_token_p95)),
            plain(row.queue.to_string()),
            plain(row.in_flight.to_string()),
            plain(row.finished.to_string()),
            (row.failed.to_string(), failed),
        ],
    }
}

fn budget_row(budget: &Budget) -> Cells<7> {
    let plain = |text: String| (text, Mood::Plain);
    let left = match budget.left {
        Some(left) if left <= 0.0 => Mood::Bad,
        Some(left) if left < 0.25 => Mood::Warning,
        Some(_) | None => Mood::Plain,
    };
    let burn = |burn: Option<f64>| {
        let mood = if burn.is_some_and(|burn| burn > 1.0) { Mood::Warning } else { Mood::Plain };
        (burn.map_or(UNDEFINED.to_owned(), |burn| format!("{burn:.1}×")), mood)
    };
    Cells {
        name: budget.objective.clone(),
        cells: [
            plain(target(budget.target)),
            plain(budget.good.to_string()),
            plain(budget.bad.to_string()),
            (percent(budget.left), left),
            burn(budget.burn_5m),
            burn(budget.burn_1h),
            plain(budget.exhaustion.map_or(UNDEFINED.to_owned(), span)),
        ],
    }
}

fn rate(per_second: Option<f64>) -> String {
    per_second.map_or(UNDEFINED.to_owned(), |rate| {
        if rate < 100.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
    })
}

/// Milliseconds below a second, else seconds.
fn seconds(seconds: Option<f64>) -> String {
    seconds.map_or(UNDEFINED.to_owned(), |seconds| {
        if seconds < 1.0 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
    })
}

fn percent(share: Option<f64>) -> String {
    share.map_or(UNDEFINED.to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// Without trailing zeros: 99 %, 99.9 %.
fn target(share: f64) -> String {
    let digits = format!("{:.3}", share * 100.0);
    format!("{} %", digits.trim_end_matches('0').trim_end_matches('.'))
}

fn span(time: Duration) -> String {
    match time.as_secs() {
        secs @ 0..120 => format!("{secs} s"),
        secs @ 120..7_200 => format!("{} min", secs / 60),
        secs @ 7_200..172_800 => format!("{} h", secs / 3_600),
        secs => format!("{} d", secs / 86_400),
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

/// At most `width` characters, the last one `…` where some are missing.
fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

fn pad_left(text: &str, width: usize) -> String {
    format!("{text:>width$}")
}

fn pad_right(text: &str, width: usize) -> String {
    format!("{text:<width$}")
}

fn tint(text: &str, mood: Mood, colour: bool) -> String {
    match mood {
        Mood::Plain => text.to_owned(),
        Mood::Warning => paint(text, "33", colour),
        Mood::Bad => paint(text, "31", colour),
    }
}

/// SGR colours; the text's own width is not touched.
fn paint(text: &str, code: &str, colour: bool) -> String {
    let mut out = String::with_capacity(text.len() + 9);
    let painted =
        if colour { write!(out, "\x1b[{code}m{text}\x1b[0m") } else { write!(out, "{text}") };
    // Writing to a String cannot fail.
    debug_assert!(painted.is_ok());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::Totals;

    fn view() -> View {
        View {
            rows: vec![
                Row {
                    model: "sim-fast".to_owned(),
                    output: Some(1_234.4),
                    peak: Some(1_600.0),
                    per_stream: Some(88.26),
                    first_token_p50: Some(0.0123),
                    first_token_p95: Some(1.5),
                    queue: 3,
                    in_flight: 14,
                    finished: 120,
                    failed: 2,
                },
                Row {
                    model: "a-model-whose-name-is-rather-long-for-a-table".to_owned(),
                    ..Row::default()
                },
            ],
            totals: Totals {
                output: Some(1_234.4),
                queue: 3,
                in_flight: 14,
                finished: 120,
                failed: 2,
            },
            budgets: vec![
                Budget {
                    objective: "availability".to_owned(),
                    target: 0.999,
                    good: 118,
                    bad: 2,
                    left: Some(-15.5),
                    burn_5m: Some(16.7),
                    burn_1h: None,
                    exhaustion: None,
                },
                Budget {
                    objective: "ttft".to_owned(),
                    target: 0.95,
                    good: 119,
                    bad: 1,
                    left: Some(0.2),
                    burn_5m: Some(0.5),
                    burn_1h: Some(0.5),
                    exhaustion: Some(Duration::from_secs(7_300)),
                },
            ],
        }
    }

    #[test]
    fn a_wide_terminal_sees_everything() {
        insta::assert_snapshot!(render(&view(), 130, false));
    }

    #[test]
    fn a_narrow_one_sees_what_matters_most() {
        insta::assert_snapshot!(render(&view(), 60, false));
    }

    #[test]
    fn a_pipe_sees_lines() {
        insta::assert_snapshot!(render_lines(&view(), Duration::from_secs(7)));
    }

    #[test]
    fn nothing_yet_is_said() {
        insta::assert_snapshot!(render(&View::default(), 80, false));
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in 30..140 {
            for line in render(&view(), width, false).lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn colours_change_nothing_but_colour() {
        let painted = render(&view(), 130, true);
        assert!(
            painted.contains("\x1b[31m")
                && painted.contains("\x1b[33m")
                && painted.contains("\x1b[1m")
        );
        let mut bare = painted;
        for code in ["\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m"] {
            bare = bare.replace(code, "");
        }
        assert_eq!(bare, render(&view(), 130, false));
    }

    #[test]
    fn undefined_is_never_zero() {
        let text = render(&View { rows: vec![Row::default()], ..View::default() }, 130, false);
        let row = text.lines().nth(3).unwrap();
        assert_eq!(row.matches(UNDEFINED).count(), 5, "{row}");
    }
}
