//! The top row of the comparison dashboard, for the whole time range: ratios, how certain they are, and tables of all
//! measures.

use super::super::panel::{Colour, Column, Panel, PanelKind, Thresholds};
use super::queries::{
    FAILED, FIRST_TOKEN_P50, FIRST_TOKEN_P95, INCOMPLETE_CHOICES, LENGTH, Limit, Measure,
    OUTPUT_RATE_P50, PRICE, REQUESTS, SPEED, Side, TimeRange, difference, measures, quantile_limit,
    query_for, ratio,
};

pub(super) fn summary() -> Vec<Panel> {
    let mut panels = vec![selection()];
    panels.extend(ratios());
    panels.extend([
        verdict(),
        requests(),
        interval_stat(
            "Stream p50",
            "tokengauge_request_output_token_rate_per_second",
            0.5,
        ),
        interval_stat("TTFT p50", "tokengauge_time_to_first_token_seconds", 0.5),
        interval_stat("TTFT p95", "tokengauge_time_to_first_token_seconds", 0.95),
        points_stat(
            "Failed choices, B − A",
            "Ratio of choices that were refused, filtered, empty or unfinished, or had invalid tool arguments, in the time \
             range, B − A: tokengauge_choices_finished_total. Above 0, B is worse.",
            INCOMPLETE_CHOICES,
        ),
        points_stat(
            "Failed requests, B − A",
            "Ratio of requests that ended in error, timeout, truncated or rejected, in the time range, B − A: \
             tokengauge_requests_finished_total. Above 0, B is worse.",
            FAILED,
        ),
        side_by_side(
            "Speed of A and B",
            "Each measure over the time range, for A, for B, and B ÷ A. B is alike within 5 %. The panels below have \
             each measure over time, and its formula.",
            SPEED,
        ),
        side_by_side(
            "Quality and cost of A and B",
            "Each measure over the time range, for A, for B, and B ÷ A. B is alike within 5 %. A ratio is absent if A is \
             0. The panels below have each measure over time, and its formula.",
            PRICE,
        ),
    ]);
    panels
}

/// Returns the panels with the ratios of speed and length. The colours show whether B is better.
fn ratios() -> [Panel; 4] {
    [
        ratio_stat(
            "Stream p50, B ÷ A",
            "Median output token rate of streams in the time range, B ÷ A: tokengauge_request_output_token_rate_per_second. Above 1, B is \
             faster.",
            OUTPUT_RATE_P50,
            HIGHER_IS_BETTER,
        ),
        ratio_stat(
            "TTFT p50, B ÷ A",
            "Median time to first token in the time range, B ÷ A: tokengauge_time_to_first_token_seconds. Above 1, B has \
             a longer TTFT.",
            FIRST_TOKEN_P50,
            LOWER_IS_BETTER,
        ),
        ratio_stat(
            "TTFT p95, B ÷ A",
            "95th percentile of the time to first token in the time range, B ÷ A: tokengauge_time_to_first_token_seconds. \
             Above 1, B has a longer TTFT.",
            FIRST_TOKEN_P95,
            LOWER_IS_BETTER,
        ),
        ratio_stat(
            "Response length, B ÷ A",
            "Tokens of a choice in o200k_base in the time range, B ÷ A: tokengauge_normalized_tokens_total ÷ \
             tokengauge_choices_finished_total. Well below 1, responses of B are shorter.",
            LENGTH,
            LONGER_IS_BETTER,
        ),
    ]
}

/// Returns the panel that asks the viewer for another selection if A and B are the same.
fn selection() -> Panel {
    let name = |side: Side| {
        let side = side.lower_case();
        format!(
            "label_replace(vector(1), \"selection\", \"${{provider_{side}}} ${{model_{side}}} ${{variant_{side}}}\", \"\", \"\")"
        )
    };
    Panel {
        query: Some(format!(
            "sum({} and on (selection) {}) or vector(0)",
            name(Side::A),
            name(Side::B)
        )),
        values: vec![
            (0.0, "A and B differ".to_owned(), Colour::Text),
            (1.0, "Choose another B".to_owned(), Colour::Orange),
        ],
        thresholds: Some(Thresholds { base: Colour::Text, steps: vec![(1.0, Colour::Orange)] }),
        ..stat(
            "Selection",
            "none",
            "A and B are each one provider, model and variant. By default, A is the variant with the most requests, and B \
             is the second variant or model. If there is only one, choose another B.",
        )
    }
}

/// Returns the panel with the number of requests. Few requests make every ratio uncertain.
fn requests() -> Panel {
    let lines = [Side::A, Side::B]
        .map(|side| (side.name().to_owned(), query_for(REQUESTS, side, TimeRange::Shown)));
    Panel {
        lines: lines.into(),
        decimals: Some(0),
        ..stat(
            "Requests",
            "none",
            "Finished requests in the time range: increase(tokengauge_requests_finished_total).",
        )
    }
}

/// Returns the panel with the range of B ÷ A that chance alone explains, for a quantile.
fn interval_stat(title: &str, histogram: &str, quantile: f64) -> Panel {
    let ratio = |b, a| {
        let [b, a] = [(b, Side::B), (a, Side::A)]
            .map(|(limit, side)| quantile_limit(histogram, quantile, side, limit));
        format!("({b}) / (({a}) > 0)")
    };
    Panel {
        lines: [
            ("from".to_owned(), ratio(Limit::Lower, Limit::Upper)),
            ("to".to_owned(), ratio(Limit::Upper, Limit::Lower)),
        ]
        .into(),
        decimals: Some(2),
        ..stat(
            &format!("{title}, B ÷ A, confidence"),
            "suffix:×",
            &format!(
                "Range of B ÷ A that chance alone explains: the limits of the 95 % intervals of both quantiles, from \
                 {histogram}. If 1 is inside the range, more requests are needed to tell A and B apart."
            ),
        )
    }
}

/// Returns a table of A, B and B ÷ A. The rows are split over two tables, because VictoriaMetrics rejects
/// queries longer than 16 KiB.
fn side_by_side(title: &str, description: &str, rows: &[Measure]) -> Panel {
    let [a, b] = [Side::A, Side::B].map(|side| measures(rows, side));
    let ratios = format!("{b} / ({a} > 0)");
    // 1 if B is better by 5 % or more, −1 if B is worse, and 0 between. Absent without a better direction.
    let better = format!(
        "round(clamp(10 * ({ratios} - 1), -1, 1)) * on (better) group_left () \
         (label_replace(vector(1), \"better\", \"higher\", \"\", \"\") \
         or label_replace(vector(-1), \"better\", \"lower\", \"\", \"\"))"
    );
    let outcomes = [
        (1.0, "better", Colour::Green),
        (0.0, "alike", Colour::Text),
        (-1.0, "worse", Colour::Red),
    ]
    .map(|(value, text, colour)| (value, text.to_owned(), colour));
    let columns = [
        ("A", "none", a, Vec::new()),
        ("B", "none", b, Vec::new()),
        ("B ÷ A", "suffix:×", format!("round({ratios}, 0.01)"), Vec::new()),
        ("B is", "none", better, outcomes.into()),
    ];
    let column = |(title, unit, query, values)| {
        (
            str::to_owned(title),
            Column { unit: str::to_owned(unit), query, values, thresholds: None },
        )
    };
    Panel {
        keys: [("measure", "Measure"), ("better", "Better is")]
            .map(|(label, title)| (label.to_owned(), title.to_owned()))
            .into(),
        columns: columns.map(column).into(),
        widths: [("Measure".to_owned(), 290)].into(),
        size: Some((12, 10)),
        ..Panel::new(PanelKind::Table, title, "none", description)
    }
}

/// Returns the panel that warns if B is faster at the cost of quality. B must be faster by more than 5 %. In addition,
/// its responses must be shorter by more than a tenth, or its ratio of failed choices or requests higher by more than
/// one percentage point.
fn verdict() -> Panel {
    let more = |query_template| format!("({} > bool 0.01)", difference(query_template));
    let faster = format!("({} > bool 1.05)", ratio(OUTPUT_RATE_P50, TimeRange::Shown));
    let shorter = format!("({} < bool 0.9)", ratio(LENGTH, TimeRange::Shown));
    let worse = format!("{} + {}", more(INCOMPLETE_CHOICES), more(FAILED));
    Panel {
        query: Some(format!("{faster} * clamp_max({shorter} + {worse}, 1)")),
        values: vec![(0.0, "No".to_owned(), Colour::Green), (1.0, "Yes".to_owned(), Colour::Red)],
        thresholds: Some(Thresholds { base: Colour::Green, steps: vec![(1.0, Colour::Red)] }),
        ..stat(
            "Faster but shorter or worse",
            "none",
            "Yes, if in the time range B's median output TPS (tokengauge_request_output_token_rate_per_second) is more than 5 % above \
             A's, and its choices are more than 10 % shorter (tokengauge_normalized_tokens_total ÷ \
             tokengauge_choices_finished_total), or the ratio of bad choices or failed requests \
             (tokengauge_requests_finished_total), is more than one point higher.",
        )
    }
}

fn stat(title: &str, unit: &str, description: &str) -> Panel {
    Panel::new(PanelKind::Stat, title, unit, description)
}

/// Colours of a ratio B ÷ A: the colour of the lowest ratios, and then limits, each with the colour from this limit
/// upward.
type Direction = (Colour, [(f64, Colour); 2]);

const HIGHER_IS_BETTER: Direction = (Colour::Red, [(0.95, Colour::Text), (1.05, Colour::Green)]);
const LOWER_IS_BETTER: Direction = (Colour::Green, [(0.95, Colour::Text), (1.05, Colour::Red)]);
/// Marks shorter responses, because they can be worse. Longer responses are not better and not marked.
const LONGER_IS_BETTER: Direction = (Colour::Orange, [(0.9, Colour::Text), (1.1, Colour::Text)]);
const FEWER_IS_BETTER: Direction = (Colour::Green, [(-0.01, Colour::Text), (0.01, Colour::Red)]);

fn coloured((base, steps): Direction) -> Option<Thresholds> {
    Some(Thresholds { base, steps: steps.into() })
}

fn ratio_stat(title: &str, description: &str, query_template: &str, colours: Direction) -> Panel {
    let query = Some(ratio(query_template, TimeRange::Shown));
    let thresholds = coloured(colours);
    Panel { query, thresholds, decimals: Some(2), ..stat(title, "suffix:×", description) }
}

fn points_stat(title: &str, description: &str, query_template: &str) -> Panel {
    let query = Some(difference(query_template));
    let thresholds = coloured(FEWER_IS_BETTER);
    Panel { query, thresholds, decimals: Some(1), ..stat(title, "percentunit", description) }
}
