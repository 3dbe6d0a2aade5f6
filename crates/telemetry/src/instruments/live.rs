//! The instruments that are updated for every chunk of a stream. They are bound to one series, so recording a value
//! takes a few nanoseconds.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opentelemetry::KeyValue;

use crate::attributes::{series_attributes, with_labels};
use crate::builders::Series;
use crate::catalog::values::Number;
use crate::catalog::{Metric, semconv, tokengauge};
use crate::exemplars::ExemplarRecorder;
use crate::instruments::table::InstrumentTable;
use tokengauge_llm::count::Source;
use tokengauge_llm::dialect::TextKind;
use tokengauge_measure::record::MetricLabels;
use tokengauge_measure::timing::{LiveSample, Stall, StallKind, StallPhase};
use tokengauge_types::label::Label;

/// Maximum number of inter-token latencies that are recorded for one chunk. Recording one latency takes 14 ns, so a
/// chunk takes at most 60 µs. Only a stream that arrives as one huge event reaches the limit. Without the limit, the
/// tokens of such an event would dominate the distribution.
const MAX_RECORDS_PER_CHUNK: u32 = 4_096;

/// The instruments of one series for running streams. Each instrument is bound when it is first used, so that unused
/// series are not exported.
#[derive(Debug)]
pub struct LiveInstruments {
    table: Arc<InstrumentTable>,
    /// The attributes of the counters that change while a stream runs, sorted by key.
    base: Vec<KeyValue>,
    /// The labels of the counters of finished calls.
    pub(super) series: MetricLabels,
    /// The first response model of the series. The limit on series already includes this model, but not further ones.
    pub(super) response_model: OnceLock<Label>,
    pub(super) timings: Arc<TimingLabels>,
    /// Set when the counters of responses have been exported as 0, which happens once per series.
    has_response: OnceLock<()>,
    bound: BoundInstruments,
}

/// The labels of the histograms of calls. Beyond the limit on series, they have fewer labels than the counters, and
/// several calls share them.
#[derive(Debug)]
pub struct TimingLabels {
    pub labels: MetricLabels,
    /// The attributes of the histograms, sorted by key.
    pub base: Vec<KeyValue>,
    /// See [`LiveInstruments::response_model`].
    pub response_model: OnceLock<Label>,
}

impl TimingLabels {
    pub fn new(labels: &MetricLabels) -> Self {
        let (labels, base) = (labels.clone(), series_attributes(labels));
        Self { labels, base, response_model: OnceLock::new() }
    }
}

#[derive(Debug, Default)]
struct BoundInstruments {
    /// Two token counters for each kind of text. The first is for counted tokens, and the second for estimated tokens.
    output: [[OnceLock<Series>; 2]; TextKind::ALL.len()],
    input: OnceLock<Series>,
    normalized_tokens: OnceLock<Series>,
    streaming: OnceLock<Series>,
    blocked: OnceLock<Series>,
    unpriced: OnceLock<Series>,
    inter_token_latency: OnceLock<Series>,
    inter_chunk_latency: OnceLock<Series>,
    tokens_per_chunk: OnceLock<Series>,
    output_chunk: OnceLock<Series>,
    legacy_output_chunk: OnceLock<Series>,
}

impl LiveInstruments {
    pub(super) fn new(
        table: Arc<InstrumentTable>,
        (series, shared): (&MetricLabels, &MetricLabels),
        timings: Arc<TimingLabels>,
    ) -> Self {
        let live = Self {
            table,
            base: series_attributes(shared),
            series: series.clone(),
            response_model: OnceLock::new(),
            timings,
            has_response: OnceLock::new(),
            bound: BoundInstruments::default(),
        };
        if series.operation.generates() {
            // Exported as 0 before the first token, so that `rate()` includes the first increment.
            live.record(LiveSample::Standard { tokens: 0 });
            live.record_estimated_input(0);
            if series.stream {
                live.record_stream_time(Duration::ZERO, Duration::ZERO);
                live.initialize_stalls();
            }
        }
        live
    }

    /// Records a value of a running stream. Runs for every chunk, so most values need no hash, and only the first value
    /// of a kind allocates memory.
    pub fn record(&self, sample: LiveSample) {
        let bound = &self.bound;
        match sample {
            LiveSample::Tokens { kind, tokens, source } => {
                self.output(kind, source).record(f64::from(tokens));
            }
            LiveSample::Standard { tokens } => self
                .counter(&bound.normalized_tokens, &tokengauge::NORMALIZED_TOKENS, &[])
                .record(f64::from(tokens)),
            LiveSample::InterToken { latency, tokens } => {
                let (slot, metric) = (&bound.inter_token_latency, &tokengauge::INTER_TOKEN_LATENCY);
                let (series, seconds) = (self.histogram(slot, metric), latency.as_secs_f64());
                for _ in 0..tokens.min(MAX_RECORDS_PER_CHUNK) {
                    series.record(seconds);
                }
            }
            LiveSample::InterChunk { gap } => self
                .histogram(&bound.inter_chunk_latency, &tokengauge::INTER_CHUNK_LATENCY)
                .record(gap.as_secs_f64()),
            LiveSample::ChunkTokens { tokens } => self
                .histogram(&bound.tokens_per_chunk, &tokengauge::TOKENS_PER_CHUNK)
                .record(f64::from(tokens)),
            LiveSample::OutputChunk { gap } => {
                let gap = gap.as_secs_f64();
                self.histogram(&bound.output_chunk, &semconv::INFERENCE_OUTPUT_CHUNK).record(gap);
                self.histogram(&bound.legacy_output_chunk, &semconv::OPERATION_OUTPUT_CHUNK)
                    .record(gap);
            }
            LiveSample::Stalled(stall) => self.count_stalls(stall.phase, stall.kind, 1),
            LiveSample::Resumed(stall) => self.record_stall_time(&stall),
        }
    }

    /// Creates the counters of output tokens from `source` with the value 0, so that `rate()` includes their first
    /// increment. Returns `false` if the counters exist already.
    pub(super) fn initialize_response(&self, source: Source) -> bool {
        let is_first = self.has_response.set(()).is_ok();
        if is_first && self.series.operation.generates() {
            for kind in TextKind::ALL {
                self.output(kind, source).record(0.0);
            }
        }
        is_first
    }

    /// Exports each kind of stall as 0, so that `rate()` includes the first stall.
    fn initialize_stalls(&self) {
        for phase in StallPhase::ALL {
            for kind in StallKind::ALL {
                self.count_stalls(phase, kind, 0);
            }
        }
    }

    fn count_stalls(&self, phase: StallPhase, kind: StallKind, times: u64) {
        let labels = [phase.as_str(), kind.as_str()];
        self.table.record(&tokengauge::STREAM_STALLS, &self.base, &labels, times);
    }

    /// Records the exemplars of a stall when the request has ended. The stall was counted while it lasted, before it
    /// was known whether the trace is kept.
    pub(super) fn record_stall_exemplar(
        &self,
        stall: &Stall,
        exemplars: &mut ExemplarRecorder<'_>,
    ) {
        let labels = [stall.phase.as_str(), stall.kind.as_str()];
        let series = |metric: &Metric, base| {
            self.table.exemplars.series(metric, &with_labels(metric, base, &labels))
        };
        exemplars.one(series(&tokengauge::STREAM_STALLS, &self.base));
        if let Some(lasted) = stall.lasted {
            let series = series(&tokengauge::STALL_DURATION, &self.timings.base);
            let bounds = tokengauge::STALL_DURATION.buckets.full;
            exemplars.bucket(series, bounds, lasted.as_secs_f64());
        }
    }

    fn record_stall_time(&self, stall: &Stall) {
        if let Some(lasted) = stall.lasted {
            let labels = [stall.phase.as_str(), stall.kind.as_str()];
            let base = &self.timings.base;
            self.table.record(&tokengauge::STALL_DURATION, base, &labels, lasted);
        }
    }

    /// Records how a stream spent the time after its first token. In the time `blocked`, the client did not read.
    /// `streaming` is the rest.
    pub fn record_stream_time(&self, streaming: Duration, blocked: Duration) {
        let counter = |slot, state| self.counter(slot, &tokengauge::STREAM_ACTIVE_TIME, &[state]);
        counter(&self.bound.streaming, "streaming").record(streaming.as_secs_f64());
        counter(&self.bound.blocked, "blocked").record(blocked.as_secs_f64());
    }

    /// Records input tokens that were estimated from the length of the prompt.
    pub(super) fn record_estimated_input(&self, tokens: u64) {
        let labels = ["input", "prompt", Source::Estimated.as_str()];
        self.counter(&self.bound.input, &tokengauge::TOKENS, &labels).record(tokens.into_f64());
    }

    pub(super) fn record_unpriced(&self) {
        self.counter(&self.bound.unpriced, &tokengauge::REQUESTS_UNPRICED, &[]).record(1.0);
    }

    fn output(&self, kind: TextKind, source: Source) -> &Series {
        let [text, reasoning, tool, refusal, transcript] = &self.bound.output;
        let [counted, estimated] = match kind {
            TextKind::Text => text,
            TextKind::Reasoning => reasoning,
            TextKind::Tool => tool,
            TextKind::Refusal => refusal,
            TextKind::Transcript => transcript,
        };
        // A sample never contains tokens that the provider reported. They are in the record of the exchange.
        let (slot, source) = match source {
            Source::Counted => (counted, Source::Counted),
            Source::Estimated | Source::Reported => (estimated, Source::Estimated),
        };
        slot.get_or_init(|| {
            let labels = ["output", kind.as_str(), source.as_str()];
            self.table.bind(&tokengauge::TOKENS, &self.base, &labels)
        })
    }

    fn counter<'a>(
        &self,
        slot: &'a OnceLock<Series>,
        metric: &Metric,
        labels: &[&'static str],
    ) -> &'a Series {
        slot.get_or_init(|| self.table.bind(metric, &self.base, labels))
    }

    fn histogram<'a>(&self, slot: &'a OnceLock<Series>, metric: &Metric) -> &'a Series {
        slot.get_or_init(|| self.table.bind(metric, &self.timings.base, &[]))
    }
}
