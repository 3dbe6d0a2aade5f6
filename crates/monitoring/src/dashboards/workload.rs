//! Workload: request and response sizes, their change over time, and cost.

use super::quantile::quantile;
use super::{Colour, Dashboard, Panel, Scope, Unit, bar_gauge, heatmap, table, time_series};

const NO_BUDGET: &str = "No budget";
const UNPRICED: &str = "Nothing that has a price";

pub(super) fn dashboard() -> Dashboard {
    Dashboard::new(
        "tokengauge-workload",
        "tokengauge · workload and cost",
        "What is asked and answered, whether that changes, who asks, and what it costs.",
    )
    .scope(Scope::Call)
    .row("Lengths", lengths())
    .row("Answers", answers())
    .row("Tokens", tokens())
    .row("Cost", cost())
    .row("Budgets and tenants", budgets())
}

fn lengths() -> Vec<Panel> {
    vec![prompts(), answer_lengths(), prompts_then(), answers_then(), workload_drift()]
}

fn answers() -> Vec<Panel> {
    vec![finish_reasons(), bad_choices(), streamed()]
}

fn tokens() -> Vec<Panel> {
    vec![counted(), reported(), cached(), sources()]
}

/// Cost panels. Amounts are never summed across currencies.
fn cost() -> Vec<Panel> {
    vec![by_model(), by_tenant(), per_request(), per_output(), hardware(), unpriced()]
}

fn budgets() -> Vec<Panel> {
    vec![budget_table().empty(NO_BUDGET), pace(), tokens_by_tenant(), cost_by_tenant()]
}

/// Table of budgets. A gauge cannot be the range of a query, so each standard window has a separate query. Each query
/// returns the budgets with that window.
fn budget_table() -> Panel {
    table(
        "Budgets",
        Unit::Share,
        "Used: increase(tokengauge_budget_used_total) over the budget's own window ÷ tokengauge_budget_limit, of all chosen \
         processes together; for windows of 1 h, 1 d, 7 d and 30 d. Paces: what the last hour or day used, for a whole \
         window (tokengauge_budget_window_seconds), ÷ the limit: above 100 % the budget would not last.",
    )
    .key("tokengauge_budget_name", "Budget")
    .key("tokengauge_budget_unit", "Unit")
    .column("Limit", Unit::Money, LIMIT)
    .column("Window", Unit::Seconds, WINDOW)
    .column(
        "Used in the window",
        Unit::Share,
        [("1h", 3_600), ("1d", 86_400), ("7d", 604_800), ("30d", 2_592_000)]
            .map(|(range, seconds)| {
                let used = used_in(range);
                format!("({used} / {LIMIT} and {WINDOW} == {seconds})")
            })
            .join(" or "),
    )
    .column(
        "At the pace of the last hour",
        Unit::Share,
        format!("{} / 3600 * {WINDOW} / {LIMIT}", used_in("1h")),
    )
    .column(
        "At the pace of the last day",
        Unit::Share,
        format!("{} / 86400 * {WINDOW} / {LIMIT}", used_in("1d")),
    )
}

const LIMIT: &str =
    "max by (tokengauge_budget_name, tokengauge_budget_unit) (tokengauge_budget_limit{<process>})";
const WINDOW: &str = "max by (tokengauge_budget_name, tokengauge_budget_unit) (
    tokengauge_budget_window_seconds{<process>})";

fn used_in(range: &str) -> String {
    format!(
        "sum by (tokengauge_budget_name, tokengauge_budget_unit) (\
         increase(tokengauge_budget_used_total{{<process>}}[{range}]))"
    )
}

fn prompts() -> Panel {
    heatmap(
        "Length of prompts",
        Unit::Tokens,
        "Calls by input tokens as reported by the provider, cached ones included: \
         gen_ai_client_inference_operation_input_tokens (the standard's latest names).",
    )
    .query(
        "sum by (le) (increase(gen_ai_client_inference_operation_input_tokens_bucket{<call>}[$__rate_interval]))",
    )
}

fn answer_lengths() -> Panel {
    heatmap(
        "Length of answers",
        Unit::Tokens,
        "Calls by output tokens as reported by the provider, reasoning included: \
         gen_ai_client_inference_operation_output_tokens (the standard's latest names).",
    )
    .query(
        "sum by (le) (increase(gen_ai_client_inference_operation_output_tokens_bucket{<call>}[$__rate_interval]))",
    )
}

fn prompts_then() -> Panel {
    time_series(
        "Length of prompts, now and a day ago",
        Unit::Tokens,
        "p50 and p95 of gen_ai_client_inference_operation_input_tokens, and the p95 of the same time of the day before. \
         Longer prompts make any backend slower.",
    )
    .line(
        "p50",
        quantile(0.5, "gen_ai_client_inference_operation_input_tokens_bucket{<call>}")
    )
    .line(
        "p95",
        quantile(0.95, "gen_ai_client_inference_operation_input_tokens_bucket{<call>}")
    )
    .line(
        "p95 a day ago",
        "histogram_quantile(0.95, sum by (le) (
           rate(gen_ai_client_inference_operation_input_tokens_bucket{<call>}[$__rate_interval] offset 1d)
         )) >= 0",
    )
}

fn answers_then() -> Panel {
    time_series(
        "Length of answers, now and a day ago",
        Unit::Tokens,
        "p50 and p95 of gen_ai_client_inference_operation_output_tokens, and the p95 of the same time of the day before.",
    )
    .line(
        "p50",
        quantile(0.5, "gen_ai_client_inference_operation_output_tokens_bucket{<call>}")
    )
    .line(
        "p95",
        quantile(0.95, "gen_ai_client_inference_operation_output_tokens_bucket{<call>}")
    )
    .line(
        "p95 a day ago",
        "histogram_quantile(0.95, sum by (le) (
           rate(gen_ai_client_inference_operation_output_tokens_bucket{<call>}[$__rate_interval] offset 1d)
         )) >= 0",
    )
}

fn workload_drift() -> Panel {
    time_series(
        "Workload drift",
        Unit::Number,
        "How far the lengths of prompts (input) and answers (output) are from their baseline: population stability \
         index, tokengauge_drift_workload_ratio, the highest of all processes. From 0.1 commonly read as a slight \
         change, from 0.25 as a great one.",
    )
    .line(
        "{{gen_ai_request_model}}, {{gen_ai_token_type}}",
        "max by (gen_ai_request_model, gen_ai_token_type) (tokengauge_drift_workload_ratio{<call>})",
    )
    .lines_at(&[(0.1, Colour::Yellow), (0.25, Colour::Red)])
    .empty("Fewer than 200 calls to compare")
    .decimals(2)
    .size(24, 7)
}

fn finish_reasons() -> Panel {
    time_series(
        "Why choices ended",
        Unit::Share,
        "Share of choices by the provider's finish reason: tokengauge_choices_finished_total. error: one was owed and \
         never came.",
    )
    .line(
        "{{tokengauge_finish_reason}}",
        "sum by (tokengauge_finish_reason) (rate(tokengauge_choices_finished_total{<call>}[$__rate_interval]))
         / on () group_left ()
         (sum(rate(tokengauge_choices_finished_total{<call>}[$__rate_interval])) > 0)",
    )
    .stacked()
    .min(0.0)
    .max(1.0)
    .size(8, 8)
}

fn bad_choices() -> Panel {
    time_series(
        "Choices that ended badly",
        Unit::Share,
        "Share of choices that were refused, filtered, empty or unfinished, or whose tool arguments are no JSON: \
         tokengauge_choices_finished_total by tokengauge_choice.",
    )
    .line(
        "{{tokengauge_choice}}",
        r#"sum by (tokengauge_choice) (
           rate(tokengauge_choices_finished_total{<call>, tokengauge_choice!="complete"}[$__rate_interval])
         )
         / on () group_left ()
         (sum(rate(tokengauge_choices_finished_total{<call>}[$__rate_interval])) > 0)"#,
    )
    .stacked()
    .size(8, 8)
}

fn streamed() -> Panel {
    time_series(
        "Streamed or whole",
        Unit::RequestsPerSecond,
        "Calls by how their answer came, as a stream (true) or whole (false): tokengauge_requests_finished_total. Failed \
         answers come whole.",
    )
    .line(
        "stream: {{gen_ai_request_stream}}",
        r#"sum by (gen_ai_request_stream) (
           rate(tokengauge_requests_finished_total{<call>, gen_ai_operation_name=~".+"}[$__rate_interval])
         )"#,
    )
    .stacked()
    .size(8, 8)
}

fn counted() -> Panel {
    time_series(
        "Tokens counted, by kind",
        Unit::TokensPerSecond,
        "As counted here, output while it streams: tokengauge_tokens_total. The prompt is an estimate, bytes of its \
         texts ÷ 4.",
    )
    .line(
        "{{gen_ai_token_type}}, {{tokengauge_token_kind}}",
        "sum by (gen_ai_token_type, tokengauge_token_kind) (rate(tokengauge_tokens_total{<call>}[$__rate_interval]))",
    )
    .stacked()
}

fn reported() -> Panel {
    time_series(
        "Tokens reported, by kind",
        Unit::TokensPerSecond,
        "As reported by the provider when a call ends, kinds that do not overlap: tokengauge_usage_total. uncached, \
         cache_read and cache_write are the input; output, reasoning and hidden the output. Never to be added to \
         those counted.",
    )
    .line(
        "{{tokengauge_token_kind}}",
        "sum by (tokengauge_token_kind) (rate(tokengauge_usage_total{<call>}[$__rate_interval]))",
    )
    .stacked()
    .empty("No usage reported")
}

fn cached() -> Panel {
    time_series(
        "Input read from a cache",
        Unit::Share,
        "Share of the input tokens that the provider read from its cache: tokengauge_usage_total, cache_read ÷ (uncached \
         + cache_read + cache_write).",
    )
    .line(
        "{{gen_ai_request_model}}",
        r#"sum by (gen_ai_request_model) (
           rate(tokengauge_usage_total{<call>, tokengauge_token_kind="cache_read"}[$__rate_interval])
         )
         / (sum by (gen_ai_request_model) (rate(tokengauge_usage_total{<call>,
              tokengauge_token_kind=~"uncached|cache_read|cache_write"}[$__rate_interval])) > 0)"#,
    )
    .empty("No usage reported")
    .min(0.0)
    .max(1.0)
}

fn sources() -> Panel {
    time_series(
        "Output tokens, by what they were counted with",
        Unit::TokensPerSecond,
        "counted: with the model's own encoding. estimated: with another one. tokengauge_tokens_total by \
         tokengauge_token_source.",
    )
    .line(
        "{{tokengauge_token_source}}",
        r#"sum by (tokengauge_token_source) (
           rate(tokengauge_tokens_total{<call>, gen_ai_token_type="output"}[$__rate_interval])
         )"#,
    )
    .stacked()
}

fn by_model() -> Panel {
    time_series(
        "Cost per hour, by model",
        Unit::Money,
        "By the table of prices, in the currency that the legend names: 3,600 × rate(tokengauge_cost_total).",
    )
    .line(
        "{{gen_ai_request_model}}, {{tokengauge_currency}}",
        "3600 * sum by (gen_ai_request_model, tokengauge_currency) (
           rate(tokengauge_cost_total{<call>}[$__rate_interval])
         )",
    )
    .empty(UNPRICED)
}

fn by_tenant() -> Panel {
    time_series(
        "Cost per hour, by tenant",
        Unit::Money,
        "The ten that cost most at each instant, of each currency; a call without a tenant has none: 3,600 × \
         rate(tokengauge_cost_total).",
    )
    .line(
        "{{tokengauge_tenant}}, {{tokengauge_currency}}",
        "3600 * topk by (tokengauge_currency) (10, sum by (tokengauge_tenant, tokengauge_currency) (
           rate(tokengauge_cost_total{<call>}[$__rate_interval])
         ))",
    )
    .empty(UNPRICED)
}

fn per_request() -> Panel {
    time_series(
        "Cost per 1,000 requests",
        Unit::Money,
        "What calls cost ÷ requests that ended, failed ones included: 1,000 × tokengauge_cost_total ÷ \
         tokengauge_requests_finished_total, by model.",
    )
    .line(
        "{{gen_ai_request_model}}, {{tokengauge_currency}}",
        "1000 * sum by (gen_ai_request_model, tokengauge_currency) (
           rate(tokengauge_cost_total{<call>}[$__rate_interval])
         )
         / on (gen_ai_request_model) group_left ()
         (sum by (gen_ai_request_model) (rate(tokengauge_requests_finished_total{<call>}[$__rate_interval])) > 0)",
    )
    .empty(UNPRICED)
}

fn per_output() -> Panel {
    time_series(
        "Cost per million output tokens",
        Unit::Money,
        "All that calls cost, their input too, ÷ the output that they reported: 10⁶ × tokengauge_cost_total (reported) ÷ \
         tokengauge_usage_total (output, reasoning, hidden), by model.",
    )
    .line(
        "{{gen_ai_request_model}}, {{tokengauge_currency}}",
        r#"1e6 * sum by (gen_ai_request_model, tokengauge_currency) (
           rate(tokengauge_cost_total{<call>, tokengauge_token_source="reported"}[$__rate_interval])
         )
         / on (gen_ai_request_model) group_left ()
         (sum by (gen_ai_request_model) (rate(tokengauge_usage_total{<call>,
            tokengauge_token_kind=~"output|reasoning|hidden"}[$__rate_interval])) > 0)"#,
    )
    .empty(UNPRICED)
}

fn hardware() -> Panel {
    time_series(
        "Hardware by the hour: a million output tokens",
        Unit::Money,
        "What a million output tokens cost at the load of now, on hardware that is paid by the hour, as each process \
         sees it: tokengauge_token_price. Several processes before the same hardware each take it for all theirs. Of \
         all models on the route; absent while nothing is generated.",
    )
    .line(
        "{{tokengauge_route}}, {{instance}}, {{tokengauge_currency}}",
        r#"tokengauge_token_price{<process>, tokengauge_route=~"$route"}"#,
    )
    .empty("No hardware has a price, or it is idle")
}

fn unpriced() -> Panel {
    time_series(
        "Calls without a price",
        Unit::PerMinute,
        "Calls that used tokens and for which the table has no price, by model: tokengauge_unpriced_total. They are in no \
         cost on this page.",
    )
    .line(
        "{{gen_ai_request_model}}",
        "60 * sum by (gen_ai_request_model) (rate(tokengauge_unpriced_total{<call>}[$__rate_interval]))",
    )
    .stacked()
    .empty("No table of prices")
}

fn pace() -> Panel {
    time_series(
        "Pace against the budget",
        Unit::Share,
        "Share of each budget that a whole window at this pace would take: rate(tokengauge_budget_used_total) × \
         tokengauge_budget_window_seconds ÷ tokengauge_budget_limit. Above 100 % for as long as the window it runs out.",
    )
    .line(
        "{{tokengauge_budget_name}}",
        "sum by (tokengauge_budget_name, tokengauge_budget_unit) (
           rate(tokengauge_budget_used_total{<process>}[$__rate_interval])
         )
         * max by (tokengauge_budget_name, tokengauge_budget_unit) (tokengauge_budget_window_seconds{<process>})
         / max by (tokengauge_budget_name, tokengauge_budget_unit) (tokengauge_budget_limit{<process>})",
    )
    .lines_at(&[(1.0, Colour::Red)])
    .empty(NO_BUDGET)
    .size(8, 8)
}

fn tokens_by_tenant() -> Panel {
    bar_gauge(
        "Tenants that use most tokens",
        Unit::Tokens,
        "The ten with the most tokens in the time range, input (estimated) and output, as counted here: \
         increase(tokengauge_tokens_total).",
    )
    .line(
        "{{tokengauge_tenant}}",
        "topk(10, sum by (tokengauge_tenant) (increase(tokengauge_tokens_total{<call>}[$__range])) > 0)",
    )
}

fn cost_by_tenant() -> Panel {
    bar_gauge(
        "Tenants that cost most",
        Unit::Money,
        "The ten that cost most in the time range, of each currency: increase(tokengauge_cost_total).",
    )
    .line(
        "{{tokengauge_tenant}}, {{tokengauge_currency}}",
        "topk by (tokengauge_currency) (10, sum by (tokengauge_tenant, tokengauge_currency) (
           increase(tokengauge_cost_total{<call>}[$__range])
         ) > 0)",
    )
    .empty(UNPRICED)
}
