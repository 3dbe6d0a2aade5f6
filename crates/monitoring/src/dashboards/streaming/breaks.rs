//! Panels for interrupted and delayed streams, by responsible peer.

use crate::dashboards::quantile::quantile;
use crate::dashboards::{Panel, Unit, time_series};

pub(super) fn stalls_and_breaks() -> Vec<Panel> {
    vec![stalls(), stalled(), stall_length(), bad_ends(), truncated(), aborted()]
}

pub(super) fn client_and_network() -> Vec<Panel> {
    vec![blocked(), round_trips(), retransmits()]
}

fn stalls() -> Panel {
    time_series(
        "Stalls",
        Unit::PerMinute,
        "Stalls as they happen, by what was awaited and what came instead: tokengauge_stream_stalls_total. Pinging: the \
         backend's front is there and its engine is not.",
    )
    .line(
        "{{tokengauge_awaited}}, {{tokengauge_silence}}",
        "60 * sum by (tokengauge_awaited, tokengauge_silence) (
           rate(tokengauge_stream_stalls_total{<call>}[$__rate_interval])
         )",
    )
    .stacked()
}

fn stalled() -> Panel {
    time_series(
        "Stalled, and for how long",
        Unit::Number,
        "Streams that are stalled (tokengauge_stream_stalled) and the longest silence of any stream in flight \
         (tokengauge_stream_idle_seconds), now. Of all models on the route.",
    )
    .line(
        "awaiting {{tokengauge_awaited}}",
        "sum by (tokengauge_awaited) (tokengauge_stream_stalled{<lane>})",
    )
    .right(
        "longest silence",
        Unit::Seconds,
        "max(tokengauge_stream_idle_seconds{<lane>})",
    )
}

fn stall_length() -> Panel {
    time_series(
        "Length of stalls",
        Unit::Seconds,
        "From the beginning of the silence, told when a stall is over: tokengauge_stall_time_seconds.",
    )
    .line(
        "p50",
        quantile(0.5, "tokengauge_stall_time_seconds_bucket{<call>}")
    )
    .line(
        "p95",
        quantile(0.95, "tokengauge_stall_time_seconds_bucket{<call>}")
    )
    .empty("No stall")
}

fn bad_ends() -> Panel {
    time_series(
        "Streams that did not end well",
        Unit::Share,
        "Share of streams, by how they came out: tokengauge_requests_finished_total. truncated: the upstream broke off. \
         cancelled: the client left. timeout: a limit of this proxy ran out.",
    )
    .line(
        "{{tokengauge_outcome}}",
        r#"sum by (tokengauge_outcome) (rate(tokengauge_requests_finished_total{<call>, gen_ai_request_stream="true",
           tokengauge_outcome!="ok"}[$__rate_interval]))
         / on () group_left ()
         (sum(rate(tokengauge_requests_finished_total{<call>, gen_ai_request_stream="true"}[$__rate_interval])) > 0)"#,
    )
}

fn truncated() -> Panel {
    time_series(
        "Truncated streams, by where they broke",
        Unit::PerMinute,
        "Answers that the upstream broke off, by the stage in which it did: tokengauge_requests_finished_total, outcome \
         truncated.",
    )
    .line(
        "{{tokengauge_stage}}",
        r#"60 * sum by (tokengauge_stage) (
           rate(tokengauge_requests_finished_total{<call>, tokengauge_outcome="truncated"}[$__rate_interval])
         )"#,
    )
    .stacked()
}

fn aborted() -> Panel {
    time_series(
        "Aborted by the client, by when it left",
        Unit::PerMinute,
        "Calls whose client left, by the stage in which it did: tokengauge_requests_finished_total, outcome cancelled. \
         Before the first token it was tired of waiting; in decode it had read enough, or the pace was too slow.",
    )
    .line(
        "{{tokengauge_stage}}",
        r#"60 * sum by (tokengauge_stage) (
           rate(tokengauge_requests_finished_total{<call>, tokengauge_outcome="cancelled"}[$__rate_interval])
         )"#,
    )
    .stacked()
}

fn blocked() -> Panel {
    time_series(
        "Time in which clients did not read",
        Unit::Share,
        "Share of the time of streams after their first token in which the client held them back: \
         tokengauge_stream_time_seconds_total, blocked ÷ (streaming + blocked). It is in no rate and no gap.",
    )
    .line(
        "blocked",
        r#"sum(rate(tokengauge_stream_time_seconds_total{<call>, tokengauge_stream_state="blocked"}[$__rate_interval]))
         / (sum(rate(tokengauge_stream_time_seconds_total{<call>,
              tokengauge_stream_state=~"streaming|blocked"}[$__rate_interval])) > 0)"#,
    )
    .size(8, 8)
}

fn round_trips() -> Panel {
    time_series(
        "Round trips to the next hop",
        Unit::Seconds,
        "Smoothed TCP round-trip time by the kernel, 95th percentile, on the client's side and the upstream's: \
         tokengauge_network_rtt_seconds. Of all models on the route; Linux only.",
    )
    .line(
        "{{tokengauge_side}}, p95",
        "histogram_quantile(0.95, sum by (le, tokengauge_side) (
           rate(tokengauge_network_rtt_seconds_bucket{<lane>}[$__rate_interval])
         )) >= 0",
    )
    .logarithmic()
    .size(8, 8)
}

fn retransmits() -> Panel {
    time_series(
        "Sent again",
        Unit::PerSecond,
        "TCP segments that this proxy's kernel sent again: tokengauge_network_retransmits_total. What the far end sent \
         again is not seen. Of all models on the route; Linux only.",
    )
    .line(
        "{{tokengauge_side}}",
        "sum by (tokengauge_side) (rate(tokengauge_network_retransmits_total{<lane>}[$__rate_interval]))",
    )
    .size(8, 8)
}
