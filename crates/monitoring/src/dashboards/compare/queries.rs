//! Queries of the comparison dashboard. Every query is written once, with two markers in addition to those of
//! [`query`](super::super::query). `<side>` becomes the label matchers of A or B. `<range>` becomes the time range of
//! the query. Ratios and quantiles do not depend on the length of the range, so `increase` is valid for any range.

#[derive(Clone, Copy)]
pub(super) enum Side {
    A,
    B,
}

impl Side {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
        }
    }

    pub(super) const fn lower_case(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }

    pub(super) fn matchers(self) -> String {
        let side = self.lower_case();
        format!(
            "<route>, gen_ai_provider_name=\"$provider_{side}\", gen_ai_request_model=\"$model_{side}\", \
             tokengauge_variant=\"$variant_{side}\""
        )
    }
}

/// Time range over which a query is evaluated.
#[derive(Clone, Copy)]
pub(super) enum TimeRange {
    /// The interval of each step in a time series.
    Step,
    /// The whole time range that the dashboard shows.
    Shown,
}

impl TimeRange {
    const fn range(self) -> &'static str {
        match self {
            Self::Step => "$__rate_interval",
            Self::Shown => "$__range",
        }
    }
}

pub(super) fn query_for(query_template: &str, side: Side, over: TimeRange) -> String {
    query_template.replace("<side>", &side.matchers()).replace("<range>", over.range())
}

/// Returns PromQL for the ratio B ÷ A. The result is absent if A is 0.
pub(super) fn ratio(query_template: &str, over: TimeRange) -> String {
    let of = |side| query_for(query_template, side, over);
    format!("({}) / (({}) > 0)", of(Side::B), of(Side::A))
}

pub(super) const OUTPUT_RATE_P50: &str = "histogram_quantile(0.5, sum by (le) (
    increase(tokengauge_request_output_token_rate_per_second_bucket{<side>}[<range>]))) >= 0";
pub(super) const OUTPUT_RATE_P10: &str = "histogram_quantile(0.1, sum by (le) (
    increase(tokengauge_request_output_token_rate_per_second_bucket{<side>}[<range>]))) >= 0";
pub(super) const TOTAL_RATE_P50: &str = "histogram_quantile(0.5, sum by (le) (
    increase(tokengauge_request_total_token_rate_per_second_bucket{<side>}[<range>]))) >= 0";
/// Output tokens per second of streaming time. Tokens are counted in one encoding, so that the rate is comparable
/// across providers.
pub(super) const TEXT_RATE: &str = r#"sum(increase(tokengauge_normalized_tokens_total{<side>, gen_ai_request_stream="true"}[<range>])) /
    (sum(increase(tokengauge_stream_active_time_seconds_total{<side>, tokengauge_stream_state="streaming"}[<range>])) > 0)"#;
pub(super) const FIRST_TOKEN_P50: &str = r#"histogram_quantile(0.5, sum by (le) (
    increase(tokengauge_time_to_first_token_seconds_bucket{<side>}[<range>]))) >= 0"#;
pub(super) const FIRST_TOKEN_P95: &str = r#"histogram_quantile(0.95, sum by (le) (
    increase(tokengauge_time_to_first_token_seconds_bucket{<side>}[<range>]))) >= 0"#;
pub(super) const INTER_TOKEN_P50: &str = "histogram_quantile(0.5, sum by (le) (
    increase(tokengauge_inter_token_latency_seconds_bucket{<side>}[<range>]))) >= 0";
pub(super) const INTER_TOKEN_P95: &str = "histogram_quantile(0.95, sum by (le) (
    increase(tokengauge_inter_token_latency_seconds_bucket{<side>}[<range>]))) >= 0";
/// Output tokens per finished choice. Tokens are counted in one encoding, as in `TEXT_RATE`.
pub(super) const LENGTH: &str =
    "sum(increase(tokengauge_normalized_tokens_total{<side>}[<range>])) /
    (sum(increase(tokengauge_choices_finished_total{<side>}[<range>])) > 0)";
/// Ratio of failed requests. The ratio is 0, not absent, if there are requests but no series of failed requests exists
/// yet.
pub(super) const FAILED: &str = r#"(
    sum(increase(tokengauge_requests_finished_total{<side>, tokengauge_outcome=~"error|timeout|truncated|rejected"}[<range>]))
    or 0 * sum(increase(tokengauge_requests_finished_total{<side>}[<range>]))
) / (sum(increase(tokengauge_requests_finished_total{<side>}[<range>])) > 0)"#;
pub(super) const TRUNCATED: &str = r#"(
    sum(increase(tokengauge_requests_finished_total{<side>, tokengauge_outcome="truncated"}[<range>]))
    or 0 * sum(increase(tokengauge_requests_finished_total{<side>}[<range>]))
) / (sum(increase(tokengauge_requests_finished_total{<side>}[<range>])) > 0)"#;
pub(super) const INCOMPLETE_CHOICES: &str = r#"(
    sum(increase(tokengauge_choices_finished_total{<side>, tokengauge_choice_result!="complete"}[<range>]))
    or 0 * sum(increase(tokengauge_choices_finished_total{<side>}[<range>]))
) / (sum(increase(tokengauge_choices_finished_total{<side>}[<range>])) > 0)"#;
pub(super) const INCOMPLETE_CHOICES_BY_RESULT: &str = r#"sum by (tokengauge_choice_result) (
    increase(tokengauge_choices_finished_total{<side>, tokengauge_choice_result!="complete"}[<range>]))
    / on () group_left () (sum(increase(tokengauge_choices_finished_total{<side>}[<range>])) > 0)"#;
/// Cost per thousand requests, grouped by currency. Amounts are not converted to another currency.
pub(super) const COST: &str =
    "1000 * sum by (tokengauge_currency) (increase(tokengauge_cost_total{<side>}[<range>]))
    / on () group_left () (sum(increase(tokengauge_requests_finished_total{<side>}[<range>])) > 0)";
pub(super) const REQUESTS: &str =
    "round(sum(increase(tokengauge_requests_finished_total{<side>}[<range>]))) > 0";

/// A table row: its name, which values are better (such as `higher`), and the query.
pub(super) type Measure = (&'static str, &'static str, &'static str);

pub(super) const SPEED: &[Measure] = &[
    ("Output tokens/s per stream, p50", "higher", OUTPUT_RATE_P50),
    ("Output tokens/s per stream, p10", "higher", OUTPUT_RATE_P10),
    ("Tokens/s of the whole call, p50", "higher", TOTAL_RATE_P50),
    ("Text while streaming, o200k tokens/s", "higher", TEXT_RATE),
    ("TTFT p50, s", "lower", FIRST_TOKEN_P50),
    ("TTFT p95, s", "lower", FIRST_TOKEN_P95),
    ("ITL p50, s", "lower", INTER_TOKEN_P50),
    ("ITL p95, s", "lower", INTER_TOKEN_P95),
];

pub(super) const PRICE: &[Measure] = &[
    ("Response length, o200k tokens", "as long", LENGTH),
    ("Failed requests, ratio", "lower", FAILED),
    ("Truncated responses, ratio", "lower", TRUNCATED),
    ("Failed choices, ratio", "lower", INCOMPLETE_CHOICES),
    ("Cost of 1,000 requests, $1", "lower", COST),
    ("Requests", "–", REQUESTS),
];

/// Returns the query for all table rows of A or B. The currency of a cost becomes part of the row name.
pub(super) fn measures(rows: &[Measure], side: Side) -> String {
    let rows: Vec<String> = rows
        .iter()
        .map(|(measure, better, query_template)| {
            let (from, all) =
                if measure.contains("$1") { ("tokengauge_currency", "(.+)") } else { ("", "") };
            let query = query_for(query_template, side, TimeRange::Shown);
            format!(
                "label_replace(label_replace({query}, \"better\", \"{better}\", \"\", \"\"), \
                 \"measure\", \"{measure}\", \"{from}\", \"{all}\")"
            )
        })
        .collect();
    format!("sum by (measure, better) ({})", rows.join(" or "))
}

#[derive(Clone, Copy)]
pub(super) enum Limit {
    Lower,
    Upper,
}

/// Returns PromQL for a limit of the 95 % interval of a quantile q. For n values, the limits are the quantiles q ± 1.96
/// · √(q · (1 − q) ÷ n), by the binomial distribution.
pub(super) fn quantile_limit(histogram: &str, quantile: f64, side: Side, limit: Limit) -> String {
    let sign = match limit {
        Limit::Lower => "-",
        Limit::Upper => "+",
    };
    let variance = quantile * (1.0 - quantile);
    let text = format!(
        "histogram_quantile(scalar(clamp({quantile} {sign} \
         1.96 * sqrt({variance:.4} / sum(increase({histogram}_count{{<side>}}[<range>]))), 0, 1)), \
         sum by (le) (increase({histogram}_bucket{{<side>}}[<range>]))) >= 0"
    );
    query_for(&text, side, TimeRange::Shown)
}

/// Returns PromQL for the difference B − A over the whole displayed time range.
pub(super) fn difference(query_template: &str) -> String {
    let [a, b] = [Side::A, Side::B].map(|side| query_for(query_template, side, TimeRange::Shown));
    format!("({b}) - ({a})")
}
