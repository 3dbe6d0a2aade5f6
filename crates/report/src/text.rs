//! Renders the report as text for a terminal.

use std::fmt::Write;

use crate::acceptance::AcceptanceResult;
use crate::cells::{
    Cells, MAX_SHOWN_GROUPS, comparison_rows, number, percent, sections, verdict_rows,
    visible_dimensions,
};
use crate::compare::Comparison;
use crate::{Report, Run};

/// Renders the text that `tokengauge report` prints.
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

/// Appends a formatted line. The result of `writeln!` is ignored, because writing to a string cannot fail.
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
    match (saturation.saturation_point, saturation.no_saturation_point) {
        (Some(point), _) => line!(
            out,
            "Saturation point: {:.1} requests in flight, {} output tokens/s ({})",
            point.concurrency,
            number(point.throughput),
            saturation.method
        ),
        (None, Some(why)) => {
            line!(out, "No saturation point: {}", why.as_str())
        }
        (None, None) => {}
    }
}

fn tables(out: &mut String, report: &Report) {
    let visible_dimensions = visible_dimensions(report);
    for (title, rows) in sections(report, &visible_dimensions) {
        line!(out);
        line!(out, "{title}");
        aligned(out, &rows);
    }
    if report.groups.len() > MAX_SHOWN_GROUPS {
        line!(
            out,
            "{} more groups; use --format json to list all",
            report.groups.len() - MAX_SHOWN_GROUPS
        );
    }
    line!(
        out,
        "n: number of requests behind a figure. Times, rates and ITL (time per output token) cover successful requests only."
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
    aligned(out, &comparison_rows(comparison));
    for measure in &comparison.measures {
        if measure.left_out_a + measure.left_out_b > 0 {
            line!(
                out,
                "  {}: left out {} of A and {} of B without requests of the same length on the other side",
                measure.measure,
                measure.left_out_a,
                measure.left_out_b
            );
        }
    }
    if comparison.measures.is_empty() {
        line!(out, "  nothing to compare: no length bucket has five requests on both sides");
    }
}

fn judged(out: &mut String, judgement: &AcceptanceResult) {
    line!(out);
    line!(
        out,
        "Limits (sha256:{}), on at least {} requests",
        judgement.sha256,
        judgement.fewest_requests
    );
    aligned(out, &verdict_rows(judgement));
    line!(out, "{}", if judgement.accepted { "ACCEPTED" } else { "REFUSED" });
}

/// Writes rows with aligned columns. A column of numbers is right-aligned, including its heading.
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

/// Returns the width of a column, and whether all cells below the heading are numbers.
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
    fn aligns_columns_and_numbers() {
        let rows = [["name", "n"], ["a", "5"], ["long name", "1000"]]
            .map(|row| row.map(str::to_owned).to_vec());
        let mut out = String::new();
        aligned(&mut out, &rows);
        assert_eq!(out, "  name          n\n  a             5\n  long name  1000\n");
    }
}
