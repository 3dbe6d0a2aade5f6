//! The view SLOs: error budgets, burn rates, and what consumed the budget.

use super::Context;
use super::canvas::{Canvas, Piece, Tone, plain};
use super::models::name;
use super::table::{self, Column, Key, Width};
use crate::format::{UNDEFINED, count, percent, seconds, span, target, times};
use crate::overview::{Overview, Slo};
use crate::text::Text;
use crate::ui::Ui;

pub fn draw(canvas: &mut Canvas<'_>, overview: &Overview, ui: &Ui, context: &Context) {
    let has_lowest = |slo: &Slo| slo.error_budget_remaining.is_some_and(|it| it.is_lowest);
    if context.has_several_processes {
        let mut text = "Burn rates are those of the worst process.".to_owned();
        if overview.slos.iter().any(has_lowest) {
            text.push_str(" A budget with ≥ is the lowest of a process.");
        }
        canvas.line([(text, Tone::Faint)]);
    }
    table::draw(canvas, &COLUMNS, &overview.slos, ui, context);
}

const COLUMNS: [Column<Slo>; 12] = [
    Column {
        title: "SLO",
        width: Width::Text(16, 40),
        rank: 1,
        cell: |it, _| plain(it.name.as_str()),
        key: |it| Key::Text(Some(it.name.to_string())),
    },
    Column {
        title: "THRESHOLD",
        width: Width::Number(11),
        rank: 4,
        cell: |it, _| plain(threshold(it)),
        key: |it| Key::Number(it.threshold),
    },
    Column {
        title: "TARGET",
        width: Width::Number(7),
        rank: 3,
        cell: |it, _| plain(target(it.target)),
        key: |it| Key::Number(it.target),
    },
    Column {
        title: "GOOD",
        width: Width::Number(6),
        rank: 5,
        cell: |it, _| plain(count(Some(it.good))),
        key: |it| Key::Number(Some(it.good as f64)),
    },
    Column {
        title: "BAD",
        width: Width::Number(6),
        rank: 2,
        cell: |it, _| plain(count(Some(it.bad))),
        key: |it| Key::Number(Some(it.bad as f64)),
    },
    Column {
        title: "EXCLUDED",
        width: Width::Number(8),
        rank: 6,
        cell: |it, _| plain(count(Some(it.excluded))),
        key: |it| Key::Number(Some(it.excluded as f64)),
    },
    Column {
        title: "BUDGET LEFT",
        width: Width::Number(12),
        rank: 1,
        cell: budget,
        key: |it| Key::Number(it.error_budget_remaining.map(|budget| budget.remaining)),
    },
    Column {
        title: "BURN 5M",
        width: Width::Number(8),
        rank: 1,
        cell: |it, _| burn(it, "5m"),
        key: |it| Key::Number(rate(it, "5m")),
    },
    Column {
        title: "BURN 1H",
        width: Width::Number(8),
        rank: 2,
        cell: |it, _| burn(it, "1h"),
        key: |it| Key::Number(rate(it, "1h")),
    },
    Column {
        title: "COVERED",
        width: Width::Number(15),
        rank: 4,
        cell: |it, _| plain(covered(it)),
        key: |it| Key::Number(it.window_covered_seconds),
    },
    Column {
        title: "SPENT IN",
        width: Width::Number(8),
        rank: 5,
        cell: |it, _| plain(it.time_to_exhaustion_seconds.map_or(UNDEFINED.to_owned(), span)),
        key: |it| Key::Number(it.time_to_exhaustion_seconds),
    },
    Column {
        title: "CONSUMED BY",
        width: Width::Text(12, 40),
        rank: 5,
        cell: |it, _| plain(name(it.consumed_by.as_ref())),
        key: |it| Key::Text(it.consumed_by.as_ref().map(ToString::to_string)),
    },
];

fn threshold(slo: &Slo) -> String {
    match (slo.threshold, slo.threshold_unit.as_ref().map(Text::as_str)) {
        (None, _) => UNDEFINED.to_owned(),
        (value @ Some(_), Some("s")) => seconds(value),
        (Some(value), unit) => {
            // OpenTelemetry writes the unit of a rate as {token}/s.
            let unit = unit.unwrap_or_default().replace(['{', '}'], "");
            format!("{value} {unit}")
        }
    }
}

fn budget(slo: &Slo, _: &Context) -> Piece {
    let Some(budget) = slo.error_budget_remaining else { return plain(UNDEFINED) };
    let tone = match budget.remaining {
        left if left <= 0.0 => Tone::Bad,
        left if left < 0.25 => Tone::Warning,
        _ => Tone::Plain,
    };
    let mark = if budget.is_lowest { "≥ " } else { "" };
    (format!("{mark}{}", percent(Some(budget.remaining))), tone)
}

fn rate(slo: &Slo, window: &str) -> Option<f64> {
    slo.burn_rate.get(&Text::new(window)).map(|rate| rate.burn_rate)
}

fn burn(slo: &Slo, window: &str) -> Piece {
    let rate = rate(slo, window);
    let tone = if rate.is_some_and(|rate| rate > 1.0) { Tone::Warning } else { Tone::Plain };
    (times(rate), tone)
}

fn covered(slo: &Slo) -> String {
    let covered = slo.window_covered_seconds.zip(slo.window_seconds);
    covered.map_or(UNDEFINED.to_owned(), |(covered, window)| {
        format!("{} of {}", span(covered.min(window)), span(window))
    })
}
