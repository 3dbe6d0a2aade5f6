//! Saturation: throughput, latency and errors over time and over load, and queues by location.

use super::quantile::quantile;
use super::{Colour, Dashboard, Panel, Scope, Unit, time_series, xy_chart};

const NO_ENGINE: &str = "No engine is asked, or none answers";
const NO_LIMIT: &str = "No answer tells of a limit";

pub(super) fn dashboard() -> Dashboard {
    Dashboard::new(
        "tokengauge-saturation",
        "tokengauge · saturation",
        "Where the knee is: throughput, latency and errors over one time axis and over the load, and where requests queue: \
         here, in the engine, or at the vendor's limit.",
    )
    .scope(Scope::Call)
    .row("The evaluation plot: throughput, latency and errors over one time", evaluation())
    .row("Over the load", load())
    .row("Queues", queues())
    .row("The engine's own numbers", engine())
    .row("The vendor's limits", vendor())
}

/// Three full-width panels stacked vertically, so that their time axes align.
fn evaluation() -> Vec<Panel> {
    vec![output(), latency(), errors()]
}

fn load() -> Vec<Panel> {
    vec![stream_over_load(), system_over_load(), offered(), in_flight(), windows(), retries()]
}

/// Plots values over the mean number of streams in flight, computed as stream-seconds per second.
fn over_the_load(title: &'static str, description: &'static str) -> Panel {
    xy_chart(title, Unit::TokensPerSecond, description).column(
        "streams in flight",
        Unit::Number,
        "sum(rate(tokengauge_stream_time_seconds_total{<lane>}[$__rate_interval]))",
    )
}

fn queues() -> Vec<Panel> {
    vec![depth(), wait_p95(), wait_mean(), turned_away()]
}

/// Uses maxima. Several processes can scrape one engine, and one name can cover several engines. The maximum is correct
/// in both cases.
fn engine() -> Vec<Panel> {
    vec![engine_requests(), kv_cache(), prefix_cache(), scrape_age(), warmth()]
}

fn vendor() -> Vec<Panel> {
    vec![requests_left(), tokens_left(), reset(), too_many()]
}

fn output() -> Panel {
    time_series(
        "Output TPS",
        Unit::TokensPerSecond,
        "All output tokens as they are counted: tokengauge_tokens_total (output). For one stream, on the right: \
         those of streams ÷ tokengauge_stream_time_seconds_total (streaming).",
    )
    .line(
        "system",
        r#"sum(rate(tokengauge_tokens_total{<call>, gen_ai_token_type="output"}[$__rate_interval]))"#,
    )
    .right(
        "one stream",
        Unit::TokensPerSecond,
        r#"sum(rate(tokengauge_tokens_total{<call>, gen_ai_token_type="output",
           gen_ai_request_stream="true"}[$__rate_interval]))
         / (sum(rate(tokengauge_stream_time_seconds_total{<call>,
              tokengauge_stream_state="streaming"}[$__rate_interval])) > 0)"#,
    )
    .size(24, 7)
}

fn latency() -> Panel {
    time_series(
        "Latency, p95",
        Unit::Seconds,
        "First token: tokengauge_time_to_seconds, point token (token − accept). To the end: \
         http_server_request_duration_seconds (end − accept), on the right, of every exchange on the route \
         whatever its model.",
    )
    .line(
        "first token",
        quantile(0.95, r#"tokengauge_time_to_seconds_bucket{<call>, tokengauge_point="token"}"#)
    )
    .right(
        "to the end",
        Unit::Seconds,
        quantile(0.95, "http_server_request_duration_seconds_bucket{<lane>}")
    )
    .size(24, 7)
}

fn errors() -> Panel {
    time_series(
        "Error rate",
        Unit::Share,
        "Share of exchanges that ended in error, timeout, truncated or rejected, by whose fault it was: \
         tokengauge_requests_finished_total. A client that left is no error. What was turned away here has the model unknown.",
    )
    .line(
        "fault of the {{tokengauge_fault}}",
        r#"sum by (tokengauge_fault) (rate(tokengauge_requests_finished_total{<call>,
           tokengauge_outcome=~"error|timeout|truncated|rejected"}[$__rate_interval]))
         / on () group_left ()
         (sum(rate(tokengauge_requests_finished_total{<call>}[$__rate_interval])) > 0)"#,
    )
    .stacked()
    .size(24, 7)
}

fn stream_over_load() -> Panel {
    over_the_load(
        "TPS of one stream over streams in flight",
        "What a user gets as the load grows: output tokens of streams ÷ tokengauge_stream_time_seconds_total \
         (streaming), over the mean number of streams in flight, rate(tokengauge_stream_time_seconds_total). Each \
         point is one step of the time range. Of all models on the route: they share its backend.",
    )
    .line(
        "TPS of one stream",
        r#"sum(rate(tokengauge_tokens_total{<lane>, gen_ai_token_type="output",
           gen_ai_request_stream="true"}[$__rate_interval]))
         / (sum(rate(tokengauge_stream_time_seconds_total{<lane>,
              tokengauge_stream_state="streaming"}[$__rate_interval])) > 0)"#,
    )
}

fn system_over_load() -> Panel {
    over_the_load(
        "TPS of the system over streams in flight",
        "What the system gives as the load grows: output tokens of streams per second (tokengauge_tokens_total), over \
         the mean number of streams in flight, rate(tokengauge_stream_time_seconds_total). Where it no longer rises is \
         the knee: more streams only wait. Of all models on the route.",
    )
    .line(
        "TPS of the system",
        r#"sum(rate(tokengauge_tokens_total{<lane>, gen_ai_token_type="output",
           gen_ai_request_stream="true"}[$__rate_interval]))"#,
    )
}

fn offered() -> Panel {
    time_series(
        "Offered and served",
        Unit::RequestsPerSecond,
        "Exchanges begun (tokengauge_requests_started_total), ended, and ended well (tokengauge_requests_finished_total). \
         Where begun stays above ended, work piles up. Of all models on the route.",
    )
    .line(
        "begun",
        "sum(rate(tokengauge_requests_started_total{<lane>}[$__rate_interval]))",
    )
    .line(
        "ended",
        "sum(rate(tokengauge_requests_finished_total{<lane>}[$__rate_interval]))",
    )
    .line(
        "ended well",
        r#"sum(rate(tokengauge_requests_finished_total{<lane>, tokengauge_outcome="ok"}[$__rate_interval]))"#,
    )
}

fn in_flight() -> Panel {
    time_series(
        "In flight",
        Unit::Number,
        "Exchanges in flight by what they do: queued here, waiting for the first token, streaming, or of an answer that \
         comes whole. tokengauge_active_requests; of all models on the route.",
    )
    .line(
        "{{tokengauge_state}}",
        "sum by (tokengauge_state) (tokengauge_active_requests{<lane>})",
    )
    .stacked()
}

fn windows() -> Panel {
    time_series(
        "Throughput by window",
        Unit::TokensPerSecond,
        "Output tokens in a window ÷ the window, as each process reckons it: tokengauge_throughput_per_second. peak is \
         the highest second of the last 5 minutes; added up over models and processes it is an upper bound, since \
         their highest seconds need not be the same.",
    )
    .line(
        "{{tokengauge_window}}",
        r#"sum by (tokengauge_window) (tokengauge_throughput_per_second{<call>, gen_ai_token_type="output"})"#,
    )
}

fn retries() -> Panel {
    time_series(
        "Retries",
        Unit::Share,
        "Share of the load that nobody asked for: tokengauge_client_retries_total ÷ tokengauge_requests_started_total, \
         by the sign by which a retry is known. Above a few per cent something is retried in a storm. Of all models \
         on the route.",
    )
    .line(
        "{{tokengauge_sign}}",
        "sum by (tokengauge_sign) (rate(tokengauge_client_retries_total{<lane>}[$__rate_interval]))
         / on () group_left ()
         (sum(rate(tokengauge_requests_started_total{<lane>}[$__rate_interval])) > 0)",
    )
    .stacked()
}

fn depth() -> Panel {
    time_series(
        "Depth of the queue",
        Unit::Number,
        "tokengauge_queue_depth. exact: held back here and waiting in the engine, by its own word; of several processes \
         that of the deepest, since they may stand before one engine. upper bound: held back here or awaiting the first \
         token, of all processes. Of all models on the route.",
    )
    .line(
        "{{tokengauge_route}}, exact",
        r#"max by (tokengauge_route) (tokengauge_queue_depth{<lane>, tokengauge_bound="exact"})"#,
    )
    .line(
        "{{tokengauge_route}}, upper bound",
        r#"sum by (tokengauge_route) (tokengauge_queue_depth{<lane>, tokengauge_bound="upper"})"#,
    )
}

fn wait_p95() -> Panel {
    time_series(
        "Time in queues, p95",
        Unit::Seconds,
        "How long calls were held back, by where: before this proxy (edge, by a load balancer's word), here by the \
         route's limit (admission), at the backend by its own word. tokengauge_queue_wait_seconds.",
    )
    .line(
        "{{tokengauge_where}}",
        "histogram_quantile(0.95, sum by (le, tokengauge_where) (
           rate(tokengauge_queue_wait_seconds_bucket{<call>}[$__rate_interval])
         )) >= 0",
    )
}

fn wait_mean() -> Panel {
    time_series(
        "Time in queues, mean",
        Unit::Seconds,
        "The same, mean of the calls of which it is known: tokengauge_queue_wait_seconds, sum ÷ count.",
    )
    .line(
        "{{tokengauge_where}}",
        "sum by (tokengauge_where) (rate(tokengauge_queue_wait_seconds_sum{<call>}[$__rate_interval]))
         / (sum by (tokengauge_where) (rate(tokengauge_queue_wait_seconds_count{<call>}[$__rate_interval])) > 0)",
    )
}

fn turned_away() -> Panel {
    time_series(
        "Turned away here",
        Unit::PerMinute,
        "Requests that this proxy refused because there was no room or it was stopping, by reason: \
         tokengauge_requests_finished_total, outcome rejected. Of all models on the route.",
    )
    .line(
        "{{error_type}}",
        r#"60 * sum by (error_type) (
           rate(tokengauge_requests_finished_total{<lane>, tokengauge_outcome="rejected"}[$__rate_interval])
         )"#,
    )
    .stacked()
    .empty("Nobody")
}

fn engine_requests() -> Panel {
    time_series(
        "Requests in the engine",
        Unit::Number,
        "Waiting for their turn and worked on, whoever sent them, by the engine's own word: tokengauge_backend_requests. \
         Of several engines behind one name that of the fullest.",
    )
    .line(
        "{{tokengauge_upstream}}, {{tokengauge_state}}",
        "max by (tokengauge_upstream, tokengauge_state) (tokengauge_backend_requests{<process>})",
    )
    .empty(NO_ENGINE)
    .size(8, 8)
}

fn kv_cache() -> Panel {
    time_series(
        "KV cache in use",
        Unit::Share,
        "By the engine's own word: tokengauge_backend_kv_cache_ratio. At 100 % it takes work back or lets it wait. Of \
         several engines behind one name that of the fullest.",
    )
    .line(
        "{{tokengauge_upstream}}",
        "max by (tokengauge_upstream) (tokengauge_backend_kv_cache_ratio{<process>})",
    )
    .lines_at(&[(0.95, Colour::Red)])
    .empty(NO_ENGINE)
    .min(0.0)
    .max(1.0)
    .size(8, 8)
}

fn prefix_cache() -> Panel {
    time_series(
        "Prefix cache hits",
        Unit::Share,
        "Share of what the engine looked up in its prefix cache that was there, by its own word: \
         tokengauge_backend_prefix_cache_ratio. Of several engines behind one name the mean.",
    )
    .line(
        "{{tokengauge_upstream}}",
        "avg by (tokengauge_upstream) (tokengauge_backend_prefix_cache_ratio{<process>})",
    )
    .empty(NO_ENGINE)
    .min(0.0)
    .max(1.0)
    .size(8, 8)
}

fn scrape_age() -> Panel {
    time_series(
        "Age of the engine's numbers",
        Unit::Seconds,
        "Time since the engine's own metrics were last read and understood, the oldest of all readers: \
         tokengauge_backend_scrape_age_seconds. What grows is not read.",
    )
    .line(
        "{{tokengauge_upstream}}",
        "max by (tokengauge_upstream) (tokengauge_backend_scrape_age_seconds{<process>})",
    )
    .empty(NO_ENGINE)
}

fn warmth() -> Panel {
    time_series(
        "Warmth of backends",
        Unit::Number,
        "How an exchange would find each backend now, counted over the processes that stand before one: \
         tokengauge_backend_warm. cold: it has to load before it can answer. warming: it answers and has not settled.",
    )
    .line(
        "{{tokengauge_upstream}}, {{tokengauge_warm}}",
        "sum by (tokengauge_upstream, tokengauge_warm) (tokengauge_backend_warm{<process>})",
    )
    .empty("No upstream asks (upstreams.*.warm)")
    .stacked()
}

fn requests_left() -> Panel {
    time_series(
        "Requests left",
        Unit::Share,
        "Share of the requests that the provider allows the account which is left, the least that any process was told: \
         tokengauge_quota_requests_remaining ÷ tokengauge_quota_requests_limit.",
    )
    .line(
        "{{gen_ai_provider_name}} {{gen_ai_request_model}}",
        "min by (gen_ai_provider_name, gen_ai_request_model) (
           tokengauge_quota_requests_remaining{<call>} / (tokengauge_quota_requests_limit{<call>} > 0)
         )",
    )
    .lines_at(&[(0.1, Colour::Orange)])
    .empty(NO_LIMIT)
    .min(0.0)
    .max(1.0)
}

fn tokens_left() -> Panel {
    time_series(
        "Tokens left",
        Unit::Share,
        "Share of the tokens that the provider allows the account which is left, the least that any process was told: \
         tokengauge_quota_tokens_remaining ÷ tokengauge_quota_tokens_limit. Some limit input and output apart.",
    )
    .line(
        "{{gen_ai_provider_name}} {{gen_ai_request_model}}, {{tokengauge_limited}}",
        "min by (gen_ai_provider_name, gen_ai_request_model, tokengauge_limited) (
           tokengauge_quota_tokens_remaining{<call>} / (tokengauge_quota_tokens_limit{<call>} > 0)
         )",
    )
    .lines_at(&[(0.1, Colour::Orange)])
    .empty(NO_LIMIT)
    .min(0.0)
    .max(1.0)
}

fn reset() -> Panel {
    time_series(
        "Until all of it is there again",
        Unit::Seconds,
        "By the provider's word, the longest of all processes: tokengauge_quota_reset_seconds.",
    )
    .line(
        "{{gen_ai_provider_name}}, {{tokengauge_limited}}",
        "max by (gen_ai_provider_name, tokengauge_limited) (tokengauge_quota_reset_seconds{<call>})",
    )
    .empty(NO_LIMIT)
}

fn too_many() -> Panel {
    time_series(
        "Answered 429 by the vendor",
        Unit::Share,
        "Share of exchanges that the upstream answered with 429, those that this proxy turned away left out: \
         tokengauge_requests_finished_total.",
    )
    .line(
        "{{gen_ai_provider_name}}",
        r#"sum by (gen_ai_provider_name) (rate(tokengauge_requests_finished_total{<call>,
           http_response_status_code="429", tokengauge_outcome!="rejected"}[$__rate_interval]))
         / (sum by (gen_ai_provider_name) (rate(tokengauge_requests_finished_total{<call>}[$__rate_interval])) > 0)"#,
    )
}
