//! The synchronous instruments, all of them.

use opentelemetry::metrics::{Counter, Histogram, Meter};

use crate::export::config::GenAi;
use crate::export::names::{ours, standard};

/// Every synchronous instrument, and the standard's under the names that are configured.
#[derive(Debug)]
pub struct Family {
    pub http_server: Histogram<f64>,
    pub http_client: Histogram<f64>,
    pub server: Option<Server>,
    pub latest: Option<Latest>,
    pub legacy: Option<Legacy>,
    /// Of calls that are no inference, which have one name in both sets.
    pub operation_duration: Option<Histogram<f64>>,

    pub tokens: Counter<u64>,
    pub tokens_standard: Counter<u64>,
    pub usage: Counter<u64>,
    pub stream_time: Counter<f64>,
    pub output_rate: Histogram<f64>,
    pub total_rate: Histogram<f64>,
    pub band: Counter<u64>,
    pub unrated: Counter<u64>,
    pub stage: Histogram<f64>,
    pub backend_stage: Histogram<f64>,
    pub time_to: Histogram<f64>,
    pub inter_token: Histogram<f64>,
    pub inter_chunk: Histogram<f64>,
    pub chunk_tokens: Histogram<u64>,
    pub blocked: Histogram<f64>,
    pub queue_wait: Histogram<f64>,
    pub messages: Counter<u64>,
    pub started: Counter<u64>,
    pub finished: Counter<u64>,
    pub choices: Counter<u64>,
    pub drift_counted: Counter<u64>,
    pub drift_reported: Counter<u64>,
    pub anomalies: Counter<u64>,
    pub left_out: Counter<u64>,
}

/// `gen_ai.server.*`, the same in both sets of names.
#[derive(Debug)]
pub struct Server {
    pub duration: Histogram<f64>,
    pub first_token: Histogram<f64>,
    pub output_token: Histogram<f64>,
}

/// `gen_ai.client.inference.*`.
#[derive(Debug)]
pub struct Latest {
    pub duration: Histogram<f64>,
    pub first_chunk: Histogram<f64>,
    pub output_chunk: Histogram<f64>,
    pub input: Counter<u64>,
    pub output: Counter<u64>,
    pub cache_read: Counter<u64>,
    pub cache_write: Counter<u64>,
    pub reasoning: Counter<u64>,
    pub operation_input: Histogram<u64>,
    pub operation_output: Histogram<u64>,
}

/// `gen_ai.client.operation.*` and `gen_ai.client.token.usage`.
#[derive(Debug)]
pub struct Legacy {
    pub first_chunk: Histogram<f64>,
    pub output_chunk: Histogram<f64>,
    pub token_usage: Histogram<u64>,
}

impl Family {
    pub fn new(meter: &Meter, gen_ai: GenAi) -> Self {
        let any = gen_ai != GenAi::Off;
        Self {
            http_server: standard::HTTP_SERVER_DURATION.histogram(meter),
            http_client: standard::HTTP_CLIENT_DURATION.histogram(meter),
            server: any.then(|| Server::new(meter)),
            latest: gen_ai.latest().then(|| Latest::new(meter)),
            legacy: gen_ai.legacy().then(|| Legacy::new(meter)),
            operation_duration: any.then(|| standard::OPERATION_DURATION.histogram(meter)),
            tokens: ours::TOKENS.counter(meter),
            tokens_standard: ours::TOKENS_STANDARD.counter(meter),
            usage: ours::USAGE.counter(meter),
            stream_time: ours::STREAM_TIME.time_counter(meter),
            output_rate: ours::OUTPUT_RATE.histogram(meter),
            total_rate: ours::TOTAL_RATE.histogram(meter),
            band: ours::REQUEST_BAND.counter(meter),
            unrated: ours::REQUEST_UNRATED.counter(meter),
            stage: ours::REQUEST_STAGE.histogram(meter),
            backend_stage: ours::BACKEND_TIME.histogram(meter),
            time_to: ours::TIME_TO.histogram(meter),
            inter_token: ours::INTER_TOKEN.histogram(meter),
            inter_chunk: ours::INTER_CHUNK.histogram(meter),
            chunk_tokens: ours::CHUNK_SIZE.count_histogram(meter),
            blocked: ours::CLIENT_BLOCKED.histogram(meter),
            queue_wait: ours::QUEUE_WAIT.histogram(meter),
            messages: ours::WEBSOCKET_MESSAGES.counter(meter),
            started: ours::REQUESTS_STARTED.counter(meter),
            finished: ours::REQUESTS_FINISHED.counter(meter),
            choices: ours::CHOICES_FINISHED.counter(meter),
            drift_counted: ours::DRIFT_COUNTED.counter(meter),
            drift_reported: ours::DRIFT_REPORTED.counter(meter),
            anomalies: ours::SELF_ANOMALIES.counter(meter),
            left_out: ours::SELF_LEFT_OUT.counter(meter),
        }
    }
}

impl Server {
    fn new(meter: &Meter) -> Self {
        Self {
            duration: standard::SERVER_DURATION.histogram(meter),
            first_token: standard::SERVER_FIRST_TOKEN.histogram(meter),
            output_token: standard::SERVER_OUTPUT_TOKEN.histogram(meter),
        }
    }
}

impl Latest {
    fn new(meter: &Meter) -> Self {
        Self {
            duration: standard::INFERENCE_DURATION.histogram(meter),
            first_chunk: standard::INFERENCE_FIRST_CHUNK.histogram(meter),
            output_chunk: standard::INFERENCE_OUTPUT_CHUNK.histogram(meter),
            input: standard::USAGE_INPUT.counter(meter),
            output: standard::USAGE_OUTPUT.counter(meter),
            cache_read: standard::USAGE_CACHE_READ.counter(meter),
            cache_write: standard::USAGE_CACHE_WRITE.counter(meter),
            reasoning: standard::USAGE_REASONING.counter(meter),
            operation_input: standard::OPERATION_INPUT.count_histogram(meter),
            operation_output: standard::OPERATION_OUTPUT.count_histogram(meter),
        }
    }
}

impl Legacy {
    fn new(meter: &Meter) -> Self {
        Self {
            first_chunk: standard::OPERATION_FIRST_CHUNK.histogram(meter),
            output_chunk: standard::OPERATION_OUTPUT_CHUNK.histogram(meter),
            token_usage: standard::TOKEN_USAGE.count_histogram(meter),
        }
    }
}
