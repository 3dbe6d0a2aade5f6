//! The instruments that are updated for every chunk of a stream. They are bound to one series, so recording a value
//! takes a few nanoseconds.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{BoundCounter, BoundHistogram, Histogram};

use crate::attributes::{series_attributes, with, word};
use crate::catalog::attributes as key;
use crate::catalog::tokengauge;
use crate::exemplars::ExemplarRecorder;
use crate::instruments::set::InstrumentSet;
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
    set: Arc<InstrumentSet>,
    /// The attributes of the counters, sorted by key.
    pub(super) base: Vec<KeyValue>,
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
    output: [[OnceLock<BoundCounter<u64>>; 2]; TextKind::ALL.len()],
    input: OnceLock<BoundCounter<u64>>,
    standard: OnceLock<BoundCounter<u64>>,
    streaming: OnceLock<BoundCounter<f64>>,
    blocked: OnceLock<BoundCounter<f64>>,
    inter_token: OnceLock<BoundHistogram<f64>>,
    inter_chunk: OnceLock<BoundHistogram<f64>>,
    chunk_tokens: OnceLock<BoundHistogram<u64>>,
    output_chunk: OnceLock<BoundHistogram<f64>>,
    legacy_output_chunk: OnceLock<BoundHistogram<f64>>,
}

impl LiveInstruments {
    pub(super) fn new(
        set: Arc<InstrumentSet>,
        series: &MetricLabels,
        timings: Arc<TimingLabels>,
    ) -> Self {
        let live = Self {
            set,
            base: series_attributes(series),
            series: series.clone(),
            response_model: OnceLock::new(),
            timings,
            has_response: OnceLock::new(),
            bound: BoundInstruments::default(),
        };
        if series.operation.generates() {
            // Exported as 0 before the first token, so that `rate()` includes the first increment.
            live.record(LiveSample::Standard { tokens: 0 });
            live.estimated_input(0);
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
        let set = &*self.set;
        match sample {
            LiveSample::Tokens { kind, tokens, source } => {
                self.output(kind, source).add(u64::from(tokens))
            }
            LiveSample::Standard { tokens } => {
                let bind = || set.own.normalized_tokens.bind(&self.base);
                self.bound.standard.get_or_init(bind).add(u64::from(tokens));
            }
            LiveSample::InterToken { latency, tokens } => {
                let bound = self.histogram(&self.bound.inter_token, &set.own.inter_token);
                let seconds = latency.as_secs_f64();
                for _ in 0..tokens.min(MAX_RECORDS_PER_CHUNK) {
                    bound.record(seconds);
                }
            }
            LiveSample::InterChunk { gap } => {
                self.histogram(&self.bound.inter_chunk, &set.own.inter_chunk)
                    .record(gap.as_secs_f64());
            }
            LiveSample::ChunkTokens { tokens } => {
                let bind = || set.own.chunk_tokens.bind(&self.timings.base);
                self.bound.chunk_tokens.get_or_init(bind).record(u64::from(tokens));
            }
            LiveSample::OutputChunk { gap } => self.record_chunk_gap(gap),
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
                self.output(kind, source).add(0);
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
        let attributes = with(&self.base, &of_stall(phase, kind));
        self.set.own.stalls.add(times, &attributes);
    }

    /// Records the exemplars of a stall when the request has ended. The stall was counted while it lasted, before it
    /// was known whether the trace is kept.
    pub(super) fn record_stall_exemplar(
        &self,
        stall: &Stall,
        exemplars: &mut ExemplarRecorder<'_>,
    ) {
        let own = of_stall(stall.phase, stall.kind);
        let series = |metric, base| self.set.exemplars.series(metric, &with(base, &own));
        exemplars.one(series(&tokengauge::STREAM_STALLS, &self.base));
        if let Some(lasted) = stall.lasted {
            let series = series(&tokengauge::STALL_DURATION, &self.timings.base);
            let bounds = tokengauge::STALL_DURATION.buckets;
            exemplars.bucket(series, bounds, lasted.as_secs_f64());
        }
    }

    fn record_stall_time(&self, stall: &Stall) {
        if let Some(lasted) = stall.lasted {
            let attributes = with(&self.timings.base, &of_stall(stall.phase, stall.kind));
            self.set.own.stall_time.record(lasted.as_secs_f64(), &attributes);
        }
    }

    /// Records how a stream spent the time after its first token. In the time `blocked`, the client did not read.
    /// `streaming` is the rest.
    pub fn record_stream_time(&self, streaming: Duration, blocked: Duration) {
        let counter = |slot: &'_ OnceLock<BoundCounter<f64>>, state, time: Duration| {
            let bind = || {
                let attributes = with(&self.base, &[word(key::STREAM_STATE, state)]);
                self.set.own.stream_time.bind(&attributes)
            };
            slot.get_or_init(bind).add(time.as_secs_f64());
        };
        counter(&self.bound.streaming, "streaming", streaming);
        counter(&self.bound.blocked, "blocked", blocked);
    }

    /// Records input tokens that were estimated from the length of the prompt.
    pub(super) fn estimated_input(&self, tokens: u64) {
        let bind = || self.tokens("input", "prompt", Source::Estimated);
        self.bound.input.get_or_init(bind).add(tokens);
    }

    fn tokens(
        &self,
        direction: &'static str,
        kind: &'static str,
        source: Source,
    ) -> BoundCounter<u64> {
        let own = [
            word(key::TOKEN_TYPE, direction),
            word(key::TOKEN_KIND, kind),
            word(key::TOKEN_SOURCE, source.as_str()),
        ];
        self.set.own.tokens.bind(&with(&self.base, &own))
    }

    fn output(&self, kind: TextKind, source: Source) -> &BoundCounter<u64> {
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
        slot.get_or_init(|| self.tokens("output", kind.as_str(), source))
    }

    fn record_chunk_gap(&self, gap: Duration) {
        if let Some(latest) = &self.set.latest {
            self.histogram(&self.bound.output_chunk, &latest.output_chunk)
                .record(gap.as_secs_f64());
        }
        if let Some(legacy) = &self.set.legacy {
            self.histogram(&self.bound.legacy_output_chunk, &legacy.output_chunk)
                .record(gap.as_secs_f64());
        }
    }

    fn histogram<'a>(
        &self,
        slot: &'a OnceLock<BoundHistogram<f64>>,
        histogram: &Histogram<f64>,
    ) -> &'a BoundHistogram<f64> {
        slot.get_or_init(|| histogram.bind(&self.timings.base))
    }
}

fn of_stall(phase: StallPhase, kind: StallKind) -> [KeyValue; 2] {
    [word(key::STALL_PHASE, phase.as_str()), word(key::STALL_KIND, kind.as_str())]
}
