//! Streaming quality: stages of the time to first token, token rates after it, and interruptions.

use super::quantile::quantile;
use super::{Colour, Dashboard, Panel, Scope, Unit, heatmap, stat, time_series};

mod breaks;

/// Ratio of rated streams in an output rate range. `voice` is counted in addition to the fastest range and is not a
/// range.
macro_rules! band {
    ($band:literal) => {
        concat!(
            "sum(rate(tokengauge_request_band_total{<call>, tokengauge_band=\"",
            $band,
            "\"}[$__rate_interval])) / (sum(rate(tokengauge_request_band_total{<call>, \
             tokengauge_band!=\"voice\"}[$__rate_interval])) > 0)"
        )
    };
}

pub(super) fn dashboard() -> Dashboard {
    Dashboard::new(
        "tokengauge-streaming",
        "tokengauge · streaming quality",
        "How well answers stream: the wait for the first token taken apart, the pace after it, stalls and breaks, and \
         whether the client, the network or the backend is slow.",
    )
    .scope(Scope::Call)
    .row("Now", now())
    .row("Until the first token", until_first_token())
    .row("After the first token", after_first_token())
    .row("Stalls and breaks", breaks::stalls_and_breaks())
    .row("Client and network", breaks::client_and_network())
    .row("Can the counts be trusted", trust())
}

fn now() -> Vec<Panel> {
    vec![
        median_rate(),
        slow_tail(),
        first_token_now(),
        inter_token_now(),
        stalled_now(),
        longest_silence(),
    ]
}

fn until_first_token() -> Vec<Panel> {
    vec![
        stages_until_first_token(),
        connecting(),
        first_token(),
        first_token_spread(),
        first_visible(),
        stages_after_first_token(),
    ]
}

fn after_first_token() -> Vec<Panel> {
    let mut panels = pace();
    panels.extend([bands(), voice(), unrated(), chunks()]);
    panels
}

fn pace() -> Vec<Panel> {
    vec![rate(), rate_spread(), inter_token(), inter_token_spread()]
}

/// Draws each output rate range as a separate line, the slowest at the bottom, to fix their order.
fn bands() -> Panel {
    time_series(
        "How streams feel",
        Unit::Share,
        "Share of rated streams in each band of output TPS: tokengauge_request_band_total. Below 5 tokens per second is \
         slower than most people read, from 30 on nobody waits for the text.",
    )
    .line("below 5 tok/s", band!("<5"))
    .line("5 to 15", band!("5-15"))
    .line("15 to 30", band!("15-30"))
    .line("30 to 60", band!("30-60"))
    .line("60 and more", band!(">=60"))
    .coloured("below 5 tok/s", Colour::Red)
    .coloured("5 to 15", Colour::Orange)
    .coloured("15 to 30", Colour::Yellow)
    .coloured("30 to 60", Colour::Green)
    .coloured("60 and more", Colour::Blue)
    .stacked()
    .min(0.0)
    .max(1.0)
}

fn trust() -> Vec<Panel> {
    vec![drift(), sources()]
}

fn median_rate() -> Panel {
    stat(
        "Output TPS, p50",
        Unit::TokensPerSecond,
        "Half of the streams ran slower than this, prefill excluded: tokengauge_request_output_rate_per_second.",
    )
    .query(quantile(0.5, "tokengauge_request_output_rate_per_second_bucket{<call>}"))
}

fn slow_tail() -> Panel {
    stat(
        "Output TPS, p10",
        Unit::TokensPerSecond,
        "One stream in ten ran slower than this: the slow tail of rates lies at the low end. \
         tokengauge_request_output_rate_per_second.",
    )
    .query(quantile(0.1, "tokengauge_request_output_rate_per_second_bucket{<call>}"))
}

fn first_token_now() -> Panel {
    stat(
        "First token, p95",
        Unit::Seconds,
        "One stream in twenty waited longer for its first token: tokengauge_time_to_seconds, point token (token − accept).",
    )
    .query(quantile(0.95, r#"tokengauge_time_to_seconds_bucket{<call>, tokengauge_point="token"}"#))
}

fn inter_token_now() -> Panel {
    stat(
        "Between tokens, p95",
        Unit::Seconds,
        "Inter-token latency: gap between token-bearing chunks ÷ tokens in the later one. tokengauge_inter_token_seconds.",
    )
    .query(quantile(0.95, "tokengauge_inter_token_seconds_bucket{<call>}"))
}

fn stalled_now() -> Panel {
    stat(
        "Stalled now",
        Unit::Number,
        "Streams that bring no token for longer than their route's patience: tokengauge_stream_stalled. Of all models \
         on the route: nobody has vouched for the model of a stream without a token.",
    )
    .query("sum(tokengauge_stream_stalled{<lane>})")
    .judged(Colour::Plain, &[(1.0, Colour::Orange)])
}

fn longest_silence() -> Panel {
    stat(
        "Longest silence",
        Unit::Seconds,
        "How long the longest silent of the streams in flight has brought no token: tokengauge_stream_idle_seconds. \
         Of all models on the route.",
    )
    .query("max(tokengauge_stream_idle_seconds{<lane>})")
    .empty("No stream")
}

fn stages_until_first_token() -> Panel {
    time_series(
        "Time to first token, taken apart",
        Unit::Seconds,
        "Mean of each stage of a stream up to its first token; together they are the mean time to first token. \
         tokengauge_request_stage_seconds (sum) ÷ streams that had a token (tokengauge_time_to_seconds, point token). \
         admission: held back here. connect: getting a connection. upload: sending the request. headers to \
         first_token: queue and prefill at the backend, and the way there and back.",
    )
    .line(
        "{{tokengauge_stage}}",
        r#"sum by (tokengauge_stage) (rate(tokengauge_request_stage_seconds_sum{<call>, gen_ai_request_stream="true",
           tokengauge_stage=~"admission|connect|upload|headers|first_byte|first_event|first_token"}[$__rate_interval]))
         / on () group_left ()
         (sum(rate(tokengauge_time_to_seconds_count{<call>, tokengauge_point="token"}[$__rate_interval])) > 0)"#,
    )
    .stacked()
}

fn connecting() -> Panel {
    time_series(
        "Getting a connection, taken apart",
        Unit::Seconds,
        "Mean of each part for an exchange, those on a connection that was there included: \
         tokengauge_connect_stage_seconds (sum) ÷ exchanges ended. Parts that never took place are absent. Of all models \
         on the route.",
    )
    .line(
        "{{tokengauge_connect_stage}}",
        "sum by (tokengauge_connect_stage) (rate(tokengauge_connect_stage_seconds_sum{<lane>}[$__rate_interval]))
         / on () group_left ()
         (sum(rate(tokengauge_requests_finished_total{<lane>}[$__rate_interval])) > 0)",
    )
    .stacked()
}

fn first_token() -> Panel {
    time_series(
        "Time to first token",
        Unit::Seconds,
        "token − accept, the wait in this proxy's own queue included: tokengauge_time_to_seconds, point token.",
    )
    .p50_p95_p99(r#"tokengauge_time_to_seconds_bucket{<call>, tokengauge_point="token"}"#)
}

fn first_token_spread() -> Panel {
    heatmap(
        "Time to first token, how it is distributed",
        Unit::Seconds,
        "Streams by time to first token: tokengauge_time_to_seconds, point token. Two bands at once are two kinds of \
         calls, or a cache that is hit and missed.",
    )
    .query(
        r#"sum by (le) (increase(
           tokengauge_time_to_seconds_bucket{<call>, tokengauge_point="token"}[$__rate_interval]
         ))"#,
    )
}

fn first_visible() -> Panel {
    time_series(
        "Time to first visible token",
        Unit::Seconds,
        "What a person waits for: visible − accept, reasoning included. tokengauge_time_to_seconds, point visible.",
    )
    .p50_p95_p99(r#"tokengauge_time_to_seconds_bucket{<call>, tokengauge_point="visible"}"#)
}

fn stages_after_first_token() -> Panel {
    time_series(
        "From the first token on, taken apart",
        Unit::Seconds,
        "Mean of each later stage of a stream: tokengauge_request_stage_seconds (sum) ÷ streams that had a token. \
         thinking: until a token that a person sees. decode: until the last one, time in which the client did not \
         read included. tail: until the end.",
    )
    .line(
        "{{tokengauge_stage}}",
        r#"sum by (tokengauge_stage) (rate(tokengauge_request_stage_seconds_sum{<call>, gen_ai_request_stream="true",
           tokengauge_stage=~"thinking|decode|tail"}[$__rate_interval]))
         / on () group_left ()
         (sum(rate(tokengauge_time_to_seconds_count{<call>, tokengauge_point="token"}[$__rate_interval])) > 0)"#,
    )
    .stacked()
}

fn voice() -> Panel {
    time_series(
        "Fast enough for a voice",
        Unit::Share,
        "Share of rated streams with at least 100 output tokens per second, which speech synthesis keeps up with; \
         they are among those of 60 and more. tokengauge_request_band_total, band voice ÷ the other bands.",
    )
    .line(
        "at least 100 tok/s",
        r#"sum(rate(tokengauge_request_band_total{<call>, tokengauge_band="voice"}[$__rate_interval]))
         / (sum(rate(tokengauge_request_band_total{<call>, tokengauge_band!="voice"}[$__rate_interval])) > 0)"#,
    )
    .min(0.0)
    .max(1.0)
}

fn unrated() -> Panel {
    time_series(
        "Streams without a rate",
        Unit::PerMinute,
        "Streams without an output TPS, by reason: tokengauge_request_unrated_total. few_tokens: fewer than 10 after the \
         first chunk. short_decode: over in less than 100 ms.",
    )
    .line(
        "{{tokengauge_unrated}}",
        "60 * sum by (tokengauge_unrated) (rate(tokengauge_request_unrated_total{<call>}[$__rate_interval]))",
    )
    .stacked()
}

fn chunks() -> Panel {
    time_series(
        "Tokens per chunk",
        Unit::Tokens,
        "Tokens in one token-bearing chunk: tokengauge_chunk_tokens. Above 1 the backend speculates, or something in \
         between holds chunks back and joins them; then gaps between chunks grow with it.",
    )
    .line(
        "mean",
        "sum(rate(tokengauge_chunk_tokens_sum{<call>}[$__rate_interval]))
         / (sum(rate(tokengauge_chunk_tokens_count{<call>}[$__rate_interval])) > 0)",
    )
    .line(
        "p95",
        quantile(0.95, "tokengauge_chunk_tokens_bucket{<call>}")
    )
}

fn rate() -> Panel {
    time_series(
        "Output TPS of streams",
        Unit::TokensPerSecond,
        "p50 and p10: tokengauge_request_output_rate_per_second, told when a stream ends. Live: output tokens ÷ \
         stream-seconds while they go by, tokengauge_tokens_total ÷ tokengauge_stream_time_seconds_total (streaming).",
    )
    .line(
        "p50",
        quantile(0.5, "tokengauge_request_output_rate_per_second_bucket{<call>}")
    )
    .line(
        "p10",
        quantile(0.1, "tokengauge_request_output_rate_per_second_bucket{<call>}")
    )
    .line(
        "live",
        r#"sum(rate(tokengauge_tokens_total{<call>, gen_ai_token_type="output",
           gen_ai_request_stream="true"}[$__rate_interval]))
         / (sum(rate(tokengauge_stream_time_seconds_total{<call>,
              tokengauge_stream_state="streaming"}[$__rate_interval])) > 0)"#,
    )
}

fn rate_spread() -> Panel {
    heatmap(
        "Output TPS, how it is distributed",
        Unit::TokensPerSecond,
        "Streams by output TPS, prefill excluded: tokengauge_request_output_rate_per_second.",
    )
    .query(
        "sum by (le) (increase(tokengauge_request_output_rate_per_second_bucket{<call>}[$__rate_interval]))",
    )
}

fn inter_token() -> Panel {
    time_series(
        "Time between tokens",
        Unit::Seconds,
        "Gap between token-bearing chunks ÷ tokens in the later one: tokengauge_inter_token_seconds. Time in which the \
         client did not read is taken out.",
    )
    .p50_p95_p99("tokengauge_inter_token_seconds_bucket{<call>}")
}

fn inter_token_spread() -> Panel {
    heatmap(
        "Time between tokens, how it is distributed",
        Unit::Seconds,
        "Tokens by the gap before them: tokengauge_inter_token_seconds.",
    )
    .query(
        "sum by (le) (increase(tokengauge_inter_token_seconds_bucket{<call>}[$__rate_interval]))",
    )
}

fn drift() -> Panel {
    time_series(
        "Tokens reported against tokens counted",
        Unit::Share,
        "How much more output tokens the provider reports than are counted here, over calls where both should agree: \
         tokengauge_drift_reported_total ÷ tokengauge_drift_counted_total − 1. Only of models whose own encoding is \
         known.",
    )
    .line(
        "{{gen_ai_request_model}}",
        "sum by (gen_ai_request_model) (rate(tokengauge_drift_reported_total{<call>}[$__rate_interval]))
         / (sum by (gen_ai_request_model) (rate(tokengauge_drift_counted_total{<call>}[$__rate_interval])) > 0) - 1",
    )
    .empty("Nothing to compare")
}

fn sources() -> Panel {
    time_series(
        "What output tokens were counted with",
        Unit::Share,
        "Share of output tokens: counted with the model's own encoding, or estimated with another one. \
         tokengauge_tokens_total by tokengauge_token_source.",
    )
    .line(
        "{{tokengauge_token_source}}",
        r#"sum by (tokengauge_token_source) (
           rate(tokengauge_tokens_total{<call>, gen_ai_token_type="output"}[$__rate_interval])
         )
         / on () group_left ()
         (sum(rate(tokengauge_tokens_total{<call>, gen_ai_token_type="output"}[$__rate_interval])) > 0)"#,
    )
    .stacked()
    .min(0.0)
    .max(1.0)
}
