//! Renders the live view as a table that fits the terminal, or as plain lines for a log or a pipe.

use std::io::{self, Write};
use std::time::Duration;

use crate::console::{Budget, Row, View};

/// Text for an undefined value.
const UNDEFINED: &str = "–";

/// Maximum number of models in the table, so that the table fits a screen.
const MAX_ROWS: usize = 12;

/// Maximum number of SLOs in the table, so that the table fits a screen.
const MAX_BUDGETS: usize = 8;

/// Minimum width of the name column. A narrow terminal shows fewer other columns instead of a shorter name.
const MIN_NAME_WIDTH: usize = 10;

/// Renders the view as a table of at most `width` characters per line.
pub fn render(view: &View, width: usize, colour: bool) -> String {
    let models = Table {
        name: "MODEL",
        columns: &MODEL_COLUMNS,
        rows: view.rows.iter().take(MAX_ROWS).map(model_row).collect(),
        hidden: view.rows.len().saturating_sub(MAX_ROWS),
    };
    let objectives = Table {
        name: "OBJECTIVE",
        columns: &BUDGET_COLUMNS,
        rows: view.budgets.iter().take(MAX_BUDGETS).map(budget_row).collect(),
        hidden: view.budgets.len().saturating_sub(MAX_BUDGETS),
    };
    let totals = &view.totals;
    let mut out = String::new();
    let summary = format!(
        "all models: {} tok/s · {} in flight · {} waiting for the first token · {} finished · {} failed",
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

/// Renders the view for a log or a pipe: one line per model and one per SLO.
pub fn render_lines(view: &View, since_start: Duration) -> String {
    let mut out = String::new();
    let at = since_start.as_secs();
    for row in view.rows.iter().take(MAX_ROWS) {
        let text = format!(
            "t={at}s model={} tps={} peak={} tps_per_stream={} ttft_p50={} ttft_p95={} queue={} in_flight={} finished={} failed={}",
            row.model,
            rate(row.output),
            rate(row.peak),
            rate(row.per_stream),
            without_spaces(&seconds(row.first_token_p50)),
            without_spaces(&seconds(row.first_token_p95)),
            row.queue,
            row.in_flight,
            row.finished,
            row.failed
        );
        line(&mut out, &text);
    }
    for budget in view.budgets.iter().take(MAX_BUDGETS) {
        let text = format!(
            "t={at}s objective={} good={} bad={} budget_left={}",
            budget.objective,
            budget.good,
            budget.bad,
            without_spaces(&percent(budget.remaining))
        );
        line(&mut out, &text);
    }
    out
}

/// Removes spaces from a name, so that scripts can split the output line at spaces.
fn without_spaces(text: &str) -> String {
    text.replace(' ', "")
}

/// A column of the table. If the terminal is too narrow, the columns with the highest ranks are left out first.
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
    column("EXHAUSTED IN", 13, 7),
];

#[derive(Clone, Copy)]
enum Tint {
    Plain,
    Bold,
    Warning,
    Bad,
}

impl Tint {
    /// Adds the terminal's colour codes (SGR). They do not change the visible width of the text.
    fn paint(self, text: &str, colour: bool) -> String {
        let code = match self {
            Self::Bold => "1",
            Self::Warning => "33",
            Self::Bad => "31",
            Self::Plain => return text.to_owned(),
        };
        if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn plain(text: &impl ToString) -> (String, Tint) {
    (text.to_string(), Tint::Plain)
}

struct Cells<const N: usize> {
    name: String,
    cells: [(String, Tint); N],
}

struct Table<'a, const N: usize> {
    name: &'static str,
    columns: &'a [Column; N],
    rows: Vec<Cells<N>>,
    /// Number of rows that are not shown.
    hidden: usize,
}

impl<const N: usize> Table<'_, N> {
    fn render(&self, width: usize, colour: bool, out: &mut String) {
        let fits = |rank: &u8| self.width_up_to(*rank) + MIN_NAME_WIDTH <= width;
        let lowest = (1..=9).rev().find(fits).unwrap_or(1);
        let is_shown = |column: &Column| column.rank <= lowest;
        let names = self.rows.iter().map(|row| row.name.chars().count());
        let longest = names.chain([self.name.len()]).max().unwrap_or_default();
        let name_width = longest.min(width.saturating_sub(self.width_up_to(lowest))).max(1);

        let mut head = format!("{:<name_width$}", self.name);
        for Column { title, width, .. } in self.columns.iter().filter(|column| is_shown(column)) {
            head.push_str(&format!("{title:>width$}"));
        }
        line(out, &Tint::Bold.paint(&clip(&head, width), colour));
        for row in &self.rows {
            let mut text = format!("{:<name_width$}", clip(&row.name, name_width));
            let cells = self.columns.iter().zip(&row.cells);
            for (Column { width, .. }, (cell, tint)) in cells.filter(|(column, _)| is_shown(column))
            {
                text.push_str(&tint.paint(&format!("{cell:>width$}"), colour));
            }
            line(out, &text);
        }
        if self.rows.is_empty() {
            line(out, "no data yet");
        }
        if self.hidden > 0 {
            line(out, &format!("and {} more", self.hidden));
        }
    }

    /// Returns the total width of the columns whose rank is at most `rank`.
    fn width_up_to(&self, rank: u8) -> usize {
        let shown = self.columns.iter().filter(|column| column.rank <= rank);
        shown.map(|column| column.width).sum()
    }
}

fn model_row(row: &Row) -> Cells<9> {
    let failed = if row.failed > 0 { Tint::Bad } else { Tint::Plain };
    Cells {
        name: row.model.clone(),
        cells: [
            plain(&rate(row.output)),
            plain(&rate(row.peak)),
            plain(&rate(row.per_stream)),
            plain(&seconds(row.first_token_p50)),
            plain(&seconds(row.first_token_p95)),
            plain(&row.queue),
            plain(&row.in_flight),
            plain(&row.finished),
            (row.failed.to_string(), failed),
        ],
    }
}

fn budget_row(budget: &Budget) -> Cells<7> {
    let left = match budget.remaining {
        Some(left) if left <= 0.0 => Tint::Bad,
        Some(left) if left < 0.25 => Tint::Warning,
        Some(_) | None => Tint::Plain,
    };
    let burn = |burn: Option<f64>| {
        let tint_of_cell =
            if burn.is_some_and(|burn| burn > 1.0) { Tint::Warning } else { Tint::Plain };
        (burn.map_or(UNDEFINED.to_owned(), |burn| format!("{burn:.1}×")), tint_of_cell)
    };
    Cells {
        name: budget.objective.clone(),
        cells: [
            plain(&target(budget.target)),
            plain(&budget.good),
            plain(&budget.bad),
            (percent(budget.remaining), left),
            burn(budget.burn_5m),
            burn(budget.burn_1h),
            plain(&budget.exhaustion.map_or(UNDEFINED.to_owned(), span)),
        ],
    }
}

fn rate(per_second: Option<f64>) -> String {
    per_second.map_or(UNDEFINED.to_owned(), |rate| {
        if rate < 100.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
    })
}

/// Formats a time: in milliseconds below one second, and in seconds above.
fn seconds(seconds: Option<f64>) -> String {
    seconds.map_or(UNDEFINED.to_owned(), |seconds| {
        if seconds < 1.0 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
    })
}

fn percent(share: Option<f64>) -> String {
    share.map_or(UNDEFINED.to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// Formats a target in percent without trailing zeros: 99 %, 99.9 %.
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

/// Truncates text to `width` characters. Truncated text ends in `…`.
fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// A part of the terminal that is drawn again in the same place.
#[derive(Debug, Default)]
pub struct Screen {
    /// Number of lines in the previous drawing.
    lines: usize,
}

impl Screen {
    /// Replaces the previous drawing with `text`. Writes only once, to avoid flicker.
    ///
    /// # Errors
    /// Returns an error if `out` is not writable.
    pub fn draw(&mut self, text: &str, out: &mut impl Write) -> io::Result<()> {
        let mut frame = String::with_capacity(text.len() + 16);
        if self.lines > 0 {
            // Moves the cursor to the first line of the previous drawing. The next code erases everything below the
            // cursor.
            frame.push_str(&format!("\x1b[{}F", self.lines));
        }
        frame.push_str("\x1b[J");
        frame.push_str(text);
        self.lines = text.lines().count();
        out.write_all(frame.as_bytes())?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            totals: Row {
                output: Some(1_234.4),
                queue: 3,
                in_flight: 14,
                finished: 120,
                failed: 2,
                ..Row::default()
            },
            budgets: vec![
                Budget {
                    objective: "availability".to_owned(),
                    target: 0.999,
                    good: 118,
                    bad: 2,
                    remaining: Some(-15.5),
                    burn_5m: Some(16.7),
                    burn_1h: None,
                    exhaustion: None,
                },
                Budget {
                    objective: "ttft".to_owned(),
                    target: 0.95,
                    good: 119,
                    bad: 1,
                    remaining: Some(0.2),
                    burn_5m: Some(0.5),
                    burn_1h: Some(0.5),
                    exhaustion: Some(Duration::from_secs(7_300)),
                },
            ],
        }
    }

    #[test]
    fn renders_all_columns_on_a_wide_terminal() {
        insta::assert_snapshot!(render(&view(), 130, false));
    }

    #[test]
    fn drops_columns_on_a_narrow_terminal() {
        insta::assert_snapshot!(render(&view(), 60, false));
    }

    #[test]
    fn renders_lines() {
        insta::assert_snapshot!(render_lines(&view(), Duration::from_secs(7)));
    }

    #[test]
    fn renders_an_empty_view() {
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
    fn colours_do_not_change_the_text() {
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

    #[test]
    fn replaces_the_previous_drawing() {
        let (mut screen, mut out) = (Screen::default(), Vec::new());
        screen.draw("one\ntwo\n", &mut out).unwrap();
        screen.draw("three\n", &mut out).unwrap();
        screen.draw("four\n", &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "\x1b[Jone\ntwo\n\x1b[2F\x1b[Jthree\n\x1b[1F\x1b[Jfour\n");
    }
}
