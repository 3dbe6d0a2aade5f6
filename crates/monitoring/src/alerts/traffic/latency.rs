//! Latency alerts: time to first token, queues and stalls.

use crate::alerts::rule::{Alert, Rule, Severity};
use crate::alerts::span::Span;
use crate::alerts::traffic::{Believed, CALL, LANE, formerly, record, template};
use crate::alerts::values::Values;

const FIRST_TOKEN: &str = "model:tokengauge_time_to_first_token:mean5m";
const FIRST_TOKEN_HOUR: &str = "model:tokengauge_time_to_first_token:mean1h";
const FIRST_TOKEN_REFERENCE: &str = "model:tokengauge_time_to_first_token:reference";
const QUEUE: &str = "route:tokengauge_queue_depth:sum";

pub(super) fn rules(values: &Values) -> Vec<Rule> {
    vec![
        record(FIRST_TOKEN, mean(values, "5m", values.latency.first_token_min_calls)),
        first_token(values).into(),
        record(QUEUE, queue(values)),
        queue_growing(values).into(),
        stalled(values).into(),
    ]
}

pub(super) fn references(values: &Values) -> Vec<Rule> {
    vec![
        record(
            FIRST_TOKEN_HOUR,
            mean(values, "1h", values.latency.first_token_min_reference_calls),
        ),
        record(FIRST_TOKEN_REFERENCE, formerly(FIRST_TOKEN_HOUR, Believed::Higher)),
    ]
}

/// Computes the mean time to first token from sum and count, so that no rule depends on the notation of bucket bounds.
fn mean(values: &Values, window: &str, least: u64) -> String {
    template(values)
        .with("window", window)
        .with("least", least)
        .fill(
            r#"
            sum by (<call>) (rate(tokengauge_time_to_seconds_sum{<only>, tokengauge_point="token", gen_ai_request_model!="other"}[<window>]))
            / (sum by (<call>) (rate(tokengauge_time_to_seconds_count{<only>, tokengauge_point="token", gen_ai_request_model!="other"}[<window>])) > 0)
            and sum by (<call>) (increase(tokengauge_time_to_seconds_count{<only>, tokengauge_point="token", gen_ai_request_model!="other"}[<window>])) >= <least>
            "#,
        )
}

fn first_token(values: &Values) -> Alert {
    let (ratio, seconds) = (values.latency.first_token_ratio, values.latency.first_token_seconds);
    Alert {
        name: "LLMTTFTDegraded",
        severity: Severity::Warning,
        expr: format!(
            "{FIRST_TOKEN} > {ratio} * {FIRST_TOKEN_REFERENCE}\nand {FIRST_TOKEN} > {seconds}"
        ),
        hold: Some(Span::minutes(5)),
        keep_firing_for: Some(Span::minutes(5)),
        summary: "{{ $labels.gen_ai_request_model }} takes {{ $value | humanizeDuration }} to its first token".to_owned(),
        description: format!(
            "The mean time to first token of {CALL} over 5 min is {{{{ $value | humanizeDuration }}}}: more than {ratio} times \
             that of a day and of a week ago or, where neither is known, of the last hour. Longer prompts take longer, too."
        ),
        dashboard: "tokengauge-streaming",
    }
}

/// Computes the queue depth. If the engine reports its queue, all replicas in front of it report the same value.
/// Otherwise each replica has a separate queue.
fn queue(values: &Values) -> String {
    template(values).fill(
        r#"
        max by (<lane>) (tokengauge_queue_depth{<only>, tokengauge_bound="exact"})
        or sum by (<lane>) (tokengauge_queue_depth{<only>, tokengauge_bound="upper"})
        "#,
    )
}

/// Fires if the queue is longer than before, still growing, and longer than the number of requests that the route
/// finishes in `queue_seconds`. Under high throughput, many requests wait for their first token at any time, but none
/// waits long.
fn queue_growing(values: &Values) -> Alert {
    let latency = &values.latency;
    let (ratio, seconds) = (latency.queue_ratio, latency.queue_seconds);
    let expr = template(values)
        .with("queue", QUEUE)
        .with("depth", latency.queue_depth)
        .with("ratio", ratio)
        .with("seconds", seconds)
        .fill(
            r"
            avg_over_time(<queue>[5m]) > <depth>
            and avg_over_time(<queue>[5m]) > <ratio> * avg_over_time(<queue>[1h] offset 10m)
            and deriv(<queue>[10m]) > 0
            unless avg_over_time(<queue>[5m]) <= <seconds> * sum by (<lane>) (rate(tokengauge_requests_finished_total{<only>}[5m]))
            ",
        );
    Alert {
        name: "LLMQueueGrowing",
        severity: Severity::Warning,
        expr,
        hold: Some(Span::minutes(5)),
        keep_firing_for: Some(Span::minutes(5)),
        summary: "The queue of route {{ $labels.tokengauge_route }} grows".to_owned(),
        description: format!(
            "On {LANE} {{{{ $value | humanize }}}} requests waited on average over 5 min: more than {ratio} times as many as \
             in the hour before, more than the route ends in {seconds} s, and ever more."
        ),
        dashboard: "tokengauge-saturation",
    }
}

/// Aggregates by route, because a stall before the first token has no model yet. Hanging streams do not end, so streams
/// that are stalled now are also compared with streams in flight.
fn stalled(values: &Values) -> Alert {
    let latency = &values.latency;
    let expr = template(values)
        .with("per_stream", latency.stalls_per_stream)
        .with("least", latency.min_stalls)
        .with("now_share", latency.stalled_now_share)
        .with("least_now", latency.min_stalled_now)
        .fill(
            r#"
            (
              sum by (<lane>) (increase(tokengauge_stream_stalls_total{<only>}[10m]))
              / (sum by (<lane>) (increase(tokengauge_requests_finished_total{<only>, gen_ai_request_stream="true"}[10m])) > 0)
              > <per_stream>
              and sum by (<lane>) (increase(tokengauge_stream_stalls_total{<only>}[10m])) >= <least>
            )
            or
            (
              sum by (<lane>) (tokengauge_stream_stalled{<only>})
              / (sum by (<lane>) (tokengauge_active_requests{<only>, tokengauge_state=~"waiting|streaming"}) > 0)
              > <now_share>
              and sum by (<lane>) (tokengauge_stream_stalled{<only>}) >= <least_now>
            )
            "#,
        );
    Alert {
        name: "LLMStreamsStalled",
        severity: Severity::Warning,
        expr,
        hold: Some(Span::minutes(2)),
        keep_firing_for: Some(Span::minutes(5)),
        summary: "Streams stall on route {{ $labels.tokengauge_route }}".to_owned(),
        description: format!(
            "On {LANE} there are {{{{ $value | printf \"%.2f\" }}}} stalls to each stream: in 10 min, of the streams that \
             ended, or now, of those in flight. More than {} or {} are too many.",
            latency.stalls_per_stream, latency.stalled_now_share
        ),
        dashboard: "tokengauge-streaming",
    }
}
