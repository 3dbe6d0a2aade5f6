//! Metrics of OpenTelemetry's HTTP and GenAI semantic conventions, the latter under their latest and previous names.
//! Bucket boundaries are those of the conventions, extended upward for long model calls.

use crate::catalog::attributes::{
    CALL, ENDED, ERROR_TYPE, METHOD, PROTOCOL_VERSION, ROUTE, SCHEME, SERVER_ADDRESS, SERVER_PORT,
    STATUS, TOKEN_MODALITY, TOKEN_TYPE, VANTAGE,
};
use crate::catalog::{Kind, Metric};

/// Buckets of the conventions up to 81.92, extended to 655.36.
const DURATIONS: &[f64] = &[
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84,
    327.68, 655.36,
];

/// Buckets of the conventions.
const TOKENS: &[f64] = &[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// Buckets of the conventions up to 10, extended to 300 for reasoning models and long prompts.
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    15.0, 30.0, 60.0, 120.0, 300.0,
];

/// Buckets of the conventions up to 2.5, extended to 10.
const OUTPUT_TOKEN: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0];

/// Buckets of the conventions up to 10, extended to 600.
const HTTP: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0,
    120.0, 300.0, 600.0,
];

/// All metrics of the semantic conventions.
pub static ALL: &[&Metric] = &[
    &HTTP_SERVER_DURATION,
    &HTTP_CLIENT_DURATION,
    &SERVER_DURATION,
    &SERVER_FIRST_TOKEN,
    &SERVER_OUTPUT_TOKEN,
    &INFERENCE_DURATION,
    &INFERENCE_FIRST_CHUNK,
    &INFERENCE_OUTPUT_CHUNK,
    &USAGE_INPUT,
    &USAGE_OUTPUT,
    &USAGE_CACHE_READ,
    &USAGE_CACHE_WRITE,
    &USAGE_REASONING,
    &OPERATION_INPUT,
    &OPERATION_OUTPUT,
    &OPERATION_DURATION,
    &OPERATION_FIRST_CHUNK,
    &OPERATION_OUTPUT_CHUNK,
    &TOKEN_USAGE,
];

pub static HTTP_SERVER_DURATION: Metric = Metric {
    name: "http.server.request.duration",
    kind: Kind::Histogram,
    unit: "s",
    description: "Duration of a request as the client sees it, to the end of the response body: end − accept.",
    attributes: &[&[METHOD, SCHEME, STATUS, ERROR_TYPE, PROTOCOL_VERSION, ROUTE, VANTAGE]],
    buckets: HTTP,
    combinations: 100,
};

pub static HTTP_CLIENT_DURATION: Metric = Metric {
    name: "http.client.request.duration",
    kind: Kind::Histogram,
    unit: "s",
    description: "Duration of a request to the upstream, to the end of the response body: end − sent.",
    attributes: &[&[METHOD, SERVER_ADDRESS, SERVER_PORT, STATUS, ERROR_TYPE, ROUTE, VANTAGE]],
    buckets: HTTP,
    combinations: 10,
};

pub static SERVER_DURATION: Metric = Metric {
    name: "gen_ai.server.request.duration",
    kind: Kind::Histogram,
    unit: "s",
    description: "Duration of a call at the backend: end − sent. Sessions are excluded.",
    attributes: &[CALL, ENDED, &[ERROR_TYPE]],
    buckets: DURATIONS,
    combinations: 1,
};

pub static SERVER_FIRST_TOKEN: Metric = Metric {
    name: "gen_ai.server.time_to_first_token",
    kind: Kind::Histogram,
    unit: "s",
    description: "Upstream time to first token: token − sent. Successful streams only.",
    attributes: &[CALL, ENDED],
    buckets: FIRST_TOKEN,
    combinations: 1,
};

pub static SERVER_OUTPUT_TOKEN: Metric = Metric {
    name: "gen_ai.server.time_per_output_token",
    kind: Kind::Histogram,
    unit: "s",
    description: "Time per output token: (last − token − blocked) ÷ (N − 1), N ≥ 2. Successful streams only.",
    attributes: &[CALL, ENDED],
    buckets: OUTPUT_TOKEN,
    combinations: 1,
};

pub static INFERENCE_DURATION: Metric = Metric {
    name: "gen_ai.client.inference.duration",
    kind: Kind::Histogram,
    unit: "s",
    description: "Duration of an inference call, equal to its CLIENT span: end − admit.",
    attributes: &[CALL, ENDED, &[ERROR_TYPE]],
    buckets: DURATIONS,
    combinations: 1,
};

pub static INFERENCE_FIRST_CHUNK: Metric = Metric {
    name: "gen_ai.client.inference.time_to_first_chunk",
    kind: Kind::Histogram,
    unit: "s",
    description: "Time to the first chunk of a stream, with or without a token: event − sent.",
    attributes: &[CALL, ENDED],
    buckets: DURATIONS,
    combinations: 1,
};

pub static INFERENCE_OUTPUT_CHUNK: Metric = Metric {
    name: "gen_ai.client.inference.time_per_output_chunk",
    kind: Kind::Histogram,
    unit: "s",
    description: "Gap before each chunk after the first, with or without a token.",
    attributes: &[CALL],
    buckets: DURATIONS,
    combinations: 1,
};

pub static USAGE_INPUT: Metric = Metric {
    name: "gen_ai.client.inference.usage.input_tokens",
    description: "Input tokens as reported by the provider, including cached tokens.",
    ..USAGE
};

pub static USAGE_OUTPUT: Metric = Metric {
    name: "gen_ai.client.inference.usage.output_tokens",
    description: "Output tokens as reported by the provider, including reasoning.",
    ..USAGE
};

pub static USAGE_CACHE_READ: Metric = Metric {
    name: "gen_ai.client.inference.usage.cache_read.input_tokens",
    description: "Input tokens read from a cache, as reported; part of the input tokens.",
    ..USAGE
};

pub static USAGE_CACHE_WRITE: Metric = Metric {
    name: "gen_ai.client.inference.usage.cache_write.input_tokens",
    description: "Input tokens written to a cache, as reported; part of the input tokens.",
    ..USAGE
};

pub static USAGE_REASONING: Metric = Metric {
    name: "gen_ai.client.inference.usage.reasoning.output_tokens",
    description: "Reasoning tokens as reported; part of the output tokens.",
    ..USAGE
};

const USAGE: Metric = Metric {
    name: "",
    kind: Kind::Counter,
    unit: "{token}",
    description: "",
    attributes: &[CALL, ENDED, &[TOKEN_MODALITY]],
    buckets: &[],
    combinations: 1,
};

pub static OPERATION_INPUT: Metric = Metric {
    name: "gen_ai.client.inference.operation.input_tokens",
    description: "Distribution of input tokens per call, as reported.",
    ..OPERATION_TOKENS
};

pub static OPERATION_OUTPUT: Metric = Metric {
    name: "gen_ai.client.inference.operation.output_tokens",
    description: "Distribution of output tokens per call, as reported.",
    ..OPERATION_TOKENS
};

const OPERATION_TOKENS: Metric = Metric {
    name: "",
    kind: Kind::Histogram,
    unit: "{token}",
    description: "",
    attributes: &[CALL, ENDED, &[ERROR_TYPE]],
    buckets: TOKENS,
    combinations: 1,
};

pub static OPERATION_DURATION: Metric = Metric {
    name: "gen_ai.client.operation.duration",
    kind: Kind::Histogram,
    unit: "s",
    description: "Duration of a call, equal to its CLIENT span: end − admit. Only embeddings and Realtime sessions; with the previous names, all calls.",
    attributes: &[CALL, ENDED, &[ERROR_TYPE]],
    buckets: DURATIONS,
    combinations: 1,
};

pub static OPERATION_FIRST_CHUNK: Metric = Metric {
    name: "gen_ai.client.operation.time_to_first_chunk",
    description: "Previous name of gen_ai.client.inference.time_to_first_chunk.",
    ..INFERENCE_FIRST_CHUNK
};

pub static OPERATION_OUTPUT_CHUNK: Metric = Metric {
    name: "gen_ai.client.operation.time_per_output_chunk",
    description: "Previous name of gen_ai.client.inference.time_per_output_chunk.",
    ..INFERENCE_OUTPUT_CHUNK
};

pub static TOKEN_USAGE: Metric = Metric {
    name: "gen_ai.client.token.usage",
    kind: Kind::Histogram,
    unit: "{token}",
    description: "Previous form of the usage metrics: distribution of tokens per call, as reported.",
    attributes: &[CALL, ENDED, &[TOKEN_TYPE]],
    buckets: TOKENS,
    combinations: 2,
};
