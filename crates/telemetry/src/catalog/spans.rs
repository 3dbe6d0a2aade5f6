//! Attribute keys of spans. Unlike those of metrics their values need no bound on how many there are, only on length.

use crate::catalog::attributes::{Attribute, Values};
use Values::{Any, Closed};

macro_rules! attributes {
    ($($name:ident $key:literal $values:expr, $description:literal;)*) => {
        $(
            #[doc = $description]
            pub const $name: Attribute = Attribute { key: $key, description: $description, values: $values };
        )*
        /// Every attribute key of spans.
        pub const ALL: &[Attribute] = &[$($name),*];
    };
}

attributes! {
    METHOD "http.request.method" Any, "The request's method. Both spans.";
    STATUS "http.response.status_code" Any, "The response's status. Both spans.";
    ERROR_TYPE "error.type" Any, "What went wrong; only on errors. Both spans.";
    SCHEME "url.scheme" Closed(&["http", "https"]), "What the client spoke. SERVER span.";
    PATH "url.path" Any, "The path without its query. SERVER span.";
    PROTOCOL_VERSION "network.protocol.version" Any, "The HTTP version that the client spoke. SERVER span.";
    USER_AGENT "user_agent.original" Any, "The client's User-Agent. SERVER span.";
    CLIENT_ADDRESS "client.address" Any, "The peer's address. SERVER span.";
    REQUEST_SIZE "http.request.body.size" Any, "Bytes of the request's body. SERVER span.";
    RESPONSE_SIZE "http.response.body.size" Any, "Bytes of the response's body that were passed on. SERVER span.";
    REQUEST_MESSAGES "tokengauge.websocket.request_messages" Any, "Messages that the client sent over a WebSocket; 0 where it sent none, absent where there was no WebSocket. SERVER span.";
    RESPONSE_MESSAGES "tokengauge.websocket.response_messages" Any, "Messages that the upstream sent over it. SERVER span.";
    CLOSED_BY "tokengauge.websocket.closed_by" Closed(&["client", "upstream"]), "Who sent the first closing frame; absent where none came. SERVER span.";
    CLOSE_CODE "tokengauge.websocket.close_code" Any, "Its code, where it had one. SERVER span.";
    SERVER_ADDRESS "server.address" Any, "On the SERVER span the host that the client asked for, on the CLIENT span the upstream's.";
    SERVER_PORT "server.port" Any, "The upstream's port. CLIENT span.";
    OPERATION "gen_ai.operation.name" Any, "What kind of call it is.";
    PROVIDER "gen_ai.provider.name" Any, "Whose API it is.";
    REQUEST_MODEL "gen_ai.request.model" Any, "The model that was asked for, as the request says it.";
    REQUEST_STREAM "gen_ai.request.stream" Closed(&["true"]), "Only where the answer came as a stream.";
    MAX_TOKENS "gen_ai.request.max_tokens" Any, "As the request says.";
    TEMPERATURE "gen_ai.request.temperature" Any, "As the request says.";
    TOP_P "gen_ai.request.top_p" Any, "As the request says.";
    TOP_K "gen_ai.request.top_k" Any, "As the request says.";
    FREQUENCY_PENALTY "gen_ai.request.frequency_penalty" Any, "As the request says.";
    PRESENCE_PENALTY "gen_ai.request.presence_penalty" Any, "As the request says.";
    SEED "gen_ai.request.seed" Any, "As the request says.";
    CHOICE_COUNT "gen_ai.request.choice.count" Any, "How many choices were asked for, where not 1.";
    PREVIOUS_RESPONSE "gen_ai.request.previous_response.id" Any, "The response that the request goes on from.";
    REASONING_LEVEL "gen_ai.request.reasoning.level" Any, "The word that the request uses.";
    ENCODING_FORMATS "gen_ai.request.encoding_formats" Any, "Of embeddings.";
    DIMENSIONS "gen_ai.embeddings.dimension.count" Any, "Of embeddings, as asked for.";
    OUTPUT_TYPE "gen_ai.output.type" Closed(&["text", "json", "image", "speech"]), "The kind of output asked for.";
    REQUEST_TIER "openai.request.service_tier" Any, "As the request says.";
    RESPONSE_TIER "openai.response.service_tier" Any, "The tier that answered.";
    FINGERPRINT "openai.response.system_fingerprint" Any, "As the response says.";
    RESPONSE_ID "gen_ai.response.id" Any, "As the response says.";
    CONVERSATION_ID "gen_ai.conversation.id" Any, "Only where one is given: the id of a session, as its messages say (then there is no `gen_ai.response.id`); else what the request's body names; else what the caller's baggage names.";
    COST "tokengauge.cost.amount" Any, "What the call cost by the table of prices; absent where it has no price.";
    CURRENCY "tokengauge.cost.currency" Any, "The currency of it.";
    COST_SOURCE "tokengauge.cost.source" Closed(&["reported", "estimated"]), "Whether its tokens were reported by the provider.";
    TENANT "tokengauge.tenant" Any, "On whose account the request was, by the header that the configuration names. Both spans.";
    SESSION "tokengauge.session" Any, "The conversation or run that it was a part of, likewise. Both spans.";
    VARIANT "tokengauge.variant" Any, "Which of several ways it went, likewise. Both spans.";
    RESPONSE_MODEL "gen_ai.response.model" Any, "The model that answered.";
    FINISH_REASONS "gen_ai.response.finish_reasons" Any, "The provider's words, one per choice in order; `error` where one was owed and never came. Of a session the status of each response, of the first 128.";
    FIRST_CHUNK "gen_ai.response.time_to_first_chunk" Any, "event − sent, in seconds; streams only.";
    INPUT_TOKENS "gen_ai.usage.input_tokens" Any, "As reported, cached ones included.";
    OUTPUT_TOKENS "gen_ai.usage.output_tokens" Any, "As reported, reasoning included.";
    CACHE_READ "gen_ai.usage.cache_read.input_tokens" Any, "As reported; part of the input.";
    CACHE_WRITE "gen_ai.usage.cache_write.input_tokens" Any, "As reported; part of the input.";
    REASONING_TOKENS "gen_ai.usage.reasoning.output_tokens" Any, "As reported; part of the output.";
    INPUT_IMAGE "tokengauge.usage.image.input_tokens" Any, "As reported; part of the input.";
    INPUT_AUDIO "tokengauge.usage.audio.input_tokens" Any, "As reported; part of the input.";
    OUTPUT_IMAGE "tokengauge.usage.image.output_tokens" Any, "As reported; part of the output.";
    OUTPUT_AUDIO "tokengauge.usage.audio.output_tokens" Any, "As reported; part of the output.";
    BACKEND_QUEUE "tokengauge.backend.queue" Any, "Waiting, by the backend's own clock, in seconds; where it says so.";
    BACKEND_LOAD "tokengauge.backend.load" Any, "Loading the model, by the backend's own clock, in seconds; where it says so.";
    BACKEND_PREFILL "tokengauge.backend.prefill" Any, "Reading the prompt, by the backend's own clock, in seconds; where it says so.";
    BACKEND_DECODE "tokengauge.backend.decode" Any, "Generating, by the backend's own clock, in seconds; where it says so.";
    BACKEND_TOTAL "tokengauge.backend.total" Any, "All of its work, by the backend's own clock, in seconds; where it says so.";
    QUOTA_REQUESTS "tokengauge.quota.requests.remaining" Any, "Requests left by the provider's rate-limit headers.";
    QUOTA_TOKENS "tokengauge.quota.tokens.remaining" Any, "Tokens left by the provider's rate-limit headers.";
    QUOTA_INPUT "tokengauge.quota.input_tokens.remaining" Any, "Input tokens left, where the provider limits them apart.";
    QUOTA_OUTPUT "tokengauge.quota.output_tokens.remaining" Any, "Output tokens left, where the provider limits them apart.";
    INPUT_MESSAGES "gen_ai.input.messages" Any, "What was asked, as JSON by the standard's schema; only where the route captures content, as all of this block.";
    OUTPUT_MESSAGES "gen_ai.output.messages" Any, "What was answered.";
    SYSTEM_INSTRUCTIONS "gen_ai.system_instructions" Any, "Instructions that the request gives apart from the messages.";
    TOOL_DEFINITIONS "gen_ai.tool.definitions" Any, "The tools that it offers.";
    CONTENT_TRUNCATED "tokengauge.content.truncated" Closed(&["true"]), "Only where some of the content was beyond the bound, or was not seen.";
    CONTENT_LEFT_OUT "tokengauge.content.left_out" Any, "Messages and parts of messages that were not understood, or are no text; only where there were any.";
    ROUTE "tokengauge.route" Any, "The route the exchange took. Both spans.";
    VANTAGE "tokengauge.vantage" Closed(&["inbound", "outbound", "gateway"]), "Where this proxy stands. Both spans.";
    OUTCOME "tokengauge.outcome" Closed(&["ok", "error", "cancelled", "timeout", "truncated", "rejected"]), "How the exchange came out. Both spans.";
    FAULT "tokengauge.fault" Closed(&["none", "client", "upstream", "proxy"]), "Whose fault it was. Both spans.";
    SAMPLING_REASON "tokengauge.sampling.reason" Closed(&["parent", "always_on", "ratio", "error", "stall", "objective"]), "What first spoke for keeping the trace. At the head: the caller, or the sampler. At the end, where the head had not chosen it: it failed, stalled, or broke an objective. Both spans.";
    SAMPLING_RATIO "tokengauge.sampling.ratio" Any, "Where the reason is `ratio`: the share that is chosen. Both spans.";
    SAMPLING_AGAINST_PARENT "tokengauge.sampling.against_parent" Closed(&["true"]), "Only where the caller had said that its trace is not sampled: its own spans are nowhere. Both spans.";
    QUEUE_EDGE "tokengauge.queue.edge" Any, "How long the request was on its way before it reached this proxy, by the `X-Request-Start` or `X-Queue-Start` of a proxy before it, in seconds; where one says so. SERVER span.";
    OWN_RESPONSE "tokengauge.own_response" Closed(&["true"]), "Only where this proxy itself wrote the answer. SERVER span.";
    CONNECTION_REUSED "tokengauge.connection.reused" Closed(&["true", "false"]), "Whether an idle upstream connection was used again. CLIENT span.";
    CONNECT_WAIT "tokengauge.connect.wait" Any, "Waiting for a connection that another exchange was making, or on an idle one that turned out closed, in seconds; where there was any. CLIENT span.";
    CONNECT_DNS "tokengauge.connect.dns" Any, "Resolving the upstream's name, in seconds; where a connection was made and there was a name. CLIENT span.";
    CONNECT_TCP "tokengauge.connect.tcp" Any, "Opening the TCP connection, with a proxy's tunnel, in seconds; where one was made. CLIENT span.";
    CONNECT_TLS "tokengauge.connect.tls" Any, "The TLS handshake, in seconds; where there was one. CLIENT span.";
    NETWORK_RTT "tokengauge.network.rtt" Any, "Smoothed TCP round-trip time by the kernel, in seconds, as last seen in the course of the exchange: of the client's connection on the SERVER span, of the upstream's on the CLIENT span.";
    NETWORK_RTT_LEAST "tokengauge.network.rtt_least" Any, "The least round-trip time of late, in seconds; as above.";
    NETWORK_RETRANSMITS "tokengauge.network.retransmits" Any, "TCP segments sent again on that connection since the last exchange that told of it, or since it began. Over a connection that several exchanges share at once, of all of them.";
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
    OUTPUT_RATE "tokengauge.output_rate" Any, "Output TPS, prefill excluded.";
    TOTAL_RATE "tokengauge.total_rate" Any, "Total TPS, prefill included.";
    COUNTED "tokengauge.output_tokens.counted" Any, "Output tokens as counted here.";
    TOKENIZER "tokengauge.tokenizer" Any, "What `tokengauge.output_tokens.counted` was counted with: `o200k_base`, `cl100k_base`, `p50k_base`, `r50k_base`, or the name of a tokenizer.json that the configuration gives. Whether it is the model's own, `tokengauge.token.source` says where N was not reported.";
    STANDARD "tokengauge.output_tokens.standard" Any, "The same text in o200k_base.";
    TOKEN_SOURCE "tokengauge.token.source" Closed(&["reported", "counted", "estimated"]), "Where N, the number of output tokens in the rates, comes from.";
    COMPLETE "tokengauge.complete" Closed(&["true", "cut", "unobserved"]), "Whether what was counted is all there was.";
    QUEUE_DEPTH "tokengauge.queue.depth" Any, "Queue depth when the exchange was admitted.";
    WARM "tokengauge.warm" Closed(&["cold", "warming", "warm"]), "How the exchange found its backend when it was admitted, where that is asked (`upstreams.*.warm`).";
    BLOCKED "tokengauge.client.blocked" Any, "Time in which the client did not read, in seconds; only where there was any.";
    STALLS "tokengauge.stalls" Any, "How often the stream stalled; only where it did. Each of the first 16 has an event `stall`.";
    STALLED "tokengauge.stalled" Any, "How long it was stalled, all stalls together, in seconds; only where it was.";
    AWAITED "tokengauge.awaited" Closed(&["first_token", "next_token"]), "What was awaited when the stream stalled. On the event.";
    SILENCE "tokengauge.silence" Closed(&["silent", "pinging"]), "What came instead. On the event.";
    STALL_TIME "tokengauge.stall.time" Any, "How long it lasted, in seconds. On the event, which is stamped with the time at which the stall was raised.";
    VERDICT "tokengauge.slo.*" Closed(&["good", "bad", "excluded"]), "What the objective of that name says of the exchange.";
}

/// The name of the span event of a stall.
pub const STALL_EVENT: &str = "stall";

/// Names of span events: the clock points that occurred.
pub const EVENTS: [&str; 9] =
    ["admit", "sent", "uploaded", "head", "byte", "event", "token", "visible", "last"];
