//! Declares all counters and histograms.

use std::sync::Arc;

use opentelemetry::metrics::{Counter, Histogram, Meter};

use crate::builders::Instrument;
use crate::catalog::{health, semconv, tokengauge};
use crate::config::GenAiNames;
use crate::exemplars::Exemplars;
use crate::instruments::bound::ExemplarHistogram;

/// Declares a set of instruments. Each instrument is created from its entry in the catalog.
macro_rules! instruments {
    (
        $(#[$about:meta])*
        $set:ident { $($field:ident: $instrument:ty = $metric:path,)* }
    ) => {
        $(#[$about])*
        #[derive(Debug)]
        pub struct $set {
            $(pub $field: $instrument,)*
        }

        impl $set {
            fn new(meter: &Meter, exemplars: &Arc<Exemplars>) -> Self {
                Self { $($field: Instrument::build(&$metric, meter, exemplars),)* }
            }
        }
    };
}

/// All counters and histograms. The configuration selects the names of the metrics that the GenAI semantic conventions
/// define.
#[derive(Debug)]
pub struct InstrumentSet {
    pub exemplars: Arc<Exemplars>,
    pub http_server: ExemplarHistogram<f64>,
    pub http_client: ExemplarHistogram<f64>,
    pub server: Option<GenAiServer>,
    pub latest: Option<LatestGenAi>,
    pub legacy: Option<LegacyGenAi>,
    /// Duration of a call, under the name that the latest and the legacy conventions share. Includes inference only
    /// with the legacy conventions.
    pub operation_duration: Option<ExemplarHistogram<f64>>,
    pub own: OwnInstruments,
}

impl InstrumentSet {
    pub fn new(meter: &Meter, gen_ai: GenAiNames, exemplars: &Arc<Exemplars>) -> Self {
        let any = gen_ai != GenAiNames::Off;
        let histogram = |metric| ExemplarHistogram::build(metric, meter, exemplars);
        Self {
            exemplars: Arc::clone(exemplars),
            http_server: histogram(&semconv::HTTP_SERVER_DURATION),
            http_client: histogram(&semconv::HTTP_CLIENT_DURATION),
            server: any.then(|| GenAiServer::new(meter, exemplars)),
            latest: gen_ai.latest().then(|| LatestGenAi::new(meter, exemplars)),
            legacy: gen_ai.legacy().then(|| LegacyGenAi::new(meter, exemplars)),
            operation_duration: any.then(|| histogram(&semconv::OPERATION_DURATION)),
            own: OwnInstruments::new(meter, exemplars),
        }
    }
}

instruments! {
    /// Instruments of the metrics that tokengauge defines.
    OwnInstruments {
        tokens: Counter<u64> = tokengauge::TOKENS,
        normalized_tokens: Counter<u64> = tokengauge::NORMALIZED_TOKENS,
        reported_tokens: Counter<u64> = tokengauge::REPORTED_TOKENS,
        stream_time: Counter<f64> = tokengauge::STREAM_ACTIVE_TIME,
        stalls: Counter<u64> = tokengauge::STREAM_STALLS,
        stall_time: Histogram<f64> = tokengauge::STALL_DURATION,
        output_rate: ExemplarHistogram<f64> = tokengauge::OUTPUT_TOKEN_RATE,
        total_rate: ExemplarHistogram<f64> = tokengauge::TOTAL_TOKEN_RATE,
        output_rate_range: Counter<u64> = tokengauge::REQUESTS_RATED,
        requests_unrated: Counter<u64> = tokengauge::REQUESTS_UNRATED,
        stage: ExemplarHistogram<f64> = tokengauge::REQUEST_STAGE_DURATION,
        backend_stage: ExemplarHistogram<f64> = tokengauge::BACKEND_STAGE_DURATION,
        time_to_headers: ExemplarHistogram<f64> = tokengauge::TIME_TO_HEADERS,
        time_to_first_byte: ExemplarHistogram<f64> = tokengauge::TIME_TO_FIRST_BYTE,
        time_to_first_event: ExemplarHistogram<f64> = tokengauge::TIME_TO_FIRST_EVENT,
        time_to_first_token: ExemplarHistogram<f64> = tokengauge::TIME_TO_FIRST_TOKEN,
        time_to_first_visible_token: ExemplarHistogram<f64> = tokengauge::TIME_TO_FIRST_VISIBLE_TOKEN,
        inter_token: Histogram<f64> = tokengauge::INTER_TOKEN_LATENCY,
        inter_chunk: Histogram<f64> = tokengauge::INTER_CHUNK_LATENCY,
        chunk_tokens: Histogram<u64> = tokengauge::TOKENS_PER_CHUNK,
        client_backpressure: ExemplarHistogram<f64> = tokengauge::CLIENT_BACKPRESSURE,
        connect: ExemplarHistogram<f64> = tokengauge::CONNECT_STAGE_DURATION,
        rtt: ExemplarHistogram<f64> = tokengauge::RTT,
        retransmits: Counter<u64> = tokengauge::RETRANSMITS,
        queue_wait: ExemplarHistogram<f64> = tokengauge::QUEUE_WAIT,
        messages: Counter<u64> = tokengauge::WEBSOCKET_MESSAGES,
        retries: Counter<u64> = tokengauge::CLIENT_RETRIES,
        started: Counter<u64> = tokengauge::REQUESTS_STARTED,
        finished: Counter<u64> = tokengauge::REQUESTS_FINISHED,
        choices: Counter<u64> = tokengauge::CHOICES_FINISHED,
        cost: Counter<f64> = tokengauge::COST,
        unpriced: Counter<u64> = tokengauge::REQUESTS_UNPRICED,
        budget_used: Counter<f64> = tokengauge::BUDGET_USED,
        token_mismatch_counted: Counter<u64> = tokengauge::TOKEN_MISMATCH_COUNTED,
        token_mismatch_reported: Counter<u64> = tokengauge::TOKEN_MISMATCH_REPORTED,
        parse_errors: Counter<u64> = health::SELF_PARSE_ERRORS,
        delay: Histogram<f64> = health::SELF_SCHEDULING_DELAY,
        content_omitted: Counter<u64> = health::SELF_CONTENT_OMITTED,
    }
}

instruments! {
    /// Instruments of `gen_ai.server.*`. The names are the same with `otlp.genai_names: latest` and `legacy`.
    GenAiServer {
        duration: ExemplarHistogram<f64> = semconv::SERVER_DURATION,
        first_token: ExemplarHistogram<f64> = semconv::SERVER_FIRST_TOKEN,
        output_token: ExemplarHistogram<f64> = semconv::SERVER_OUTPUT_TOKEN,
    }
}

instruments! {
    /// Instruments of `gen_ai.client.inference.*`.
    LatestGenAi {
        duration: ExemplarHistogram<f64> = semconv::INFERENCE_DURATION,
        first_chunk: ExemplarHistogram<f64> = semconv::INFERENCE_FIRST_CHUNK,
        output_chunk: Histogram<f64> = semconv::INFERENCE_OUTPUT_CHUNK,
        input: Counter<u64> = semconv::USAGE_INPUT,
        output: Counter<u64> = semconv::USAGE_OUTPUT,
        cache_read: Counter<u64> = semconv::USAGE_CACHE_READ,
        cache_write: Counter<u64> = semconv::USAGE_CACHE_WRITE,
        reasoning: Counter<u64> = semconv::USAGE_REASONING,
        operation_input: ExemplarHistogram<u64> = semconv::OPERATION_INPUT,
        operation_output: ExemplarHistogram<u64> = semconv::OPERATION_OUTPUT,
    }
}

instruments! {
    /// Instruments of `gen_ai.client.operation.*` and `gen_ai.client.token.usage`.
    LegacyGenAi {
        first_chunk: ExemplarHistogram<f64> = semconv::OPERATION_FIRST_CHUNK,
        output_chunk: Histogram<f64> = semconv::OPERATION_OUTPUT_CHUNK,
        token_usage: ExemplarHistogram<u64> = semconv::TOKEN_USAGE,
    }
}
