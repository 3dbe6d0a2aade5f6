//! The spans of one finished exchange, written with explicit times when it ends, whatever way it ends.
//!
//! A SERVER span for the client's request (accept … end) and, where anything was tried upstream, a CLIENT child
//! (admit … end) that follows the standard's inference span for calls of a known API and its HTTP client span for
//! everything else. Wall-clock times are one reading at accept plus monotonic distances. Both ids were made at accept.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::Event;

use crate::catalog::{Attribute, spans as key};
use crate::sampling::{SamplingDecision, SamplingReason};
use crate::span::encoder::{EncodedSpan, SpanEncoder, SpanHeader};
use tokengauge_llm::content::Content;
use tokengauge_measure::record::{Call, ConnectionSample, Outcome, Record, WebSocket};
use tokengauge_measure::timing::Stalls;
use tokengauge_types::clock::{MonotonicInstant, WallTime};
use tokengauge_types::event::{Direction, Ending, ErrorSource};
use tokengauge_types::label::Name;

pub mod encoder;
mod words;

pub use self::words::{method, protocol_version};
use self::words::{of_stage, without_port};

/// `SPAN_KIND_SERVER` and `SPAN_KIND_CLIENT` of the protocol.
const SERVER: u64 = 2;
const CLIENT: u64 = 3;

/// What every span follows and no record knows.
#[derive(Clone, Debug)]
pub struct SpanLimits {
    /// The longest text of an attribute, in characters.
    max_value_chars: Option<usize>,
}

impl SpanLimits {
    pub const fn new(max_value_chars: Option<usize>) -> Self {
        Self { max_value_chars }
    }
}

/// The SERVER span, and the CLIENT span unless this proxy refused the request or never came to let it in; each says
/// why the trace is kept.
pub fn encode_spans(
    record: &Record,
    style: &SpanLimits,
    kept: SamplingDecision,
) -> Vec<EncodedSpan> {
    let client = has_client(record).then(|| client(record, style));
    let spans = [Some(server(record, style)), client];
    let finish = |mut span: SpanEncoder| {
        span.sampling(kept);
        span.finish()
    };
    spans.into_iter().flatten().map(finish).collect()
}

/// How many [`spans`] would make.
pub fn span_count(record: &Record) -> usize {
    1 + usize::from(has_client(record))
}

/// The span that tells of the call itself: CLIENT, or SERVER where there is no other.
pub const fn exemplar_span_id(record: &Record) -> [u8; 8] {
    if has_client(record) { record.trace.client_span } else { record.trace.server_span }
}

const fn has_client(record: &Record) -> bool {
    record.points.admit.is_some() && !matches!(record.ending, Ending::Rejected(_))
}

fn server(record: &Record, style: &SpanLimits) -> SpanEncoder {
    let failed = failed_for_the_client(record);
    let http = &record.http;
    let frame = SpanHeader {
        trace: record.trace.trace_id,
        span: record.trace.server_span,
        state: record.trace.state.as_deref(),
        parent: record.trace.parent,
        remote_parent: record.trace.parent.is_some(),
        kind: SERVER,
        start: record.wall,
        end: end_time(record),
        error: what_failed(record, failed),
    };
    let mut span = SpanEncoder::new(&frame, &[method(&http.method)], style.max_value_chars);
    span.http(record, failed);
    span.text(key::SCHEME, http.scheme.as_str());
    span.text(key::PATH, http.path.as_str());
    span.text(key::PROTOCOL_VERSION, protocol_version(http.version));
    if let Some(agent) = http.request_headers.get("user-agent") {
        span.text(key::USER_AGENT, agent);
    }
    span.address(key::CLIENT_ADDRESS, http.client);
    if let Some(host) = &http.host {
        span.text(key::SERVER_ADDRESS, without_port(host.as_str()));
    }
    span.count(key::REQUEST_SIZE, Some(http.request_bytes));
    span.count(key::RESPONSE_SIZE, Some(http.response_bytes));
    if let Some(socket) = &record.websocket {
        span.websocket(socket);
    }
    span.seconds(key::QUEUE_EDGE, record.edge_wait);
    if http.own {
        span.truth(key::OWN_RESPONSE, true);
    }
    span.network(record.network.client);
    span
}

fn client(record: &Record, style: &SpanLimits) -> SpanEncoder {
    let failed = record.error_type.is_some();
    let start = time(record, record.points.admit.unwrap_or(record.points.accept));
    let frame = SpanHeader {
        trace: record.trace.trace_id,
        span: record.trace.client_span,
        state: record.trace.state.as_deref(),
        parent: Some(record.trace.server_span),
        remote_parent: false,
        kind: CLIENT,
        start,
        end: end_time(record).max(start),
        error: what_failed(record, failed),
    };
    let mut span = SpanEncoder::new(&frame, &client_name(record), style.max_value_chars);
    for (name, at) in events(record) {
        span.event(name, time(record, at));
    }
    span.http(record, failed);
    span.text(key::SERVER_ADDRESS, record.route.server_address.as_str());
    span.integer(key::SERVER_PORT, Some(record.route.server_port));
    if let Some(connected) = &record.connected {
        span.truth(key::CONNECTION_REUSED, connected.reused);
        span.seconds(key::CONNECT_WAIT, connected.wait);
        span.seconds(key::CONNECT_DNS, connected.dns);
        span.seconds(key::CONNECT_TCP, connected.tcp);
        span.seconds(key::CONNECT_TLS, connected.tls);
    }
    span.network(record.network.upstream);
    if let Some(call) = &record.call {
        span.request(call);
        span.response(record, call);
        span.usage(call);
        span.cost(call);
        span.backend(call);
        span.measured(record, call);
        if let Some(content) = &call.content {
            span.content(content);
        }
    }
    span
}

/// Which attributes a span has, in the order in which they are written.
impl SpanEncoder {
    fn seconds(&mut self, attribute: Attribute, value: Option<std::time::Duration>) {
        self.number(attribute, value.map(|time| time.as_secs_f64()));
    }

    /// What both spans say.
    fn http(&mut self, record: &Record, failed: bool) {
        self.text(key::METHOD, method(&record.http.method));
        self.integer(key::STATUS, record.http.status);
        if failed {
            self.name(key::ERROR_TYPE, record.error_type.as_ref());
        }
        self.text(key::ROUTE, record.route.name.as_str());
        self.text(key::VANTAGE, record.route.vantage.as_str());
        let who = &record.who;
        self.name(key::TENANT, who.tenant.as_ref());
        self.name(key::SESSION, who.session.as_ref());
        self.name(key::VARIANT, who.variant.as_ref());
        self.text(key::OUTCOME, record.outcome.as_str());
        self.text(key::FAULT, record.fault.as_str());
    }

    fn sampling(&mut self, kept: SamplingDecision) {
        self.text(key::SAMPLING_REASON, kept.reason.as_str());
        if let SamplingReason::Ratio(share) = kept.reason {
            self.number(key::SAMPLING_RATIO, Some(share));
        }
        if kept.against_parent {
            self.truth(key::SAMPLING_AGAINST_PARENT, true);
        }
    }

    fn network(&mut self, connection: Option<ConnectionSample>) {
        let Some(connection) = connection else { return };
        self.seconds(key::NETWORK_RTT, connection.rtt);
        self.seconds(key::NETWORK_RTT_LEAST, connection.least_rtt);
        self.integer(key::NETWORK_RETRANSMITS, Some(connection.retransmits));
    }

    fn websocket(&mut self, socket: &WebSocket) {
        self.count(key::REQUEST_MESSAGES, Some(socket.request_messages));
        self.count(key::RESPONSE_MESSAGES, Some(socket.response_messages));
        if let Some(closed) = &socket.closed {
            let by = match closed.by {
                Direction::Request => "client",
                Direction::Response => "upstream",
            };
            self.text(key::CLOSED_BY, by);
            self.integer(key::CLOSE_CODE, closed.code);
        }
    }

    fn request(&mut self, call: &Call) {
        let request = &call.request;
        self.text(key::OPERATION, call.series.operation.as_str());
        self.text(key::PROVIDER, call.series.provider.as_str());
        self.name(key::REQUEST_MODEL, request.model.as_ref());
        if call.streamed {
            self.truth(key::REQUEST_STREAM, true);
        }
        self.integer(key::MAX_TOKENS, request.max_tokens);
        self.number(key::TEMPERATURE, request.temperature);
        self.number(key::TOP_P, request.top_p);
        self.integer(key::TOP_K, request.top_k);
        self.number(key::FREQUENCY_PENALTY, request.frequency_penalty);
        self.number(key::PRESENCE_PENALTY, request.presence_penalty);
        self.integer(key::SEED, request.seed);
        self.integer(key::CHOICE_COUNT, request.choices);
        self.name(key::PREVIOUS_RESPONSE, request.previous_response.as_ref());
        self.name(key::REASONING_LEVEL, request.reasoning_level.as_ref());
        if let Some(format) = &request.encoding_format {
            self.names(key::ENCODING_FORMATS, std::slice::from_ref(format));
        }
        self.integer(key::DIMENSIONS, request.dimensions);
        if let Some(output) = request.output_type {
            self.text(key::OUTPUT_TYPE, output);
        }
        self.name(key::REQUEST_TIER, request.service_tier.as_ref());
    }

    fn response(&mut self, record: &Record, call: &Call) {
        let asked = call.request.conversation.as_ref();
        // The id of a session names a conversation and no response.
        let (response, conversation) = match &record.websocket {
            Some(_) => (None, call.response_id.as_ref().or(asked)),
            None => (call.response_id.as_ref(), asked),
        };
        self.name(key::RESPONSE_ID, response);
        self.name(key::CONVERSATION_ID, conversation);
        self.name(key::RESPONSE_MODEL, call.response_model.as_ref());
        if !call.finish_reasons.is_empty() {
            self.names(key::FINISH_REASONS, &call.finish_reasons);
        }
        self.name(key::RESPONSE_TIER, call.service_tier.as_ref());
        self.name(key::FINGERPRINT, call.system_fingerprint.as_ref());
        let (event, sent) = (record.points.event, record.points.sent);
        let first_chunk = event.zip(sent).map(|(event, sent)| event.since(sent));
        self.seconds(key::FIRST_CHUNK, first_chunk.filter(|_| call.streamed));
    }

    fn cost(&mut self, call: &Call) {
        let Some(cost) = &call.cost else { return };
        self.number(key::COST, Some(cost.amount));
        self.text(key::CURRENCY, cost.currency.as_str());
        self.text(key::COST_SOURCE, cost.source.as_str());
    }

    fn usage(&mut self, call: &Call) {
        let Some(usage) = &call.usage else { return };
        self.count(key::INPUT_TOKENS, usage.input);
        self.count(key::OUTPUT_TOKENS, usage.output);
        self.count(key::CACHE_READ, usage.cache_read);
        self.count(key::CACHE_WRITE, usage.cache_write);
        self.count(key::REASONING_TOKENS, usage.reasoning);
        let some = |tokens: Option<u64>| tokens.filter(|tokens| *tokens > 0);
        self.count(key::INPUT_IMAGE, some(usage.input_by.image));
        self.count(key::INPUT_AUDIO, some(usage.input_by.audio));
        self.count(key::OUTPUT_IMAGE, some(usage.output_by.image));
        self.count(key::OUTPUT_AUDIO, some(usage.output_by.audio));
    }

    /// What the backend and the provider say of themselves.
    fn backend(&mut self, call: &Call) {
        if let Some(timings) = &call.timings {
            self.seconds(key::BACKEND_QUEUE, timings.queue);
            self.seconds(key::BACKEND_LOAD, timings.load);
            self.seconds(key::BACKEND_PREFILL, timings.prefill);
            self.seconds(key::BACKEND_DECODE, timings.decode);
            self.seconds(key::BACKEND_TOTAL, timings.total);
        }
        if let Some(quota) = &call.quota {
            self.count(key::QUOTA_REQUESTS, quota.requests.remaining);
            self.count(key::QUOTA_TOKENS, quota.tokens.remaining);
            self.count(key::QUOTA_INPUT, quota.input_tokens.remaining);
            self.count(key::QUOTA_OUTPUT, quota.output_tokens.remaining);
        }
    }

    fn content(&mut self, content: &Content) {
        let Content {
            input_messages,
            output_messages,
            system_instructions,
            tool_definitions,
            truncated,
            left_out,
        } = content;
        for (attribute, text) in [
            (key::INPUT_MESSAGES, input_messages),
            (key::OUTPUT_MESSAGES, output_messages),
            (key::SYSTEM_INSTRUCTIONS, system_instructions),
            (key::TOOL_DEFINITIONS, tool_definitions),
        ] {
            if let Some(text) = text {
                self.text(attribute, text);
            }
        }
        if *truncated {
            self.truth(key::CONTENT_TRUNCATED, true);
        }
        self.count(key::CONTENT_LEFT_OUT, Some(*left_out).filter(|parts| *parts > 0));
    }

    fn stalls(&mut self, record: &Record, stalls: &Stalls) {
        if stalls.is_empty() {
            return;
        }
        self.integer(key::STALLS, Some(stalls.count));
        self.seconds(key::STALLED, Some(stalls.total));
        for stall in &stalls.first {
            let word = |text: &str| Value::StringValue(text.to_owned());
            let mut attributes = vec![
                attribute(key::AWAITED, word(stall.awaited.as_str())),
                attribute(key::SILENCE, word(stall.silence.as_str())),
            ];
            let lasted = stall.lasted.map(|time| Value::DoubleValue(time.as_secs_f64()));
            attributes.extend(lasted.map(|lasted| attribute(key::STALL_TIME, lasted)));
            self.event_with(&Event {
                time_unix_nano: time(record, stall.raised).unix_nanos(),
                name: key::STALL_EVENT.to_owned(),
                attributes,
                ..Event::default()
            });
        }
    }

    fn measured(&mut self, record: &Record, call: &Call) {
        let points = &record.points;
        for (attribute, point) in [
            (key::TIME_TO_HEAD, points.head),
            (key::TIME_TO_BYTE, points.byte),
            (key::TIME_TO_EVENT, points.event),
            (key::TIME_TO_TOKEN, points.token),
            (key::TIME_TO_VISIBLE, points.visible),
        ] {
            self.seconds(attribute, point.map(|at| at.since(points.accept)));
        }
        for (stage, length) in record.stages.iter() {
            self.seconds(of_stage(stage), Some(length));
        }
        self.number(key::OUTPUT_RATE, call.rates.output);
        self.number(key::TOTAL_RATE, call.rates.total);
        if let Some(tokenizer) = &call.tokenizer {
            self.text(key::TOKENIZER, tokenizer.as_str());
        }
        if let Some(output) = &call.output {
            self.count(key::COUNTED, Some(output.counted));
            self.count(key::STANDARD, Some(output.standard));
            if let Some(source) = output.source {
                self.text(key::TOKEN_SOURCE, source.as_str());
            }
        }
        self.text(key::COMPLETE, call.complete.as_str());
        self.stalls(record, &call.stalls);
        self.integer(key::QUEUE_DEPTH, Some(call.queue_depth));
        if let Some(warm) = call.warm {
            self.text(key::WARM, warm.as_str());
        }
        self.seconds(key::BLOCKED, Some(record.blocked).filter(|time| !time.is_zero()));
        for (objective, verdict) in &call.verdicts {
            let start = key::VERDICT.key.trim_end_matches('*');
            self.text_under(&[start, objective.as_str()], verdict.as_str());
        }
    }
}

/// An attribute of an event.
fn attribute(attribute: Attribute, value: Value) -> KeyValue {
    KeyValue {
        key: attribute.key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

/// Whether the exchange failed as the client's request sees it: a 4xx answer is the client's own doing, but for this
/// proxy's 429, and so is leaving early.
pub fn failed_for_the_client(record: &Record) -> bool {
    let refused = record.http.status.is_some_and(|status| (400..500).contains(&status));
    let asked_amiss = refused && record.fault != ErrorSource::Proxy;
    record.error_type.is_some() && !asked_amiss && record.outcome != Outcome::Cancelled
}

/// In parts.
fn client_name(record: &Record) -> [&str; 3] {
    let Some(call) = &record.call else {
        return [method(&record.http.method), "", ""];
    };
    let operation = call.series.operation.as_str();
    match &call.request.model {
        Some(model) => [operation, " ", model.as_str()],
        None => [operation, "", ""],
    }
}

fn what_failed(record: &Record, failed: bool) -> Option<&str> {
    let error = record.error_type.as_ref().filter(|_| failed);
    error.map(Name::as_str)
}

fn time(record: &Record, at: MonotonicInstant) -> WallTime {
    record.wall + at.since(record.points.accept)
}

fn end_time(record: &Record) -> WallTime {
    time(record, record.points.end.unwrap_or(record.points.accept))
}

/// The clock points that occurred, in their order in time.
fn events(record: &Record) -> impl Iterator<Item = (&'static str, MonotonicInstant)> {
    let points = &record.points;
    let [admit, sent, uploaded, head, byte, event, token, visible, last] = key::EVENTS;
    let mut events = [
        (admit, points.admit),
        (sent, points.sent),
        (uploaded, points.uploaded),
        (head, points.head),
        (byte, points.byte),
        (event, points.event),
        (token, points.token),
        (visible, points.visible),
        (last, points.last),
    ];
    events.sort_by_key(|(_, at)| *at);
    events.into_iter().filter_map(|(name, at)| Some((name, at?)))
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::trace::v1::{Span, Status};

    use std::time::Duration;

    use super::*;
    use crate::catalog;
    use crate::catalog::attributes::Values;
    use crate::testing;
    use tokengauge_types::event::RejectReason;

    fn find(span: &Span, key: &str) -> Option<String> {
        let mut found = span.attributes.iter().filter(|kv| kv.key == key);
        let first = found.next();
        assert!(found.next().is_none(), "{key} stands twice");
        first.map(shown)
    }

    fn shown(kv: &KeyValue) -> String {
        value(kv.value.as_ref().unwrap())
    }

    fn value(of: &AnyValue) -> String {
        match of.value.as_ref().unwrap() {
            Value::StringValue(text) => text.clone(),
            Value::BoolValue(truth) => truth.to_string(),
            Value::IntValue(number) => number.to_string(),
            Value::DoubleValue(number) => number.to_string(),
            Value::ArrayValue(values) => {
                let all: Vec<_> = values.values.iter().map(value).collect();
                format!("{all:?}")
            }
            other @ (Value::KvlistValue(_)
            | Value::BytesValue(_)
            | Value::StringValueStrindex(_)) => {
                panic!("{other:?} is of a kind that is not written")
            }
        }
    }

    fn spans_of(record: &Record, style: &SpanLimits, kept: SamplingDecision) -> Vec<Span> {
        let spans = encode_spans(record, style, kept);
        assert_eq!(spans.len(), span_count(record));
        spans.iter().map(EncodedSpan::decode).collect()
    }

    fn of(record: &Record) -> [Span; 2] {
        spans_of(record, &SpanLimits::new(None), SamplingDecision::default()).try_into().unwrap()
    }

    fn failed(message: &str) -> Option<Status> {
        Some(Status { message: message.to_owned(), code: 2 })
    }

    fn written(span: &Span) -> Vec<String> {
        let millis = |nanos: u64| (nanos - 1_800_000_000_000_000_000) / 1_000_000;
        let kind = ["", "", "Server", "Client"][usize::try_from(span.kind).unwrap()];
        let status = span.status.as_ref().unwrap();
        let mut lines = vec![format!(
            "{kind} {:?} {}..{} parent {} flags {:x} status {}",
            span.name,
            millis(span.start_time_unix_nano),
            millis(span.end_time_unix_nano),
            String::from_utf8_lossy(&span.parent_span_id),
            span.flags,
            status.code,
        )];
        lines.extend(
            span.events
                .iter()
                .map(|event| format!("@{} {}", millis(event.time_unix_nano), event.name)),
        );
        lines.extend(span.attributes.iter().map(|kv| format!("{}={}", kv.key, shown(kv))));
        lines
    }

    const SERVER: &[&str] = &[
        "Server \"POST\" 0..2500 parent parent00 flags 301 status 0",
        "http.request.method=POST",
        "http.response.status_code=200",
        "tokengauge.route=default",
        "tokengauge.vantage=outbound",
        "tokengauge.outcome=ok",
        "tokengauge.fault=none",
        "url.scheme=http",
        "url.path=/v1/chat/completions",
        "network.protocol.version=1.1",
        "user_agent.original=OpenAI/Python 2.8.1",
        "client.address=192.0.2.7",
        "server.address=gateway.example.com",
        "http.request.body.size=812",
        "http.response.body.size=20480",
        "tokengauge.queue.edge=0.075",
        "tokengauge.network.rtt=0.004",
        "tokengauge.network.rtt_least=0.003",
        "tokengauge.network.retransmits=0",
        "tokengauge.sampling.reason=always_on",
    ];

    const CLIENT: &[&str] = &[
        "Client \"chat gpt-4o\" 0..2500 parent server00 flags 101 status 0",
        "@0 admit",
        "@20 sent",
        "@21 uploaded",
        "@300 head",
        "@301 byte",
        "@302 event",
        "@400 token",
        "@600 visible",
        "@2400 last",
        "http.request.method=POST",
        "http.response.status_code=200",
        "tokengauge.route=default",
        "tokengauge.vantage=outbound",
        "tokengauge.outcome=ok",
        "tokengauge.fault=none",
        "server.address=api.example.com",
        "server.port=443",
        "tokengauge.connection.reused=false",
        "tokengauge.connect.dns=0.002",
        "tokengauge.connect.tcp=0.008",
        "tokengauge.connect.tls=0.009",
        "tokengauge.network.rtt=0.008",
        "tokengauge.network.retransmits=2",
        "gen_ai.operation.name=chat",
        "gen_ai.provider.name=openai",
        "gen_ai.request.model=gpt-4o",
        "gen_ai.request.stream=true",
        "gen_ai.request.max_tokens=256",
        "gen_ai.request.temperature=0.5",
        "gen_ai.response.id=chatcmpl-1",
        "gen_ai.response.model=gpt-4o-2024-08-06",
        "gen_ai.response.finish_reasons=[\"stop\"]",
        "openai.response.service_tier=default",
        "openai.response.system_fingerprint=fp_1",
        "gen_ai.response.time_to_first_chunk=0.282",
        "gen_ai.usage.input_tokens=120",
        "gen_ai.usage.output_tokens=101",
        "gen_ai.usage.cache_read.input_tokens=64",
        "gen_ai.usage.reasoning.output_tokens=20",
        "tokengauge.cost.amount=0.0125",
        "tokengauge.cost.currency=USD",
        "tokengauge.cost.source=reported",
        "tokengauge.backend.queue=0.03",
        "tokengauge.backend.prefill=0.12",
        "tokengauge.quota.tokens.remaining=29000",
        "tokengauge.time_to.head=0.3",
        "tokengauge.time_to.byte=0.301",
        "tokengauge.time_to.event=0.302",
        "tokengauge.time_to.token=0.4",
        "tokengauge.time_to.visible=0.6",
        "tokengauge.stage.admission=0",
        "tokengauge.stage.connect=0.02",
        "tokengauge.stage.upload=0.001",
        "tokengauge.stage.headers=0.279",
        "tokengauge.stage.first_byte=0.001",
        "tokengauge.stage.first_event=0.001",
        "tokengauge.stage.first_token=0.098",
        "tokengauge.stage.thinking=0.2",
        "tokengauge.stage.decode=1.8",
        "tokengauge.stage.tail=0.1",
        "tokengauge.output_rate=50",
        "tokengauge.total_rate=40.4",
        "tokengauge.tokenizer=o200k_base",
        "tokengauge.output_tokens.counted=101",
        "tokengauge.output_tokens.standard=101",
        "tokengauge.token.source=reported",
        "tokengauge.complete=true",
        "tokengauge.queue.depth=3",
        "tokengauge.warm=warming",
        "tokengauge.slo.ttft=good",
        "tokengauge.sampling.reason=always_on",
    ];

    #[test]
    fn a_stall_is_an_event_at_the_instant_at_which_patience_ended() {
        let mut record = testing::streamed();
        let stall = tokengauge_measure::timing::Stall {
            awaited: tokengauge_measure::timing::Awaited::NextToken,
            silence: tokengauge_measure::timing::Silence::Pinging,
            begun: record.points.accept + Duration::from_secs(1),
            raised: record.points.accept + Duration::from_secs(3),
            lasted: Some(Duration::from_millis(2_500)),
        };
        record.call.as_mut().unwrap().stalls =
            Stalls { count: 20, total: Duration::from_secs(50), first: vec![stall] };
        let spans = encode_spans(&record, &SpanLimits::new(None), SamplingDecision::default());
        let client = spans[1].decode();
        assert_eq!(find(&client, "tokengauge.stalls").unwrap(), "20");
        assert_eq!(find(&client, "tokengauge.stalled").unwrap(), "50");
        let event = client.events.iter().find(|event| event.name == "stall");
        let event = event.unwrap();
        let raised = record.wall + Duration::from_secs(3);
        assert_eq!(event.time_unix_nano, raised.unix_nanos());
        let facts: Vec<_> = event.attributes.iter().map(|it| it.key.as_str()).collect();
        assert_eq!(facts, ["tokengauge.awaited", "tokengauge.silence", "tokengauge.stall.time"]);
    }

    #[test]
    fn a_streamed_chat_is_written_in_full() {
        let [server, client] = of(&testing::streamed());
        assert_eq!(written(&server), SERVER);
        assert_eq!(written(&client), CLIENT);
        assert_eq!([&server.trace_state, &client.trace_state], ["vendor=1"; 2]);
        assert_eq!(client.trace_id, server.trace_id);
        assert_eq!(client.parent_span_id, server.span_id);
    }

    #[test]
    fn an_error_status_fails_the_client_span_and_not_the_server_span() {
        let [server, client] = of(&testing::refused());
        assert_eq!(client.status, failed("rate_limit_exceeded"));
        assert_eq!(find(&client, "error.type").unwrap(), "rate_limit_exceeded");
        assert_eq!(find(&client, "gen_ai.operation.name").unwrap(), "embeddings");
        assert!(find(&client, "gen_ai.usage.output_tokens").is_none());
        assert!(find(&client, "gen_ai.request.stream").is_none());
        assert_eq!(
            (server.status.clone(), find(&server, "error.type")),
            (Some(Status::default()), None)
        );
    }

    #[test]
    fn a_stream_that_breaks_off_fails_both_spans() {
        let mut record = testing::streamed();
        record.outcome = Outcome::Truncated;
        record.error_type = testing::name("truncated");
        for span in of(&record) {
            assert_eq!(span.status, failed("truncated"));
            assert_eq!(find(&span, "error.type").unwrap(), "truncated");
        }
    }

    #[test]
    fn plain_http_has_an_http_client_span_only() {
        let [server, client] = of(&testing::plain());
        assert_eq!((server.name.as_str(), client.name.as_str()), ("GET", "GET"));
        assert!(client.attributes.iter().all(|kv| !kv.key.starts_with("gen_ai.")));
        assert_eq!(find(&client, "server.address").unwrap(), "api.example.com");
    }

    #[test]
    fn a_request_that_was_refused_here_has_no_client_span() {
        let mut record = testing::plain();
        record.ending = Ending::Rejected(RejectReason::NoRoute);
        record.outcome = Outcome::Rejected;
        assert_eq!(spans_of(&record, &SpanLimits::new(None), SamplingDecision::default()).len(), 1);
    }

    #[test]
    fn both_spans_say_why_the_trace_is_kept() {
        let said = |reason, against_parent| {
            let kept = SamplingDecision { reason, against_parent };
            let [server, client] =
                spans_of(&testing::streamed(), &SpanLimits::new(None), kept).try_into().unwrap();
            let said = |span| {
                ["reason", "ratio", "against_parent"]
                    .map(|word| find(span, &format!("tokengauge.sampling.{word}")))
            };
            assert_eq!(said(&server), said(&client));
            said(&server)
        };
        let words =
            |words: [&str; 3]| words.map(|word| (!word.is_empty()).then(|| word.to_owned()));
        assert_eq!(said(SamplingReason::Parent, false), words(["parent", "", ""]));
        assert_eq!(said(SamplingReason::Ratio(0.25), false), words(["ratio", "0.25", ""]));
        assert_eq!(said(SamplingReason::Error, true), words(["error", "", "true"]));
    }

    #[test]
    fn without_a_caller_the_server_span_is_a_root() {
        let mut record = testing::plain();
        record.trace.parent = None;
        let [server, _] = of(&record);
        assert_eq!((server.parent_span_id, server.flags), (Vec::new(), 0x101));
    }

    #[test]
    fn long_values_are_cut_at_the_configured_length() {
        let mut record = testing::streamed();
        record.call.as_mut().unwrap().response_id = testing::name("ééééé");
        let spans = spans_of(&record, &SpanLimits::new(Some(3)), SamplingDecision::default());
        assert_eq!(find(&spans[1], "gen_ai.response.id").unwrap(), "ééé");
        assert_eq!(find(&spans[1], "gen_ai.response.finish_reasons").unwrap(), "[\"sto\"]");
    }

    #[test]
    fn only_registered_attributes_with_registered_values_stand_on_spans() {
        let registered = |key: &str| {
            catalog::spans::ALL.iter().find(|known| {
                known.key == key
                    || known.key.strip_suffix('*').is_some_and(|start| key.starts_with(start))
            })
        };
        for record in [testing::streamed(), testing::refused(), testing::plain()] {
            let kept =
                SamplingDecision { reason: SamplingReason::Ratio(0.5), against_parent: true };
            for kv in spans_of(&record, &SpanLimits::new(None), kept)
                .iter()
                .flat_map(|span| &span.attributes)
            {
                let known =
                    registered(&kv.key).unwrap_or_else(|| panic!("{} is not registered", kv.key));
                if let Values::Closed(values) = known.values {
                    let value = shown(kv);
                    assert!(values.contains(&value.as_str()), "{}={value}", kv.key);
                }
            }
        }
    }

    #[test]
    fn a_host_loses_its_port_only() {
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
