//! What moves with every chunk: instruments bound to one series, a few nanoseconds each.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{BoundCounter, BoundHistogram, Histogram};

use crate::attributes::{of_series, with, word};
use crate::catalog::attributes as key;
use crate::catalog::tokengauge;
use crate::exemplars::ExemplarRecorder;
use crate::instruments::set::InstrumentSet;
use tokengauge_llm::count::Source;
use tokengauge_llm::dialect::TextKind;
use tokengauge_measure::record::Series;
use tokengauge_measure::timing::{Awaited, Sample, Silence, Stall};

/// The most times one chunk's inter-token latency is recorded. A record costs 14 ns, less than it took to count the
/// token, so the bound only matters for a stream that arrives as one huge event: there it caps the work at 60 µs, and
/// leaves the excess tokens out of a distribution in which that stream would be all there is.
const MOST_TOKENS_OF_A_CHUNK: u32 = 4_096;

/// The live instruments of one series. Bound at their first use, so that a series has no points it never fills.
#[derive(Debug)]
pub struct LiveInstruments {
    family: Arc<InstrumentSet>,
    /// What each series is told apart by, sorted.
    pub(super) base: Vec<KeyValue>,
    pub(super) series: Series,
    /// By kind, counted and estimated.
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
    pub(super) fn new(family: Arc<InstrumentSet>, series: &Series) -> Self {
        let live = Self {
            family,
            base: of_series(series),
            series: series.clone(),
            output: Default::default(),
            input: OnceLock::new(),
            standard: OnceLock::new(),
            streaming: OnceLock::new(),
            blocked: OnceLock::new(),
            inter_token: OnceLock::new(),
            inter_chunk: OnceLock::new(),
            chunk_tokens: OnceLock::new(),
            output_chunk: OnceLock::new(),
            legacy_output_chunk: OnceLock::new(),
        };
        if series.operation.generates() {
            // Signal as 0 before the first token, so that `rate()` sees it.
            live.record(Sample::Standard { tokens: 0 });
            if series.stream {
                live.record_stream_time(Duration::ZERO, Duration::ZERO);
                live.no_stalls();
            }
        }
        live
    }

    /// Called for every sample of every chunk: no hashing, and no allocation after the first of its kind.
    pub fn record(&self, sample: Sample) {
        let family = &*self.family;
        match sample {
            Sample::Tokens { kind, tokens, source } => {
                self.output(kind, source).add(u64::from(tokens))
            }
            Sample::Standard { tokens } => {
                let bind = || family.tokens_standard.bind(&self.base);
                self.standard.get_or_init(bind).add(u64::from(tokens));
            }
            Sample::InterToken { latency, tokens } => {
                let bound = self.bound(&self.inter_token, &family.inter_token);
                let seconds = latency.as_secs_f64();
                for _ in 0..tokens.min(MOST_TOKENS_OF_A_CHUNK) {
                    bound.record(seconds);
                }
            }
            Sample::InterChunk { gap } => {
                self.bound(&self.inter_chunk, &family.inter_chunk).record(gap.as_secs_f64());
            }
            Sample::ChunkTokens { tokens } => {
                let bind = || family.chunk_tokens.bind(&self.base);
                self.chunk_tokens.get_or_init(bind).record(u64::from(tokens));
            }
            Sample::OutputChunk { gap } => self.chunk(gap),
            Sample::Stalled(stall) => self.stalls(stall.awaited, stall.silence, 1),
            Sample::Resumed(stall) => self.stall_time(&stall),
        }
    }

    /// Each kind of stall is told as 0 before its first one.
    fn no_stalls(&self) {
        for awaited in Awaited::ALL {
            for silence in Silence::ALL {
                self.stalls(awaited, silence, 0);
            }
        }
    }

    fn stalls(&self, awaited: Awaited, silence: Silence, times: u64) {
        let attributes = with(&self.base, &of_stall(awaited, silence));
        self.family.stalls.add(times, &attributes);
    }

    /// Leaves the exemplars of a stall, which was told while it went on: whether its trace is kept was not known then.
    pub(super) fn mark(&self, stall: &Stall, marks: &mut ExemplarRecorder<'_>) {
        let attributes = with(&self.base, &of_stall(stall.awaited, stall.silence));
        let series = |metric| self.family.exemplars.series(metric, &attributes);
        marks.one(series(&tokengauge::STREAM_STALLS));
        if let Some(lasted) = stall.lasted {
            let (series, bounds) =
                (series(&tokengauge::STALL_TIME), tokengauge::STALL_TIME.buckets);
            marks.bucket(series, bounds, lasted.as_secs_f64());
        }
    }

    fn stall_time(&self, stall: &Stall) {
        if let Some(lasted) = stall.lasted {
            let attributes = with(&self.base, &of_stall(stall.awaited, stall.silence));
            self.family.stall_time.record(lasted.as_secs_f64(), &attributes);
        }
    }

    /// Stream-seconds went by after the first token: `streaming`, and `blocked` by a client that did not read.
    pub fn record_stream_time(&self, streaming: Duration, blocked: Duration) {
        let counter = |slot: &'_ OnceLock<BoundCounter<f64>>, state, time: Duration| {
            let bind = || {
                let attributes = with(&self.base, &[word(key::STREAM_STATE, state)]);
                self.family.stream_time.bind(&attributes)
            };
            slot.get_or_init(bind).add(time.as_secs_f64());
        };
        counter(&self.streaming, "streaming", streaming);
        counter(&self.blocked, "blocked", blocked);
    }

    /// Input tokens, estimated from the prompt's bytes.
    pub(super) fn estimated_input(&self, tokens: u64) {
        let bind = || {
            self.family.tokens.bind(&with(
                &self.base,
                &[
                    word(key::TOKEN_TYPE, "input"),
                    word(key::TOKEN_KIND, "prompt"),
                    word(key::TOKEN_SOURCE, Source::Estimated.as_str()),
                ],
            ))
        };
        self.input.get_or_init(bind).add(tokens);
    }

    fn output(&self, kind: TextKind, source: Source) -> &BoundCounter<u64> {
        let [text, reasoning, tool, refusal, transcript] = &self.output;
        let [counted, estimated] = match kind {
            TextKind::Text => text,
            TextKind::Reasoning => reasoning,
            TextKind::Tool => tool,
            TextKind::Refusal => refusal,
            TextKind::Transcript => transcript,
        };
        // A sample is never reported: what the provider says comes with the record.
        let (slot, source) = match source {
            Source::Counted => (counted, Source::Counted),
            Source::Estimated | Source::Reported => (estimated, Source::Estimated),
        };
        slot.get_or_init(|| {
            self.family.tokens.bind(&with(
                &self.base,
                &[
                    word(key::TOKEN_TYPE, "output"),
                    word(key::TOKEN_KIND, kind.as_str()),
                    word(key::TOKEN_SOURCE, source.as_str()),
                ],
            ))
        })
    }

    fn chunk(&self, gap: Duration) {
        if let Some(latest) = &self.family.latest {
            self.bound(&self.output_chunk, &latest.output_chunk).record(gap.as_secs_f64());
        }
        if let Some(legacy) = &self.family.legacy {
            self.bound(&self.legacy_output_chunk, &legacy.output_chunk).record(gap.as_secs_f64());
        }
    }

    fn bound<'a>(
        &self,
        slot: &'a OnceLock<BoundHistogram<f64>>,
        histogram: &Histogram<f64>,
    ) -> &'a BoundHistogram<f64> {
        slot.get_or_init(|| histogram.bind(&self.base))
    }
}

fn of_stall(awaited: Awaited, silence: Silence) -> [KeyValue; 2] {
    [word(key::AWAITED, awaited.as_str()), word(key::SILENCE, silence.as_str())]
}
