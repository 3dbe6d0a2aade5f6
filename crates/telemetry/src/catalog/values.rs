//! Values of finished requests and calls, which the rows of the catalog name. A value that is not defined is `None` and
//! is not recorded.

use std::fmt;
use std::time::Duration;

use crate::catalog::Labelled;
use crate::config::GenAiNames;
use tokengauge_llm::count::Source;
use tokengauge_llm::dialect::{ByModality, Operation, Timings, Usage};
use tokengauge_measure::record::{
    Call, Completeness, ConnectionSample, Network, Outcome, Output, Record,
};
use tokengauge_measure::timing::{OutputRateRange, Unrated, VOICE_RATE};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::ConnectTimings;

/// Receives the values of one metric of a finished request.
pub struct Emit<'a> {
    /// Names of the GenAI metrics that are exported.
    pub gen_ai: GenAiNames,
    /// Takes the index of a value, its labels, and the value. The same index always has the same labels.
    pub put: &'a mut dyn FnMut(usize, &[&'static str], f64),
}

impl fmt::Debug for Emit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emit").field("gen_ai", &self.gen_ai).finish_non_exhaustive()
    }
}

impl Emit<'_> {
    pub fn one<T: Number>(
        &mut self,
        record: &Record,
        call: Option<&Call>,
        value: impl Fn(&Record, Option<&Call>) -> Option<T>,
    ) {
        if let Some(value) = value(record, call) {
            (self.put)(0, &[], value.into_f64());
        }
    }

    pub fn each<T: Number, const N: usize>(
        &mut self,
        record: &Record,
        call: Option<&Call>,
        values: impl Fn(&Record, Option<&Call>) -> Option<Labelled<&'static str, T, N>>,
    ) {
        for (index, (label, value)) in values(record, call).into_iter().flatten().enumerate() {
            if let Some(value) = value {
                (self.put)(index, &[label], value.into_f64());
            }
        }
    }
}

/// A value of a metric. Counts are far below 2⁵³, so a float holds them exactly.
pub trait Number {
    fn into_f64(self) -> f64;
}

impl Number for f64 {
    fn into_f64(self) -> f64 {
        self
    }
}

impl Number for u64 {
    fn into_f64(self) -> f64 {
        self as f64
    }
}

/// In seconds.
impl Number for Duration {
    fn into_f64(self) -> f64 {
        self.as_secs_f64()
    }
}

pub fn since_accept(record: &Record, at: Option<MonotonicInstant>) -> Option<Duration> {
    Some(at?.since(record.timestamps.accept))
}

pub fn connect_stages(timings: &ConnectTimings) -> Labelled<&'static str, Duration, 4> {
    let ConnectTimings { wait, dns, tcp, tls, .. } = *timings;
    [("wait", wait), ("dns", dns), ("tcp", tcp), ("tls", tls)]
}

/// Returns the phases that the backend reported.
pub fn backend_stages(timings: &Timings) -> Labelled<&'static str, Duration, 5> {
    let Timings { queue, load, prefill, decode, total } = *timings;
    [("queue", queue), ("load", load), ("prefill", prefill), ("decode", decode), ("total", total)]
}

/// Returns the waiting time in each queue.
pub fn queue_waits(record: &Record, call: &Call) -> Labelled<&'static str, Duration, 3> {
    [
        ("edge", record.edge_wait),
        ("admission", since_accept(record, record.timestamps.admit)),
        ("backend", call.timings.and_then(|timings| timings.queue)),
    ]
}

/// Returns a value of the connection to each peer.
pub fn peers<T>(
    record: &Record,
    value: impl Fn(ConnectionSample) -> Option<T>,
) -> Labelled<&'static str, T, 2> {
    let Network { client, upstream } = record.network;
    [("client", client.and_then(&value)), ("upstream", upstream.and_then(&value))]
}

pub fn until_end(record: &Record, from: Option<MonotonicInstant>) -> Option<Duration> {
    Some(record.timestamps.end?.since(from?))
}

/// Returns the call if it was streamed.
pub fn streamed(call: Option<&Call>) -> Option<&Call> {
    call.filter(|call| call.streamed)
}

/// Returns the time to the first event of a stream: event − sent.
pub fn first_chunk(record: &Record, call: Option<&Call>) -> Option<Duration> {
    streamed(call)?;
    Some(record.timestamps.event?.since(record.timestamps.sent?))
}

/// Returns the call if it is a successful stream. Only these are part of the token times of `gen_ai.server.*`.
pub fn served<'a>(record: &Record, call: Option<&'a Call>) -> Option<&'a Call> {
    streamed(call).filter(|_| record.outcome == Outcome::Ok)
}

/// Returns whether the call is an inference. A WebSocket session is none, because it is longer than a response.
pub fn is_inference(record: &Record, call: &Call) -> bool {
    call.series.operation.generates() && record.websocket.is_none()
}

/// Returns the call if it embeds.
pub fn embeddings(call: Option<&Call>) -> Option<&Call> {
    call.filter(|call| call.series.operation == Operation::Embeddings)
}

/// Emits the duration of a call under the name that the latest and the legacy conventions share. Includes inference and
/// embeddings only with the legacy conventions.
pub fn operation_duration(record: &Record, call: Option<&Call>, emit: &mut Emit<'_>) {
    let has_all = emit.gen_ai.legacy();
    emit.one(record, call, |record, call| {
        let has_own_metric = is_inference(record, call?) || embeddings(call).is_some();
        let is_included = has_all || !has_own_metric;
        until_end(record, record.timestamps.admit).filter(|_| is_included)
    });
}

/// Returns 1 for the label of `rate` and 0 for the others, so that each counter is exported as 0 before its first
/// increment.
pub fn rate_ranges(rate: f64) -> Labelled<&'static str, u64, { OutputRateRange::ALL.len() + 1 }> {
    let range = OutputRateRange::from_rate(rate);
    let [a, b, c, d, e] = OutputRateRange::ALL.map(|known| is(known.as_str(), known == range));
    [a, b, c, d, e, is("voice", rate >= VOICE_RATE)]
}

pub fn unrated(reason: Unrated) -> Labelled<&'static str, u64, { Unrated::ALL.len() }> {
    Unrated::ALL.map(|known| is(known.as_str(), known == reason))
}

/// Results of the comparison with the token count of a gateway.
pub const GATEWAY_USAGE_RESULTS: [&str; 2] = ["equal", "different"];

/// Compares the token count of a gateway with the reported usage, or with the counted output if none was reported.
/// Returns `None` if the response was not observed completely.
pub fn gateway_usage(record: &Record, call: &Call) -> Option<Labelled<&'static str, u64, 2>> {
    let gateway = record.gateway_usage.filter(|_| call.complete == Completeness::Complete)?;
    let (input, output) = match (&call.usage, &call.output) {
        (Some(usage), _) => (usage.input, usage.output),
        (None, counted) => (None, counted.as_ref().map(|output| output.counted)),
    };
    let agrees = |gateway: Option<u64>, own: Option<u64>| {
        gateway.zip(own).is_none_or(|(gateway, own)| gateway == own)
    };
    let is_equal = agrees(gateway.input, input) && agrees(gateway.output, output);
    let [equal, different] = GATEWAY_USAGE_RESULTS;
    Some([is(equal, is_equal), is(different, !is_equal)])
}

fn is(label: &'static str, holds: bool) -> (&'static str, Option<u64>) {
    (label, Some(u64::from(holds)))
}

/// Returns the reported usage of a call that generates. A call that fetches a response has usage only if the response
/// was generated in the background.
pub fn generated(call: Option<&Call>) -> Option<&Usage> {
    let operation = call?.series.operation;
    let has_generated = operation.generates() || operation == Operation::FetchResponse;
    call?.usage.as_ref().filter(|_| has_generated)
}

/// Divides a token count by modality, as the provider reported it. The parts add up to the count. The last part
/// contains tokens of modalities that the semantic conventions do not define. If the reported parts exceed the count,
/// the last part is the whole count.
pub fn modalities(tokens: u64, split: ByModality) -> Labelled<&'static str, u64, 4> {
    let named = [split.text, split.image, split.audio];
    let sum: u64 = named.iter().flatten().sum();
    let (named, rest) = match tokens.checked_sub(sum) {
        Some(rest) => (named, rest),
        None => ([None; 3], tokens),
    };
    let [text, image, audio] = named;
    let rest = Some(rest).filter(|rest| *rest > 0 || sum == 0);
    [("text", text), ("image", image), ("audio", audio), ("unknown", rest)]
}

/// Divides the reported tokens into kinds that do not overlap. Input is divided into uncached, cache_read, cache_write
/// and cache_write_1h, and output into output, reasoning and hidden. Hidden are compaction, and reasoning that was not
/// streamed. Tokens that only the reported total shows count as reasoning that was not streamed.
pub fn token_kinds(usage: &Usage, output: Option<&Output>) -> Labelled<&'static str, u64, 7> {
    let cached = usage.cache_read.unwrap_or(0) + usage.cache_write.unwrap_or(0);
    let for_an_hour = usage.cache_write_1h.unwrap_or(0);
    let besides = usage.besides_answer();
    let never_sent = usage.unlisted.unwrap_or(0) + usage.compaction.unwrap_or(0);
    let hidden = besides.map(|tokens| output.map_or(never_sent, |it| it.hidden).min(tokens));
    let shown = besides.zip(hidden).map(|(tokens, hidden)| tokens - hidden);
    [
        ("uncached", usage.input.map(|input| input.saturating_sub(cached))),
        ("cache_read", usage.cache_read),
        ("cache_write", usage.cache_write.map(|tokens| tokens.saturating_sub(for_an_hour))),
        ("cache_write_1h", usage.cache_write_1h),
        ("output", usage.output.map(|output| output.saturating_sub(besides.unwrap_or(0)))),
        ("reasoning", shown.filter(|shown| usage.reasoning.is_some() || *shown > 0)),
        ("hidden", hidden),
    ]
}

/// Output tokens of one call, from two sources.
#[derive(Clone, Copy, Debug)]
pub struct ComparedTokens {
    pub counted: u64,
    pub reported: u64,
}

/// Returns counted and reported output tokens. Excludes calls in which these numbers can differ, such as calls with
/// hidden tokens.
pub fn compared_tokens(record: &Record, call: Option<&Call>) -> Option<ComparedTokens> {
    let call = call?;
    let (usage, output) = (call.usage.as_ref()?, call.output.as_ref()?);
    let is_comparable = record.outcome == Outcome::Ok
        && call.complete == Completeness::Complete
        && output.counted_source == Some(Source::Counted)
        && !call.request.tools
        && output.hidden == 0
        && !usage.output_in_doubt
        // The reported usage of a session includes audio, but only the transcript of the audio can be counted.
        && record.websocket.is_none();
    let reported = usage.output.filter(|_| is_comparable)?;
    Some(ComparedTokens { counted: output.counted, reported })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modalities_add_up_to_the_count() {
        let split = |text, image, audio, video| ByModality {
            text,
            image,
            audio,
            video,
            ..ByModality::default()
        };
        let modalities = |tokens, split| modalities(tokens, split).map(|(_, tokens)| tokens);
        assert_eq!(modalities(100, ByModality::default()), [None, None, None, Some(100)]);
        let all = split(Some(60), None, Some(40), None);
        assert_eq!(modalities(100, all), [Some(60), None, Some(40), None]);
        let video = split(Some(60), Some(10), None, Some(30));
        assert_eq!(modalities(100, video), [Some(60), Some(10), None, Some(30)]);
        let too_much = split(Some(101), None, None, None);
        assert_eq!(modalities(100, too_much), [None, None, None, Some(100)]);
        assert_eq!(modalities(0, ByModality::default()), [None, None, None, Some(0)]);
    }

    #[test]
    fn token_kinds_add_up_to_the_reported_tokens() {
        let usage = Usage {
            input: Some(100),
            output: Some(50),
            cache_read: Some(60),
            cache_write: Some(10),
            reasoning: Some(30),
            ..Usage::default()
        };
        let output = Output { hidden: 12, ..Output::default() };
        let split = token_kinds(&usage, Some(&output));
        let [uncached, read, write, write_1h, others @ ..] = split.map(|(_, tokens)| tokens);
        assert_eq!([uncached, read, write, write_1h], [Some(30), Some(60), Some(10), None]);
        assert_eq!(others, [20, 18, 12].map(Some));
        assert_eq!(split.iter().filter_map(|(_, tokens)| *tokens).sum::<u64>(), 150);
        let for_an_hour = Usage { cache_write_1h: Some(7), ..usage };
        let split = token_kinds(&for_an_hour, Some(&output));
        assert_eq!((split[2].1, split[3].1), (Some(3), Some(7)));
        assert_eq!(split.iter().filter_map(|(_, tokens)| *tokens).sum::<u64>(), 150);
    }

    #[test]
    fn tokens_that_only_the_total_shows_are_hidden() {
        let usage = Usage { output: Some(295), unlisted: Some(288), ..Usage::default() };
        let kinds = |hidden| {
            let output = Output { hidden, ..Output::default() };
            token_kinds(&usage, Some(&output)).map(|(_, tokens)| tokens)
        };
        assert_eq!(kinds(288), [None, None, None, None, Some(7), None, Some(288)]);
        assert_eq!(kinds(284), [None, None, None, None, Some(7), Some(4), Some(284)]);
        let without = token_kinds(&usage, None).map(|(_, tokens)| tokens);
        assert_eq!(without, [None, None, None, None, Some(7), None, Some(288)]);
    }

    #[test]
    fn unreported_tokens_are_absent() {
        let usage = Usage { input: Some(7), ..Usage::default() };
        assert_eq!(
            token_kinds(&usage, None).map(|(_, tokens)| tokens),
            [Some(7), None, None, None, None, None, None]
        );
    }
}
