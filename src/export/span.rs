//! The spans of one finished exchange, written with explicit times when it ends, whatever way it ends.
//!
//! A SERVER span for the client's request (accept … end) and, where anything was tried upstream, a CLIENT child
//! (admit … end) that follows the standard's inference span for calls of a known API and its HTTP client span for
//! everything else. Wall-clock times are one reading at accept plus monotonic distances. Both ids were made at accept.

use std::time::{Duration, SystemTime};

use opentelemetry::trace::{
    Event, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::clock::Moment;
use crate::export::names::{Attribute, SCOPE, spans as key};
use crate::label::Name;
use crate::measure::Stage;
use crate::record::{Call, Outcome, Record};
use crate::wire::Ending;

/// What every span carries and no record knows.
#[derive(Clone, Debug)]
pub struct Style {
    scope: InstrumentationScope,
    /// The longest text of an attribute, in characters.
    longest_value: Option<usize>,
}

impl Style {
    pub fn new(longest_value: Option<usize>) -> Self {
        Self {
            scope: InstrumentationScope::builder(SCOPE)
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
            longest_value,
        }
    }
}

/// The SERVER span, and the CLIENT span unless this proxy refused the request. `reason`: why the trace is kept although
/// the sampler had not chosen it.
pub fn spans(record: &Record, style: &Style, reason: Option<&'static str>) -> Vec<SpanData> {
    let mut spans = vec![server(record, style)];
    if !matches!(record.ending, Ending::Rejected(_)) {
        spans.push(client(record, style));
    }
    for span in &mut spans {
        span.attributes
            .extend(reason.map(|reason| text(key::SAMPLING_REASON, reason)));
        if let Some(longest) = style.longest_value {
            span.attributes
                .iter_mut()
                .for_each(|attribute| shorten(attribute, longest));
        }
    }
    spans
}

fn server(record: &Record, style: &Style) -> SpanData {
    let failed = failed_for_the_client(record);
    let parent = record.trace.parent;
    let mut attributes = Attributes::default();
    attributes.http(record, failed);
    let http = &record.http;
    attributes.text(key::SCHEME, http.scheme.as_str());
    attributes.name(key::PATH, Some(&http.path));
    attributes.text(key::PROTOCOL_VERSION, protocol_version(http.version));
    attributes.name(
        key::USER_AGENT,
        http.request_headers
            .get("user-agent")
            .and_then(Name::new)
            .as_ref(),
    );
    if let Some(client) = http.client {
        attributes.text(key::CLIENT_ADDRESS, client.to_string());
    }
    if let Some(host) = &http.host {
        attributes.text(key::SERVER_ADDRESS, without_port(host.as_str()).to_owned());
    }
    attributes.count(key::REQUEST_SIZE, Some(http.request_bytes));
    attributes.count(key::RESPONSE_SIZE, Some(http.response_bytes));
    if http.own {
        attributes.put(key::OWN_RESPONSE, true);
    }
    SpanData {
        span_context: context(record, record.trace.server_span),
        parent_span_id: parent.map_or(SpanId::INVALID, SpanId::from_bytes),
        parent_span_is_remote: parent.is_some(),
        span_kind: SpanKind::Server,
        name: method(&http.method).into(),
        start_time: time(record, record.points.accept),
        end_time: end_time(record),
        attributes: attributes.0,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: status(record, failed),
        instrumentation_scope: style.scope.clone(),
    }
}

fn client(record: &Record, style: &Style) -> SpanData {
    let failed = record.error_type.is_some();
    let mut attributes = Attributes::default();
    attributes.http(record, failed);
    attributes.text(key::SERVER_ADDRESS, record.route.server_address.shared());
    attributes.put(key::SERVER_PORT, i64::from(record.route.server_port));
    if let Some(connected) = &record.connected {
        attributes.put(key::CONNECTION_REUSED, connected.reused);
    }
    if let Some(call) = &record.call {
        attributes.request(call);
        attributes.response(record, call);
        attributes.usage(call);
        attributes.measured(record, call);
    }
    let start = record.points.admit.unwrap_or(record.points.accept);
    SpanData {
        span_context: context(record, record.trace.client_span),
        parent_span_id: SpanId::from_bytes(record.trace.server_span),
        parent_span_is_remote: false,
        span_kind: SpanKind::Client,
        name: client_name(record).into(),
        start_time: time(record, start),
        end_time: end_time(record).max(time(record, start)),
        attributes: attributes.0,
        dropped_attributes_count: 0,
        events: events(record),
        links: SpanLinks::default(),
        status: status(record, failed),
        instrumentation_scope: style.scope.clone(),
    }
}

/// Attributes in the order in which they are written. What is unknown is left out.
#[derive(Default)]
struct Attributes(Vec<KeyValue>);

impl Attributes {
    fn put(&mut self, attribute: Attribute, value: impl Into<Value>) {
        self.0.push(KeyValue::new(attribute.key, value));
    }

    fn text(&mut self, attribute: Attribute, value: impl Into<StringValue>) {
        self.0.push(text(attribute, value));
    }

    fn name(&mut self, attribute: Attribute, value: Option<&Name>) {
        self.0
            .extend(value.map(|name| text(attribute, name.as_str().to_owned())));
    }

    fn number(&mut self, attribute: Attribute, value: Option<impl Into<Value>>) {
        self.0
            .extend(value.map(|value| KeyValue::new(attribute.key, value)));
    }

    fn count(&mut self, attribute: Attribute, value: Option<u64>) {
        self.number(
            attribute,
            value.map(|count| i64::try_from(count).unwrap_or(i64::MAX)),
        );
    }

    fn seconds(&mut self, attribute: Attribute, value: Option<Duration>) {
        self.number(attribute, value.map(|time| time.as_secs_f64()));
    }

    /// What both spans say.
    fn http(&mut self, record: &Record, failed: bool) {
        self.text(key::METHOD, method(&record.http.method));
        self.number(key::STATUS, record.http.status.map(i64::from));
        if failed {
            self.name(key::ERROR_TYPE, record.error_type.as_ref());
        }
        self.text(key::ROUTE, record.route.name.shared());
        self.text(key::VANTAGE, record.route.vantage.as_str());
        self.text(key::OUTCOME, record.outcome.as_str());
        self.text(key::FAULT, record.fault.as_str());
    }

    fn request(&mut self, call: &Call) {
        let request = &call.request;
        self.text(key::OPERATION, call.series.operation.as_str());
        self.text(key::PROVIDER, call.series.provider.shared());
        self.name(key::REQUEST_MODEL, request.model.as_ref());
        if call.streamed {
            self.put(key::REQUEST_STREAM, true);
        }
        self.number(key::MAX_TOKENS, request.max_tokens);
        self.number(key::TEMPERATURE, request.temperature);
        self.number(key::TOP_P, request.top_p);
        self.number(key::TOP_K, request.top_k);
        self.number(key::FREQUENCY_PENALTY, request.frequency_penalty);
        self.number(key::PRESENCE_PENALTY, request.presence_penalty);
        self.number(key::SEED, request.seed);
        self.number(key::CHOICE_COUNT, request.choices);
        self.name(key::REASONING_LEVEL, request.reasoning_level.as_ref());
        if let Some(format) = &request.encoding_format {
            self.put(key::ENCODING_FORMATS, array(std::slice::from_ref(format)));
        }
        self.number(key::DIMENSIONS, request.dimensions);
        if let Some(output) = request.output_type {
            self.text(key::OUTPUT_TYPE, output);
        }
        self.name(key::REQUEST_TIER, request.service_tier.as_ref());
    }

    fn response(&mut self, record: &Record, call: &Call) {
        self.name(key::RESPONSE_ID, call.response_id.as_ref());
        self.name(key::RESPONSE_MODEL, call.response_model.as_ref());
        if !call.finish_reasons.is_empty() {
            self.put(key::FINISH_REASONS, array(&call.finish_reasons));
        }
        self.name(key::RESPONSE_TIER, call.service_tier.as_ref());
        self.name(key::FINGERPRINT, call.system_fingerprint.as_ref());
        let (event, sent) = (record.points.event, record.points.sent);
        let first_chunk = event.zip(sent).map(|(event, sent)| event.since(sent));
        self.seconds(key::FIRST_CHUNK, first_chunk.filter(|_| call.streamed));
    }

    fn usage(&mut self, call: &Call) {
        let Some(usage) = &call.usage else { return };
        self.count(key::INPUT_TOKENS, usage.input);
        self.count(key::OUTPUT_TOKENS, usage.output);
        self.count(key::CACHE_READ, usage.cache_read);
        self.count(key::CACHE_WRITE, usage.cache_write);
        self.count(key::REASONING_TOKENS, usage.reasoning);
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
        if let Some(output) = &call.output {
            self.count(key::COUNTED, Some(output.counted));
            self.count(key::STANDARD, Some(output.standard));
            if let Some(source) = output.source {
                self.text(key::TOKEN_SOURCE, source.as_str());
            }
        }
        self.text(key::COMPLETE, call.complete.as_str());
        self.put(key::QUEUE_DEPTH, i64::from(call.queue_depth));
        self.seconds(
            key::BLOCKED,
            Some(record.blocked).filter(|time| !time.is_zero()),
        );
        for (objective, verdict) in &call.verdicts {
            let name = key::VERDICT.key.trim_end_matches('*');
            self.0.push(KeyValue::new(
                format!("{name}{objective}"),
                verdict.as_str(),
            ));
        }
    }
}

/// The method as a label and span name: one of those the standard knows, else `_OTHER`.
pub fn method(method: &http::Method) -> &'static str {
    const KNOWN: [&str; 9] = [
        "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE",
    ];
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

/// Whether the exchange failed as the client's request sees it: a 4xx answer is the client's own doing, and so is
/// leaving early.
pub fn failed_for_the_client(record: &Record) -> bool {
    let refused = record
        .http
        .status
        .is_some_and(|status| (400..500).contains(&status));
    record.error_type.is_some() && !refused && record.outcome != Outcome::Cancelled
}

fn client_name(record: &Record) -> String {
    let Some(call) = &record.call else {
        return method(&record.http.method).to_owned();
    };
    let operation = call.series.operation.as_str();
    match &call.request.model {
        Some(model) => format!("{operation} {model}"),
        None => operation.to_owned(),
    }
}

fn status(record: &Record, failed: bool) -> Status {
    match &record.error_type {
        Some(what) if failed => Status::error(what.as_str().to_owned()),
        Some(_) | None => Status::Unset,
    }
}

fn context(record: &Record, span: [u8; 8]) -> SpanContext {
    SpanContext::new(
        TraceId::from_bytes(record.trace.trace_id),
        SpanId::from_bytes(span),
        TraceFlags::SAMPLED,
        false,
        TraceState::default(),
    )
}

fn time(record: &Record, at: Moment) -> SystemTime {
    (record.wall + at.since(record.points.accept)).system_time()
}

fn end_time(record: &Record) -> SystemTime {
    time(record, record.points.end.unwrap_or(record.points.accept))
}

/// The clock points that occurred, in their order in time.
fn events(record: &Record) -> SpanEvents {
    let points = &record.points;
    let mut occurred: Vec<(&'static str, Moment)> = key::EVENTS
        .iter()
        .zip([
            points.admit,
            points.sent,
            points.uploaded,
            points.head,
            points.byte,
            points.event,
            points.token,
            points.visible,
            points.last,
        ])
        .filter_map(|(name, at)| Some((*name, at?)))
        .collect();
    occurred.sort_by_key(|(_, at)| *at);
    let mut events = SpanEvents::default();
    events.events = occurred
        .into_iter()
        .map(|(name, at)| Event::new(name, time(record, at), Vec::new(), 0))
        .collect();
    events
}

const fn of_stage(stage: Stage) -> Attribute {
    match stage {
        Stage::Admission => key::STAGE_ADMISSION,
        Stage::Connect => key::STAGE_CONNECT,
        Stage::Upload => key::STAGE_UPLOAD,
        Stage::Headers => key::STAGE_HEADERS,
        Stage::FirstByte => key::STAGE_FIRST_BYTE,
        Stage::FirstEvent => key::STAGE_FIRST_EVENT,
        Stage::FirstToken => key::STAGE_FIRST_TOKEN,
        Stage::Thinking => key::STAGE_THINKING,
        Stage::Decode => key::STAGE_DECODE,
        Stage::Tail => key::STAGE_TAIL,
    }
}

/// The host of a `Host` header; an IPv6 address keeps its brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !name.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => name,
        Some(_) | None => host,
    }
}

fn text(attribute: Attribute, value: impl Into<StringValue>) -> KeyValue {
    KeyValue::new(attribute.key, value.into())
}

fn array(names: &[Name]) -> Value {
    let words = names
        .iter()
        .map(|name| StringValue::from(name.as_str().to_owned()));
    Value::Array(Array::String(words.collect()))
}

fn shorten(attribute: &mut KeyValue, longest: usize) {
    let cut = |text: &StringValue| -> Option<String> {
        let (end, _) = text.as_str().char_indices().nth(longest)?;
        Some(text.as_str().get(..end)?.to_owned())
    };
    let texts = match &mut attribute.value {
        Value::String(value) => std::slice::from_mut(value),
        Value::Array(Array::String(values)) => values.as_mut_slice(),
        Value::Bool(_) | Value::I64(_) | Value::F64(_) | Value::Array(_) | _ => return,
    };
    for value in texts {
        if let Some(shorter) = cut(value) {
            *value = shorter.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::names;
    use crate::export::names::attributes::Values;
    use crate::export::testing;
    use crate::wire::Refusal;

    fn find<'a>(span: &'a SpanData, key: &str) -> Option<&'a Value> {
        let mut found = span.attributes.iter().filter(|kv| kv.key.as_str() == key);
        let first = found.next();
        assert!(found.next().is_none(), "{key} stands twice");
        first.map(|kv| &kv.value)
    }

    fn of(record: &Record) -> [SpanData; 2] {
        spans(record, &Style::new(None), None).try_into().unwrap()
    }

    fn written(span: &SpanData) -> Vec<String> {
        let seconds = |time: SystemTime| {
            let wall = std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
            time.duration_since(wall).unwrap().as_millis()
        };
        let mut lines = vec![format!(
            "{:?} {:?} {}..{} parent {} remote {} {:?}",
            span.span_kind,
            span.name,
            seconds(span.start_time),
            seconds(span.end_time),
            span.parent_span_id,
            span.parent_span_is_remote,
            span.status
        )];
        lines.extend(
            span.events
                .iter()
                .map(|event| format!("@{} {}", seconds(event.timestamp), event.name)),
        );
        lines.extend(
            span.attributes
                .iter()
                .map(|kv| format!("{}={}", kv.key, kv.value)),
        );
        lines
    }

    const SERVER: &[&str] = &[
        "Server \"POST\" 0..2500 parent 706172656e743030 remote true Unset",
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
    ];

    const CLIENT: &[&str] = &[
        "Client \"chat gpt-4o\" 0..2500 parent 7365727665723030 remote false Unset",
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
        "tokengauge.output_tokens.counted=101",
        "tokengauge.output_tokens.standard=101",
        "tokengauge.token.source=reported",
        "tokengauge.complete=true",
        "tokengauge.queue.depth=3",
        "tokengauge.slo.ttft=good",
    ];

    #[test]
    fn a_streamed_chat_is_written_in_full() {
        let [server, client] = of(&testing::streamed());
        assert_eq!(written(&server), SERVER);
        assert_eq!(written(&client), CLIENT);
        assert_eq!(
            client.span_context.trace_id(),
            server.span_context.trace_id()
        );
        assert_eq!(client.parent_span_id, server.span_context.span_id());
    }

    #[test]
    fn an_error_status_fails_the_client_span_and_not_the_server_span() {
        let [server, client] = of(&testing::refused());
        assert_eq!(client.status, Status::error("rate_limit_exceeded"));
        assert_eq!(
            find(&client, "error.type").unwrap().as_str(),
            "rate_limit_exceeded"
        );
        assert_eq!(
            find(&client, "gen_ai.operation.name").unwrap().as_str(),
            "embeddings"
        );
        assert!(find(&client, "gen_ai.usage.output_tokens").is_none());
        assert!(find(&client, "gen_ai.request.stream").is_none());
        assert_eq!(
            (server.status.clone(), find(&server, "error.type")),
            (Status::Unset, None)
        );
    }

    #[test]
    fn a_stream_that_breaks_off_fails_both_spans() {
        let mut record = testing::streamed();
        record.outcome = Outcome::Truncated;
        record.error_type = testing::name("truncated");
        for span in of(&record) {
            assert_eq!(span.status, Status::error("truncated"));
            assert_eq!(find(&span, "error.type").unwrap().as_str(), "truncated");
        }
    }

    #[test]
    fn plain_http_has_an_http_client_span_only() {
        let [server, client] = of(&testing::plain());
        assert_eq!((&*server.name, &*client.name), ("GET", "GET"));
        assert!(
            client
                .attributes
                .iter()
                .all(|kv| !kv.key.as_str().starts_with("gen_ai."))
        );
        assert_eq!(
            find(&client, "server.address").unwrap().as_str(),
            "api.example.com"
        );
    }

    #[test]
    fn a_request_that_was_refused_here_has_no_client_span() {
        let mut record = testing::plain();
        record.ending = Ending::Rejected(Refusal::NoRoute);
        record.outcome = Outcome::Rejected;
        let spans = spans(&record, &Style::new(None), Some("error"));
        assert_eq!(spans.len(), 1);
        assert_eq!(
            find(&spans[0], "tokengauge.sampling.reason")
                .unwrap()
                .as_str(),
            "error"
        );
    }

    #[test]
    fn without_a_caller_the_server_span_is_a_root() {
        let mut record = testing::plain();
        record.trace.parent = None;
        let [server, _] = of(&record);
        assert_eq!(
            (server.parent_span_id, server.parent_span_is_remote),
            (SpanId::INVALID, false)
        );
    }

    #[test]
    fn long_values_are_cut_at_the_configured_length() {
        let mut record = testing::streamed();
        record.call.as_mut().unwrap().response_id = testing::name("ééééé");
        let spans = spans(&record, &Style::new(Some(3)), None);
        assert_eq!(
            find(&spans[1], "gen_ai.response.id").unwrap().as_str(),
            "ééé"
        );
        assert_eq!(
            find(&spans[1], "gen_ai.response.finish_reasons")
                .unwrap()
                .to_string(),
            "[\"sto\"]"
        );
    }

    #[test]
    fn only_registered_attributes_with_registered_values_stand_on_spans() {
        let registered = |key: &str| {
            names::spans::ALL.iter().find(|known| {
                known.key == key
                    || known
                        .key
                        .strip_suffix('*')
                        .is_some_and(|start| key.starts_with(start))
            })
        };
        for record in [testing::streamed(), testing::refused(), testing::plain()] {
            for kv in spans(&record, &Style::new(None), Some("error"))
                .iter()
                .flat_map(|span| &span.attributes)
            {
                let known = registered(kv.key.as_str())
                    .unwrap_or_else(|| panic!("{} is not registered", kv.key));
                if let Values::Closed(values) = known.values {
                    let value = kv.value.to_string();
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
