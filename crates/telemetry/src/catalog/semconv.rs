//! Metrics of OpenTelemetry's HTTP and GenAI semantic conventions. The GenAI metrics exist under their latest and their
//! previous names.

use crate::catalog::attributes::{
    CALL, ENDED, ERROR_TYPE, MCP, MCP_OPERATION, METHOD, POSITION, PROTOCOL_VERSION, ROUTE, SCHEME,
    SERVER_ADDRESS, SERVER_PORT, STATUS, TOKEN_MODALITY, TOKEN_TYPE,
};
use crate::catalog::buckets::{GAPS, SESSION_TIMES, TIMES, TOKENS};
use crate::catalog::values::{
    embeddings, first_chunk, generated, is_inference, modalities, operation_duration, served,
    until_end,
};
use crate::catalog::{Kind, Metric, Read, Source};
use tokengauge_llm::dialect::ByModality;

metrics! {
    /// All metrics of the semantic conventions.
    ALL;
    HTTP_SERVER_DURATION "http.server.request.duration" Histogram "s"
        by [&[METHOD, SCHEME, STATUS, ERROR_TYPE, PROTOCOL_VERSION, ROUTE, POSITION]] buckets TIMES times 100 usually [1, 1],
        "Duration of a request as the client sees it, to the end of the response body: end − accept.",
        finished!(|record, _| record.timestamps.duration());
    HTTP_CLIENT_DURATION "http.client.request.duration" Histogram "s"
        by [&[METHOD, SERVER_ADDRESS, SERVER_PORT, STATUS, ERROR_TYPE, ROUTE, POSITION]] buckets TIMES times 10 usually [1, 1] profile Full,
        "Duration of a request to the upstream, to the end of the response body: end − sent.",
        finished!(|record, _| until_end(record, record.timestamps.sent));
    SERVER_DURATION "gen_ai.server.request.duration" Histogram "s" by [CALL, ENDED, &[ERROR_TYPE]] buckets TIMES named Both,
        "Duration of a call at the backend: end − sent. Sessions are excluded.",
        finished!(|record, _| until_end(record, record.timestamps.sent).filter(|_| record.websocket.is_none()));
    SERVER_FIRST_TOKEN "gen_ai.server.time_to_first_token" Histogram "s" by [CALL, ENDED] buckets TIMES usually [0, 1] named Both,
        "Upstream time to first token: token − uploaded, so the client's upload is excluded. Successful streams only.",
        finished!(|record, call| served(record, call).and(record.timestamps.upstream_time_to_first_token()));
    SERVER_OUTPUT_TOKEN "gen_ai.server.time_per_output_token" Histogram "s" by [CALL, ENDED] buckets GAPS usually [0, 1] named Both,
        "Time per output token: (last − token − blocked) ÷ (N − 1), N ≥ 2. Absent if all tokens arrived at once. Successful streams only.",
        finished!(|record, call| served(record, call)?.rates.time_per_output_token);
    INFERENCE_DURATION "gen_ai.client.inference.duration" Histogram "s"
        by [CALL, ENDED, &[ERROR_TYPE]] buckets TIMES named Latest,
        "Duration of an inference call, equal to its CLIENT span: end − admit.",
        finished!(|record, call| until_end(record, record.timestamps.admit).filter(|_| call.is_some_and(|call| is_inference(record, call))));
    INFERENCE_FIRST_CHUNK "gen_ai.client.inference.time_to_first_chunk" Histogram "s"
        by [CALL, ENDED] buckets TIMES usually [0, 1] named Latest,
        "Time to the first chunk of a stream, with or without a token: event − sent.",
        finished!(first_chunk);
    INFERENCE_OUTPUT_CHUNK "gen_ai.client.inference.time_per_output_chunk" Histogram "s" by [CALL] buckets GAPS usually [0, 1] named Latest,
        "Gap before each chunk after the first, with or without a token.";
    // Few combinations split their tokens by modality, so the limit on combinations has room for all parts.
    USAGE_INPUT "gen_ai.client.inference.usage.input_tokens" Counter "{token}" by [CALL, ENDED] split [TOKEN_MODALITY] times 1 named Latest,
        "Input tokens as reported by the provider, including cached tokens.",
        finished!(each |_, call| generated(call).and_then(|usage| Some(modalities(usage.input?, usage.input_by))));
    USAGE_OUTPUT "gen_ai.client.inference.usage.output_tokens" Counter "{token}" by [CALL, ENDED] split [TOKEN_MODALITY] times 1 named Latest,
        "Output tokens as reported by the provider, including reasoning.",
        finished!(each |_, call| generated(call).and_then(|usage| Some(modalities(usage.output?, usage.output_by))));
    USAGE_CACHE_READ "gen_ai.client.inference.usage.cache_read.input_tokens" Counter "{token}"
        by [CALL, ENDED] split [TOKEN_MODALITY] times 1 named Latest,
        "Input tokens read from a cache, as reported; part of the input tokens.",
        finished!(each |_, call| generated(call).and_then(|usage| Some(modalities(usage.cache_read?, usage.cache_read_by))));
    USAGE_CACHE_WRITE "gen_ai.client.inference.usage.cache_write.input_tokens" Counter "{token}"
        by [CALL, ENDED] split [TOKEN_MODALITY] times 1 named Latest,
        "Input tokens written to a cache, as reported; part of the input tokens.",
        finished!(each |_, call| Some(modalities(generated(call)?.cache_write?, ByModality::default())));
    USAGE_REASONING "gen_ai.client.inference.usage.reasoning.output_tokens" Counter "{token}"
        by [CALL, ENDED] split [TOKEN_MODALITY] times 1 named Latest,
        "Reasoning tokens as reported; part of the output tokens.",
        finished!(each |_, call| Some(modalities(generated(call)?.reasoning?, ByModality::default())));
    OPERATION_INPUT "gen_ai.client.inference.operation.input_tokens" Histogram "{token}"
        by [CALL, ENDED, &[ERROR_TYPE]] buckets TOKENS named Latest,
        "Distribution of input tokens per call, as reported.",
        finished!(|_, call| generated(call)?.input);
    OPERATION_OUTPUT "gen_ai.client.inference.operation.output_tokens" Histogram "{token}"
        by [CALL, ENDED, &[ERROR_TYPE]] buckets TOKENS named Latest,
        "Distribution of output tokens per call, as reported.",
        finished!(|_, call| generated(call)?.output);
    EMBEDDINGS_DURATION "gen_ai.client.embeddings.duration" Histogram "s"
        by [CALL, ENDED, &[ERROR_TYPE]] buckets TIMES usually [0, 0] named Latest,
        "Duration of an embeddings call, equal to its CLIENT span: end − admit.",
        finished!(|record, call| { embeddings(call)?; until_end(record, record.timestamps.admit) });
    EMBEDDINGS_INPUT "gen_ai.client.embeddings.operation.input_tokens" Histogram "{token}"
        by [CALL, ENDED] buckets TOKENS usually [0, 0] named Latest,
        "Distribution of input tokens per embeddings call, as reported.",
        finished!(|_, call| embeddings(call)?.usage.as_ref()?.input);
    MCP_CLIENT_OPERATION "mcp.client.operation.duration" Histogram "s" by [MCP_OPERATION, MCP, &[SERVER_ADDRESS, SERVER_PORT]] buckets TIMES named Both,
        "Duration of a request or notification of the Model Context Protocol at the MCP server: response − sent.";
    MCP_SERVER_OPERATION "mcp.server.operation.duration" Histogram "s" by [MCP_OPERATION, MCP, &[PROTOCOL_VERSION]] buckets TIMES named Both,
        "Duration of a request or notification of the Model Context Protocol as the MCP client sees it: response − accept.";
    MCP_CLIENT_SESSION "mcp.client.session.duration" Histogram "s" by [MCP, &[SERVER_ADDRESS, SERVER_PORT]] buckets SESSION_TIMES named Both,
        "Duration of a session of the Model Context Protocol: from `initialize` to DELETE, to the answer 404, or to the last request before 30 minutes without one.";
    MCP_SERVER_SESSION "mcp.server.session.duration" Histogram "s" by [MCP] buckets SESSION_TIMES named Both,
        "The same duration without the server's address.";
    // With the latest names, only calls that are neither inference nor embeddings have series.
    OPERATION_DURATION "gen_ai.client.operation.duration" Histogram "s"
        by [CALL, ENDED, &[ERROR_TYPE]] buckets TIMES usually [0, 0] named Both,
        "Duration of a call, equal to its CLIENT span: end − admit. Only calls that are neither inference nor embeddings, such as Realtime sessions; with the previous names, all calls.",
        Source { labels: None, read: Read::Finished(operation_duration) };
    OPERATION_FIRST_CHUNK "gen_ai.client.operation.time_to_first_chunk" Histogram "s"
        by [CALL, ENDED] buckets TIMES usually [0, 1] named Legacy,
        "Previous name of gen_ai.client.inference.time_to_first_chunk.",
        finished!(first_chunk);
    OPERATION_OUTPUT_CHUNK "gen_ai.client.operation.time_per_output_chunk" Histogram "s" by [CALL] buckets GAPS usually [0, 1] named Legacy,
        "Previous name of gen_ai.client.inference.time_per_output_chunk.";
    TOKEN_USAGE "gen_ai.client.token.usage" Histogram "{token}" by [CALL, ENDED] split [TOKEN_TYPE] buckets TOKENS named Legacy,
        "Previous form of the usage metrics: distribution of tokens per call, as reported.",
        finished!(each |_, call| call?.usage.as_ref().map(|usage| [("input", usage.input), ("output", usage.output)]));
}
