//! Formats the tables of the report as text cells, for both the terminal output and the HTML page.

use crate::acceptance::{AcceptanceResult, LimitBasis, LimitResult, Verdict};
use crate::compare::{Comparison, Interval, Measure, MeasureComparison, StatisticComparison};
use crate::row::Outcome;
use crate::statistics::Summary;
use crate::table::{Cost, Statistics, Tokens};
use crate::window::Window;
use crate::{Group, Report, Run, Subject};

/// Maximum number of groups in a table. The JSON report contains all groups.
pub(super) const MAX_SHOWN_GROUPS: usize = 50;
/// Text of a cell with an undefined figure.
const NONE: &str = "–";
/// Mark of a figure of which a part is estimated.
pub(super) const ESTIMATED: &str = "≈";
/// Legend of the column headings and marks.
pub(super) const LEGEND: &str = "n: number of requests behind a figure. Times, rates and ITL (time per output token) \
                                 cover successful requests only. errors: rate among requests that were not cancelled. \
                                 ≈: includes estimates, because the provider did not report all tokens; reported: \
                                 share of the cost that was computed from reported tokens. written: input tokens \
                                 that the provider wrote to its cache; for 1h: those that it keeps for an hour. per \
                                 s and out/s: of all requests together.";

/// Cells of one row.
pub(super) type Cells = Vec<String>;

/// Returns the sentences that state which requests the figures of a run cover.
pub(super) fn coverage(run: &Run) -> Vec<String> {
    let Run { requests, window, .. } = run;
    let Window { from, to, length, counted, cut_before, cut_after, method, .. } = window;
    let totals = "Totals (requests, errors, tokens, cost, finish reasons, quality)";
    let speed = "Speed figures (TTFT, rates, ITL, duration, throughput)";
    if let Some(why) = window.not_found {
        let sentence = format!(
            "No steady state was found ({why}): all figures cover all {requests} requests."
        );
        return vec![sentence];
    }
    if cut_before + cut_after == 0 && !window.steady {
        return vec![format!("All figures cover all {requests} requests.")];
    }
    let state = if window.steady { "the steady state, " } else { "" };
    vec![
        format!("{totals} cover all {requests} requests."),
        format!(
            "{speed} cover {counted} requests that started in {state}{from} to {to} ({length:.1} s): {cut_before} \
             were cut before, {cut_after} were cut after."
        ),
        format!("By {method}."),
    ]
}

/// Returns the title and the rows of each table. The first row contains the column headings.
pub(super) fn sections(report: &Report) -> Vec<(&'static str, Vec<Cells>)> {
    type Find = fn(&Statistics) -> Option<Summary>;
    let summaries: [(&'static str, Find, f64); 4] = [
        ("Output TPS (tokens/s)", |of| of.output_tps, 1.0),
        ("Time to first token, TTFT (ms)", |of| of.ttft, 1e3),
        ("Inter-token latency, ITL (ms)", |of| of.itl, 1e3),
        ("Duration (ms)", |of| of.duration, 1e3),
    ];
    let head = [
        "requests",
        "per s",
        "errors",
        "cancelled",
        "in",
        "out",
        "reasoning",
        "cached",
        "written",
        "for 1h",
        "out/s",
        "cost",
        "reported",
    ];
    let mut sections = vec![("Requests", table(report, &head, requests))];
    for (title, of, scale) in summaries {
        let head = ["n", "mean", "p5", "p50", "p95", "p99"];
        let cells = |statistics: &Statistics, _: Option<&_>| summary(of(statistics), scale);
        sections.push((title, table(report, &head, cells)));
    }
    let head = ["n", "finish reasons", "quality"];
    sections.push(("Finish reasons and quality", table(report, &head, |of, _| shares(of))));
    sections
}

fn table(
    report: &Report,
    head: &[&str],
    cells: impl Fn(&Statistics, Option<&Subject>) -> Cells,
) -> Vec<Cells> {
    // A dimension for which no group has a value is left out.
    let has_value = |name: &&str| report.groups.iter().any(|group| group.key.contains_key(*name));
    let dimensions: Vec<&str> = report.by.iter().copied().filter(has_value).collect();
    let labels = |group: &Group| -> Cells {
        let values = dimensions.iter().map(|name| group.key.get(*name).cloned());
        values.map(|value| value.unwrap_or_else(undefined)).collect()
    };
    let first = dimensions.iter().chain(head).map(|cell| (*cell).to_owned());
    let mut rows = vec![first.collect::<Cells>()];
    // A single group has the same figures as the total and is left out.
    let groups = if report.groups.len() > 1 || report.subjects.len() > 1 {
        report.groups.as_slice()
    } else {
        &[]
    };
    for group in groups.iter().take(MAX_SHOWN_GROUPS) {
        rows.push([labels(group), cells(&group.statistics, None)].concat());
    }
    for subject in &report.subjects {
        let mut labels = match report.groups.first().filter(|_| groups.is_empty()) {
            Some(group) => labels(group),
            None => {
                let names = std::iter::once(subject.name).chain(std::iter::repeat(""));
                names.take(dimensions.len()).map(str::to_owned).collect()
            }
        };
        labels.extend(cells(&subject.statistics, Some(subject)));
        rows.push(labels);
    }
    rows
}

fn requests(of: &Statistics, subject: Option<&Subject>) -> Cells {
    let Tokens {
        generated,
        input,
        input_estimated,
        output: _,
        output_estimated,
        reasoning,
        cached,
        cache_written,
        cache_written_1h,
    } = of.tokens;
    let throughput = subject.and_then(|subject| subject.throughput);
    let count =
        |tokens: Option<f64>| tokens.map_or_else(undefined, |tokens| format!("{tokens:.0}"));
    let all_input = input.into_iter().chain(input_estimated).reduce(|a, b| a + b);
    let cost = |(currency, cost): (&String, &Cost)| {
        let mark = mark(cost.reported < cost.total);
        format!("{mark}{:.*} {currency}", decimals(cost.total), cost.total)
    };
    let costs: Vec<String> = of.cost.iter().map(cost).collect();
    let shares: Vec<String> =
        of.cost.values().map(|cost| cost.reported_share.map_or_else(undefined, percent)).collect();
    let join = |cells: Vec<String>| if cells.is_empty() { undefined() } else { cells.join(" + ") };
    vec![
        of.requests.to_string(),
        optional(throughput.map(|throughput| throughput.requests)),
        of.error_rate.map_or_else(undefined, percent),
        of.outcomes.get(Outcome::Cancelled.as_str()).copied().unwrap_or_default().to_string(),
        mark(input_estimated.is_some()).to_owned() + &count(all_input),
        mark(output_estimated.is_some()).to_owned() + &count(generated),
        count(reasoning),
        count(cached),
        count(cache_written),
        count(cache_written_1h),
        optional(throughput.and_then(|throughput| throughput.output_tokens)),
        join(costs),
        join(shares),
    ]
}

/// Returns the number of decimals with which an amount is shown: four, and more for an amount below 0.01.
const fn decimals(amount: f64) -> usize {
    match amount {
        0.01.. | 0.0 => 4,
        1e-4.. => 6,
        _ => 8,
    }
}

/// Returns the mark of a figure of which a part is estimated.
const fn mark(is_estimated: bool) -> &'static str {
    if is_estimated { ESTIMATED } else { "" }
}

fn summary(summary: Option<Summary>, scale: f64) -> Cells {
    let Some(Summary { n, mean, p5, p50, p95, p99 }) = summary else {
        return [&["0"], [NONE; 5].as_slice()].concat().into_iter().map(str::to_owned).collect();
    };
    let figures = [mean, p5, p50, p95, p99].map(|value| number(value * scale));
    std::iter::once(n.to_string()).chain(figures).collect()
}

fn shares(of: &Statistics) -> Cells {
    let format_shares = |shares: Option<&crate::table::Shares>| {
        shares.map_or_else(undefined, |shares| {
            let above = shares.shares.iter().filter(|(_, share)| **share > 0.0);
            let above = above.map(|(name, share)| format!("{name} {}", percent(*share)));
            above.collect::<Vec<_>>().join(", ")
        })
    };
    let n = of.finish.as_ref().map_or(0, |shares| shares.n);
    vec![n.to_string(), format_shares(of.finish.as_ref()), format_shares(of.quality.as_ref())]
}

/// Returns the rows of the comparison table. The first row contains the column headings.
pub(super) fn comparison_rows(comparison: &Comparison) -> Vec<Cells> {
    let head = ["measure", "", "n A", "n B", "A", "B", "B − A", "interval", "change", "interval"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for measure in &comparison.measures {
        rows.extend(measure.statistics.iter().map(|row| comparison_row(measure, row)));
    }
    rows
}

fn comparison_row(of: &MeasureComparison, row: &StatisticComparison) -> Cells {
    let value = |value: f64| figure(&of.id, value);
    let (change, within) = match row.change {
        Some(change) => (signed_percent(change.value), format_interval(change, signed_percent)),
        None => (undefined(), undefined()),
    };
    vec![
        of.measure.clone(),
        row.statistic.as_str().to_owned(),
        of.n_a.to_string(),
        of.n_b.to_string(),
        value(row.a),
        value(row.b),
        value(row.difference.value),
        format_interval(row.difference, value),
        change,
        within,
    ]
}

fn format_interval(interval: Interval, show: impl Fn(f64) -> String) -> String {
    format!("{} … {}", show(interval.low), show(interval.high))
}

/// Returns the rows of the table of acceptance limits. The first row contains the column headings.
pub(super) fn verdict_rows(judgement: &AcceptanceResult) -> Vec<Cells> {
    let head = ["limit", "at", "found", "interval", "verdict", ""];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(judgement.verdicts.iter().map(verdict));
    rows
}

fn verdict(of: &LimitResult) -> Cells {
    let show = |value: f64| match of.on {
        LimitBasis::Change => signed_percent(value),
        LimitBasis::Value | LimitBasis::Difference => number(value),
    };
    let broken = if of.verdict == Verdict::Broken { "!" } else { "" };
    vec![
        of.limit.clone(),
        show(of.value),
        of.found.map_or_else(undefined, show),
        of.interval.map_or_else(undefined, |interval| format_interval(interval, show)),
        format!("{}{broken}", of.verdict.as_str()),
        of.why.unwrap_or_default().to_owned(),
    ]
}

fn undefined() -> String {
    NONE.to_owned()
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(undefined, number)
}

/// Formats a number with four significant digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        size if size >= 1.0 => format!("{value:.3}"),
        size if size < 1e-12 => "0".to_owned(),
        size if size >= 0.001 => format!("{value:.4}"),
        _ => format!("{value:.2e}"),
    }
}

pub(super) fn percent(share: f64) -> String {
    format!("{}%", number(share * 100.0))
}

fn signed_percent(share: f64) -> String {
    format!("{:+.2}%", share * 100.0)
}

/// Formats a figure in its customary unit.
fn figure(of: &Measure, value: f64) -> String {
    match of {
        Measure::OutputTps | Measure::Cost(_) => number(value),
        Measure::Ttft | Measure::Itl | Measure::Duration => format!("{} ms", number(value * 1e3)),
        Measure::ErrorRate | Measure::Quality(_) | Measure::Finish(_) => percent(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_four_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (12_345.6, "12346"),
            (123.45, "123.5"),
            (12.345, "12.35"),
            (1.2345, "1.234"),
            (0.012_345, "0.0123"),
            (0.000_012_345, "1.23e-5"),
            (-2.5, "-2.500"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(signed_percent(-0.05), "-5.00%");
    }
}
