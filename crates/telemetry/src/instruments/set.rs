//! All synchronous instruments.

use std::sync::Arc;

use opentelemetry::metrics::{Counter, Histogram, Meter};

use crate::catalog::{Metric, cost, drift, health, network, quota, semconv, tokengauge};
use crate::config::GenAiNames;
use crate::exemplars::Exemplars;
use crate::instruments::bound::ExemplarHistogram;

/// All synchronous instruments. Those of the semantic conventions have the configured names.
#[derive(Debug)]
pub struct InstrumentSet {
    pub exemplars: Arc<Exemplars>,
    pub http_server: ExemplarHistogram<f64>,
    pub http_client: ExemplarHistogram<f64>,
    pub server: Option<GenAiServer>,
    pub latest: Option<LatestGenAi>,
    pub legacy: Option<LegacyGenAi>,
    /// Duration of calls that are not inference. The metric has the same name in both sets.
    pub operation_duration: Option<ExemplarHistogram<f64>>,

    pub tokens: Counter<u64>,
    pub tokens_standard: Counter<u64>,
    pub usage: Counter<u64>,
    pub stream_time: Counter<f64>,
    pub stalls: Counter<u64>,
    pub stall_time: Histogram<f64>,
    pub output_rate: ExemplarHistogram<f64>,
    pub total_rate: ExemplarHistogram<f64>,
    pub band: Counter<u64>,
    pub unrated: Counter<u64>,
    pub stage: ExemplarHistogram<f64>,
    pub backend_stage: ExemplarHistogram<f64>,
    pub time_to: ExemplarHistogram<f64>,
    pub inter_token: Histogram<f64>,
    pub inter_chunk: Histogram<f64>,
    pub chunk_tokens: Histogram<u64>,
    pub blocked: ExemplarHistogram<f64>,
    pub connect: ExemplarHistogram<f64>,
    pub rtt: ExemplarHistogram<f64>,
    pub retransmits: Counter<u64>,
    pub queue_wait: ExemplarHistogram<f64>,
    pub messages: Counter<u64>,
    pub retries: Counter<u64>,
    pub started: Counter<u64>,
    pub finished: Counter<u64>,
    pub choices: Counter<u64>,
    pub cost: Counter<f64>,
    pub unpriced: Counter<u64>,
    pub budget_used: Counter<f64>,
    pub drift_counted: Counter<u64>,
    pub drift_reported: Counter<u64>,
    pub anomalies: Counter<u64>,
    pub delay: Histogram<f64>,
    pub left_out: Counter<u64>,
}

/// Instruments of `gen_ai.server.*`, which are the same in both sets of names.
#[derive(Debug)]
pub struct GenAiServer {
    pub duration: ExemplarHistogram<f64>,
    pub first_token: ExemplarHistogram<f64>,
    pub output_token: ExemplarHistogram<f64>,
}

/// Instruments of `gen_ai.client.inference.*`.
#[derive(Debug)]
pub struct LatestGenAi {
    pub duration: ExemplarHistogram<f64>,
    pub first_chunk: ExemplarHistogram<f64>,
    pub output_chunk: Histogram<f64>,
    pub input: Counter<u64>,
    pub output: Counter<u64>,
    pub cache_read: Counter<u64>,
    pub cache_write: Counter<u64>,
    pub reasoning: Counter<u64>,
    pub operation_input: ExemplarHistogram<u64>,
    pub operation_output: ExemplarHistogram<u64>,
}

/// Instruments of `gen_ai.client.operation.*` and `gen_ai.client.token.usage`.
#[derive(Debug)]
pub struct LegacyGenAi {
    pub first_chunk: ExemplarHistogram<f64>,
    pub output_chunk: Histogram<f64>,
    pub token_usage: ExemplarHistogram<u64>,
}

/// Creates instruments that leave exemplars.
#[derive(Clone, Copy)]
struct Maker<'a> {
    meter: &'a Meter,
    exemplars: &'a Arc<Exemplars>,
}

impl Maker<'_> {
    fn histogram(self, metric: &'static Metric) -> ExemplarHistogram<f64> {
        ExemplarHistogram::new(metric, metric.histogram(self.meter), self.exemplars)
    }

    fn count_histogram(self, metric: &'static Metric) -> ExemplarHistogram<u64> {
        ExemplarHistogram::new(metric, metric.count_histogram(self.meter), self.exemplars)
    }
}

impl InstrumentSet {
    pub fn new(meter: &Meter, gen_ai: GenAiNames, exemplars: &Arc<Exemplars>) -> Self {
        let traced = Maker { meter, exemplars };
        let any = gen_ai != GenAiNames::Off;
        Self {
            exemplars: Arc::clone(exemplars),
            http_server: traced.histogram(&semconv::HTTP_SERVER_DURATION),
            http_client: traced.histogram(&semconv::HTTP_CLIENT_DURATION),
            server: any.then(|| GenAiServer::new(traced)),
            latest: gen_ai.latest().then(|| LatestGenAi::new(traced)),
            legacy: gen_ai.legacy().then(|| LegacyGenAi::new(traced)),
            operation_duration: any.then(|| traced.histogram(&semconv::OPERATION_DURATION)),
            tokens: tokengauge::TOKENS.counter(meter),
            tokens_standard: tokengauge::TOKENS_STANDARD.counter(meter),
            usage: tokengauge::USAGE.counter(meter),
            stream_time: tokengauge::STREAM_TIME.fraction_counter(meter),
            stalls: tokengauge::STREAM_STALLS.counter(meter),
            stall_time: tokengauge::STALL_TIME.histogram(meter),
            output_rate: traced.histogram(&tokengauge::OUTPUT_RATE),
            total_rate: traced.histogram(&tokengauge::TOTAL_RATE),
            band: tokengauge::REQUEST_BAND.counter(meter),
            unrated: tokengauge::REQUEST_UNRATED.counter(meter),
            stage: traced.histogram(&tokengauge::REQUEST_STAGE),
            backend_stage: traced.histogram(&tokengauge::BACKEND_TIME),
            time_to: traced.histogram(&tokengauge::TIME_TO),
            inter_token: tokengauge::INTER_TOKEN.histogram(meter),
            inter_chunk: tokengauge::INTER_CHUNK.histogram(meter),
            chunk_tokens: tokengauge::CHUNK_SIZE.count_histogram(meter),
            blocked: traced.histogram(&tokengauge::CLIENT_BLOCKED),
            connect: traced.histogram(&network::CONNECT_TIME),
            rtt: traced.histogram(&network::RTT),
            retransmits: network::RETRANSMITS.counter(meter),
            queue_wait: traced.histogram(&tokengauge::QUEUE_WAIT),
            messages: tokengauge::WEBSOCKET_MESSAGES.counter(meter),
            retries: quota::CLIENT_RETRIES.counter(meter),
            started: tokengauge::REQUESTS_STARTED.counter(meter),
            finished: tokengauge::REQUESTS_FINISHED.counter(meter),
            choices: tokengauge::CHOICES_FINISHED.counter(meter),
            cost: cost::COST.fraction_counter(meter),
            unpriced: cost::UNPRICED.counter(meter),
            budget_used: cost::BUDGET_USED.fraction_counter(meter),
            drift_counted: drift::COUNTED.counter(meter),
            drift_reported: drift::REPORTED.counter(meter),
            anomalies: health::SELF_ANOMALIES.counter(meter),
            delay: health::SELF_DELAY.histogram(meter),
            left_out: health::SELF_LEFT_OUT.counter(meter),
        }
    }
}

impl GenAiServer {
    fn new(traced: Maker<'_>) -> Self {
        Self {
            duration: traced.histogram(&semconv::SERVER_DURATION),
            first_token: traced.histogram(&semconv::SERVER_FIRST_TOKEN),
            output_token: traced.histogram(&semconv::SERVER_OUTPUT_TOKEN),
        }
    }
}

impl LatestGenAi {
    fn new(traced: Maker<'_>) -> Self {
        Self {
            duration: traced.histogram(&semconv::INFERENCE_DURATION),
            first_chunk: traced.histogram(&semconv::INFERENCE_FIRST_CHUNK),
            output_chunk: semconv::INFERENCE_OUTPUT_CHUNK.histogram(traced.meter),
            input: semconv::USAGE_INPUT.counter(traced.meter),
            output: semconv::USAGE_OUTPUT.counter(traced.meter),
            cache_read: semconv::USAGE_CACHE_READ.counter(traced.meter),
            cache_write: semconv::USAGE_CACHE_WRITE.counter(traced.meter),
            reasoning: semconv::USAGE_REASONING.counter(traced.meter),
            operation_input: traced.count_histogram(&semconv::OPERATION_INPUT),
            operation_output: traced.count_histogram(&semconv::OPERATION_OUTPUT),
        }
    }
}

impl LegacyGenAi {
    fn new(traced: Maker<'_>) -> Self {
        Self {
            first_chunk: traced.histogram(&semconv::OPERATION_FIRST_CHUNK),
            output_chunk: semconv::OPERATION_OUTPUT_CHUNK.histogram(traced.meter),
            token_usage: traced.count_histogram(&semconv::TOKEN_USAGE),
        }
    }
}
