//! Renders the groups of the report as CSV (RFC 4180), for spreadsheets and scripts.
//!
//! [The page about reports](../../../docs/how-to/reports.md) describes the columns.

use std::collections::BTreeSet;

use crate::csv_line::{row, text};
use crate::row::Outcome;
use crate::statistics::Summary;
use crate::table::{Cost, Statistics, Tokens};
use crate::{Group, Report};

type TokenSum = fn(&Tokens) -> Option<f64>;

const TOKENS: [(&str, TokenSum); 9] = [
    ("tokens_input", |of| of.input),
    ("tokens_input_estimated", |of| of.input_estimated),
    ("tokens_output", |of| of.output),
    ("tokens_output_estimated", |of| of.output_estimated),
    ("tokens_generated", |of| of.generated),
    ("tokens_reasoning", |of| of.reasoning),
    ("tokens_cached", |of| of.cached),
    ("tokens_cache_written", |of| of.cache_written),
    ("tokens_cache_written_1h", |of| of.cache_written_1h),
];

type FindSummary = fn(&Statistics) -> Option<Summary>;

const SUMMARIES: [(&str, FindSummary); 4] = [
    ("output_tps", |of| of.output_tps),
    ("ttft", |of| of.ttft),
    ("itl", |of| of.itl),
    ("duration", |of| of.duration),
];

type SummaryPart = fn(&Summary) -> f64;

const SUMMARY_PARTS: [(&str, SummaryPart); 6] = [
    ("n", |of| of.n as f64),
    ("mean", |of| of.mean),
    ("p5", |of| of.p5),
    ("p50", |of| of.p50),
    ("p95", |of| of.p95),
    ("p99", |of| of.p99),
];

/// Renders a heading and one row per group. An undefined figure is an empty cell.
pub fn render(report: &Report) -> String {
    let groups = report.groups.iter();
    let currencies: BTreeSet<&str> =
        groups.clone().flat_map(|group| group.statistics.cost.keys().map(String::as_str)).collect();
    let mut out = row(&heading(report, &currencies));
    for group in groups {
        out += &row(&cells(report, group, &currencies));
    }
    out
}

fn heading(report: &Report, currencies: &BTreeSet<&str>) -> Vec<String> {
    let mut names: Vec<String> = report.by.iter().map(|name| (*name).to_owned()).collect();
    names.extend(["requests", "operations"].map(str::to_owned));
    names.extend(Outcome::ALL.map(|outcome| outcome.as_str().to_owned()));
    names.push("error_rate".to_owned());
    names.extend(TOKENS.map(|(name, _)| name.to_owned()));
    for currency in currencies {
        let currency = text(currency);
        names.extend([format!("cost_{currency}"), format!("cost_reported_{currency}")]);
    }
    for (summary, _) in SUMMARIES {
        names.extend(SUMMARY_PARTS.map(|(part, _)| format!("{summary}_{part}")));
    }
    names
}

fn cells(report: &Report, group: &Group, currencies: &BTreeSet<&str>) -> Vec<String> {
    let of = &group.statistics;
    let mut cells: Vec<String> = report
        .by
        .iter()
        .map(|name| group.key.get(name).map_or_else(String::new, |it| text(it)))
        .collect();
    cells.push(of.requests.to_string());
    cells.push(of.operations.map_or_else(String::new, |it| it.to_string()));
    let outcome = |outcome: Outcome| of.outcomes.get(outcome.as_str()).copied().unwrap_or_default();
    cells.extend(Outcome::ALL.map(|it| outcome(it).to_string()));
    cells.push(number(of.error_rate));
    cells.extend(TOKENS.map(|(_, tokens)| number(tokens(&of.tokens))));
    for currency in currencies {
        let cost = of.cost.get(*currency);
        let parts: [fn(&Cost) -> f64; 2] = [|cost| cost.total, |cost| cost.reported];
        cells.extend(parts.map(|part| number(cost.map(part))));
    }
    for (_, summary) in SUMMARIES {
        let summary = summary(of);
        cells.extend(SUMMARY_PARTS.map(|(_, part)| number(summary.as_ref().map(part))));
    }
    cells
}

/// Formats a number with all its digits.
fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}
