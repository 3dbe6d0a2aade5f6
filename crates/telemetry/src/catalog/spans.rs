//! Attributes of spans. In contrast to metrics, only the length of attribute values is bounded, not the number of
//! values.

use crate::catalog::attributes::{Attribute, Values};
use Values::{Any, Closed};

macro_rules! attributes {
    ($($name:ident $key:literal $values:expr, $description:literal;)*) => {
        $(
            #[doc = $description]
            pub const $name: Attribute = Attribute { key: $key, description: $description, values: $values };
        )*
        /// All attributes of spans.
        pub const ALL: &[Attribute] = &[$($name),*];
    };
}

attributes! {
    METHOD "http.request.method" Any, "Method of the request. Both spans.";
    STATUS "http.response.status_code" Any, "Status of the response. Both spans.";
    ERROR_TYPE "error.type" Any, "Kind of error; only on errors. Both spans.";
    SCHEME "url.scheme" Closed(&["http", "https"]), "Scheme that the client used. SERVER span.";
    PATH "url.path" Any, "Path without the query. SERVER span.";
    PROTOCOL_VERSION "network.protocol.version" Any, "HTTP version that the client used. SERVER span.";
    USER_AGENT "user_agent.original" Any, "The client's User-Agent. SERVER span.";
    CLIENT_ADDRESS "client.address" Any, "Address of the client. SERVER span.";
    REQUEST_SIZE "http.request.body.size" Any, "Bytes of the request body. SERVER span.";
    RESPONSE_SIZE "http.response.body.size" Any, "Bytes of the response body that were forwarded. SERVER span.";
    REQUEST_MESSAGES "tokengauge.websocket.request_messages" Any, "WebSocket messages from the client. Absent without a WebSocket. SERVER span.";
    RESPONSE_MESSAGES "tokengauge.websocket.response_messages" Any, "WebSocket messages from the upstream. SERVER span.";
    CLOSED_BY "tokengauge.websocket.closed_by" Closed(&["client", "upstream"]), "Sender of the first close frame; absent without one. SERVER span.";
    CLOSE_CODE "tokengauge.websocket.close_code" Any, "Code of that close frame, if it has one. SERVER span.";
    SERVER_ADDRESS "server.address" Any, "On the SERVER span the host in the request, on the CLIENT span the host of the upstream.";
    SERVER_PORT "server.port" Any, "Port of the upstream. CLIENT span.";
    OPERATION "gen_ai.operation.name" Any, "Kind of call.";
    PROVIDER "gen_ai.provider.name" Any, "Provider of the API.";
    REQUEST_MODEL "gen_ai.request.model" Any, "Model in the request.";
    REQUEST_STREAM "gen_ai.request.stream" Closed(&["true"]), "Only if the response was streamed.";
    MAX_TOKENS "gen_ai.request.max_tokens" Any, "From the request.";
    TEMPERATURE "gen_ai.request.temperature" Any, "From the request.";
    TOP_P "gen_ai.request.top_p" Any, "From the request.";
    TOP_K "gen_ai.request.top_k" Any, "From the request.";
    FREQUENCY_PENALTY "gen_ai.request.frequency_penalty" Any, "From the request.";
    PRESENCE_PENALTY "gen_ai.request.presence_penalty" Any, "From the request.";
    SEED "gen_ai.request.seed" Any, "From the request.";
    CHOICE_COUNT "gen_ai.request.choice.count" Any, "Number of choices in the request, if not 1.";
    PREVIOUS_RESPONSE "gen_ai.request.previous_response.id" Any, "Id of the response that the request continues.";
    REASONING_LEVEL "gen_ai.request.reasoning.level" Any, "Reasoning level, as written in the request.";
    ENCODING_FORMATS "gen_ai.request.encoding_formats" Any, "Encoding format of embeddings.";
    DIMENSIONS "gen_ai.embeddings.dimension.count" Any, "Requested dimensions of embeddings.";
    OUTPUT_TYPE "gen_ai.output.type" Closed(&["text", "json", "image", "speech"]), "Requested kind of output.";
    REQUEST_TIER "openai.request.service_tier" Any, "Service tier in the request.";
    RESPONSE_TIER "openai.response.service_tier" Any, "Service tier in the response.";
    FINGERPRINT "openai.response.system_fingerprint" Any, "From the response.";
    RESPONSE_ID "gen_ai.response.id" Any, "From the response.";
    CONVERSATION_ID "gen_ai.conversation.id" Any, "The id of a Realtime session (then there is no `gen_ai.response.id`); else the conversation in the request body; else the one in the client's baggage. Absent if there is none.";
    COST "tokengauge.cost.amount" Any, "Cost of the call by the price table. Absent without a price.";
    CURRENCY "tokengauge.cost.currency" Any, "Currency of the cost.";
    COST_SOURCE "tokengauge.cost.source" Closed(&["reported", "estimated"]), "Whether the provider reported the tokens of the cost.";
    TENANT "tokengauge.tenant" Any, "Tenant of the request, from the configured header. Both spans.";
    SESSION "tokengauge.session" Any, "Conversation or run of the request, from the configured header. Both spans.";
    VARIANT "tokengauge.variant" Any, "Variant of the request, from the configured header. Both spans.";
    RESPONSE_MODEL "gen_ai.response.model" Any, "Model in the response.";
    FINISH_REASONS "gen_ai.response.finish_reasons" Any, "Finish reasons as the provider reports them, one per choice in order. `error`: an expected reason never arrived. For a session, the status of each of the first 128 responses.";
    FIRST_CHUNK "gen_ai.response.time_to_first_chunk" Any, "event − sent, in seconds. Streams only.";
    INPUT_TOKENS "gen_ai.usage.input_tokens" Any, "As reported, including cached tokens.";
    OUTPUT_TOKENS "gen_ai.usage.output_tokens" Any, "As reported, including reasoning.";
    CACHE_READ "gen_ai.usage.cache_read.input_tokens" Any, "As reported; part of the input.";
    CACHE_WRITE "gen_ai.usage.cache_write.input_tokens" Any, "As reported; part of the input.";
    REASONING_TOKENS "gen_ai.usage.reasoning.output_tokens" Any, "As reported; part of the output.";
    INPUT_IMAGE "tokengauge.usage.image.input_tokens" Any, "As reported; part of the input.";
    INPUT_AUDIO "tokengauge.usage.audio.input_tokens" Any, "As reported; part of the input.";
    OUTPUT_IMAGE "tokengauge.usage.image.output_tokens" Any, "As reported; part of the output.";
    OUTPUT_AUDIO "tokengauge.usage.audio.output_tokens" Any, "As reported; part of the output.";
    BACKEND_QUEUE "tokengauge.backend.queue" Any, "Time in the queue of the backend, in seconds, as the backend reports it.";
    BACKEND_LOAD "tokengauge.backend.load" Any, "Time to load the model, in seconds, as the backend reports it.";
    BACKEND_PREFILL "tokengauge.backend.prefill" Any, "Time to read the prompt, in seconds, as the backend reports it.";
    BACKEND_DECODE "tokengauge.backend.decode" Any, "Time to generate, in seconds, as the backend reports it.";
    BACKEND_TOTAL "tokengauge.backend.total" Any, "Total time, in seconds, as the backend reports it.";
    QUOTA_REQUESTS "tokengauge.quota.requests.remaining" Any, "Remaining requests, from the provider's rate-limit headers.";
    QUOTA_TOKENS "tokengauge.quota.tokens.remaining" Any, "Remaining tokens, from the provider's rate-limit headers.";
    QUOTA_INPUT "tokengauge.quota.input_tokens.remaining" Any, "Remaining input tokens, if the provider limits them separately.";
    QUOTA_OUTPUT "tokengauge.quota.output_tokens.remaining" Any, "Remaining output tokens, if the provider limits them separately.";
    INPUT_MESSAGES "gen_ai.input.messages" Any, "Input messages as JSON in the schema of the semantic conventions. This and the next five attributes are present only if the route captures content.";
    OUTPUT_MESSAGES "gen_ai.output.messages" Any, "Output messages.";
    SYSTEM_INSTRUCTIONS "gen_ai.system_instructions" Any, "Instructions that the request has apart from the messages.";
    TOOL_DEFINITIONS "gen_ai.tool.definitions" Any, "Tools that the request offers.";
    CONTENT_TRUNCATED "tokengauge.content.truncated" Closed(&["true"]), "Only if some of the content exceeded the limit, or was not observed.";
    CONTENT_LEFT_OUT "tokengauge.content.left_out" Any, "Messages and parts of messages that are of an unknown form or not text; only if there are any.";
    ROUTE "tokengauge.route" Any, "Name of the route. Both spans.";
    VANTAGE "tokengauge.vantage" Closed(&["inbound", "outbound", "gateway"]), "Position of this proxy. Both spans.";
    OUTCOME "tokengauge.outcome" Closed(&["ok", "error", "cancelled", "timeout", "truncated", "rejected"]), "Result of the request. Both spans.";
    FAULT "tokengauge.fault" Closed(&["none", "client", "upstream", "proxy"]), "Source of the error. Both spans.";
    SAMPLING_REASON "tokengauge.sampling.reason" Closed(&["parent", "always_on", "ratio", "error", "stall", "objective"]), "First reason to keep the trace. At the start: the client's decision, or the sampler. At the end, if it was not sampled at the start: it failed, stalled, or missed an objective. Both spans.";
    SAMPLING_RATIO "tokengauge.sampling.ratio" Any, "Sampling ratio, if the reason is `ratio`. Both spans.";
    SAMPLING_AGAINST_PARENT "tokengauge.sampling.against_parent" Closed(&["true"]), "Only if the client did not sample the trace, so that its own spans do not exist. Both spans.";
    QUEUE_EDGE "tokengauge.queue.edge" Any, "Time before the request reached this proxy, in seconds, from `X-Request-Start` or `X-Queue-Start` of an earlier proxy. Absent without these headers. SERVER span.";
    OWN_RESPONSE "tokengauge.own_response" Closed(&["true"]), "Only if this proxy generated the response. SERVER span.";
    CONNECTION_REUSED "tokengauge.connection.reused" Closed(&["true", "false"]), "Whether an idle upstream connection was reused. CLIENT span.";
    CONNECT_WAIT "tokengauge.connect.wait" Any, "Time that the request waited for another request to open the connection, or for an idle connection that turned out to be closed, in seconds. CLIENT span.";
    CONNECT_DNS "tokengauge.connect.dns" Any, "DNS resolution of the upstream, in seconds, if a connection was opened by name. CLIENT span.";
    CONNECT_TCP "tokengauge.connect.tcp" Any, "TCP connect including a proxy's tunnel, in seconds, if a connection was opened. CLIENT span.";
    CONNECT_TLS "tokengauge.connect.tls" Any, "TLS handshake, in seconds, if there was one. CLIENT span.";
    NETWORK_RTT "tokengauge.network.rtt" Any, "Smoothed TCP round-trip time, in seconds, as the kernel last reported it during the request: of the client's connection on the SERVER span, of the upstream's on the CLIENT span.";
    NETWORK_RTT_LEAST "tokengauge.network.rtt_least" Any, "Minimum recent round-trip time, in seconds; as above.";
    NETWORK_RETRANSMITS "tokengauge.network.retransmits" Any, "TCP segments retransmitted on that connection since the last request that reported them, or since it was opened. On a connection shared by concurrent requests: of all of them.";
    TIME_TO_HEAD "tokengauge.time_to.head" Any, "head − accept, in seconds.";
    TIME_TO_BYTE "tokengauge.time_to.byte" Any, "byte − accept, in seconds.";
    TIME_TO_EVENT "tokengauge.time_to.event" Any, "event − accept, in seconds.";
    TIME_TO_TOKEN "tokengauge.time_to.token" Any, "Time to first token: token − accept, in seconds.";
    TIME_TO_VISIBLE "tokengauge.time_to.visible" Any, "visible − accept, in seconds.";
    STAGE_ADMISSION "tokengauge.stage.admission" Any, "accept … admit, in seconds.";
    STAGE_CONNECT "tokengauge.stage.connect" Any, "admit … sent, in seconds.";
    STAGE_UPLOAD "tokengauge.stage.upload" Any, "sent … uploaded, in seconds.";
    STAGE_HEADERS "tokengauge.stage.headers" Any, "uploaded … head, in seconds.";
    STAGE_FIRST_BYTE "tokengauge.stage.first_byte" Any, "head … byte, in seconds.";
    STAGE_FIRST_EVENT "tokengauge.stage.first_event" Any, "byte … event, in seconds.";
    STAGE_FIRST_TOKEN "tokengauge.stage.first_token" Any, "event … token, in seconds.";
    STAGE_THINKING "tokengauge.stage.thinking" Any, "token … visible, in seconds.";
    STAGE_DECODE "tokengauge.stage.decode" Any, "visible … last, in seconds.";
    STAGE_TAIL "tokengauge.stage.tail" Any, "last … end, in seconds.";
    OUTPUT_RATE "tokengauge.output_rate" Any, "Output tokens per second, excluding prefill.";
    TOTAL_RATE "tokengauge.total_rate" Any, "Output tokens per second, including prefill.";
    COUNTED "tokengauge.output_tokens.counted" Any, "Output tokens as counted here.";
    TOKENIZER "tokengauge.tokenizer" Any, "Tokenizer of `tokengauge.output_tokens.counted`: `o200k_base`, `cl100k_base`, `p50k_base`, `r50k_base`, or the name of a configured tokenizer.json. If N was not reported, `tokengauge.token.source` tells whether it is the model's own.";
    STANDARD "tokengauge.output_tokens.standard" Any, "The same text in o200k_base.";
    TOKEN_SOURCE "tokengauge.token.source" Closed(&["reported", "counted", "estimated"]), "Source of N, the number of output tokens in the rates.";
    COMPLETE "tokengauge.complete" Closed(&["true", "cut", "unobserved"]), "Whether the count covers the whole response.";
    QUEUE_DEPTH "tokengauge.queue.depth" Any, "Queue depth when the request was admitted.";
    WARM "tokengauge.warm" Closed(&["cold", "warming", "warm"]), "Warm-up state of the backend when the request was admitted, if it is tracked (`upstreams.*.warm`).";
    BLOCKED "tokengauge.client.blocked" Any, "Time in which the client did not read, in seconds; only if there was any.";
    STALLS "tokengauge.stalls" Any, "Number of stalls; only if there were any. Each of the first 16 has an event `stall`.";
    STALLED "tokengauge.stalled" Any, "Total time of all stalls, in seconds; only if there were any.";
    AWAITED "tokengauge.awaited" Closed(&["first_token", "next_token"]), "Token that the stream had not delivered when it stalled. On the event.";
    SILENCE "tokengauge.silence" Closed(&["silent", "pinging"]), "What arrived during the stall. On the event.";
    STALL_TIME "tokengauge.stall.time" Any, "Length of the stall, in seconds. On the event, whose time is when the stall threshold was crossed.";
    VERDICT "tokengauge.slo.*" Closed(&["good", "bad", "excluded"]), "Result of the objective of that name for the request.";
}

/// Name of the span event of a stall.
pub const STALL_EVENT: &str = "stall";

/// Names of span events: the timestamps that were reached.
pub const EVENTS: [&str; 9] =
    ["admit", "sent", "uploaded", "head", "byte", "event", "token", "visible", "last"];
