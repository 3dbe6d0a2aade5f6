//! Records the values of a finished model call. A value that is not defined for the call is not recorded.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::BoundCounter;

use crate::attributes::{label, with, word};
use crate::catalog::attributes as key;
use crate::exemplars::ExemplarRecorder;
use crate::instruments::bound::{
    BoundExemplarHistogram, ExemplarHistogram, Labelled, LabelledValue, LazyHistogram,
};
use crate::instruments::live::LiveInstruments;
use crate::instruments::set::{InstrumentSet, LatestGenAi, OwnInstruments};
use crate::series_limits::SharedValues;
use tokengauge_llm::count::Source;
use tokengauge_llm::dialect::{ByModality, Operation, Timings, Usage};
use tokengauge_measure::record::{
    Call, Completeness, Cost, LengthBucket, LengthBuckets, Outcome, Output, Record,
};
use tokengauge_measure::timing::rates::VOICE_RATE;
use tokengauge_measure::timing::{OutputRateRange, Stage, Timestamps, Unrated};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::label::Label;

type Times<const N: usize> = Labelled<BoundExemplarHistogram<f64>, N>;
type Counts<const N: usize> = Labelled<BoundCounter<u64>, N>;

/// The instruments for finished calls with the same labels, including the response model.
#[derive(Debug)]
pub struct CallInstruments {
    set: Arc<InstrumentSet>,
    /// Attributes of the counters.
    base: Vec<KeyValue>,
    /// Attributes of the histograms.
    timings: Vec<KeyValue>,
    bound: BoundInstruments,
    by_length: SharedValues<LengthBuckets, LengthBucketInstruments>,
    costs: SharedValues<(Label, Source), BoundCounter<f64>>,
}

#[derive(Debug, Default)]
struct BoundInstruments {
    /// Durations of calls without an error, in the order of [`CallInstruments::durations`].
    durations: [LazyHistogram<f64>; 3],
    /// Times without additional attributes, in the order of [`CallInstruments::times`].
    times: [LazyHistogram<f64>; 5],
    queue_waits: Times<3>,
    stages: Times<{ Stage::ALL.len() }>,
    backend_stages: Times<5>,
    /// Token counts of the semantic conventions, each divided by modality. Order: input, output, cache_read,
    /// cache_write, reasoning.
    standard: [Counts<4>; 5],
    /// Token counts per operation, in the order input, output.
    operation: [LazyHistogram<u64>; 2],
    legacy: Labelled<BoundExemplarHistogram<u64>, 2>,
    usage: Counts<7>,
    output_rate_ranges: Counts<{ OutputRateRange::ALL.len() + 1 }>,
    unrated: Counts<{ Unrated::ALL.len() }>,
    /// Output tokens that tokengauge counted, and output tokens that the provider reported.
    drift: [OnceLock<BoundCounter<u64>>; 2],
}

/// The instruments for finished calls with the same labels, including response model and length ranges.
#[derive(Debug)]
pub struct LengthBucketInstruments {
    base: Vec<KeyValue>,
    output_rate: LazyHistogram<f64>,
    total_rate: LazyHistogram<f64>,
    /// Times since the request arrived, in the order of [`times_to`].
    times_to: [LazyHistogram<f64>; 5],
}

impl LengthBucketInstruments {
    /// Creates the instruments. If `length_buckets` is empty, the instruments have only the attributes in `base`.
    fn new(base: &[KeyValue], length_buckets: LengthBuckets) -> Self {
        let own = [
            (key::INPUT_LENGTH_BUCKET, length_buckets.input),
            (key::OUTPUT_LENGTH_BUCKET, length_buckets.output),
        ]
        .into_iter()
        .filter_map(|(key, bucket)| Some(word(key, bucket.map(LengthBucket::as_str)?)));
        Self {
            base: with(base, &own.collect::<Vec<_>>()),
            output_rate: LazyHistogram::default(),
            total_rate: LazyHistogram::default(),
            times_to: Default::default(),
        }
    }
}

impl CallInstruments {
    /// Creates the instruments with a response model for the counters and one for the histograms.
    pub fn new(
        set: Arc<InstrumentSet>,
        live: &LiveInstruments,
        [of_counters, of_histograms]: [Option<&Label>; 2],
    ) -> Self {
        let model = |model: Option<&Label>| model.map(|model| label(key::RESPONSE_MODEL, model));
        Self {
            set,
            base: with(&live.base, model(of_counters).as_slice()),
            timings: with(&live.timings.base, model(of_histograms).as_slice()),
            bound: BoundInstruments::default(),
            by_length: SharedValues::default(),
            costs: SharedValues::default(),
        }
    }

    /// Returns the instruments for calls in these length ranges.
    pub fn by_length(&self, length_buckets: LengthBuckets) -> Arc<LengthBucketInstruments> {
        self.by_length.obtain(&length_buckets, |length_buckets| {
            LengthBucketInstruments::new(&self.timings, *length_buckets)
        })
    }

    /// Records a finished call. `failure` has the attributes of histograms with the record's `error.type`.
    pub fn record(
        &self,
        (record, call): (&Record, &Call),
        failure: Option<&[KeyValue]>,
        by_length: &LengthBucketInstruments,
        exemplars: &mut ExemplarRecorder<'_>,
    ) {
        let durations = self.bound.durations.iter().zip(self.durations(record, call));
        for (slot, (histogram, time)) in durations {
            if let (Some(histogram), Some(time)) = (histogram, time) {
                self.at_end(slot, histogram, failure).record(time, exemplars);
            }
        }
        for (slot, (histogram, time)) in self.bound.times.iter().zip(self.times(record, call)) {
            if let (Some(histogram), Some(time)) = (histogram, time) {
                slot.get_or_bind(histogram, &self.timings).record(time.as_secs_f64(), exemplars);
            }
        }
        self.labelled_times(record, call, exemplars);
        self.rates(call, by_length, exemplars);
        let times = times_to(&self.set.own, &record.points);
        for (slot, (histogram, time)) in by_length.times_to.iter().zip(times) {
            if let Some(time) = time {
                slot.get_or_bind(histogram, &by_length.base).record(time.as_secs_f64(), exemplars);
            }
        }
        if let Some(cost) = &call.cost {
            self.cost(cost);
        }
        if let Some(usage) = &call.usage {
            self.usage(usage, call, failure, exemplars);
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
        self.costs.obtain(&(cost.currency.clone(), cost.source), bind).add(cost.amount);
    }

    /// Returns the durations of the semantic conventions. A WebSocket session has only the general operation duration,
    /// because a session is longer than a response.
    fn durations(
        &self,
        record: &Record,
        call: &Call,
    ) -> [(Option<&ExemplarHistogram<f64>>, Option<f64>); 3] {
        let (points, set) = (&record.points, &*self.set);
        let until_end =
            |from: Option<MonotonicInstant>| Some(points.end?.since(from?).as_secs_f64());
        let session = record.websocket.is_some();
        let inference = call.series.operation.generates() && !session;
        let server = set.server.as_ref().filter(|_| !session);
        let latest = set.latest.as_ref().filter(|_| inference);
        let operation = set.operation_duration.as_ref();
        [
            (server.map(|server| &server.duration), until_end(points.sent)),
            (latest.map(|latest| &latest.duration), until_end(points.admit)),
            (operation.filter(|_| !inference || set.legacy.is_some()), until_end(points.admit)),
        ]
    }

    /// Returns the histogram for a value of a finished call. Failed calls are rare and have an additional attribute, so
    /// their histogram is looked up and not bound.
    fn at_end<T: Clone>(
        &self,
        slot: &LazyHistogram<T>,
        histogram: &ExemplarHistogram<T>,
        failure: Option<&[KeyValue]>,
    ) -> BoundExemplarHistogram<T> {
        match failure {
            None => slot.get_or_bind(histogram, &self.timings).clone(),
            Some(attributes) => histogram.bind(attributes),
        }
    }

    /// Returns the time in which the client did not read, and the stream timings that the semantic conventions define.
    fn times(
        &self,
        record: &Record,
        call: &Call,
    ) -> [(Option<&ExemplarHistogram<f64>>, Option<Duration>); 5] {
        let (points, set) = (&record.points, &*self.set);
        let since_sent =
            |at: Option<MonotonicInstant>| Some(at?.since(points.sent?)).filter(|_| call.streamed);
        let server = set.server.as_ref().filter(|_| record.outcome == Outcome::Ok);
        let first_token = points.upstream_time_to_first_token().filter(|_| call.streamed);
        let per_token = call.rates.time_per_output_token.filter(|_| call.streamed);
        [
            (
                Some(&set.own.client_backpressure),
                Some(record.blocked).filter(|time| !time.is_zero()),
            ),
            (set.latest.as_ref().map(|latest| &latest.first_chunk), since_sent(points.event)),
            (set.legacy.as_ref().map(|legacy| &legacy.first_chunk), since_sent(points.event)),
            (server.map(|server| &server.first_token), first_token),
            (server.map(|server| &server.output_token), per_token),
        ]
    }

    /// Records the stages of a request, the waiting time in each queue, and the phases that the backend reported.
    fn labelled_times(&self, record: &Record, call: &Call, exemplars: &mut ExemplarRecorder<'_>) {
        let (set, base, bound) = (&self.set.own, self.timings.as_slice(), &self.bound);
        let stages = Stage::ALL.map(|stage| (stage.as_str(), record.stages.get(stage)));
        bound.stages.record(&set.stage, (base, key::STAGE), stages, exemplars);
        let waits = waits(record, call);
        bound.queue_waits.record(&set.queue_wait, (base, key::QUEUE_LOCATION), waits, exemplars);
        if let Some(timings) = &call.timings {
            let series = (base, key::BACKEND_STAGE);
            let phases = phases(timings);
            bound.backend_stages.record(&set.backend_stage, series, phases, exemplars);
        }
    }

    fn rates(
        &self,
        call: &Call,
        by_length: &LengthBucketInstruments,
        exemplars: &mut ExemplarRecorder<'_>,
    ) {
        let set = &self.set.own;
        // All counters of a kind are bound at the same time, so that each of them is exported as 0 before its first
        // increment.
        let one = |counted: bool| Some(u64::from(counted));
        if let Some(rate) = call.rates.total {
            by_length
                .total_rate
                .get_or_bind(&set.total_rate, &by_length.base)
                .record(rate, exemplars);
        }
        if let Some(rate) = call.rates.output {
            by_length
                .output_rate
                .get_or_bind(&set.output_rate, &by_length.base)
                .record(rate, exemplars);
            let range = OutputRateRange::from_rate(rate);
            let [a, b, c, d, e] =
                OutputRateRange::ALL.map(|known| (known.as_str(), one(known == range)));
            let ranges = [a, b, c, d, e, ("voice", one(rate >= VOICE_RATE))];
            self.bound.output_rate_ranges.add(
                &set.output_rate_range,
                (&self.base, key::OUTPUT_RATE_RANGE),
                ranges,
            );
        }
        if let Some(reason) = call.rates.unrated {
            let reasons = Unrated::ALL.map(|known| (known.as_str(), one(known == reason)));
            self.bound.unrated.add(
                &set.requests_unrated,
                (&self.base, key::UNRATED_REASON),
                reasons,
            );
        }
    }

    /// Records the token counts that the provider reported.
    fn usage(
        &self,
        usage: &Usage,
        call: &Call,
        failure: Option<&[KeyValue]>,
        exemplars: &mut ExemplarRecorder<'_>,
    ) {
        let set = &*self.set;
        // A call that fetches a response has usage only if the response was generated in the background.
        let operation = call.series.operation;
        let generated = operation.generates() || operation == Operation::FetchResponse;
        if let Some(latest) = set.latest.as_ref().filter(|_| generated) {
            self.standard_usage(latest, usage, failure, exemplars);
        }
        if let Some(legacy) = &set.legacy {
            let reported = [("input", usage.input), ("output", usage.output)];
            let series = (self.timings.as_slice(), key::TOKEN_TYPE);
            self.bound.legacy.record(&legacy.token_usage, series, reported, exemplars);
        }
        let parts = parts(usage, call.output.as_ref());
        self.bound.usage.add(&set.own.reported_tokens, (&self.base, key::TOKEN_KIND), parts);
    }

    fn standard_usage(
        &self,
        latest: &LatestGenAi,
        usage: &Usage,
        failure: Option<&[KeyValue]>,
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
        for (slots, (counter, tokens, split)) in self.bound.standard.iter().zip(counters) {
            if let Some(tokens) = tokens {
                slots.add(counter, (&self.base, key::TOKEN_MODALITY), by_modality(tokens, split));
            }
        }
        let histograms =
            [(&latest.operation_input, usage.input), (&latest.operation_output, usage.output)];
        for (slot, (histogram, tokens)) in self.bound.operation.iter().zip(histograms) {
            if let Some(tokens) = tokens {
                self.at_end(slot, histogram, failure).record(tokens, exemplars);
            }
        }
    }

    /// Records counted and reported output tokens. Excludes calls in which these numbers can differ, such as calls with
    /// hidden tokens.
    fn drift(&self, record: &Record, call: &Call, usage: &Usage, output: &Output) {
        let comparable = record.outcome == Outcome::Ok
            && call.complete == Completeness::Complete
            && output.counted_source == Some(Source::Counted)
            && !call.request.tools
            && output.hidden == 0
            && !usage.output_in_doubt
            // The reported usage of a session includes audio, but only the transcript of the audio can be counted.
            && record.websocket.is_none();
        if let Some(reported) = usage.output.filter(|_| comparable) {
            let set = &self.set.own;
            let counters = [
                (&set.token_mismatch_counted, output.counted),
                (&set.token_mismatch_reported, reported),
            ];
            for (slot, (counter, tokens)) in self.bound.drift.iter().zip(counters) {
                slot.get_or_init(|| counter.bind(&self.base)).add(tokens);
            }
        }
    }
}

/// Divides a token count by modality, as the provider reported it. The parts add up to the count. The last part
/// contains tokens of modalities that the semantic conventions do not define. If the reported parts exceed the count,
/// the last part is the whole count.
fn by_modality(tokens: u64, split: &ByModality) -> [LabelledValue<u64>; 4] {
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

/// Returns the times from the request to each timestamp of the response, with their histograms.
fn times_to<'a>(
    set: &'a OwnInstruments,
    points: &Timestamps,
) -> [(&'a ExemplarHistogram<f64>, Option<Duration>); 5] {
    [
        (&set.time_to_headers, points.head),
        (&set.time_to_first_byte, points.byte),
        (&set.time_to_first_event, points.event),
        (&set.time_to_first_token, points.token),
        (&set.time_to_first_visible_token, points.visible),
    ]
    .map(|(histogram, at)| (histogram, at.map(|at| at.since(points.accept))))
}

fn waits(record: &Record, call: &Call) -> [LabelledValue<Duration>; 3] {
    let points = &record.points;
    [
        ("edge", record.edge_wait),
        ("admission", points.admit.map(|admit| admit.since(points.accept))),
        ("backend", call.timings.and_then(|timings| timings.queue)),
    ]
}

fn phases(timings: &Timings) -> [LabelledValue<Duration>; 5] {
    [
        ("queue", timings.queue),
        ("load", timings.load),
        ("prefill", timings.prefill),
        ("decode", timings.decode),
        ("total", timings.total),
    ]
}

/// Divides the reported tokens into kinds that do not overlap. Input is divided into uncached, cache_read,
/// cache_write and cache_write_1h, and output into output, reasoning and hidden. Hidden are compaction, and reasoning that was not streamed.
/// Tokens that only the reported total shows count as reasoning that was not streamed.
fn parts(usage: &Usage, output: Option<&Output>) -> [LabelledValue<u64>; 7] {
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
        let by_modality = |tokens, split: &_| by_modality(tokens, split).map(|(_, tokens)| tokens);
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
        let [uncached, read, write, write_1h, others @ ..] = split.map(|(_, tokens)| tokens);
        assert_eq!([uncached, read, write, write_1h], [Some(30), Some(60), Some(10), None]);
        assert_eq!(others, [20, 18, 12].map(Some));
        assert_eq!(split.iter().filter_map(|(_, tokens)| *tokens).sum::<u64>(), 150);
        let for_an_hour = Usage { cache_write_1h: Some(7), ..usage };
        let split = parts(&for_an_hour, Some(&output));
        assert_eq!((split[2].1, split[3].1), (Some(3), Some(7)));
        assert_eq!(split.iter().filter_map(|(_, tokens)| *tokens).sum::<u64>(), 150);
    }

    #[test]
    fn tokens_that_only_the_total_shows_are_hidden() {
        let usage = Usage { output: Some(295), unlisted: Some(288), ..Usage::default() };
        let kinds = |hidden| {
            let output = Output { hidden, ..Output::default() };
            parts(&usage, Some(&output)).map(|(_, tokens)| tokens)
        };
        assert_eq!(kinds(288), [None, None, None, None, Some(7), None, Some(288)]);
        assert_eq!(kinds(284), [None, None, None, None, Some(7), Some(4), Some(284)]);
        let without = parts(&usage, None).map(|(_, tokens)| tokens);
        assert_eq!(without, [None, None, None, None, Some(7), None, Some(288)]);
    }

    #[test]
    fn unreported_tokens_are_absent() {
        let usage = Usage { input: Some(7), ..Usage::default() };
        assert_eq!(
            parts(&usage, None).map(|(_, tokens)| tokens),
            [Some(7), None, None, None, None, None, None]
        );
    }
}
