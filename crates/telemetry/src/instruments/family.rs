//! The synchronous instruments, all of them.

use std::sync::Arc;

use opentelemetry::metrics::{Counter, Histogram, Meter};

use crate::config::GenAi;
use crate::exemplars::Exemplars;
use crate::instruments::traced::Traced;
use crate::names::{Metric, cost, drift, health, network, ours, quota, standard};

/// Every synchronous instrument, and the standard's under the names that are configured.
#[derive(Debug)]
pub struct Family {
    pub exemplars: Arc<Exemplars>,
    pub http_server: Traced<f64>,
    pub http_client: Traced<f64>,
    pub server: Option<Server>,
    pub latest: Option<Latest>,
    pub legacy: Option<Legacy>,
    /// Of calls that are no inference, which have one name in both sets.
    pub operation_duration: Option<Traced<f64>>,

    pub tokens: Counter<u64>,
    pub tokens_standard: Counter<u64>,
    pub usage: Counter<u64>,
    pub stream_time: Counter<f64>,
    pub stalls: Counter<u64>,
    pub stall_time: Histogram<f64>,
    pub output_rate: Traced<f64>,
    pub total_rate: Traced<f64>,
    pub band: Counter<u64>,
    pub unrated: Counter<u64>,
    pub stage: Traced<f64>,
    pub backend_stage: Traced<f64>,
    pub time_to: Traced<f64>,
    pub inter_token: Histogram<f64>,
    pub inter_chunk: Histogram<f64>,
    pub chunk_tokens: Histogram<u64>,
    pub blocked: Traced<f64>,
    pub connect: Traced<f64>,
    pub rtt: Traced<f64>,
    pub retransmits: Counter<u64>,
    pub queue_wait: Traced<f64>,
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

/// `gen_ai.server.*`, the same in both sets of names.
#[derive(Debug)]
pub struct Server {
    pub duration: Traced<f64>,
    pub first_token: Traced<f64>,
    pub output_token: Traced<f64>,
}

/// `gen_ai.client.inference.*`.
#[derive(Debug)]
pub struct Latest {
    pub duration: Traced<f64>,
    pub first_chunk: Traced<f64>,
    pub output_chunk: Histogram<f64>,
    pub input: Counter<u64>,
    pub output: Counter<u64>,
    pub cache_read: Counter<u64>,
    pub cache_write: Counter<u64>,
    pub reasoning: Counter<u64>,
    pub operation_input: Traced<u64>,
    pub operation_output: Traced<u64>,
}

/// `gen_ai.client.operation.*` and `gen_ai.client.token.usage`.
#[derive(Debug)]
pub struct Legacy {
    pub first_chunk: Traced<f64>,
    pub output_chunk: Histogram<f64>,
    pub token_usage: Traced<u64>,
}

/// Makes instruments that leave exemplars.
#[derive(Clone, Copy)]
struct Maker<'a> {
    meter: &'a Meter,
    exemplars: &'a Arc<Exemplars>,
}

impl Maker<'_> {
    fn histogram(self, metric: &'static Metric) -> Traced<f64> {
        Traced::new(metric, metric.histogram(self.meter), self.exemplars)
    }

    fn count_histogram(self, metric: &'static Metric) -> Traced<u64> {
        Traced::new(metric, metric.count_histogram(self.meter), self.exemplars)
    }
}

impl Family {
    pub fn new(meter: &Meter, gen_ai: GenAi, exemplars: &Arc<Exemplars>) -> Self {
        let traced = Maker { meter, exemplars };
        let any = gen_ai != GenAi::Off;
        Self {
            exemplars: Arc::clone(exemplars),
            http_server: traced.histogram(&standard::HTTP_SERVER_DURATION),
            http_client: traced.histogram(&standard::HTTP_CLIENT_DURATION),
            server: any.then(|| Server::new(traced)),
            latest: gen_ai.latest().then(|| Latest::new(traced)),
            legacy: gen_ai.legacy().then(|| Legacy::new(traced)),
            operation_duration: any.then(|| traced.histogram(&standard::OPERATION_DURATION)),
            tokens: ours::TOKENS.counter(meter),
            tokens_standard: ours::TOKENS_STANDARD.counter(meter),
            usage: ours::USAGE.counter(meter),
            stream_time: ours::STREAM_TIME.fraction_counter(meter),
            stalls: ours::STREAM_STALLS.counter(meter),
            stall_time: ours::STALL_TIME.histogram(meter),
            output_rate: traced.histogram(&ours::OUTPUT_RATE),
            total_rate: traced.histogram(&ours::TOTAL_RATE),
            band: ours::REQUEST_BAND.counter(meter),
            unrated: ours::REQUEST_UNRATED.counter(meter),
            stage: traced.histogram(&ours::REQUEST_STAGE),
            backend_stage: traced.histogram(&ours::BACKEND_TIME),
            time_to: traced.histogram(&ours::TIME_TO),
            inter_token: ours::INTER_TOKEN.histogram(meter),
            inter_chunk: ours::INTER_CHUNK.histogram(meter),
            chunk_tokens: ours::CHUNK_SIZE.count_histogram(meter),
            blocked: traced.histogram(&ours::CLIENT_BLOCKED),
            connect: traced.histogram(&network::CONNECT_TIME),
            rtt: traced.histogram(&network::RTT),
            retransmits: network::RETRANSMITS.counter(meter),
            queue_wait: traced.histogram(&ours::QUEUE_WAIT),
            messages: ours::WEBSOCKET_MESSAGES.counter(meter),
            retries: quota::CLIENT_RETRIES.counter(meter),
            started: ours::REQUESTS_STARTED.counter(meter),
            finished: ours::REQUESTS_FINISHED.counter(meter),
            choices: ours::CHOICES_FINISHED.counter(meter),
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

impl Server {
    fn new(traced: Maker<'_>) -> Self {
        Self {
            duration: traced.histogram(&standard::SERVER_DURATION),
            first_token: traced.histogram(&standard::SERVER_FIRST_TOKEN),
            output_token: traced.histogram(&standard::SERVER_OUTPUT_TOKEN),
        }
    }
}

impl Latest {
    fn new(traced: Maker<'_>) -> Self {
        Self {
            duration: traced.histogram(&standard::INFERENCE_DURATION),
            first_chunk: traced.histogram(&standard::INFERENCE_FIRST_CHUNK),
            output_chunk: standard::INFERENCE_OUTPUT_CHUNK.histogram(traced.meter),
            input: standard::USAGE_INPUT.counter(traced.meter),
            output: standard::USAGE_OUTPUT.counter(traced.meter),
            cache_read: standard::USAGE_CACHE_READ.counter(traced.meter),
            cache_write: standard::USAGE_CACHE_WRITE.counter(traced.meter),
            reasoning: standard::USAGE_REASONING.counter(traced.meter),
            operation_input: traced.count_histogram(&standard::OPERATION_INPUT),
            operation_output: traced.count_histogram(&standard::OPERATION_OUTPUT),
        }
    }
}

impl Legacy {
    fn new(traced: Maker<'_>) -> Self {
        Self {
            first_chunk: traced.histogram(&standard::OPERATION_FIRST_CHUNK),
            output_chunk: standard::OPERATION_OUTPUT_CHUNK.histogram(traced.meter),
            token_usage: traced.count_histogram(&standard::TOKEN_USAGE),
        }
    }
}
