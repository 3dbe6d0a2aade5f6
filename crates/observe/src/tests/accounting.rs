//! Tests token counts and timings of one stream at literal timestamps, with the calculation of each expected value. The
//! cases are those in which other tools lose tokens or measure the wrong time.

use std::sync::Arc;
use std::time::Duration;

use super::{Play, STREAMED, at, chunk, open, usage};
use crate::{InFlightRequests, ObserverSettings, Sinks};
use tokengauge_llm::count::Source;
use tokengauge_measure::record::{Completeness, Outcome};
use tokengauge_measure::timing::{LiveSample, Stage};
use tokengauge_telemetry::{Instruments, SnapshotSource, StateSnapshot, prometheus};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{
    BackpressureTime, BodyWaitState, Direction, Ending, ExchangeId, ObserverEvent,
    TimestampedEvent, WaitingFor,
};
use tokengauge_types::label::{CardinalityLimiter, CardinalityLimits};

/// The provider reports 500 tokens, of which 400 are reasoning that is never streamed. 4 chunks of 25 tokens, a second
/// apart, are the other 100. The rate excludes the first chunk: (100 − 25) ÷ 3 s = 25 per second. With the hidden
/// tokens it would be (500 − 125) ÷ 3 s = 125, which no client sees. Total: 100 ÷ 4 s = 25. Per token: 3 s ÷ 99.
#[test]
fn hidden_reasoning() {
    let mut play = Play::stream(STREAMED);
    let text = " word".repeat(25);
    for second in 1..=4 {
        play.delta(second * 1_000, &format!(r#"{{"content":"{text}"}}"#));
    }
    play.event(4_000, &chunk("{}", r#""stop""#))
        .event(4_000, &usage(500, 400))
        .event(4_000, "[DONE]");
    let call = play.end(4_100, Ending::Complete).0.call.unwrap();
    let output = call.output.unwrap();
    assert_eq!((output.counted, output.hidden), (100, 400));
    assert_eq!((output.tokens, output.source), (100.0, Some(Source::Reported)));
    assert_eq!(call.rates.output, Some(25.0));
    assert_eq!(call.rates.total, Some(25.0));
    let per_token = Duration::from_secs(3).div_f64(99.0);
    assert_eq!(call.rates.time_per_output_token, Some(per_token));
    assert_eq!(call.usage.unwrap().output, Some(500), "as reported");
}

/// 3 chunks have one token each, and a chunk without choices reports 4. The end-of-text token of the model is in the
/// reported count, not in the text. The reported count is used, and does not affect timings: the last token arrived at
/// 500.
#[test]
fn usage_only_at_the_end() {
    let mut play = Play::stream(STREAMED);
    for (millis, word) in [(300, "One"), (400, " two"), (500, " three")] {
        play.delta(millis, &format!(r#"{{"content":"{word}"}}"#));
    }
    play.event(510, &chunk("{}", r#""stop""#)).event(900, &usage(4, 0)).event(900, "[DONE]");
    let (record, samples) = play.end(900, Ending::Complete);
    assert_eq!(record.timestamps.last, Some(at(500)));
    let call = record.call.unwrap();
    let output = call.output.unwrap();
    assert_eq!((output.counted, output.tokens, output.source), (3, 4.0, Some(Source::Reported)));
    assert_eq!(live(&samples), 3, "the live count is not corrected to 4");
    let usage = call.usage.unwrap();
    assert_eq!((usage.input, usage.output), (Some(9), Some(4)));
}

/// Chunks with tokens report usage of 1, 2 and 3. Usage is cumulative, so the total is 3, not 6.
#[test]
fn usage_in_every_chunk() {
    let mut play = Play::stream(STREAMED);
    for n in 1..=3_u64 {
        play.event(300 + n * 10, &with_usage(n));
    }
    play.event(400, &chunk("{}", r#""stop""#)).event(400, "[DONE]");
    let call = play.end(400, Ending::Complete).0.call.unwrap();
    assert_eq!(call.usage.unwrap().output, Some(3));
    assert_eq!(call.output.map(|output| output.tokens), Some(3.0));
}

/// Every chunk reports usage, and the client disconnects after the second chunk. The usage so far is recorded, and the
/// response counts as incomplete.
#[test]
fn usage_in_every_chunk_of_a_truncated_stream() {
    let mut play = Play::stream(STREAMED);
    play.event(310, &with_usage(1)).event(320, &with_usage(2));
    let (record, _) = play.end(330, Ending::ClientDisconnected);
    assert_eq!(record.outcome, Outcome::Cancelled);
    let call = record.call.unwrap();
    assert_eq!((call.usage.unwrap().output, call.complete), (Some(2), Completeness::Cut));
}

/// Without usage, the observer counts "Hello" and " world": 2 tokens, marked as counted. Nothing is recorded as
/// reported, not even 0.
#[test]
fn no_usage_at_all() {
    let mut play = Play::stream(STREAMED);
    play.delta(300, r#"{"content":"Hello"}"#)
        .delta(350, r#"{"content":" world"}"#)
        .event(360, &chunk("{}", r#""stop""#))
        .event(360, "[DONE]");
    let (record, samples) = play.end(360, Ending::Complete);
    let call = record.call.unwrap();
    let output = call.output.unwrap();
    assert_eq!((output.tokens, output.source), (2.0, Some(Source::Counted)));
    assert_eq!((call.usage, live(&samples)), (None, 2));
}

/// "Hello world" arrives in a chunk with usage of 0. The text proves that 0 is wrong, so the result is 2 counted
/// tokens.
#[test]
fn usage_all_zero_with_text() {
    let mut play = Play::stream(STREAMED);
    play.delta(300, r#"{"content":"Hello"}"#)
        .delta(350, r#"{"content":" world"}"#)
        .event(360, &chunk("{}", r#""stop""#))
        .event(360, &usage(0, 0))
        .event(360, "[DONE]");
    let call = play.end(360, Ending::Complete).0.call.unwrap();
    let output = call.output.unwrap();
    assert_eq!((output.tokens, output.source), (2.0, Some(Source::Counted)));
    assert_eq!(call.usage.unwrap().output, Some(0), "the reported value is kept");
}

/// The client has read `[DONE]` and closes before the end of the body. It received 2 of 2 tokens, so the response is
/// complete.
#[test]
fn client_closed_after_the_final_event() {
    let mut play = Play::stream(STREAMED);
    play.delta(300, r#"{"content":"Hello"}"#)
        .delta(350, r#"{"content":" world"}"#)
        .event(360, &chunk("{}", r#""stop""#))
        .event(370, &usage(2, 0))
        .event(370, "[DONE]");
    let (record, _) = play.end(371, Ending::ClientDisconnected);
    assert_eq!((record.outcome, record.error_type), (Outcome::Ok, None));
    let call = record.call.unwrap();
    assert_eq!(call.complete, Completeness::Complete);
    assert_eq!(call.output.map(|output| output.tokens), Some(2.0));
    let reasons: Vec<_> = call.finish_reasons().map(|it| it.as_str()).collect();
    assert_eq!(reasons, ["stop"], "no reason is added");
}

/// Two choices were requested. The first has stopped, and the second has not begun. If the client disconnects now, the
/// response is incomplete. A completely delivered body shows that the provider sent no second choice.
#[test]
fn choice_that_has_not_begun_is_missing() {
    let body = STREAMED.replace(r#""stream""#, r#""n":2,"stream""#);
    let play = || {
        let mut play = Play::stream(&body);
        play.delta(300, r#"{"content":"Hello"}"#).event(310, &chunk("{}", r#""stop""#));
        play
    };
    let (record, _) = play().end(320, Ending::ClientDisconnected);
    assert_eq!(record.outcome, Outcome::Cancelled);
    assert_eq!(record.call.unwrap().complete, Completeness::Cut);
    let (record, _) = play().end(320, Ending::Complete);
    assert_eq!(record.outcome, Outcome::Ok);
}

/// A truncated non-streaming body is incomplete, even if the received part contains a finish reason.
#[test]
fn truncated_body_with_a_finish_reason_is_incomplete() {
    let mut play = Play::chat(r#"{"model":"gpt-4o"}"#);
    play.head(200, 200, "application/json");
    let body = r#"{"id":"c","object":"chat.completion","model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt"#;
    play.arrival(300, Direction::Response, body, 0);
    let (record, _) = play.end(310, Ending::ClientDisconnected);
    assert_eq!(record.outcome, Outcome::Cancelled);
    assert_eq!(record.call.unwrap().complete, Completeness::Cut);
}

/// Tokens at 1,000, 1,100, 6,150 and 6,200. Before the third token, the client did not read for 5,000. The tee measures
/// this time, because the tee was not polled. The parts of end − accept = 6,300 − 100 are:
///
/// | | | |
/// |---|---|---|
/// | decode, the stage | 6,200 − 1,000 | 5,200: stages are clock time and add up |
/// | decode, of rates | 5,200 − 5,000 | 200: 3 tokens in it |
/// | gaps | 100, 5,050 − 5,000, 50 | 100, 50, 50 |
/// | streaming, up to the final event | (6,200 − 1,000) − 5,000 | 200 |
/// | blocked | | 5,000 |
#[test]
fn phases_add_up() {
    let mut live = Watch::new();
    live.begin();
    live.delta(1_000, " a", 0);
    live.delta(1_100, " a", 0);
    live.delta(6_150, " a", 5_000);
    live.delta(6_200, " a", 0);
    live.event(6_200, &chunk("{}", r#""stop""#), 0);
    live.event(6_200, "[DONE]", 0);
    live.end(6_300, Ending::Complete);
    let near = |name: &str, labels: &str, millis: f64| {
        let seconds = live.value(name, labels);
        assert!((seconds * 1e3 - millis).abs() < 1e-6, "{name} {labels}: {seconds}");
    };
    near("tokengauge_request_stage_duration_seconds_sum", "stage=\"decode\"", 5_200.0);
    let all: f64 = Stage::ALL
        .iter()
        .map(|stage| {
            let label = format!("stage=\"{}\"", stage.as_str());
            live.value("tokengauge_request_stage_duration_seconds_sum", &label)
        })
        .sum();
    assert!((all - 6.2).abs() < 1e-9, "{all}");
    near("tokengauge_inter_chunk_latency_seconds_sum", "", 200.0);
    near("tokengauge_client_backpressure_duration_seconds_sum", "", 5_000.0);
    near("tokengauge_stream_active_time_seconds_total", "state=\"streaming\"", 200.0);
    near("tokengauge_stream_active_time_seconds_total", "state=\"blocked\"", 5_000.0);
    // 4 tokens, counted: 200 ms ÷ 3.
    near("gen_ai_server_time_per_output_token_seconds_sum", "", 200.0 / 3.0);
}

/// The client reads the data that arrived at 1,000. It then either disconnects at 6,000, or polls again at 4,000
/// without receiving data. No event reports the pause, but the pause is recorded. A client that disconnects while the
/// upstream is silent has not blocked the stream.
#[test]
fn records_backpressure_of_a_client_that_leaves() {
    for (peer, since, blocked) in [
        (WaitingFor::Client, 1_000, 5.0),
        (WaitingFor::Upstream, 4_000, 3.0),
        (WaitingFor::Upstream, 1_000, 0.0),
    ] {
        let mut watch = Watch::new();
        watch.begin();
        watch.delta(1_000, "Hello", 0);
        watch.body_wait.set_waiting_for(peer, at(since));
        watch.end(6_000, Ending::ClientDisconnected);
        let counted = watch.value("tokengauge_client_backpressure_duration_seconds_sum", "");
        assert!((counted - blocked).abs() < 1e-9, "{peer:?} {since}: {counted}");
    }
}

fn with_usage(n: u64) -> String {
    let usage = format!(
        r#""usage":{{"prompt_tokens":9,"completion_tokens":{n},"total_tokens":{}}},"choices""#,
        9 + n
    );
    chunk(r#"{"content":" a"}"#, "null").replace(r#""choices""#, &usage)
}

/// Returns the output tokens that were recorded while the stream ran.
fn live(samples: &[LiveSample]) -> u64 {
    let tokens = samples.iter().filter_map(|sample| {
        let LiveSample::Tokens { tokens, .. } = sample else {
            return None;
        };
        Some(u64::from(*tokens))
    });
    tokens.sum()
}

/// Open requests whose metrics are read while they run.
struct Watch {
    requests: InFlightRequests,
    collector: tokengauge_telemetry::MetricsReader,
    exchange: u64,
    /// Live state of the latest exchange.
    body_wait: Arc<BodyWaitState>,
}

impl Watch {
    fn new() -> Self {
        let (config, _) = tokengauge_telemetry::TelemetryConfig::from_env(|_| None);
        let readings = SnapshotSource::new(StateSnapshot::default);
        let (instruments, collector) =
            Instruments::new(&config, CardinalityLimits::default(), readings);
        let sinks = Sinks { instruments, record: Box::new(|_| {}) };
        let limiter = Arc::new(CardinalityLimiter::new(CardinalityLimits::default(), []));
        Self {
            requests: InFlightRequests::new(ObserverSettings::default(), limiter, sinks),
            collector,
            exchange: 0,
            body_wait: Arc::default(),
        }
    }

    /// Opens an exchange at 100 whose response headers arrive at 200.
    fn begin(&mut self) {
        self.ask(STREAMED);
    }

    fn ask(&mut self, body: &str) {
        self.exchange += 1;
        let open = open("/v1/chat/completions");
        self.body_wait = Arc::clone(&open.body_wait);
        self.report(100, ObserverEvent::RequestHead(Box::new(open)), b"");
        self.report(100, ObserverEvent::Admitted, b"");
        self.report(110, ObserverEvent::RequestHeadSent, b"");
        self.bytes(110, Direction::Request, body, 0);
        self.report(110, ObserverEvent::RequestBodySent, b"");
        self.report(200, super::head(200, "text/event-stream"), b"");
    }

    fn report(&mut self, millis: u64, event: ObserverEvent, bytes: &[u8]) {
        let entry = TimestampedEvent {
            exchange: ExchangeId(self.exchange),
            at: MonotonicInstant::from_millis(millis),
            event,
        };
        self.requests.apply(entry, bytes);
    }

    fn bytes(&mut self, millis: u64, direction: Direction, text: &str, blocked: u64) {
        let event = ObserverEvent::Body {
            direction,
            len: u32::try_from(text.len()).unwrap(),
            blocked: BackpressureTime::from_duration(Duration::from_millis(blocked)),
        };
        self.report(millis, event, text.as_bytes());
    }

    fn event(&mut self, millis: u64, data: &str, blocked: u64) {
        let text = format!("data: {data}\n\n");
        self.bytes(millis, Direction::Response, &text, blocked);
    }

    fn delta(&mut self, millis: u64, text: &str, blocked: u64) {
        let delta = format!(r#"{{"content":"{text}"}}"#);
        self.event(millis, &chunk(&delta, "null"), blocked);
    }

    fn end(&mut self, millis: u64, ending: Ending) {
        self.report(millis, ObserverEvent::End(ending), b"");
    }

    /// Returns the sum of the series of `name` whose labels contain `labels`.
    fn value(&self, name: &str, labels: &str) -> f64 {
        self.values(name, labels).iter().map(|value| value.parse::<f64>().unwrap()).sum()
    }

    fn values(&self, name: &str, labels: &str) -> Vec<String> {
        let text = prometheus::Format::Text.render(&self.collector.scrape());
        let series = text
            .lines()
            .filter(|line| line.split(['{', ' ']).next() == Some(name) && line.contains(labels));
        series.map(|line| line.rsplit_once(' ').unwrap().1.to_owned()).collect()
    }

    /// Returns the output tokens so far, all of which must have `source`.
    fn tokens(&self, source: &str) -> u64 {
        let counted = |label: &str| self.count("tokengauge_tokens_total", label);
        let output = counted("type=\"output\"");
        let input = counted("type=\"input\"");
        let of_source = counted(&format!("source=\"{source}\""));
        let of_input = if source == "estimated" { input } else { 0 };
        assert_eq!(of_source - of_input, output, "all of {source}");
        output
    }

    /// Returns the sum of the series of a counter of whole numbers.
    fn count(&self, name: &str, labels: &str) -> u64 {
        self.values(name, labels).iter().map(|value| value.parse::<u64>().unwrap()).sum()
    }

    fn drift(&self) -> (u64, u64) {
        (
            self.count("tokengauge_token_mismatch_counted_total", ""),
            self.count("tokengauge_token_mismatch_reported_total", ""),
        )
    }
}

/// `rate()` ignores the increase from an absent series to its first value.
#[test]
fn counters_of_a_response_start_at_zero() {
    let mut watch = Watch::new();
    watch.begin();
    for kind in ["text", "reasoning", "tool"] {
        let labels = format!("kind=\"{kind}\",tokengauge_token_source=\"counted\"");
        assert_eq!(watch.values("tokengauge_tokens_total", &labels), ["0"], "{kind}");
    }
    assert_eq!(watch.values("tokengauge_tokens_total", "type=\"input\""), ["0"]);
    let finished = |watch: &Watch| watch.values("tokengauge_requests_finished_total", "");
    assert_eq!(finished(&watch), ["0"]);
    watch.delta(300, " a", 0);
    watch.event(510, &chunk("{}", r#""stop""#), 0);
    watch.event(510, "[DONE]", 0);
    watch.end(520, Ending::Complete);
    assert_eq!(finished(&watch), ["1"], "the same series");
}

/// In o200k_base, " inter" is 1 token, " internat" 2, and " international" 1 again. A counter cannot decrease, so the
/// second token is not counted before the word ends.
#[test]
fn live_token_counter_does_not_count_parts_of_a_word() {
    let counts = [" inter", " internat", " international"]
        .map(|text| tokengauge_llm::count::Encoding::O200k.count(text));
    assert_eq!(counts, [1, 2, 1], "or another text must be found");
    let mut watch = Watch::new();
    watch.begin();
    let mut counted = Vec::new();
    for (millis, piece) in [(300, " inter"), (400, "nat"), (500, "ional")] {
        watch.delta(millis, piece, 0);
        counted.push(watch.tokens("counted"));
    }
    let chunks =
        ["tokengauge_tokens_per_chunk_count", "tokengauge_inter_chunk_latency_seconds_count"]
            .map(|name| watch.count(name, ""));
    assert_eq!(chunks, [3, 2], "also a chunk that only lengthens the last token");
    assert_eq!(counted, [1, 1, 1]);
    watch.event(510, &chunk("{}", r#""stop""#), 0);
    watch.event(510, &usage(1, 0), 0);
    watch.event(510, "[DONE]", 0);
    watch.end(520, Ending::Complete);
    assert_eq!(watch.tokens("counted"), 1);
    assert_eq!(
        watch.count("tokengauge_normalized_tokens_total", ""),
        1,
        "reported a word late, and so exact"
    );
    assert_eq!(watch.drift(), (1, 1));
}

/// Tokens of a model without a known encoding are estimated in o200k_base. The estimate is not compared with the
/// reported count.
#[test]
fn estimated_token_counter_does_not_count_parts_of_a_word() {
    let mut watch = Watch::new();
    watch.ask(&STREAMED.replace("gpt-4o", "llama-3.1-8b"));
    let mut counted = Vec::new();
    for (millis, piece) in [(300, " inter"), (400, "nat"), (500, "ional")] {
        let data = chunk(&format!(r#"{{"content":"{piece}"}}"#), "null");
        watch.event(millis, &data.replace("gpt-4o-2024-08-06", "llama-3.1-8b"), 0);
        counted.push(watch.tokens("estimated"));
    }
    assert_eq!(counted, [1, 1, 1]);
    watch.event(510, &chunk("{}", r#""stop""#).replace("gpt-4o-2024-08-06", "llama-3.1-8b"), 0);
    watch.event(510, &usage(3, 0), 0);
    watch.event(510, "[DONE]", 0);
    watch.end(520, Ending::Complete);
    assert_eq!(watch.tokens("estimated"), 1);
    assert_eq!(watch.count("tokengauge_reported_tokens_total", "kind=\"output\""), 3);
    assert_eq!(watch.drift(), (0, 0));
}

/// Sweeps and chunks both record the elapsed time, and each second is recorded once. 110 … 3,100 consists of 890
/// waiting, 1,600 streaming and 500 blocked. Before its body arrived at 110, the request was not known to be a stream.
#[test]
fn records_each_second_of_stream_time_once() {
    let mut watch = Watch::new();
    watch.begin();
    let parts = |watch: &Watch| {
        ["waiting", "streaming", "blocked"].map(|state| {
            let label = format!("state=\"{state}\"");
            Duration::from_secs_f64(
                watch.value("tokengauge_stream_active_time_seconds_total", &label),
            )
            .as_millis()
        })
    };
    let mut before = [0; 3];
    let mut seen = |watch: &Watch| {
        let now = parts(watch);
        assert!(
            now.iter().zip(before).all(|(now, before)| *now >= before),
            "{before:?} became {now:?}"
        );
        before = now;
    };
    watch.requests.sweep(at(600));
    seen(&watch);
    watch.delta(1_000, " a", 0);
    seen(&watch);
    watch.requests.sweep(at(1_250));
    seen(&watch);
    watch.delta(2_000, " a", 500);
    seen(&watch);
    // Sweeps once late, and once for a time that was already recorded.
    watch.requests.sweep(at(3_000));
    watch.requests.sweep(at(2_900));
    seen(&watch);
    watch.end(3_100, Ending::ClientDisconnected);
    seen(&watch);
    assert_eq!(parts(&watch), [890, 1_600, 500]);
}

/// Five calls of "Hello world", 2 tokens, each reported as 3. Only the first is comparable: the second is truncated,
/// the third's model has no known encoding, the fourth may call tools, and the fifth has hidden reasoning.
#[test]
fn compares_only_comparable_calls() {
    let mut watch = Watch::new();
    let tools = STREAMED.replace(
        r#""stream""#,
        r#""tools":[{"type":"function","function":{"name":"f"}}],"stream""#,
    );
    let foreign = STREAMED.replace("gpt-4o", "llama-3.1-8b");
    for (body, hidden, ending) in [
        (STREAMED, 0, Ending::Complete),
        (STREAMED, 0, Ending::ClientDisconnected),
        (&foreign, 0, Ending::Complete),
        (&tools, 0, Ending::Complete),
        (STREAMED, 1, Ending::Complete),
    ] {
        watch.ask(body);
        let named = |data: String| match body.contains("llama") {
            true => data.replace("gpt-4o-2024-08-06", "llama-3.1-8b"),
            false => data,
        };
        watch.event(300, &named(chunk(r#"{"content":"Hello world"}"#, "null")), 0);
        watch.event(310, &usage(3, hidden), 0);
        if ending == Ending::Complete {
            watch.event(320, &named(chunk("{}", r#""stop""#)), 0);
            watch.event(320, "[DONE]", 0);
        }
        watch.end(330, ending);
    }
    assert_eq!(watch.drift(), (2, 3));
}
