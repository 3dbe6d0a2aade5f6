//! Renders the report as text for a terminal.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

use crate::acceptance::AcceptanceResult;
use crate::cells::{
    Cells, ESTIMATED, LEGEND, MAX_SHOWN_GROUPS, comparison_rows, coverage, number, percent,
    sections, verdict_rows,
};
use crate::compare::{Comparison, MeasureComparison};
use crate::read::Input;
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
        write_acceptance(&mut out, judgement);
    }
    out
}

fn head(out: &mut String, report: &Report) {
    let Report { tokengauge, configuration, seed, inputs, lines, .. } = report;
    let configuration = configuration.join(", ");
    *out += &format!("tokengauge {tokengauge}   configuration: {configuration}   seed: {seed}\n");
    for Input { path, side, bytes, sha256, .. } in inputs {
        let side = side.map_or(String::new(), |side| format!("{side}: "));
        *out += &format!("{side}{path}   {bytes} bytes   sha256:{sha256}\n");
    }
    *out += &format!("{} lines, {} calls\n", lines.read, lines.calls);
    if let Some(note) = report.period_note() {
        *out += &format!("{note}\n");
    }
    for warning in report.warnings() {
        *out += &format!("{warning}\n");
    }
}

fn run(out: &mut String, run: &Run) {
    let Run { side, from, to, requests, window: _, saturation } = run;
    let name = side.map_or(String::new(), |side| format!(" {side}"));
    *out += &format!("\nRun{name}: {from} to {to}, {requests} requests\n");
    for sentence in coverage(run) {
        *out += &format!("{sentence}\n");
    }
    *out += &match (saturation.saturation_point, saturation.no_saturation_point) {
        (Some(point), _) => format!(
            "Saturation point: {:.1} requests in flight, {} output tokens/s ({})\n",
            point.concurrency,
            number(point.throughput),
            saturation.method
        ),
        (None, Some(why)) => format!("No saturation point: {}\n", why.as_str()),
        (None, None) => String::new(),
    };
}

fn tables(out: &mut String, report: &Report) {
    for (title, rows) in sections(report) {
        *out += &format!("\n{title}\n");
        aligned(out, &rows);
    }
    let hidden = report.groups.len().saturating_sub(MAX_SHOWN_GROUPS);
    if hidden > 0 {
        *out += &format!("{hidden} more groups; use --format csv or json to list all\n");
    }
    *out += &format!("{}\nPercentiles: {}\n", LEGEND.replace(". ", ".\n"), report.percentiles);
}

fn compared(out: &mut String, comparison: &Comparison) {
    let Comparison { a, b, method, confidence, resamples, seed, measures } = comparison;
    let confidence = percent(*confidence);
    *out += &format!(
        "\nB ({b}) against A ({a})\n  {method}; {confidence} confidence, {resamples} resamples, seed {seed}\n"
    );
    aligned(out, &comparison_rows(comparison));
    for MeasureComparison { measure, left_out_a, left_out_b, .. } in measures {
        if left_out_a + left_out_b > 0 {
            *out += &format!(
                "  {measure}: left out {left_out_a} of A and {left_out_b} of B without requests of the same length on \
                 the other side\n"
            );
        }
    }
    if measures.is_empty() {
        *out += "  nothing to compare: no length bucket has five requests on both sides\n";
    }
}

fn write_acceptance(out: &mut String, judgement: &AcceptanceResult) {
    let AcceptanceResult { accepted, sha256, fewest_requests, .. } = judgement;
    *out += &format!("\nLimits (sha256:{sha256}), on at least {fewest_requests} requests\n");
    aligned(out, &verdict_rows(judgement));
    *out += if *accepted { "ACCEPTED\n" } else { "REFUSED\n" };
}

/// Writes rows with aligned columns. Numbers are aligned to the right, together with their heading.
fn aligned(out: &mut String, rows: &[Cells]) {
    let mut table = Table::new();
    table.load_style(NOTHING).add_rows(rows);
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((2, 0));
        if is_numeric(rows.iter().skip(1).filter_map(|row| row.get(place))) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    *out += &format!("{}\n", table.trim_fmt());
}

/// Returns whether a column has cells below its heading, and all of them are numbers or empty.
fn is_numeric<'c>(cells: impl Iterator<Item = &'c String>) -> bool {
    let first = cells.map(|cell| cell.trim_start_matches(ESTIMATED).chars().next());
    let mut first = first.peekable();
    let number = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '–');
    first.peek().is_some() && first.all(|c| c.is_none_or(number))
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
