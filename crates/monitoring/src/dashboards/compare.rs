//! The dashboard that compares two variants or two models: their relative speed, and the effect on quality and
//! cost.
//!
//! Every query is written once, with two markers in addition to those of [`super::query`]. `<side>` stands for
//! the label matchers of A or B. `<range>` stands for the time range of the query. All results are ratios or
//! quantiles, so `increase` is valid for any range.

use super::Dashboard;
use super::dashboard::Row;
use super::panel::{Colour, Column, Kind, Panel, Thresholds};
use super::variables::{Scope, Variable};

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
        scope: Scope::Lane,
        variables: ["a", "b"].into_iter().flat_map(variables).collect(),
        visible: Vec::new(),
        rows: vec![
            row(sides, (4, 4), summary()),
            row("Is B faster", (8, 7), speed()),
            row("Is B sooner", (8, 7), latency()),
            row("Is B shorter or worse", (8, 7), worse()),
            row("How it ends badly", (12, 8), vec![by_kind(Side::A), by_kind(Side::B)]),
            row("What B costs", (12, 7), costs()),
        ],
    }
}

/// Returns the variables that select A or B.
fn variables(side: &str) -> impl Iterator<Item = Variable> {
    let labels = [
        ("provider", "gen_ai_provider_name"),
        ("model", "gen_ai_request_model"),
        ("variant", "tokengauge_variant"),
    ];
    labels.into_iter().map(move |(name, attribute)| Variable {
        name: format!("{name}_{side}"),
        label: format!("{}: {name}", side.to_uppercase()),
        query: format!("label_values(tokengauge_requests_finished_total{{<lane>}}, {attribute})"),
        ..Variable::default()
    })
}

#[derive(Clone, Copy)]
enum Side {
    A,
    B,
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
        }
    }

    fn matchers(self) -> String {
        let side = self.name().to_lowercase();
        format!(
            "<lane>, gen_ai_provider_name=~\"$provider_{side}\", gen_ai_request_model=~\"$model_{side}\", \
             tokengauge_variant=~\"$variant_{side}\""
        )
    }
}

/// Time range over which a query is evaluated.
#[derive(Clone, Copy)]
enum Over {
    /// The interval of each step in a time series.
    Step,
    /// The whole time range that the dashboard shows.
    Shown,
}

impl Over {
    const fn range(self) -> &'static str {
        match self {
            Self::Step => "$__rate_interval",
            Self::Shown => "$__range",
        }
    }
}

fn asked(question: &str, side: Side, over: Over) -> String {
    question.replace("<side>", &side.matchers()).replace("<range>", over.range())
}

/// Returns PromQL for the ratio B ÷ A. The result is absent if A is 0.
fn ratio(question: &str, over: Over) -> String {
    let of = |side| asked(question, side, over);
    format!("({}) / (({}) > 0)", of(Side::B), of(Side::A))
}

const OUTPUT_RATE_P50: &str = "histogram_quantile(0.5, sum by (le) (
    increase(tokengauge_request_output_token_rate_per_second_bucket{<side>}[<range>]))) >= 0";
const OUTPUT_RATE_P10: &str = "histogram_quantile(0.1, sum by (le) (
    increase(tokengauge_request_output_token_rate_per_second_bucket{<side>}[<range>]))) >= 0";
const TOTAL_RATE_P50: &str = "histogram_quantile(0.5, sum by (le) (
    increase(tokengauge_request_total_token_rate_per_second_bucket{<side>}[<range>]))) >= 0";
/// Output rate of a stream. Tokens are counted in one encoding, so that the rate is comparable across
/// providers.
const TEXT_RATE: &str = r#"sum(increase(tokengauge_normalized_tokens_total{<side>, gen_ai_request_stream="true"}[<range>])) /
    (sum(increase(tokengauge_stream_active_time_seconds_total{<side>, tokengauge_stream_state="streaming"}[<range>])) > 0)"#;
const FIRST_TOKEN_P50: &str = r#"histogram_quantile(0.5, sum by (le) (
    increase(tokengauge_time_to_first_token_seconds_bucket{<side>}[<range>]))) >= 0"#;
const FIRST_TOKEN_P95: &str = r#"histogram_quantile(0.95, sum by (le) (
    increase(tokengauge_time_to_first_token_seconds_bucket{<side>}[<range>]))) >= 0"#;
const INTER_TOKEN_P50: &str = "histogram_quantile(0.5, sum by (le) (
    increase(tokengauge_inter_token_latency_seconds_bucket{<side>}[<range>]))) >= 0";
const INTER_TOKEN_P95: &str = "histogram_quantile(0.95, sum by (le) (
    increase(tokengauge_inter_token_latency_seconds_bucket{<side>}[<range>]))) >= 0";
/// Output tokens per finished choice. Tokens are counted in one encoding, as in `TEXT_RATE`.
const LENGTH: &str = "sum(increase(tokengauge_normalized_tokens_total{<side>}[<range>])) /
    (sum(increase(tokengauge_choices_finished_total{<side>}[<range>])) > 0)";
/// Ratio of failed requests. If there were requests but no failure series exists, the number of failures is 0.
const FAILED: &str = r#"(
    sum(increase(tokengauge_requests_finished_total{<side>, tokengauge_outcome=~"error|timeout|truncated|rejected"}[<range>]))
    or 0 * sum(increase(tokengauge_requests_finished_total{<side>}[<range>]))
) / (sum(increase(tokengauge_requests_finished_total{<side>}[<range>])) > 0)"#;
const TRUNCATED: &str = r#"(
    sum(increase(tokengauge_requests_finished_total{<side>, tokengauge_outcome="truncated"}[<range>]))
    or 0 * sum(increase(tokengauge_requests_finished_total{<side>}[<range>]))
) / (sum(increase(tokengauge_requests_finished_total{<side>}[<range>])) > 0)"#;
const ENDED_BADLY: &str = r#"(
    sum(increase(tokengauge_choices_finished_total{<side>, tokengauge_choice_result!="complete"}[<range>]))
    or 0 * sum(increase(tokengauge_choices_finished_total{<side>}[<range>]))
) / (sum(increase(tokengauge_choices_finished_total{<side>}[<range>])) > 0)"#;
const ENDED_BADLY_BY_KIND: &str = r#"sum by (tokengauge_choice_result) (
    increase(tokengauge_choices_finished_total{<side>, tokengauge_choice_result!="complete"}[<range>]))
    / on () group_left () (sum(increase(tokengauge_choices_finished_total{<side>}[<range>])) > 0)"#;
/// Cost per thousand requests, grouped by currency. Amounts are not converted.
const COST: &str =
    "1000 * sum by (tokengauge_currency) (increase(tokengauge_cost_total{<side>}[<range>]))
    / on () group_left () (sum(increase(tokengauge_requests_finished_total{<side>}[<range>])) > 0)";
const REQUESTS: &str = "sum(increase(tokengauge_requests_finished_total{<side>}[<range>])) > 0";

/// A table row: its name, the preferred direction of the value, and the query.
type Measure = (&'static str, &'static str, &'static str);

const SPEED: &[Measure] = &[
    ("Output TPS, p50", "higher", OUTPUT_RATE_P50),
    ("Output TPS, p10", "higher", OUTPUT_RATE_P10),
    ("Total TPS, p50", "higher", TOTAL_RATE_P50),
    ("Text while streaming, o200k tokens/s", "higher", TEXT_RATE),
    ("First token, p50, s", "lower", FIRST_TOKEN_P50),
    ("First token, p95, s", "lower", FIRST_TOKEN_P95),
    ("Between tokens, p50, s", "lower", INTER_TOKEN_P50),
    ("Between tokens, p95, s", "lower", INTER_TOKEN_P95),
];

const PRICE: &[Measure] = &[
    ("Length of a choice, o200k tokens", "as long", LENGTH),
    ("Failed requests, share", "lower", FAILED),
    ("Truncated answers, share", "lower", TRUNCATED),
    ("Choices that ended badly, share", "lower", ENDED_BADLY),
    ("Cost of 1,000 requests, $1", "lower", COST),
    ("Requests", "–", REQUESTS),
];

/// Returns the query for all table rows of one side. The currency of a cost becomes part of the row name.
fn measures(rows: &[Measure], side: Side) -> String {
    let rows: Vec<String> = rows
        .iter()
        .map(|(measure, better, question)| {
            let (from, all) =
                if measure.contains("$1") { ("tokengauge_currency", "(.+)") } else { ("", "") };
            let asked = asked(question, side, Over::Shown);
            format!(
                "label_replace(label_replace({asked}, \"better\", \"{better}\", \"\", \"\"), \
                 \"measure\", \"{measure}\", \"{from}\", \"{all}\")"
            )
        })
        .collect();
    format!("sum by (measure, better) ({})", rows.join(" or "))
}

fn summary() -> Vec<Panel> {
    vec![
        verdict(),
        ratio_stat(
            "Output TPS, B ÷ A",
            "Median output TPS of streams in the time range, B ÷ A: tokengauge_request_output_token_rate_per_second. Above 1, B is \
             faster.",
            OUTPUT_RATE_P50,
        ),
        ratio_stat(
            "First token, B ÷ A",
            "95th percentile of the time to first token in the time range, B ÷ A: tokengauge_time_to_first_token_seconds. \
             Above 1, B has a longer TTFT.",
            FIRST_TOKEN_P95,
        ),
        ratio_stat(
            "Length of answers, B ÷ A",
            "Tokens of a choice in o200k_base in the time range, B ÷ A: tokengauge_normalized_tokens_total ÷ \
             tokengauge_choices_finished_total. Well below 1, responses of B are shorter.",
            LENGTH,
        ),
        points_stat(
            "Ended badly, B − A",
            "Ratio of choices that were refused, filtered, empty or unfinished, or had invalid tool arguments, in the time \
             range, B − A: tokengauge_choices_finished_total. Above 0, B is worse.",
            ENDED_BADLY,
        ),
        points_stat(
            "Failed, B − A",
            "Ratio of requests that ended in error, timeout, truncated or rejected, in the time range, B − A: \
             tokengauge_requests_finished_total. Above 0, B is worse.",
            FAILED,
        ),
        side_by_side(
            "How fast: A against B",
            "Each measure over the time range, for A, for B, and B ÷ A, with the better direction. The panels below have \
             each measure over time, and its formula.",
            SPEED,
        ),
        side_by_side(
            "At what price: A against B",
            "Each measure over the time range, for A, for B, and B ÷ A, with the better direction. A ratio is absent if A is \
             0. The panels below have each measure over time, and its formula.",
            PRICE,
        ),
    ]
}

/// Returns a table of A, B and B ÷ A. The rows are split over two tables, because VictoriaMetrics rejects
/// queries longer than 16 KiB.
fn side_by_side(title: &str, description: &str, rows: &[Measure]) -> Panel {
    let [a, b] = [Side::A, Side::B].map(|side| measures(rows, side));
    let ratios = format!("{b} / ({a} > 0)");
    let columns = [("A", "none", a), ("B", "none", b), ("B ÷ A", "suffix:×", ratios)];
    let column =
        |(title, unit, query)| (str::to_owned(title), Column { unit: str::to_owned(unit), query });
    Panel {
        keys: [("measure", "Measure"), ("better", "Better is")]
            .map(|(label, title)| (label.to_owned(), title.to_owned()))
            .into(),
        columns: columns.map(column).into(),
        decimals: Some(3),
        size: Some((12, 10)),
        ..Panel::new(Kind::Table, title, "none", description)
    }
}

/// Returns the panel with the verdict on B. The verdict is "Yes" if B is faster by more than 5 % but also
/// shorter or worse. Shorter means by more than a tenth. Worse means at least one additional failed choice or
/// request per hundred.
fn verdict() -> Panel {
    let more = |question| format!("({} > bool 0.01)", difference(question));
    let faster = format!("({} > bool 1.05)", ratio(OUTPUT_RATE_P50, Over::Shown));
    let shorter = format!("({} < bool 0.9)", ratio(LENGTH, Over::Shown));
    let worse = format!("{} + {}", more(ENDED_BADLY), more(FAILED));
    Panel {
        query: Some(format!("{faster} * clamp_max({shorter} + {worse}, 1)")),
        values: vec![(0.0, "No".to_owned(), Colour::Green), (1.0, "Yes".to_owned(), Colour::Red)],
        thresholds: Some(Thresholds { base: Colour::Green, steps: vec![(1.0, Colour::Red)] }),
        ..stat(
            "B is faster but shorter or worse",
            "none",
            "Yes, if in the time range B's median output TPS (tokengauge_request_output_token_rate_per_second) is more than 5 % above \
             A's, and its choices are more than 10 % shorter (tokengauge_normalized_tokens_total ÷ \
             tokengauge_choices_finished_total), or the ratio of bad choices or failed requests \
             (tokengauge_requests_finished_total), is more than one point higher.",
        )
    }
}

fn stat(title: &str, unit: &str, description: &str) -> Panel {
    Panel::new(Kind::Stat, title, unit, description)
}

fn ratio_stat(title: &str, description: &str, question: &str) -> Panel {
    let query = Some(ratio(question, Over::Shown));
    Panel { query, decimals: Some(2), ..stat(title, "suffix:×", description) }
}

fn points_stat(title: &str, description: &str, question: &str) -> Panel {
    let query = Some(difference(question));
    Panel { query, decimals: Some(1), ..stat(title, "percentunit", description) }
}

/// Returns PromQL for the difference B − A over the whole displayed time range.
fn difference(question: &str) -> String {
    let [a, b] = [Side::A, Side::B].map(|side| asked(question, side, Over::Shown));
    format!("({b}) - ({a})")
}

fn time_series(title: &str, unit: &str, description: &str) -> Panel {
    Panel::new(Kind::TimeSeries, title, unit, description)
}

/// Returns a panel with time series of A and B, each in a fixed colour.
fn twin(title: &str, unit: &str, description: &str, question: &str) -> Panel {
    Panel {
        lines: [("A", Side::A), ("B", Side::B)]
            .map(|(name, side)| (name.to_owned(), asked(question, side, Over::Step)))
            .into(),
        colours: [("A".to_owned(), Colour::Blue), ("B".to_owned(), Colour::Orange)].into(),
        ..time_series(title, unit, description)
    }
}

/// Returns a panel with time series of B ÷ A and a reference line at 1.
fn ratios(title: &str, description: &str, questions: &[(&str, &str)]) -> Panel {
    let line = |(name, question): &(&str, &str)| ((*name).to_owned(), ratio(question, Over::Step));
    Panel {
        lines: questions.iter().map(line).collect(),
        threshold_lines: vec![(1.0, Colour::Yellow)],
        ..time_series(title, "suffix:×", description)
    }
}

fn speed() -> Vec<Panel> {
    vec![
        twin(
            "Output TPS, p50",
            "count:tok/s",
            "Median, excluding prefill: tokengauge_request_output_token_rate_per_second.",
            OUTPUT_RATE_P50,
        ),
        twin(
            "Output TPS, p10",
            "count:tok/s",
            "One stream in ten ran slower: tokengauge_request_output_token_rate_per_second.",
            OUTPUT_RATE_P10,
        ),
        ratios(
            "Output TPS, B ÷ A",
            "Above 1, B is faster: tokengauge_request_output_token_rate_per_second, B ÷ A.",
            &[("p50", OUTPUT_RATE_P50), ("p10", OUTPUT_RATE_P10)],
        ),
        twin(
            "Total TPS, p50",
            "count:tok/s",
            "Median over the whole call, including prefill: tokengauge_request_total_token_rate_per_second.",
            TOTAL_RATE_P50,
        ),
        twin(
            "Text while streaming",
            "count:tok/s",
            "Text in tokens of one encoding (o200k_base), comparable across tokenizers: \
             tokengauge_normalized_tokens_total of streams ÷ tokengauge_stream_active_time_seconds_total (streaming).",
            TEXT_RATE,
        ),
        ratios(
            "Total TPS and text, B ÷ A",
            "Above 1, B is faster: tokengauge_request_total_token_rate_per_second, and tokengauge_normalized_tokens_total ÷ \
             tokengauge_stream_active_time_seconds_total, B ÷ A.",
            &[("total TPS, p50", TOTAL_RATE_P50), ("text", TEXT_RATE)],
        ),
    ]
}

fn latency() -> Vec<Panel> {
    vec![
        twin(
            "First token, p50",
            "s",
            "Median TTFT: tokengauge_time_to_first_token_seconds.",
            FIRST_TOKEN_P50,
        ),
        twin(
            "First token, p95",
            "s",
            "One stream in twenty waited longer for its first token: tokengauge_time_to_first_token_seconds.",
            FIRST_TOKEN_P95,
        ),
        ratios(
            "First token, B ÷ A",
            "Below 1, B is faster: tokengauge_time_to_first_token_seconds, B ÷ A.",
            &[("p50", FIRST_TOKEN_P50), ("p95", FIRST_TOKEN_P95)],
        ),
        twin(
            "Between tokens, p50",
            "s",
            "Gap between chunks with tokens ÷ tokens in the later chunk: tokengauge_inter_token_latency_seconds.",
            INTER_TOKEN_P50,
        ),
        twin(
            "Between tokens, p95",
            "s",
            "One gap in twenty is longer: tokengauge_inter_token_latency_seconds.",
            INTER_TOKEN_P95,
        ),
        ratios(
            "Between tokens, B ÷ A",
            "Below 1, B is faster: tokengauge_inter_token_latency_seconds, B ÷ A.",
            &[("p50", INTER_TOKEN_P50), ("p95", INTER_TOKEN_P95)],
        ),
    ]
}

fn worse() -> Vec<Panel> {
    vec![
        twin(
            "Length of answers",
            "count:tok",
            "Tokens of a choice in one encoding (o200k_base): tokengauge_normalized_tokens_total ÷ \
             tokengauge_choices_finished_total. Shorter answers are over sooner, and may say less.",
            LENGTH,
        ),
        twin(
            "Choices that ended badly",
            "percentunit",
            "Ratio of choices that were refused, filtered, empty or unfinished, or had invalid tool arguments: \
             tokengauge_choices_finished_total.",
            ENDED_BADLY,
        ),
        ratios(
            "Length and bad ends, B ÷ A",
            "tokengauge_normalized_tokens_total ÷ tokengauge_choices_finished_total, and the share of choices that ended badly, \
             B ÷ A. Length below 1: B says less. Bad ends above 1: B is worse.",
            &[("length", LENGTH), ("ended badly", ENDED_BADLY)],
        ),
        twin(
            "Failed requests",
            "percentunit",
            "Ratio of requests that ended in error, timeout, truncated or rejected: tokengauge_requests_finished_total.",
            FAILED,
        ),
        twin(
            "Truncated answers",
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
    let line = asked(ENDED_BADLY_BY_KIND, side, Over::Step);
    Panel {
        lines: [("{{tokengauge_choice_result}}".to_owned(), line)].into(),
        stacked: true,
        empty: Some("None".to_owned()),
        ..time_series(
            &format!("{side_name}: how choices ended badly"),
            "percentunit",
            &format!(
                "{side_name}'s share of choices, by what became of them: tokengauge_choices_finished_total."
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
        (format!("{}, {{{{tokengauge_currency}}}}", side.name()), asked(COST, side, Over::Step))
    });
    let ratio = ratios(
        "Cost, B ÷ A",
        "Below 1, B is cheaper: tokengauge_cost_total ÷ tokengauge_requests_finished_total, B ÷ A, per currency.",
        &[("{{tokengauge_currency}}", COST)],
    );
    let empty = Some("Nothing that has a price".to_owned());
    vec![Panel { lines: lines.into(), empty: empty.clone(), ..cost }, Panel { empty, ..ratio }]
}

#[cfg(test)]
mod tests {
    use super::super::faults::{panels, queries};
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
            for (_, _, question) in SPEED.iter().chain(PRICE) {
                let text = asked(question, side, Over::Shown);
                assert!(text.contains(own) && !text.contains(other), "{text}");
                assert!(!text.contains("<side>") && !text.contains("<range>"), "{text}");
            }
        }
    }
}
