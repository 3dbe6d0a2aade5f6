//! The report as text for a terminal.

use std::fmt::Write;

use crate::accept::Judgement;
use crate::cells::{Cells, SHOWN, contrasts, number, percent, sections, shown, verdicts};
use crate::compare::Comparison;
use crate::{Report, Run};

/// What `tokengauge report` prints.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    head(&mut out, report);
    for run in &report.runs {
        self::run(&mut out, run);
    }
    tables(&mut out, report);
    if let Some(comparison) = &report.comparison {
        compared(&mut out, comparison);
    }
    if let Some(judgement) = &report.acceptance {
        judged(&mut out, judgement);
    }
    out
}

/// Writing to a string cannot fail.
macro_rules! line {
    ($out:expr $(, $($arg:tt)*)?) => {
        { let _ok = writeln!($out $(, $($arg)*)?); }
    };
}

fn head(out: &mut String, report: &Report) {
    line!(
        out,
        "tokengauge {}   configuration: {}   seed: {}",
        report.tokengauge,
        report.configuration.join(", "),
        report.seed
    );
    for input in &report.inputs {
        let side = input.side.map_or(String::new(), |side| format!("{side}: "));
        line!(out, "{side}{}   {} bytes   sha256:{}", input.path, input.bytes, input.sha256);
    }
    line!(out, "{} lines, {} calls", report.lines.read, report.lines.calls);
    for warning in report.warnings() {
        line!(out, "{warning}");
    }
}

fn run(out: &mut String, run: &Run) {
    let window = &run.window;
    let name = run.side.map_or(String::new(), |side| format!(" {side}"));
    line!(out);
    line!(out, "Run{name}: {} to {}, {} requests", run.from, run.to, run.requests);
    match window.not_found {
        Some(why) => line!(out, "No steady state was found ({why}): all requests are used"),
        None if window.steady => {
            line!(out, "Steady state: {} to {} ({:.1} s)", window.from, window.to, window.length)
        }
        None => line!(out, "Evaluated: {} to {} ({:.1} s)", window.from, window.to, window.length),
    }
    line!(
        out,
        "  {} requests counted, {} cut before, {} cut after",
        window.counted,
        window.cut_before,
        window.cut_after
    );
    line!(out, "  by {}", window.method);
    let saturation = &run.saturation;
    match (saturation.knee, saturation.no_knee) {
        (Some(knee), _) => line!(
            out,
            "Knee: {:.1} requests in flight, {} output tokens/s ({})",
            knee.concurrency,
            number(knee.throughput),
            saturation.method
        ),
        (None, Some(why)) => {
            line!(out, "No knee of throughput against concurrency: {}", why.as_str())
        }
        (None, None) => {}
    }
}

fn tables(out: &mut String, report: &Report) {
    let shown = shown(report);
    for (title, rows) in sections(report, &shown) {
        line!(out);
        line!(out, "{title}");
        aligned(out, &rows);
    }
    if report.groups.len() > SHOWN {
        line!(out, "{} more groups: --format json has all of them", report.groups.len() - SHOWN);
    }
    line!(
        out,
        "n: requests that a figure rests on. Times, rates and ITL (time per output token) are of requests that ended well."
    );
    line!(out, "Percentiles: {}", report.percentiles);
}

fn compared(out: &mut String, comparison: &Comparison) {
    line!(out);
    line!(out, "B ({}) against A ({})", comparison.b, comparison.a);
    line!(
        out,
        "  {}; {} confidence, {} resamples, seed {}",
        comparison.method,
        percent(comparison.confidence),
        comparison.resamples,
        comparison.seed
    );
    aligned(out, &contrasts(comparison));
    for measure in &comparison.measures {
        if measure.left_out_a + measure.left_out_b > 0 {
            line!(
                out,
                "  {}: {} of A and {} of B are in bands that the other side lacks, left out",
                measure.measure,
                measure.left_out_a,
                measure.left_out_b
            );
        }
    }
    if comparison.measures.is_empty() {
        line!(out, "  nothing can be compared: no length band has five requests on both sides");
    }
}

fn judged(out: &mut String, judgement: &Judgement) {
    line!(out);
    line!(
        out,
        "Limits (sha256:{}), on at least {} requests",
        judgement.sha256,
        judgement.fewest_requests
    );
    aligned(out, &verdicts(judgement));
    line!(out, "{}", if judgement.accepted { "ACCEPTED" } else { "REFUSED" });
}

/// Columns as wide as they must be; those of numbers to the right, their heads too.
fn aligned(out: &mut String, rows: &[Cells]) {
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    let columns: Vec<(usize, bool)> =
        (0..count).map(|place| column(rows.iter().filter_map(|row| row.get(place)))).collect();
    for row in rows {
        let mut text = String::new();
        for (cell, (width, numeric)) in row.iter().zip(&columns) {
            let _ok = if *numeric {
                write!(text, "  {cell:>width$}")
            } else {
                write!(text, "  {cell:<width$}")
            };
        }
        line!(out, "{}", text.trim_end());
    }
}

/// How wide a column is, and whether all of it but its head are numbers.
fn column<'c>(cells: impl Iterator<Item = &'c String> + Clone) -> (usize, bool) {
    let width = cells.clone().map(|cell| cell.chars().count()).max();
    let number = |cell: &String| {
        let mut first = cell.chars();
        first.next().is_none_or(|c| c.is_ascii_digit() || matches!(c, '+' | '-' | '–'))
    };
    let mut values = cells.skip(1).peekable();
    let numeric = values.peek().is_some() && values.all(number);
    (width.unwrap_or_default(), numeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_numbers_to_the_right() {
        let rows = [["name", "n"], ["a", "5"], ["long name", "1000"]]
            .map(|row| row.map(str::to_owned).to_vec());
        let mut out = String::new();
        aligned(&mut out, &rows);
        assert_eq!(out, "  name          n\n  a             5\n  long name  1000\n");
    }
}
