//! The dashboard that compares two models, or two variants such as prompt versions: speed, quality and cost.

mod queries;
mod summary;

use super::Dashboard;
use super::dashboard::Row;
use super::panel::{Colour, Panel, PanelKind};
use super::variables::{Scope, Variable};
use queries::{
    COST, FAILED, FIRST_TOKEN_P50, FIRST_TOKEN_P95, INCOMPLETE_CHOICES,
    INCOMPLETE_CHOICES_BY_RESULT, INTER_TOKEN_P50, INTER_TOKEN_P95, LENGTH, OUTPUT_RATE_P10,
    OUTPUT_RATE_P50, Side, TEXT_RATE, TOTAL_RATE_P50, TRUNCATED, TimeRange, query_for, ratio,
};

pub(super) fn dashboard() -> Dashboard {
    let row = |title: &str, size, panels| Row {
        title: title.to_owned(),
        size: Some(size),
        panels,
        ..Row::default()
    };
    let sides = "A (blue): ${provider_a} · ${model_a} · ${variant_a}   against   \
                 B (orange): ${provider_b} · ${model_b} · ${variant_b}";
    Dashboard {
        uid: "tokengauge-compare".to_owned(),
        title: "tokengauge · compare".to_owned(),
        description: "Two variants or models side by side. A is blue, B is orange, and every ratio is B ÷ A. Faster is not \
                      better if responses are shorter or fail more often."
            .to_owned(),
        from: None,
        scope: Scope::Route,
        variables: [Side::A, Side::B].into_iter().flat_map(variables).collect(),
        visible: visible(),
        rows: vec![
            row(sides, (4, 4), summary::summary()),
            row("Token rates", (8, 7), speed()),
            row("Latency", (8, 7), latency()),
            row("Length and quality", (8, 7), worse()),
            row("Failed choices by result", (12, 8), vec![by_kind(Side::A), by_kind(Side::B)]),
            row("Cost", (12, 7), costs()),
        ],
    }
}

/// Returns the names of the visible variables. Variables such as `instance` are hidden, because a comparison usually
/// covers all instances.
fn visible() -> Vec<String> {
    let sides = [Side::A, Side::B].into_iter().flat_map(variables).map(|variable| variable.name);
    ["namespace", "position", "route"].map(str::to_owned).into_iter().chain(sides).collect()
}

/// Returns the three variables (provider, model, variant) that select A or B. Each variable has one value. By default,
/// A is the variant with the most requests, and B is the next variant of the same model. If requests have no variant, B
/// is another model.
fn variables(side: Side) -> [Variable; 3] {
    const PROVIDER: &str = "gen_ai_provider_name";
    const MODEL: &str = "gen_ai_request_model";
    const VARIANT: &str = "tokengauge_variant";
    let variable = |name: &str, attribute: &str, query: String| Variable {
        name: format!("{name}_{}", side.lower_case()),
        label: format!("{}: {name}", side.name()),
        query: format!("query_result(sort_desc({query}))"),
        regex: format!("/{attribute}=\"([^\"]+)\"/"),
        single: true,
        in_order: true,
        ..Variable::default()
    };
    let provider = requests_by(PROVIDER, "");
    let of_provider = format!(", {PROVIDER}=\"$provider_{}\"", side.lower_case());
    let model = requests_by(MODEL, &of_provider);
    let of_model = format!("{of_provider}, {MODEL}=\"$model_{}\"", side.lower_case());
    let variant = requests_by(VARIANT, &of_model);
    let (model, variant) = match side {
        Side::A => (model, variant),
        Side::B => {
            let of_a =
                format!(", {PROVIDER}=\"$provider_a\", {MODEL}=\"$model_a\", {VARIANT}!=\"\"");
            let variants = requests_by(VARIANT, &of_a);
            let only_model = format!("(topk(1, {model}) unless on () (count({variants}) > 1))");
            (last(&model, &only_model), last(&variant, &format!("topk(1, {variant})")))
        }
    };
    [
        variable("provider", PROVIDER, provider),
        variable("model", MODEL, model),
        variable("variant", VARIANT, variant),
    ]
}

/// Returns PromQL for the number of finished requests per value of `label`. Requests without a known model are
/// excluded.
fn requests_by(label: &str, matchers: &str) -> String {
    format!(
        "sum by ({label}) (increase(tokengauge_requests_finished_total{{<route>, \
         gen_ai_request_model!~\"unknown|other|\"{matchers}}}[$__range]))"
    )
}

/// Negates the values of the series in `some`, so that these series come last in the descending order of `query`.
fn last(query: &str, some: &str) -> String {
    format!("({query} unless {some}) or -1 * {some}")
}

fn time_series(title: &str, unit: &str, description: &str) -> Panel {
    Panel::new(PanelKind::TimeSeries, title, unit, description)
}

/// Returns a panel with time series of A and B, each in a fixed colour.
fn side_by_side(title: &str, unit: &str, description: &str, query_template: &str) -> Panel {
    Panel {
        lines: [("A", Side::A), ("B", Side::B)]
            .map(|(name, side)| (name.to_owned(), query_for(query_template, side, TimeRange::Step)))
            .into(),
        colours: [("A".to_owned(), Colour::Blue), ("B".to_owned(), Colour::Orange)].into(),
        ..time_series(title, unit, description)
    }
}

/// Returns a panel with time series of B ÷ A and a reference line at 1.
fn ratios(title: &str, description: &str, query_templates: &[(&str, &str)]) -> Panel {
    let line = |(name, query_template): &(&str, &str)| {
        ((*name).to_owned(), ratio(query_template, TimeRange::Step))
    };
    Panel {
        lines: query_templates.iter().map(line).collect(),
        threshold_lines: vec![(1.0, Colour::Yellow)],
        ..time_series(title, "suffix:×", description)
    }
}

fn speed() -> Vec<Panel> {
    vec![
        side_by_side(
            "Output tokens/s per stream, p50",
            "count:tok/s",
            "Median, excluding prefill: tokengauge_request_output_token_rate_per_second.",
            OUTPUT_RATE_P50,
        ),
        side_by_side(
            "Output tokens/s per stream, p10",
            "count:tok/s",
            "One stream in ten ran slower: tokengauge_request_output_token_rate_per_second.",
            OUTPUT_RATE_P10,
        ),
        ratios(
            "Output tokens/s per stream, B ÷ A",
            "Above 1, B is faster: tokengauge_request_output_token_rate_per_second, B ÷ A.",
            &[("p50", OUTPUT_RATE_P50), ("p10", OUTPUT_RATE_P10)],
        ),
        side_by_side(
            "Tokens/s of the whole call, p50",
            "count:tok/s",
            "Median over the whole call, including prefill: tokengauge_request_total_token_rate_per_second.",
            TOTAL_RATE_P50,
        ),
        side_by_side(
            "Text while streaming",
            "count:tok/s",
            "Text in tokens of one encoding (o200k_base), comparable across tokenizers: \
             tokengauge_normalized_tokens_total of streams ÷ tokengauge_stream_active_time_seconds_total (streaming).",
            TEXT_RATE,
        ),
        ratios(
            "Tokens/s of the whole call and text, B ÷ A",
            "Above 1, B is faster: tokengauge_request_total_token_rate_per_second, and tokengauge_normalized_tokens_total ÷ \
             tokengauge_stream_active_time_seconds_total, B ÷ A.",
            &[("total TPS, p50", TOTAL_RATE_P50), ("text", TEXT_RATE)],
        ),
    ]
}

fn latency() -> Vec<Panel> {
    vec![
        side_by_side(
            "TTFT, p50",
            "s",
            "Median TTFT: tokengauge_time_to_first_token_seconds.",
            FIRST_TOKEN_P50,
        ),
        side_by_side(
            "TTFT, p95",
            "s",
            "One stream in twenty waited longer for its first token: tokengauge_time_to_first_token_seconds.",
            FIRST_TOKEN_P95,
        ),
        ratios(
            "TTFT, B ÷ A",
            "Below 1, B is faster: tokengauge_time_to_first_token_seconds, B ÷ A.",
            &[("p50", FIRST_TOKEN_P50), ("p95", FIRST_TOKEN_P95)],
        ),
        side_by_side(
            "ITL, p50",
            "s",
            "Gap between chunks with tokens ÷ tokens in the later chunk: tokengauge_inter_token_latency_seconds.",
            INTER_TOKEN_P50,
        ),
        side_by_side(
            "ITL, p95",
            "s",
            "One gap in twenty is longer: tokengauge_inter_token_latency_seconds.",
            INTER_TOKEN_P95,
        ),
        ratios(
            "ITL, B ÷ A",
            "Below 1, B is faster: tokengauge_inter_token_latency_seconds, B ÷ A.",
            &[("p50", INTER_TOKEN_P50), ("p95", INTER_TOKEN_P95)],
        ),
    ]
}

fn worse() -> Vec<Panel> {
    vec![
        side_by_side(
            "Response length",
            "count:tok",
            "Tokens of a choice in one encoding (o200k_base): tokengauge_normalized_tokens_total ÷ \
             tokengauge_choices_finished_total. Shorter responses end sooner and can contain less.",
            LENGTH,
        ),
        side_by_side(
            "Failed choices",
            "percentunit",
            "Ratio of choices that were refused, filtered, empty or unfinished, or had invalid tool arguments: \
             tokengauge_choices_finished_total.",
            INCOMPLETE_CHOICES,
        ),
        ratios(
            "Length and failed choices, B ÷ A",
            "tokengauge_normalized_tokens_total ÷ tokengauge_choices_finished_total, and the ratio of failed choices, B ÷ A. \
             Length below 1: responses of B are shorter. Failed choices above 1: B is worse.",
            &[("length", LENGTH), ("failed choices", INCOMPLETE_CHOICES)],
        ),
        side_by_side(
            "Failed requests",
            "percentunit",
            "Ratio of requests that ended in error, timeout, truncated or rejected: tokengauge_requests_finished_total.",
            FAILED,
        ),
        side_by_side(
            "Truncated responses",
            "percentunit",
            "Ratio of requests that the upstream truncated: tokengauge_requests_finished_total.",
            TRUNCATED,
        ),
        ratios(
            "Failures, B ÷ A",
            "Above 1, B is worse: ratios of tokengauge_requests_finished_total, B ÷ A.",
            &[("failed", FAILED), ("truncated", TRUNCATED)],
        ),
    ]
}

fn by_kind(side: Side) -> Panel {
    let side_name = side.name();
    let line = query_for(INCOMPLETE_CHOICES_BY_RESULT, side, TimeRange::Step);
    Panel {
        lines: [("{{tokengauge_choice_result}}".to_owned(), line)].into(),
        stacked: true,
        empty: Some("None".to_owned()),
        ..time_series(
            &format!("{side_name}: failed choices by result"),
            "percentunit",
            &format!(
                "{side_name}'s ratio of choices by result: tokengauge_choices_finished_total."
            ),
        )
    }
}

fn costs() -> Vec<Panel> {
    let cost = time_series(
        "Cost of 1,000 requests",
        "short",
        "By the price table, including failed requests, in the currency of the legend: 1,000 × \
         tokengauge_cost_total ÷ tokengauge_requests_finished_total.",
    );
    let lines = [Side::A, Side::B].map(|side| {
        (
            format!("{}, {{{{tokengauge_currency}}}}", side.name()),
            query_for(COST, side, TimeRange::Step),
        )
    });
    let ratio = ratios(
        "Cost, B ÷ A",
        "Below 1, B is cheaper: tokengauge_cost_total ÷ tokengauge_requests_finished_total, B ÷ A, per currency.",
        &[("{{tokengauge_currency}}", COST)],
    );
    let empty = Some("No priced calls".to_owned());
    vec![Panel { lines: lines.into(), empty: empty.clone(), ..cost }, Panel { empty, ..ratio }]
}

#[cfg(test)]
mod tests {
    use super::super::faults::{panels, queries};
    use super::queries::{PRICE, SPEED};
    use super::*;

    /// Default limit of VictoriaMetrics for the length of a query (`-search.maxQueryLen`), in bytes.
    const LONGEST: usize = 16 * 1024;

    #[test]
    fn no_query_exceeds_the_length_limit_of_stores() {
        let json = dashboard().json();
        let texts: Vec<&str> = panels(&json).flat_map(queries).collect();
        assert!(texts.len() > 50, "{}", texts.len());
        for text in texts {
            // Replaces the variables with long model names, as in a real query.
            let long = text.replace("$model_a", "meta-llama/Llama-3.1-405B-Instruct");
            let long = long.replace("$model_b", "meta-llama/Llama-3.1-405B-Instruct");
            assert!(long.len() < LONGEST, "{}: {long:.80}", long.len());
        }
    }

    #[test]
    fn each_side_selects_its_own_series_and_fills_all_placeholders() {
        for (side, own, other) in [(Side::A, "_a\"", "_b\""), (Side::B, "_b\"", "_a\"")] {
            for (_, _, query_template) in SPEED.iter().chain(PRICE) {
                let text = query_for(query_template, side, TimeRange::Shown);
                assert!(text.contains(own) && !text.contains(other), "{text}");
                assert!(!text.contains("<side>") && !text.contains("<range>"), "{text}");
            }
        }
    }
}
