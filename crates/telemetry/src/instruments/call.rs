//! Records the numbers of a finished call, each only if its formula applies.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{BoundCounter, Counter};

use crate::attributes::{label, pair, with, word};
use crate::catalog::attributes as key;
use crate::exemplars::ExemplarRecorder;
use crate::instruments::bound::LazyInstrument;
use crate::instruments::bound::{BoundExemplarHistogram, ExemplarHistogram};
use crate::instruments::length_buckets::LengthBucketInstruments;
use crate::instruments::live::LiveInstruments;
use crate::instruments::set::{InstrumentSet, LatestGenAi};
use crate::series_limits::BoundedCache;
use tokengauge_llm::count::Source;
use tokengauge_llm::dialect::{ByModality, Timings, Usage};
use tokengauge_measure::record::{
    Call, ChoiceStatus, Completeness, Cost, LengthBuckets, Outcome, Output, Record,
};
use tokengauge_measure::timing::rates::VOICE_RATE;
use tokengauge_measure::timing::{OutputRateRange, Stage, Unrated};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::label::Label;

/// Modalities in the order of [`by_modality`].
const MODALITIES: [&str; 4] = ["text", "image", "audio", "unknown"];

/// Index of the modality of counts that are not split.
const UNSPLIT: usize = 3;

/// The instruments of finished calls of one series with one response model.
#[derive(Debug)]
pub struct CallInstruments {
    set: Arc<InstrumentSet>,
    base: Vec<KeyValue>,
    times: Times,
    tokens: Tokens,
    banded: BoundedCache<LengthBuckets, LengthBucketInstruments>,
    costs: BoundedCache<(Label, Source), BoundCounter<f64>>,
    /// Bound together, so that no series starts at 1.
    bands: OnceLock<[BoundCounter<u64>; OutputRateRange::ALL.len() + 1]>,
    unrated: OnceLock<[BoundCounter<u64>; Unrated::ALL.len()]>,
}

#[derive(Debug, Default)]
struct Times {
    server: LazyInstrument<BoundExemplarHistogram<f64>>,
    inference: LazyInstrument<BoundExemplarHistogram<f64>>,
    operation: LazyInstrument<BoundExemplarHistogram<f64>>,
    first_chunk: LazyInstrument<BoundExemplarHistogram<f64>>,
    legacy_first_chunk: LazyInstrument<BoundExemplarHistogram<f64>>,
    first_token: LazyInstrument<BoundExemplarHistogram<f64>>,
    output_token: LazyInstrument<BoundExemplarHistogram<f64>>,
    blocked: LazyInstrument<BoundExemplarHistogram<f64>>,
    /// Queue waits in the order of [`waits`].
    queue_waits: [LazyInstrument<BoundExemplarHistogram<f64>>; 3],
    stages: [LazyInstrument<BoundExemplarHistogram<f64>>; Stage::ALL.len()],
    /// Backend phases in the order of [`phases`].
    backend_stages: [LazyInstrument<BoundExemplarHistogram<f64>>; 5],
}

#[derive(Debug, Default)]
struct Tokens {
    /// input, output, cache_read, cache_write, reasoning.
    /// Each by modality.
    standard: [[LazyInstrument<BoundCounter<u64>>; MODALITIES.len()]; 5],
    /// input, output.
    operation: [LazyInstrument<BoundExemplarHistogram<u64>>; 2],
    legacy: [LazyInstrument<BoundExemplarHistogram<u64>>; 2],
    /// Reported tokens in the order of [`parts`].
    usage: [LazyInstrument<BoundCounter<u64>>; 6],
    drift_counted: LazyInstrument<BoundCounter<u64>>,
    drift_reported: LazyInstrument<BoundCounter<u64>>,
}

impl CallInstruments {
    pub fn new(
        set: Arc<InstrumentSet>,
        live: &LiveInstruments,
        response_model: Option<&Label>,
    ) -> Self {
        let model = response_model.map(|model| label(key::RESPONSE_MODEL, model));
        Self {
            set,
            base: with(&live.base, model.as_slice()),
            times: Times::default(),
            tokens: Tokens::default(),
            banded: BoundedCache::default(),
            costs: BoundedCache::default(),
            bands: OnceLock::new(),
            unrated: OnceLock::new(),
        }
    }

    /// Returns the instruments of calls in these length buckets.
    pub fn banded(&self, bands: LengthBuckets) -> Arc<LengthBucketInstruments> {
        let make = |bands: &LengthBuckets| LengthBucketInstruments::new(&self.base, *bands);
        let found = self.banded.obtain(&bands, usize::MAX, make);
        found.unwrap_or_else(|| Arc::new(make(&bands)))
    }

    /// Records a finished call. `error` is the label of the record's `error.type`.
    pub fn record(
        &self,
        (record, call): (&Record, &Call),
        error: Option<&Label>,
        banded: &LengthBucketInstruments,
        exemplars: &mut ExemplarRecorder<'_>,
    ) {
        let error = error.map(|error| label(key::ERROR_TYPE, error));
        let error = error.as_slice();
        self.durations(record, call, error, exemplars);
        self.points(record, exemplars);
        self.waits(record, call, exemplars);
        if call.streamed {
            self.first(record, call, exemplars);
        }
        banded.points(&self.set, &record.points, exemplars);
        self.rates(call, banded, exemplars);
        if let Some(cost) = &call.cost {
            self.cost(cost);
        }
        if let Some(timings) = &call.timings {
            self.backend(timings, exemplars);
        }
        if let Some(usage) = &call.usage {
            self.usage(usage, call, error, exemplars);
        }
        if let (Some(usage), Some(output)) = (&call.usage, &call.output) {
            self.drift(record, call, usage, output);
        }
    }

    fn cost(&self, cost: &Cost) {
        let bind = |(currency, source): &(Label, Source)| {
            let own = [label(key::CURRENCY, currency), word(key::TOKEN_SOURCE, source.as_str())];
            self.set.own.cost.bind(&with(&self.base, &own))
        };
        let series = (cost.currency.clone(), cost.source);
        if let Some(counter) = self.costs.obtain(&series, usize::MAX, bind) {
            counter.add(cost.amount);
        }
    }

    fn durations(
        &self,
        record: &Record,
        call: &Call,
        error: &[KeyValue],
        exemplars: &mut ExemplarRecorder<'_>,
    ) {
        let (points, set, times) = (&record.points, &*self.set, &self.times);
        let until_end = |from: Option<MonotonicInstant>| Some(seconds(points.end?.since(from?)));
        // The duration of a session is not the duration of a response.
        let session = record.websocket.is_some();
        if let (Some(server), Some(time), false) = (&set.server, until_end(points.sent), session) {
            self.at_end(&times.server, &server.duration, error).record(time, exemplars);
        }
        let Some(time) = until_end(points.admit) else {
            return;
        };
        let inference = call.series.operation.generates() && !session;
        if let Some(latest) = set.latest.as_ref().filter(|_| inference) {
            self.at_end(&times.inference, &latest.duration, error).record(time, exemplars);
        }
        if let Some(operation) = &set.operation_duration
            && (!inference || set.legacy.is_some())
        {
            self.at_end(&times.operation, operation, error).record(time, exemplars);
        }
    }

    /// Errors add an attribute and are rare, so their instruments are looked up.
    fn at_end<T: Clone>(
        &self,
        slot: &LazyInstrument<BoundExemplarHistogram<T>>,
        histogram: &ExemplarHistogram<T>,
        error: &[KeyValue],
    ) -> BoundExemplarHistogram<T> {
        if error.is_empty() {
            slot.of(histogram, &self.base, &[]).clone()
        } else {
            histogram.bind(&with(&self.base, error))
        }
    }

    fn points(&self, record: &Record, exemplars: &mut ExemplarRecorder<'_>) {
        let (set, times) = (&*self.set, &self.times);
        for (stage, length) in record.stages.iter() {
            let own = [word(key::STAGE, stage.as_str())];
            let mut slots = times.stages.iter().zip(Stage::ALL);
            if let Some((slot, _)) = slots.find(|(_, known)| *known == stage) {
                slot.of(&set.own.stage, &self.base, &own).record(seconds(length), exemplars);
            }
        }
        if !record.blocked.is_zero() {
            let blocked = seconds(record.blocked);
            times.blocked.of(&set.own.blocked, &self.base, &[]).record(blocked, exemplars);
        }
    }

    /// Records how long the call was queued, by queue location.
    fn waits(&self, record: &Record, call: &Call, exemplars: &mut ExemplarRecorder<'_>) {
        let slots = self.times.queue_waits.iter();
        for (slot, (place, waited)) in slots.zip(waits(record, call)) {
            if let Some(waited) = waited {
                let own = [word(key::WAIT_PLACE, place)];
                slot.of(&self.set.own.queue_wait, &self.base, &own)
                    .record(seconds(waited), exemplars);
            }
        }
    }

    /// Records the phases that the backend reports.
    fn backend(&self, timings: &Timings, exemplars: &mut ExemplarRecorder<'_>) {
        let slots = self.times.backend_stages.iter();
        for (slot, (stage, length)) in slots.zip(phases(timings)) {
            if let Some(length) = length {
                let own = [word(key::BACKEND_STAGE, stage)];
                slot.of(&self.set.own.backend_stage, &self.base, &own)
                    .record(seconds(length), exemplars);
            }
        }
    }

    /// Records the times of a stream in the semantic conventions: first chunk, first token, and time per output token.
    fn first(&self, record: &Record, call: &Call, exemplars: &mut ExemplarRecorder<'_>) {
        let (points, set, times) = (&record.points, &*self.set, &self.times);
        let since_sent = |at: Option<MonotonicInstant>| Some(seconds(at?.since(points.sent?)));
        if let Some(time) = since_sent(points.event) {
            if let Some(latest) = &set.latest {
                times.first_chunk.of(&latest.first_chunk, &self.base, &[]).record(time, exemplars);
            }
            if let Some(legacy) = &set.legacy {
                times
                    .legacy_first_chunk
                    .of(&legacy.first_chunk, &self.base, &[])
                    .record(time, exemplars);
            }
        }
        let successful = record.outcome == Outcome::Ok;
        let Some(server) = set.server.as_ref().filter(|_| successful) else {
            return;
        };
        if let Some(time) = since_sent(points.token) {
            times.first_token.of(&server.first_token, &self.base, &[]).record(time, exemplars);
        }
        if let Some(time) = call.rates.time_per_output_token.map(seconds) {
            times.output_token.of(&server.output_token, &self.base, &[]).record(time, exemplars);
        }
    }

    fn rates(
        &self,
        call: &Call,
        banded: &LengthBucketInstruments,
        exemplars: &mut ExemplarRecorder<'_>,
    ) {
        let set = &*self.set;
        if let Some(rate) = call.rates.total {
            banded.total_rate(set, rate, exemplars);
        }
        if let Some(rate) = call.rates.output {
            banded.output_rate(set, rate, exemplars);
            self.band(rate);
        }
        if let Some(reason) = call.rates.unrated {
            let counters = self.unrated.get_or_init(|| {
                Unrated::ALL.map(|reason| {
                    self.counter(&set.own.unrated, word(key::UNRATED, reason.as_str()))
                })
            });
            let mut counters = counters.iter().zip(Unrated::ALL);
            if let Some((counter, _)) = counters.find(|(_, known)| *known == reason) {
                counter.add(1);
            }
        }
    }

    fn band(&self, rate: f64) {
        let [below5, from5, from15, from30, from60, voice] = self.bands.get_or_init(|| {
            let [a, b, c, d, e] = OutputRateRange::ALL.map(OutputRateRange::as_str);
            [a, b, c, d, e, "voice"]
                .map(|band| self.counter(&self.set.own.band, word(key::BAND, band)))
        });
        let band = match OutputRateRange::of(rate) {
            OutputRateRange::Below5 => below5,
            OutputRateRange::From5 => from5,
            OutputRateRange::From15 => from15,
            OutputRateRange::From30 => from30,
            OutputRateRange::From60 => from60,
        };
        band.add(1);
        voice.add(u64::from(rate >= VOICE_RATE));
    }

    fn counter(&self, counter: &Counter<u64>, own: KeyValue) -> BoundCounter<u64> {
        counter.bind(&with(&self.base, &[own]))
    }

    /// Records the usage that the provider reported.
    fn usage(
        &self,
        usage: &Usage,
        call: &Call,
        error: &[KeyValue],
        exemplars: &mut ExemplarRecorder<'_>,
    ) {
        let (set, base) = (&*self.set, &self.base);
        let generates = call.series.operation.generates();
        if let Some(latest) = set.latest.as_ref().filter(|_| generates) {
            self.standard_usage(latest, usage, error, exemplars);
        }
        if let Some(legacy) = &set.legacy {
            let reported = [("input", usage.input), ("output", usage.output)];
            for (slot, (direction, tokens)) in self.tokens.legacy.iter().zip(reported) {
                if let Some(tokens) = tokens {
                    let own = [word(key::TOKEN_TYPE, direction)];
                    slot.of(&legacy.token_usage, base, &own).record(tokens, exemplars);
                }
            }
        }
        let parts = parts(usage, call.output.as_ref());
        for (slot, (kind, tokens)) in self.tokens.usage.iter().zip(parts) {
            if let Some(tokens) = tokens {
                slot.add(&set.own.usage, base, &[word(key::TOKEN_KIND, kind)], tokens);
            }
        }
    }

    fn standard_usage(
        &self,
        latest: &LatestGenAi,
        usage: &Usage,
        error: &[KeyValue],
        exemplars: &mut ExemplarRecorder<'_>,
    ) {
        let unsplit = ByModality::default();
        let counters = [
            (&latest.input, usage.input, &usage.input_by),
            (&latest.output, usage.output, &usage.output_by),
            (&latest.cache_read, usage.cache_read, &unsplit),
            (&latest.cache_write, usage.cache_write, &unsplit),
            (&latest.reasoning, usage.reasoning, &unsplit),
        ];
        for (slots, (counter, tokens, split)) in self.tokens.standard.iter().zip(counters) {
            let parts = tokens.map(|tokens| by_modality(tokens, split));
            let named = slots.iter().zip(MODALITIES);
            for ((slot, modality), tokens) in named.zip(parts.into_iter().flatten()) {
                if let Some(tokens) = tokens {
                    let own = [pair(key::TOKEN_MODALITY, modality)];
                    slot.add(counter, &self.base, &own, tokens);
                }
            }
        }
        let histograms =
            [(&latest.operation_input, usage.input), (&latest.operation_output, usage.output)];
        for (slot, (histogram, tokens)) in self.tokens.operation.iter().zip(histograms) {
            if let Some(tokens) = tokens {
                self.at_end(slot, histogram, error).record(tokens, exemplars);
            }
        }
    }

    /// Records counted and reported tokens of calls for which both should be equal.
    fn drift(&self, record: &Record, call: &Call, usage: &Usage, output: &Output) {
        let comparable = record.outcome == Outcome::Ok
            && call.complete == Completeness::True
            && output.counted_source == Some(Source::Counted)
            && !call.request.tools
            && output.hidden == 0
            // The usage of a session includes audio, of which only the transcript is visible.
            && record.websocket.is_none();
        if let Some(reported) = usage.output.filter(|_| comparable) {
            let (set, tokens) = (&*self.set, &self.tokens);
            tokens.drift_counted.add(&set.own.drift_counted, &self.base, &[], output.counted);
            tokens.drift_reported.add(&set.own.drift_reported, &self.base, &[], reported);
        }
    }

    /// Returns the counter of choices with one finish reason and one result.
    pub fn choice(&self, reason: &Label, became: ChoiceStatus) -> BoundCounter<u64> {
        let own = [label(key::FINISH_REASON, reason), word(key::CHOICE, became.as_str())];
        self.set.own.choices.bind(&with(&self.base, &own))
    }
}

/// Splits a count by modality as the provider reports it. The parts add up to the count. The last part holds tokens
/// without a modality of the semantic conventions, or the whole count if the reported parts exceed it.
fn by_modality(tokens: u64, split: &ByModality) -> [Option<u64>; MODALITIES.len()] {
    let mut parts = [split.text, split.image, split.audio, None];
    let named: u64 = parts.iter().flatten().sum();
    let rest = tokens.checked_sub(named);
    if rest.is_none() {
        parts = [None; MODALITIES.len()];
    }
    if let Some(last) = parts.get_mut(UNSPLIT) {
        let rest = rest.unwrap_or(tokens);
        *last = Some(rest).filter(|rest| *rest > 0 || named == 0);
    }
    parts
}

fn waits(record: &Record, call: &Call) -> [(&'static str, Option<Duration>); 3] {
    let points = &record.points;
    [
        ("edge", record.edge_wait),
        ("admission", points.admit.map(|admit| admit.since(points.accept))),
        ("backend", call.timings.and_then(|timings| timings.queue)),
    ]
}

fn phases(timings: &Timings) -> [(&'static str, Option<Duration>); 5] {
    [
        ("queue", timings.queue),
        ("load", timings.load),
        ("prefill", timings.prefill),
        ("decode", timings.decode),
        ("total", timings.total),
    ]
}

/// Returns the reported tokens by kind, without overlap. Input is uncached + cache_read + cache_write. Output is output
/// + reasoning + hidden.
fn parts(usage: &Usage, output: Option<&Output>) -> [(&'static str, Option<u64>); 6] {
    let cached = usage.cache_read.unwrap_or(0) + usage.cache_write.unwrap_or(0);
    let reasoning = usage.reasoning.unwrap_or(0);
    let hidden = output.map_or(0, |output| output.hidden).min(reasoning);
    [
        ("uncached", usage.input.map(|input| input.saturating_sub(cached))),
        ("cache_read", usage.cache_read),
        ("cache_write", usage.cache_write),
        ("output", usage.output.map(|output| output.saturating_sub(reasoning))),
        ("reasoning", usage.reasoning.map(|reasoning| reasoning - hidden)),
        ("hidden", usage.reasoning.map(|_| hidden)),
    ]
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
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
        assert_eq!(by_modality(100, &ByModality::default()), [None, None, None, Some(100)]);
        let all = split(Some(60), None, Some(40), None);
        assert_eq!(by_modality(100, &all), [Some(60), None, Some(40), None]);
        let video = split(Some(60), Some(10), None, Some(30));
        assert_eq!(by_modality(100, &video), [Some(60), Some(10), None, Some(30)]);
        let too_much = split(Some(101), None, None, None);
        assert_eq!(by_modality(100, &too_much), [None, None, None, Some(100)]);
        assert_eq!(by_modality(0, &ByModality::default()), [None, None, None, Some(0)]);
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
        let split = parts(&usage, Some(&output));
        assert_eq!(split.map(|(_, tokens)| tokens), [30, 60, 10, 20, 18, 12].map(Some));
        assert_eq!(split.iter().filter_map(|(_, tokens)| *tokens).sum::<u64>(), 150);
    }

    #[test]
    fn unreported_tokens_are_absent() {
        let usage = Usage { input: Some(7), ..Usage::default() };
        assert_eq!(
            parts(&usage, None).map(|(_, tokens)| tokens),
            [Some(7), None, None, None, None, None]
        );
    }
}
