//! Overview: whether the proxy or a provider is at fault, and how severe the problem is.

use super::Colour::{Green, Orange, Red, Yellow};
use super::{Dashboard, Panel, Scope, Unit, stat, table, time_series};

pub(super) fn dashboard() -> Dashboard {
    Dashboard::new(
        "tokengauge-overview",
        "tokengauge · overview",
        "Is it us, is it them, how bad. Numbers are of the vantage that is chosen: each vantage sees the same call.",
    )
    .scope(Scope::Call)
    .row("Now", now())
    .row("Lately", lately())
    .row("By provider and model", [by_model()])
}

/// A small panel of the top lines, which hold eight panels each.
fn small(panel: Panel) -> Panel {
    panel.size(3, 4)
}

fn now() -> Vec<Panel> {
    let calls = [requests(), them(), us(), first_token(), rate(), slow_tail(), system(), alerts()];
    let state = [in_flight(), queue(), stalled(), delay(), budget(), burn(), processes(), silent()];
    calls.into_iter().chain(state).map(small).collect()
}

fn requests() -> Panel {
    stat(
        "Requests",
        Unit::RequestsPerSecond,
        "Exchanges that ended, per second, plain HTTP too where every model is chosen: rate(tokengauge_requests_finished_total).",
    )
    .query("sum(rate(tokengauge_requests_finished_total{<call>}[$__rate_interval]))")
}

fn them() -> Panel {
    stat(
        "Failed: them",
        Unit::Share,
        "Share of exchanges that failed by the upstream's fault: rate(tokengauge_requests_finished_total) with tokengauge_fault = upstream ÷ all.",
    )
    .query(
        r#"(
            sum(rate(tokengauge_requests_finished_total{<call>, tokengauge_fault="upstream"}[$__rate_interval]))
            or 0 * sum(rate(tokengauge_requests_finished_total{<call>}[$__rate_interval]))
        )
        / (sum(rate(tokengauge_requests_finished_total{<call>}[$__rate_interval])) > 0)"#,
    )
    .judged(Green, &[(0.01, Yellow), (0.05, Red)])
}

fn us() -> Panel {
    stat(
        "Failed: us",
        Unit::Share,
        "Share of exchanges that failed by this proxy's own fault (its time limits, its admission limit, its stopping): rate(tokengauge_requests_finished_total) with tokengauge_fault = proxy ÷ all.",
    )
    .query(
        r#"(
            sum(rate(tokengauge_requests_finished_total{<call>, tokengauge_fault="proxy"}[$__rate_interval]))
            or 0 * sum(rate(tokengauge_requests_finished_total{<call>}[$__rate_interval]))
        )
        / (sum(rate(tokengauge_requests_finished_total{<call>}[$__rate_interval])) > 0)"#,
    )
    .judged(Green, &[(0.001, Yellow), (0.01, Red)])
}

fn first_token() -> Panel {
    stat(
        "TTFT p95",
        Unit::Seconds,
        "Time to first token, as the client has it: 95th percentile of tokengauge_time_to_seconds with tokengauge_point = token. Streams only.",
    )
    .query(
        r#"histogram_quantile(0.95,
            sum by (le) (rate(tokengauge_time_to_seconds_bucket{<call>, tokengauge_point="token"}[$__rate_interval]))
        ) >= 0"#,
    )
}

fn rate() -> Panel {
    stat(
        "TPS per stream",
        Unit::TokensPerSecond,
        "Live output tokens per second of one stream, prefill excluded: rate(tokengauge_tokens_total, output of streams) ÷ rate(tokengauge_stream_time_seconds_total, streaming). It moves while streams run.",
    )
    .query(LIVE)
}

/// Live token rate: tokens of streams ÷ their streaming time, including streams in flight.
const LIVE: &str = r#"
    sum(rate(tokengauge_tokens_total{<call>, gen_ai_token_type="output", gen_ai_request_stream="true"}[$__rate_interval]))
    / (sum(rate(tokengauge_stream_time_seconds_total{<call>, tokengauge_stream_state="streaming"}[$__rate_interval])) > 0)"#;

fn slow_tail() -> Panel {
    stat(
        "Slow tail p10",
        Unit::TokensPerSecond,
        "One stream in ten was slower than this: 10th percentile of tokengauge_request_output_rate_per_second, of streams that ended.",
    )
    .query(
        "histogram_quantile(0.1,
            sum by (le) (rate(tokengauge_request_output_rate_per_second_bucket{<call>}[$__rate_interval]))
        ) >= 0",
    )
}

fn system() -> Panel {
    stat(
        "TPS of the system",
        Unit::TokensPerSecond,
        "Output tokens per second of all calls together, as counted here: rate(tokengauge_tokens_total) with gen_ai_token_type = output.",
    )
    .query(r#"sum(rate(tokengauge_tokens_total{<call>, gen_ai_token_type="output"}[$__rate_interval]))"#)
}

fn alerts() -> Panel {
    stat(
        "Alerts firing",
        Unit::Number,
        "How many alerts of this program's rules fire, those that only inform left out: count(ALERTS). 0 also where the rules are not loaded.",
    )
    .query(r#"count(ALERTS{alertstate="firing", severity!="info", <alert>}) or vector(0)"#)
    .judged(Green, &[(1.0, Red)])
}

fn in_flight() -> Panel {
    stat(
        "In flight",
        Unit::Number,
        "Exchanges under way: tokengauge_active_requests, over all its states. Told by route, so not narrowed by provider and model.",
    )
    .query("sum(tokengauge_active_requests{<lane>})")
}

fn queue() -> Panel {
    stat(
        "Queue depth",
        Unit::Number,
        "The queue that a request finds: tokengauge_queue_depth, added up over routes and processes. Exact where an engine tells its own queue (once for each process that asks it), else an upper bound that includes prefill.",
    )
    .query("sum(tokengauge_queue_depth{<lane>})")
}

fn stalled() -> Panel {
    stat(
        "Stalled now",
        Unit::Number,
        "Streams that bring no token for longer than their route's patience, now: tokengauge_stream_stalled.",
    )
    .query("sum(tokengauge_stream_stalled{<lane>})")
    .judged(Green, &[(1.0, Orange)])
}

fn delay() -> Panel {
    stat(
        "Own delay p99",
        Unit::Seconds,
        "By how much this proxy's own turns came late: 99th percentile of tokengauge_self_delay_seconds on the runtime that moves bytes. From 100 ms on it is our slowness, not theirs.",
    )
    .query(
        r#"histogram_quantile(0.99,
            sum by (le) (rate(tokengauge_self_delay_seconds_bucket{<process>, tokengauge_part="runtime"}[$__rate_interval]))
        ) >= 0"#,
    )
    .judged(Green, &[(0.1, Red)])
    .empty("Not told")
}

fn budget() -> Panel {
    stat(
        "Error budget left",
        Unit::Share,
        "Of the objective that has the least left: slo:period_error_budget_remaining:ratio over 30 days where the recording rules are loaded, else tokengauge_slo_budget_ratio of the process that has the least.",
    )
    .query(
        "min(slo:period_error_budget_remaining:ratio{<fleet>})
        or min(tokengauge_slo_budget_ratio{<process>})",
    )
    .judged(Red, &[(0.0, Orange), (0.25, Green)])
    .empty("No events")
}

fn burn() -> Panel {
    stat(
        "Burn rate",
        Unit::Times,
        "How fast the budget burns that burns fastest, over 5 min: slo:current_burn_rate:ratio where the recording rules are loaded, else tokengauge_slo_burn_ratio. 1 spends a budget in exactly its window; alerts begin at 1, 3, 6 and 14.4 over longer windows.",
    )
    .query(
        r#"max(slo:current_burn_rate:ratio{<fleet>})
        or max(tokengauge_slo_burn_ratio{<process>, tokengauge_window="5m"})"#,
    )
    .decimals(1)
    .judged(Green, &[(1.0, Yellow), (6.0, Orange), (14.4, Red)])
    .empty("No events")
}

fn processes() -> Panel {
    stat(
        "Processes up",
        Unit::Number,
        "Processes of tokengauge that tell something: count(tokengauge_self_build).",
    )
    .query("count(tokengauge_self_build{<process>})")
    .judged(Red, &[(1.0, Green)])
    .empty("None")
}

fn silent() -> Panel {
    stat(
        "Gone silent",
        Unit::Number,
        "Processes that told something in the last 15 minutes and do not now: tokengauge_self_build, by instance. A rollout shows here for as long.",
    )
    .query(
        "count(
            group by (job, instance) (last_over_time(tokengauge_self_build{<process>}[15m]))
            unless group by (job, instance) (tokengauge_self_build{<process>})
        ) or vector(0)",
    )
    .judged(Green, &[(1.0, Yellow)])
}

fn lately() -> Vec<Panel> {
    let failed = time_series(
        "Failed, by whose fault",
        Unit::Share,
        "Share of exchanges that failed: rate(tokengauge_requests_finished_total) by tokengauge_fault ÷ all. A client that left is its own fault.",
    )
    .line(
        "{{tokengauge_fault}}",
        r#"sum by (tokengauge_fault) (rate(tokengauge_requests_finished_total{<call>, tokengauge_fault!="none"}[$__rate_interval]))
        / on () group_left ()
        (sum(rate(tokengauge_requests_finished_total{<call>}[$__rate_interval])) > 0)"#,
    )
    .stacked()
    .size(8, 8);
    let outcomes = time_series(
        "Requests by outcome",
        Unit::RequestsPerSecond,
        "Exchanges that ended, per second: rate(tokengauge_requests_finished_total) by tokengauge_outcome.",
    )
    .line(
        "{{tokengauge_outcome}}",
        "sum by (tokengauge_outcome) (rate(tokengauge_requests_finished_total{<call>}[$__rate_interval]))",
    )
    .stacked()
    .size(8, 8);
    vec![failed, outcomes, waiting(), stream_rates(), system_rates(), load()]
}

fn waiting() -> Panel {
    time_series(
        "Time to first token",
        Unit::Seconds,
        "As the client has it: percentiles of tokengauge_time_to_seconds with tokengauge_point = token. Streams only.",
    )
    .line(
        "p50",
        r#"histogram_quantile(0.5, sum by (le) (rate(tokengauge_time_to_seconds_bucket{<call>, tokengauge_point="token"}[$__rate_interval]))) >= 0"#,
    )
    .line(
        "p95",
        r#"histogram_quantile(0.95, sum by (le) (rate(tokengauge_time_to_seconds_bucket{<call>, tokengauge_point="token"}[$__rate_interval]))) >= 0"#,
    )
    .line(
        "p99",
        r#"histogram_quantile(0.99, sum by (le) (rate(tokengauge_time_to_seconds_bucket{<call>, tokengauge_point="token"}[$__rate_interval]))) >= 0"#,
    )
    .size(8, 8)
}

fn stream_rates() -> Panel {
    time_series(
        "TPS per stream",
        Unit::TokensPerSecond,
        "Live: rate(tokengauge_tokens_total, output of streams) ÷ rate(tokengauge_stream_time_seconds_total, streaming). Percentiles of tokengauge_request_output_rate_per_second, of streams when they end; of the slow tail, since nobody complains of fast ones.",
    )
    .line("live", LIVE)
    .line(
        "p50",
        "histogram_quantile(0.5, sum by (le) (rate(tokengauge_request_output_rate_per_second_bucket{<call>}[$__rate_interval]))) >= 0",
    )
    .line(
        "p10",
        "histogram_quantile(0.1, sum by (le) (rate(tokengauge_request_output_rate_per_second_bucket{<call>}[$__rate_interval]))) >= 0",
    )
    .size(8, 8)
}

fn system_rates() -> Panel {
    time_series(
        "TPS of the system, by model",
        Unit::TokensPerSecond,
        "Output tokens per second of all calls, as counted here: rate(tokengauge_tokens_total) with gen_ai_token_type = output.",
    )
    .line(
        "{{gen_ai_request_model}}",
        r#"sum by (gen_ai_request_model) (rate(tokengauge_tokens_total{<call>, gen_ai_token_type="output"}[$__rate_interval]))"#,
    )
    .stacked()
    .size(8, 8)
}

fn load() -> Panel {
    time_series(
        "In flight and stalls",
        Unit::Number,
        "tokengauge_active_requests by tokengauge_state: held back here, awaiting the first token, streaming, not streamed. Stalls are counted as they happen: rate(tokengauge_stream_stalls_total) × 60.",
    )
    .line(
        "{{tokengauge_state}}",
        "sum by (tokengauge_state) (tokengauge_active_requests{<lane>})",
    )
    .right(
        "stalls",
        Unit::PerMinute,
        "60 * sum(rate(tokengauge_stream_stalls_total{<call>}[$__rate_interval]))",
    )
    .size(8, 8)
}

/// Link to this dashboard, filtered to one provider and model.
const ONLY: &str = "/d/tokengauge-overview?${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}\
    &${namespace:queryparam}&${job:queryparam}&${instance:queryparam}&${vantage:queryparam}&${route:queryparam}\
    &var-provider=${__data.fields.Provider}&var-model=${__data.fields.Model}";

fn by_model() -> Panel {
    let panel = table(
        "Providers and models",
        Unit::Number,
        "Each column is the number of the same name above, by gen_ai_provider_name and gen_ai_request_model: tokengauge_requests_finished_total, tokengauge_tokens_total, tokengauge_stream_time_seconds_total, tokengauge_request_output_rate_per_second, tokengauge_time_to_seconds, tokengauge_stream_stalls_total. Failed leaves out what was the client's fault.",
    )
    .key("gen_ai_provider_name", "Provider")
    .key("gen_ai_request_model", "Model");
    how_fast(how_much(panel)).link("Model", "Only this model", ONLY)
}

fn how_much(panel: Panel) -> Panel {
    panel.column(
        "Requests",
        Unit::RequestsPerSecond,
        r#"sum by (gen_ai_provider_name, gen_ai_request_model) (
            rate(tokengauge_requests_finished_total{<call>, gen_ai_request_model!=""}[$__rate_interval])
        ) > 0"#,
    )
    .column(
        "Failed",
        Unit::Share,
        r#"(
            sum by (gen_ai_provider_name, gen_ai_request_model) (
                rate(tokengauge_requests_finished_total{<call>, gen_ai_request_model!="", tokengauge_fault=~"upstream|proxy"}[$__rate_interval])
            )
            or 0 * sum by (gen_ai_provider_name, gen_ai_request_model) (
                rate(tokengauge_requests_finished_total{<call>, gen_ai_request_model!=""}[$__rate_interval])
            )
        )
        / (sum by (gen_ai_provider_name, gen_ai_request_model) (
            rate(tokengauge_requests_finished_total{<call>, gen_ai_request_model!=""}[$__rate_interval])
        ) > 0)"#,
    )
    .column(
        "TPS of the system",
        Unit::TokensPerSecond,
        r#"sum by (gen_ai_provider_name, gen_ai_request_model) (
            rate(tokengauge_tokens_total{<call>, gen_ai_token_type="output"}[$__rate_interval])
        ) > 0"#,
    )
}

fn how_fast(panel: Panel) -> Panel {
    panel.column(
        "TPS per stream",
        Unit::TokensPerSecond,
        r#"sum by (gen_ai_provider_name, gen_ai_request_model) (
            rate(tokengauge_tokens_total{<call>, gen_ai_token_type="output", gen_ai_request_stream="true"}[$__rate_interval])
        )
        / (sum by (gen_ai_provider_name, gen_ai_request_model) (
            rate(tokengauge_stream_time_seconds_total{<call>, gen_ai_request_model!="", tokengauge_stream_state="streaming"}[$__rate_interval])
        ) > 0)"#,
    )
    .column(
        "Slow tail p10",
        Unit::TokensPerSecond,
        "histogram_quantile(0.1, sum by (le, gen_ai_provider_name, gen_ai_request_model) (
            rate(tokengauge_request_output_rate_per_second_bucket{<call>}[$__rate_interval])
        )) >= 0",
    )
    .column(
        "TTFT p50",
        Unit::Seconds,
        r#"histogram_quantile(0.5, sum by (le, gen_ai_provider_name, gen_ai_request_model) (
            rate(tokengauge_time_to_seconds_bucket{<call>, tokengauge_point="token"}[$__rate_interval])
        )) >= 0"#,
    )
    .column(
        "TTFT p95",
        Unit::Seconds,
        r#"histogram_quantile(0.95, sum by (le, gen_ai_provider_name, gen_ai_request_model) (
            rate(tokengauge_time_to_seconds_bucket{<call>, tokengauge_point="token"}[$__rate_interval])
        )) >= 0"#,
    )
    .column(
        "Stalls",
        Unit::PerMinute,
        "60 * sum by (gen_ai_provider_name, gen_ai_request_model) (
            rate(tokengauge_stream_stalls_total{<call>}[$__rate_interval])
        ) > 0",
    )
}
