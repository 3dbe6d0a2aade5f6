//! Writes the attributes of a finished request to a span or to a log record.

use std::time::Duration;

use tokengauge_llm::content::CapturedContent;
use tokengauge_measure::record::{Call, ConnectionSample, Mcp, Record, WebSocket};
use tokengauge_measure::timing::Stage;
use tokengauge_types::event::UserAgent;
use tokengauge_types::label::Name;

use crate::catalog::{Attribute, spans as key};
use crate::sampling::{SamplingDecision, SamplingReason};

/// Receives the attributes of a span or log record. Values that are `None` are left out.
pub(crate) trait AttributeWriter {
    /// Writes a text attribute. Its key is `namespace` followed by `name`.
    fn text_under(&mut self, namespace: &str, name: &str, value: &str);
    fn texts(&mut self, attribute: Attribute, values: &[&str]);
    fn flag(&mut self, attribute: Attribute, value: bool);
    fn int(&mut self, attribute: Attribute, value: i64);
    fn double(&mut self, attribute: Attribute, value: f64);

    fn text(&mut self, attribute: Attribute, value: &str) {
        self.text_under(attribute.key, "", value);
    }

    fn name(&mut self, attribute: Attribute, value: Option<&Name>) {
        if let Some(value) = value {
            self.text(attribute, value.as_str());
        }
    }

    fn integer(&mut self, attribute: Attribute, value: Option<impl Into<i64>>) {
        if let Some(value) = value {
            self.int(attribute, value.into());
        }
    }

    fn count(&mut self, attribute: Attribute, value: Option<u64>) {
        self.integer(attribute, value.map(|count| i64::try_from(count).unwrap_or(i64::MAX)));
    }

    fn number(&mut self, attribute: Attribute, value: Option<f64>) {
        if let Some(value) = value {
            self.double(attribute, value);
        }
    }

    fn seconds(&mut self, attribute: Attribute, value: Option<Duration>) {
        self.number(attribute, value.map(|time| time.as_secs_f64()));
    }
}

/// Returns the HTTP method for labels and span names. A method that is not in the semantic conventions becomes
/// `_OTHER`.
pub fn method(method: &http::Method) -> &'static str {
    const KNOWN: [&str; 10] =
        ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"];
    let known = KNOWN.into_iter().find(|known| *known == method.as_str());
    known.unwrap_or("_OTHER")
}

pub fn protocol_version(version: http::Version) -> &'static str {
    match version {
        http::Version::HTTP_09 => "0.9",
        http::Version::HTTP_10 => "1.0",
        http::Version::HTTP_2 => "2",
        http::Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

/// Writes the attributes that the SERVER span and the CLIENT span share.
pub(super) fn exchange(to: &mut impl AttributeWriter, record: &Record, failed: bool) {
    to.text(key::METHOD, method(&record.http.method));
    to.integer(key::STATUS, record.http.status);
    if failed {
        to.name(key::ERROR_TYPE, record.error_type.as_ref());
    }
    to.text(key::ROUTE, record.route.name.as_str());
    to.text(key::POSITION, record.route.position.as_str());
    let caller = &record.caller;
    to.name(key::TENANT, caller.tenant.as_ref());
    to.name(key::SESSION, caller.session.as_ref());
    if let Some(source) = caller.session_source {
        to.text(key::SESSION_SOURCE, source.as_str());
    }
    to.name(key::SUB_AGENT, caller.sub_agent.as_ref());
    let resends = record.http.request_headers.resend_count();
    to.integer(key::RESEND_COUNT, resends.filter(|count| *count > 0));
    to.name(key::VARIANT, caller.variant.as_ref());
    to.text(key::OUTCOME, record.outcome.as_str());
    to.text(key::ERROR_SOURCE, record.error_source.as_str());
}

/// Writes the attributes that only the SERVER span has.
pub(super) fn server(to: &mut impl AttributeWriter, record: &Record) {
    let http = &record.http;
    to.text(key::SCHEME, http.scheme.as_str());
    to.text(key::PATH, http.path.as_str());
    to.text(key::PROTOCOL_VERSION, protocol_version(http.version));
    if let Some(agent) = http.request_headers.get("user-agent") {
        to.text(key::USER_AGENT, agent);
        if let Some(UserAgent { name, version }) = UserAgent::parse(agent) {
            to.text(key::USER_AGENT_NAME, name);
            version.into_iter().for_each(|version| to.text(key::USER_AGENT_VERSION, version));
        }
    }
    if let Some(address) = http.client {
        to.text(key::CLIENT_ADDRESS, &address.to_string());
    }
    if let Some(host) = &http.host {
        to.text(key::SERVER_ADDRESS, without_port(host.as_str()));
    }
    to.count(key::REQUEST_SIZE, Some(http.request_bytes));
    to.count(key::RESPONSE_SIZE, Some(http.response_bytes));
    if let Some(socket) = &record.websocket {
        websocket(to, socket);
    }
    to.seconds(key::QUEUE_EDGE, record.edge_wait);
    if http.own {
        to.flag(key::LOCAL_REPLY, true);
    }
    network(to, record.network.client);
}

/// Writes the attributes that only the CLIENT span has, without the attributes of a call.
pub(super) fn upstream(to: &mut impl AttributeWriter, record: &Record) {
    server_address(to, record);
    if let Some(connected) = &record.connected {
        to.flag(key::CONNECTION_REUSED, connected.reused);
        to.seconds(key::CONNECT_WAIT, connected.wait);
        to.seconds(key::CONNECT_DNS, connected.dns);
        to.seconds(key::CONNECT_TCP, connected.tcp);
        to.seconds(key::CONNECT_TLS, connected.tls);
    }
    network(to, record.network.upstream);
    let headers = &record.http.response_headers;
    to.integer(key::GATEWAY_RETRIES, headers.number("x-litellm-attempted-retries"));
    to.integer(key::GATEWAY_FALLBACKS, headers.number("x-litellm-attempted-fallbacks"));
}

/// Writes the attributes of the Model Context Protocol. Those of an operation are left out for a batch. Arguments and
/// results of tools are content, which is not captured.
pub(super) fn mcp(to: &mut impl AttributeWriter, mcp: &Mcp) {
    to.name(key::MCP_SESSION, mcp.session.as_ref());
    to.name(key::MCP_PROTOCOL_VERSION, mcp.protocol_version.as_ref());
    to.text(key::NETWORK_PROTOCOL, "http");
    to.text(key::NETWORK_TRANSPORT, "tcp");
    let Some(operation) = mcp.only_operation() else { return };
    to.name(key::MCP_METHOD, operation.message.method.as_ref());
    to.name(key::JSON_RPC_ID, operation.message.id.as_ref());
    if let Some(tool) = operation.tool() {
        to.text(key::OPERATION, "execute_tool");
        to.text(key::TOOL_NAME, tool.as_str());
    }
    to.name(key::PROMPT_NAME, operation.prompt());
    to.name(key::MCP_RESOURCE, operation.message.resource.as_ref());
    if let Some(code) = operation.error_code {
        to.text(key::RPC_STATUS, &code.to_string());
    }
}

fn server_address(to: &mut impl AttributeWriter, record: &Record) {
    to.text(key::SERVER_ADDRESS, record.route.server_address.as_str());
    to.integer(key::SERVER_PORT, Some(record.route.server_port));
}

/// Writes the attributes that the semantic conventions define for an inference span, for the event with the content of
/// a call.
pub(crate) fn inference(to: &mut impl AttributeWriter, record: &Record, call: &Call) {
    to.name(key::ERROR_TYPE, record.error_type.as_ref());
    server_address(to, record);
    request(to, call);
    response(to, record, call);
    usage(to, call);
}

pub(super) fn request(to: &mut impl AttributeWriter, call: &Call) {
    let request = &call.request;
    to.text(key::OPERATION, call.series.operation.as_str());
    to.text(key::PROVIDER, call.series.provider.as_str());
    to.name(key::REQUEST_MODEL, request.model.as_ref());
    if call.streamed {
        to.flag(key::REQUEST_STREAM, true);
    }
    to.integer(key::MAX_TOKENS, request.max_tokens);
    to.number(key::TEMPERATURE, request.temperature);
    to.number(key::TOP_P, request.top_p);
    to.integer(key::TOP_K, request.top_k);
    to.number(key::FREQUENCY_PENALTY, request.frequency_penalty);
    to.number(key::PRESENCE_PENALTY, request.presence_penalty);
    to.integer(key::SEED, request.seed);
    to.integer(key::CHOICE_COUNT, request.choices);
    to.name(key::PROMPT_NAME, request.prompt_name.as_ref());
    to.name(key::PROMPT_VERSION, request.prompt_version.as_ref());
    to.name(key::PREVIOUS_RESPONSE, request.previous_response.as_ref());
    to.name(key::REASONING_LEVEL, request.reasoning_level.as_ref());
    if let Some(format) = &request.encoding_format {
        to.texts(key::ENCODING_FORMATS, &[format.as_str()]);
    }
    to.integer(key::DIMENSIONS, request.dimensions);
    if let Some(output) = request.output_type {
        to.text(key::OUTPUT_TYPE, output);
    }
    to.name(key::REQUEST_TIER, request.service_tier.as_ref());
}

pub(super) fn response(to: &mut impl AttributeWriter, record: &Record, call: &Call) {
    let requested = call.request.conversation.as_ref().or(record.caller.session.as_ref());
    // The id of a Realtime session identifies a conversation, not a response.
    let (response, conversation) = match &record.websocket {
        Some(_) => (None, call.response_id.as_ref().or(requested)),
        None => (call.response_id.as_ref(), requested),
    };
    to.name(key::RESPONSE_ID, response);
    to.name(key::CONVERSATION_ID, conversation);
    if call.compacted {
        to.flag(key::COMPACTED, true);
    }
    to.name(key::RESPONSE_MODEL, call.response_model.as_ref());
    // The conventions write `error` for a reason that did not arrive. Here, only what the provider reports is exported.
    let finish_reasons: Vec<_> = call.finish_reasons().map(Name::as_str).collect();
    if !finish_reasons.is_empty() {
        to.texts(key::FINISH_REASONS, &finish_reasons);
    }
    to.name(key::RESPONSE_TIER, call.service_tier.as_ref());
    to.name(key::FINGERPRINT, call.system_fingerprint.as_ref());
    let (event, sent) = (record.timestamps.event, record.timestamps.sent);
    let first_chunk = event.zip(sent).map(|(event, sent)| event.since(sent));
    to.seconds(key::FIRST_CHUNK, first_chunk.filter(|_| call.streamed));
}

pub(super) fn usage(to: &mut impl AttributeWriter, call: &Call) {
    let Some(usage) = &call.usage else { return };
    to.count(key::INPUT_TOKENS, usage.input);
    to.count(key::OUTPUT_TOKENS, usage.output);
    to.count(key::CACHE_READ, usage.cache_read);
    to.count(key::CACHE_WRITE, usage.cache_write);
    to.count(key::CACHE_WRITE_5M, usage.cache_write_5m);
    to.count(key::CACHE_WRITE_1H, usage.cache_write_1h);
    to.count(key::REASONING_TOKENS, usage.reasoning);
    for (keys, by) in [
        ([key::INPUT_TEXT, key::INPUT_IMAGE, key::INPUT_AUDIO], usage.input_by),
        ([key::CACHE_READ_TEXT, key::CACHE_READ_IMAGE, key::CACHE_READ_AUDIO], usage.cache_read_by),
        ([key::OUTPUT_TEXT, key::OUTPUT_IMAGE, key::OUTPUT_AUDIO], usage.output_by),
    ] {
        for (key, tokens) in keys.into_iter().zip([by.text, by.image, by.audio]) {
            to.count(key, tokens.filter(|tokens| *tokens > 0));
        }
    }
}

pub(super) fn cost(to: &mut impl AttributeWriter, call: &Call) {
    to.number(key::REPORTED_COST, call.reported_cost());
    let Some(cost) = &call.cost else { return };
    to.number(key::COST, Some(cost.amount));
    to.text(key::CURRENCY, cost.currency.as_str());
    to.text(key::COST_SOURCE, cost.source.as_str());
}

/// Writes the timings that the backend reports and the rate limits that the provider reports.
pub(super) fn backend(to: &mut impl AttributeWriter, call: &Call) {
    if let Some(timings) = &call.timings {
        to.seconds(key::BACKEND_QUEUE, timings.queue);
        to.seconds(key::BACKEND_LOAD, timings.load);
        to.seconds(key::BACKEND_PREFILL, timings.prefill);
        to.seconds(key::BACKEND_DECODE, timings.decode);
        to.seconds(key::BACKEND_TOTAL, timings.total);
    }
    if let Some(quota) = &call.quota {
        to.count(key::RATE_LIMIT_REQUESTS, quota.requests.remaining);
        to.count(key::RATE_LIMIT_TOKENS, quota.tokens.remaining);
        to.count(key::RATE_LIMIT_INPUT, quota.input_tokens.remaining);
        to.count(key::RATE_LIMIT_OUTPUT, quota.output_tokens.remaining);
    }
}

/// Writes the timings and counts that this proxy measured, except stalls.
pub(super) fn timings(to: &mut impl AttributeWriter, record: &Record, call: &Call) {
    let timestamps = &record.timestamps;
    for (attribute, point) in [
        (key::TIME_TO_HEADERS, timestamps.head),
        (key::TIME_TO_FIRST_BYTE, timestamps.byte),
        (key::TIME_TO_FIRST_EVENT, timestamps.event),
        (key::TIME_TO_FIRST_TOKEN, timestamps.token),
        (key::TIME_TO_FIRST_VISIBLE_TOKEN, timestamps.visible),
    ] {
        to.seconds(attribute, point.map(|at| at.since(timestamps.accept)));
    }
    for (stage, length) in record.stages.iter() {
        to.seconds(stage_attribute(stage), Some(length));
    }
    to.number(key::OUTPUT_TOKEN_RATE, call.rates.output);
    to.number(key::TOTAL_TOKEN_RATE, call.rates.total);
    if let Some(tokenizer) = &call.tokenizer {
        to.text(key::TOKENIZER, tokenizer.as_str());
    }
    if let Some(output) = &call.output {
        to.count(key::COUNTED, Some(output.counted));
        to.count(key::NORMALIZED, Some(output.standard));
        if let Some(source) = output.source {
            to.text(key::TOKEN_SOURCE, source.as_str());
        }
    }
    to.text(key::COMPLETE, call.complete.as_str());
}

/// Writes the state of the proxy and the backend.
pub(super) fn conditions(to: &mut impl AttributeWriter, record: &Record, call: &Call) {
    to.integer(key::QUEUE_DEPTH, Some(call.queue_depth));
    if let Some(warm) = call.warm {
        to.text(key::WARMUP_STATE, warm.as_str());
    }
    to.seconds(key::CLIENT_BACKPRESSURE, Some(record.blocked).filter(|time| !time.is_zero()));
}

/// Writes the SLO results.
pub(super) fn verdicts(to: &mut impl AttributeWriter, call: &Call) {
    for (objective, verdict) in &call.verdicts {
        let namespace = key::VERDICT.key.trim_end_matches('*');
        to.text_under(namespace, objective.as_str(), verdict.as_str());
    }
}

/// Returns the captured content that is text. Each text has its attribute, and the order is that of a span.
pub(crate) fn content_texts(content: &CapturedContent) -> impl Iterator<Item = (Attribute, &str)> {
    [
        (key::INPUT_MESSAGES, &content.input_messages),
        (key::OUTPUT_MESSAGES, &content.output_messages),
        (key::SYSTEM_INSTRUCTIONS, &content.system_instructions),
        (key::TOOL_DEFINITIONS, &content.tool_definitions),
    ]
    .into_iter()
    .filter_map(|(attribute, text)| Some((attribute, text.as_deref()?)))
}

/// Writes the captured stop sequences. The semantic conventions do not define them as content, but they are text of
/// the client, and this program exports such text only for routes that capture content.
pub(crate) fn stop_sequences(to: &mut impl AttributeWriter, content: &CapturedContent) {
    let texts: Vec<_> = content.stop_sequences.iter().map(String::as_str).collect();
    if !texts.is_empty() {
        to.texts(key::STOP_SEQUENCES, &texts);
    }
}

/// Writes whether the captured content is incomplete, and the number of missing parts.
pub(crate) fn content_gaps(to: &mut impl AttributeWriter, content: &CapturedContent) {
    if content.truncated {
        to.flag(key::CONTENT_TRUNCATED, true);
    }
    to.count(key::CONTENT_OMITTED, Some(content.left_out).filter(|parts| *parts > 0));
}

pub(super) fn sampling(to: &mut impl AttributeWriter, decision: SamplingDecision) {
    to.text(key::SAMPLING_REASON, decision.reason.as_str());
    if let SamplingReason::Ratio(ratio) = decision.reason {
        to.number(key::SAMPLING_RATIO, Some(ratio));
    }
    if decision.against_parent {
        to.flag(key::SAMPLING_OVERRIDES_PARENT, true);
    }
}

fn network(to: &mut impl AttributeWriter, connection: Option<ConnectionSample>) {
    let Some(connection) = connection else { return };
    to.seconds(key::NETWORK_RTT, connection.rtt);
    to.seconds(key::NETWORK_RTT_MIN, connection.least_rtt);
    to.integer(key::NETWORK_RETRANSMITS, Some(connection.retransmits));
}

fn websocket(to: &mut impl AttributeWriter, socket: &WebSocket) {
    to.count(key::REQUEST_MESSAGES, Some(socket.request_messages));
    to.count(key::RESPONSE_MESSAGES, Some(socket.response_messages));
    if let Some(closed) = &socket.closed {
        to.text(key::CLOSED_BY, closed.by.sender());
        to.integer(key::CLOSE_CODE, closed.code);
    }
}

const fn stage_attribute(stage: Stage) -> Attribute {
    match stage {
        Stage::Admission => key::STAGE_ADMISSION,
        Stage::Connect => key::STAGE_CONNECT,
        Stage::Upload => key::STAGE_UPLOAD,
        Stage::Headers => key::STAGE_HEADERS,
        Stage::FirstByte => key::STAGE_FIRST_BYTE,
        Stage::FirstEvent => key::STAGE_FIRST_EVENT,
        Stage::FirstToken => key::STAGE_FIRST_TOKEN,
        Stage::Reasoning => key::STAGE_REASONING,
        Stage::Decode => key::STAGE_DECODE,
        Stage::Tail => key::STAGE_TAIL,
    }
}

/// Returns a `Host` header without the port. An IPv6 address keeps its brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !name.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => name,
        Some(_) | None => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_only_the_port_of_a_host() {
        for (host, name) in [
            ("a.example:80", "a.example"),
            ("a.example", "a.example"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
        ] {
            assert_eq!(without_port(host), name);
        }
    }
}
