//! One interval of one group, while it is recorded.

use std::sync::Arc;
use std::time::Duration;

use crate::document::{self, ErrorCounts, StageSums};
use crate::histogram::Histogram;
use crate::seconds::{rounded, seconds};
use tokengauge_llm::count::Source;
use tokengauge_measure::record::{Call, Outcome, Record};
use tokengauge_measure::timing::{LiveSample, Stage, Stages};
use tokengauge_types::event::ErrorSource;

const UNAUTHORIZED: u16 = 401;
const FORBIDDEN: u16 = 403;
const TOO_MANY_REQUESTS: u16 = 429;

/// An interval and its document, which is rendered again only after a change.
#[derive(Clone, Debug, Default)]
pub struct RecordedInterval {
    number: u64,
    counts: document::Interval,
    ttft: Histogram,
    latency: Histogram,
    rate: Histogram,
    duration: Histogram,
    document: Option<Arc<document::Interval>>,
}

/// Requests in flight at the end of an interval.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Gauges {
    pub in_flight: u64,
    pub queue_depth: u64,
    pub stalled: u64,
}

/// A finished call, with the part of its cost that the history counts.
#[derive(Clone, Copy, Debug)]
pub struct FinishedCall<'a> {
    pub record: &'a Record,
    pub call: &'a Call,
    /// Cost in the currency of the history, and whether it follows from tokens that the provider did not report.
    pub cost: Option<(f64, bool)>,
}

/// Measurements of the chunks in one event of a stream, which arrived at the same instant.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChunkSample {
    pub tokens: u64,
    /// Part of `tokens` that was estimated.
    pub estimated: u64,
    latency: Duration,
    /// Number of tokens that `latency` is recorded for.
    latency_tokens: u32,
    /// Number of tokens with the latency 0, because they arrived together with earlier ones.
    immediate_tokens: u32,
}

impl ChunkSample {
    #[inline]
    pub fn add(&mut self, sample: LiveSample) {
        match sample {
            LiveSample::Tokens { tokens, source, .. } => {
                self.tokens += u64::from(tokens);
                self.estimated += if source == Source::Estimated { u64::from(tokens) } else { 0 };
            }
            LiveSample::InterToken { latency, tokens } if latency.is_zero() => {
                self.immediate_tokens += tokens;
            }
            LiveSample::InterToken { latency, tokens } => {
                self.latency = latency;
                self.latency_tokens += tokens;
            }
            LiveSample::Standard { .. }
            | LiveSample::InterChunk { .. }
            | LiveSample::ChunkTokens { .. }
            | LiveSample::OutputChunk { .. }
            | LiveSample::Stalled(_)
            | LiveSample::Resumed(_) => {}
        }
    }
}

impl RecordedInterval {
    pub fn new(number: u64) -> Self {
        Self { number, ..Self::default() }
    }

    pub const fn number(&self) -> u64 {
        self.number
    }

    pub fn mark_changed(&mut self) {
        self.document = None;
    }

    /// Returns the document.
    pub fn document(&mut self) -> Arc<document::Interval> {
        let Self { counts, ttft, latency, rate, duration, document, .. } = self;
        let rendered = document.get_or_insert_with(|| {
            Arc::new(document::Interval {
                ttft: ttft.data(),
                itl: latency.data(),
                rate: rate.data(),
                duration: duration.data(),
                stages: rounded_stages(&counts.stages),
                ..counts.clone()
            })
        });
        Arc::clone(rendered)
    }

    /// Records generated output tokens.
    pub const fn record_output(&mut self, tokens: u64, source: Source) {
        self.counts.output_tokens += tokens;
        match source {
            Source::Estimated => self.counts.estimated_output_tokens += tokens,
            Source::Reported | Source::Counted => {}
        }
    }

    /// Records the measurements of a chunk.
    #[inline]
    pub fn record_chunk(&mut self, chunk: &ChunkSample) {
        self.counts.output_tokens += chunk.tokens;
        self.counts.estimated_output_tokens += chunk.estimated;
        if chunk.latency_tokens > 0 {
            self.latency.record(chunk.latency.as_secs_f64(), chunk.latency_tokens);
        }
        if chunk.immediate_tokens > 0 {
            self.latency.record_zero(chunk.immediate_tokens);
        }
    }

    /// Records the inter-token latency of `tokens` tokens.
    pub fn record_latency(&mut self, latency: Duration, tokens: u32) {
        self.latency.record(latency.as_secs_f64(), tokens);
    }

    /// Replaces the gauges.
    pub const fn set_gauges(&mut self, gauges: Gauges) {
        self.counts.in_flight = gauges.in_flight;
        self.counts.queue_depth = gauges.queue_depth;
        self.counts.stalled = gauges.stalled;
    }

    /// Records a call that ended. Its output tokens are already recorded.
    pub fn record_end(&mut self, finished: FinishedCall<'_>) {
        let FinishedCall { record, call, cost } = finished;
        let counts = &mut self.counts;
        counts.finished += 1;
        if let Some((amount, is_estimated)) = cost {
            counts.cost += amount;
            counts.estimated_cost += if is_estimated { amount } else { 0.0 };
        }
        match record.outcome {
            Outcome::Ok => {}
            Outcome::Cancelled => counts.cancelled += 1,
            Outcome::Error | Outcome::Timeout | Outcome::Truncated | Outcome::Rejected => {
                add_error(&mut counts.errors, record.error_source);
                let status = record.http.status.filter(|_| !record.http.own);
                counts.rate_limited += u64::from(status == Some(TOO_MANY_REQUESTS));
                counts.credentials_rejected +=
                    u64::from(matches!(status, Some(UNAUTHORIZED | FORBIDDEN)));
            }
        }
        if let Some(usage) = call.usage {
            counts.input_tokens += usage.input.unwrap_or(0);
            counts.cached_input_tokens += usage.cache_read.unwrap_or(0);
        }
        add_stages(&mut self.counts.stages, &record.stages);
        self.record_times(record, call);
    }

    /// Records the values that `/stats` also shows as percentiles, by the same rules.
    fn record_times(&mut self, record: &Record, call: &Call) {
        let timestamps = &record.timestamps;
        if let Some(time) = timestamps.time_to_first_token().filter(|_| call.streamed) {
            self.ttft.record(time.as_secs_f64(), 1);
        }
        if let Some(rate) = call.rates.output {
            self.rate.record(rate, 1);
        }
        if let Some(time) = timestamps.duration().filter(|_| record.outcome == Outcome::Ok) {
            self.duration.record(time.as_secs_f64(), 1);
        }
    }
}

const fn add_error(errors: &mut ErrorCounts, source: ErrorSource) {
    match source {
        ErrorSource::Client => errors.client += 1,
        ErrorSource::Upstream => errors.upstream += 1,
        ErrorSource::Proxy => errors.proxy += 1,
        ErrorSource::None => {}
    }
}

/// Adds the stages of a request.
pub fn add_stages(sums: &mut StageSums, stages: &Stages) {
    for (stage, length) in stages.iter() {
        let sum = match stage {
            Stage::Admission => &mut sums.admission,
            Stage::Connect => &mut sums.connect,
            Stage::Upload => &mut sums.upload,
            Stage::Headers => &mut sums.headers,
            Stage::FirstByte | Stage::FirstEvent | Stage::FirstToken => &mut sums.first_token,
            Stage::Reasoning => &mut sums.reasoning,
            Stage::Decode => &mut sums.decode,
            Stage::Tail => &mut sums.tail,
        };
        *sum += seconds(length);
    }
}

fn rounded_stages(sums: &StageSums) -> StageSums {
    let StageSums { admission, connect, upload, headers, first_token, reasoning, decode, tail } =
        *sums;
    StageSums {
        admission: rounded(admission),
        connect: rounded(connect),
        upload: rounded(upload),
        headers: rounded(headers),
        first_token: rounded(first_token),
        reasoning: rounded(reasoning),
        decode: rounded(decode),
        tail: rounded(tail),
    }
}
