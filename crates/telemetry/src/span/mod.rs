//! Writes the spans of one finished request. The spans are encoded with explicit times after the request has ended.
//!
//! The SERVER span covers the client's request, from accept to end. If the proxy admitted the request, the SERVER span
//! has a CLIENT span as its child, from admission to end. For a call of a known API, the CLIENT span is the inference
//! span of the GenAI semantic conventions. For other requests, it is the conventions' HTTP client span. Times are the
//! wall-clock time at accept plus monotonic durations. The ids of both spans were generated at accept.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::Event;
use tokengauge_measure::record::{Call, McpOperation, Record};
use tokengauge_measure::timing::Stalls;
use tokengauge_types::clock::{MonotonicInstant, WallTime};
use tokengauge_types::event::{Ending, ErrorSource};
use tokengauge_types::label::Name;

use crate::catalog::{Attribute, spans as key};
use crate::sampling::SamplingDecision;

pub(crate) mod attributes;
pub(crate) mod encoder;

use self::attributes::AttributeWriter;
pub use self::attributes::{method, protocol_version};
pub use self::encoder::EncodedSpan;
use self::encoder::{SpanEncoder, SpanHeader};

/// Values of `SPAN_KIND_SERVER` and `SPAN_KIND_CLIENT` in OTLP.
const SERVER: u64 = 2;
const CLIENT: u64 = 3;

/// Encodes the SERVER span. Also encodes the CLIENT span if the proxy admitted the request and did not reject it. Both
/// spans record why the trace is kept. `max_value_chars` is the maximum length of an attribute in characters.
pub fn encode_spans(
    record: &Record,
    max_value_chars: Option<usize>,
    decision: SamplingDecision,
) -> Vec<EncodedSpan> {
    let client = has_client(record).then(|| client(record, max_value_chars));
    let spans = [Some(server(record, max_value_chars)), client];
    let finish = |mut span: SpanEncoder| {
        attributes::sampling(&mut span, decision);
        span.finish()
    };
    spans.into_iter().flatten().map(finish).collect()
}

/// Returns the number of spans that [`encode_spans`] returns.
pub fn span_count(record: &Record) -> usize {
    1 + usize::from(has_client(record))
}

/// Returns the id of the span that describes the call. This is the CLIENT span, or the SERVER span if there is no
/// CLIENT span.
pub const fn innermost_span_id(record: &Record) -> [u8; 8] {
    if has_client(record) { record.trace.client_span } else { record.trace.server_span }
}

/// Returns whether the request failed from the client's point of view. An error that the client caused, such as an
/// early disconnect, does not count. A 4xx response of the upstream does not count, even if the upstream caused it (408
/// and 429), because OpenTelemetry's conventions reserve errors of SERVER spans for 5xx.
pub fn failed_for_the_client(record: &Record) -> bool {
    let is_4xx = record.http.status.is_some_and(|status| (400..500).contains(&status));
    record.error_type.is_some()
        && match record.error_source {
            ErrorSource::None | ErrorSource::Upstream => !is_4xx,
            ErrorSource::Client => false,
            ErrorSource::Proxy => true,
        }
}

/// Returns the wall-clock time at which the request ended.
pub fn end_time(record: &Record) -> WallTime {
    wall_time(record, record.timestamps.end.unwrap_or(record.timestamps.accept))
}

pub(crate) const fn has_client(record: &Record) -> bool {
    record.timestamps.admit.is_some() && !matches!(record.ending, Ending::Rejected(_))
}

fn server(record: &Record, max_value_chars: Option<usize>) -> SpanEncoder {
    let failed = failed_for_the_client(record);
    let header = SpanHeader {
        trace: record.trace.trace_id,
        span: record.trace.server_span,
        state: record.trace.state.as_deref(),
        parent: record.trace.parent,
        remote_parent: record.trace.parent.is_some(),
        kind: SERVER,
        start: record.wall,
        end: end_time(record),
        error: error_message(record, failed),
    };
    let name = [method(&record.http.method)];
    let mut span = SpanEncoder::new(&header, &name, max_value_chars);
    attributes::exchange(&mut span, record, failed);
    attributes::server(&mut span, record);
    if let Some(call) = record.call.as_ref().filter(|_| !has_client(record)) {
        attributes::verdicts(&mut span, call);
    }
    span
}

fn client(record: &Record, max_value_chars: Option<usize>) -> SpanEncoder {
    let failed = record.error_type.is_some();
    let operation = record.mcp.as_ref().and_then(|mcp| mcp.only_operation());
    let rpc_error = operation.and_then(McpOperation::client_error).filter(|_| !failed);
    let start = wall_time(record, record.timestamps.admit.unwrap_or(record.timestamps.accept));
    let header = SpanHeader {
        trace: record.trace.trace_id,
        span: record.trace.client_span,
        state: record.trace.state.as_deref(),
        parent: Some(record.trace.server_span),
        remote_parent: false,
        kind: CLIENT,
        start,
        end: end_time(record).max(start),
        error: error_message(record, failed).or(rpc_error.as_ref().map(Name::as_str)),
    };
    let mut span = SpanEncoder::new(&header, &client_name(record), max_value_chars);
    for (name, at) in events(record) {
        span.event(name, wall_time(record, at));
    }
    attributes::exchange(&mut span, record, failed);
    attributes::upstream(&mut span, record);
    if let Some(mcp) = &record.mcp {
        span.name(key::ERROR_TYPE, rpc_error.as_ref());
        attributes::mcp(&mut span, mcp);
    }
    if let Some(call) = &record.call {
        write_call(&mut span, record, call);
    }
    span
}

fn write_call(span: &mut SpanEncoder, record: &Record, call: &Call) {
    attributes::request(span, call);
    attributes::response(span, record, call);
    attributes::usage(span, call);
    attributes::cost(span, call);
    attributes::backend(span, call);
    attributes::timings(span, record, call);
    write_stalls(span, record, &call.stalls);
    attributes::conditions(span, record, call);
    attributes::verdicts(span, call);
    if let Some(content) = &call.content {
        for (attribute, text) in attributes::content_texts(content) {
            span.text(attribute, text);
        }
        attributes::stop_sequences(span, content);
        attributes::content_gaps(span, content);
    }
}

fn write_stalls(span: &mut SpanEncoder, record: &Record, stalls: &Stalls) {
    if stalls.is_empty() {
        return;
    }
    span.integer(key::STALL_COUNT, Some(stalls.count));
    span.seconds(key::STALL_TOTAL_DURATION, Some(stalls.total));
    for stall in &stalls.first {
        let text = |text: &str| Value::StringValue(text.to_owned());
        let mut attributes = vec![
            event_attribute(key::STALL_PHASE, text(stall.phase.as_str())),
            event_attribute(key::STALL_KIND, text(stall.kind.as_str())),
        ];
        let lasted = stall.lasted.map(|time| Value::DoubleValue(time.as_secs_f64()));
        attributes.extend(lasted.map(|lasted| event_attribute(key::STALL_DURATION, lasted)));
        span.event_with(&Event {
            time_unix_nano: wall_time(record, stall.raised).unix_nanos(),
            name: key::STALL_EVENT.to_owned(),
            attributes,
            ..Event::default()
        });
    }
}

fn event_attribute(attribute: Attribute, value: Value) -> KeyValue {
    KeyValue {
        key: attribute.key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

/// Returns the parts that form the name of the CLIENT span.
fn client_name(record: &Record) -> [&str; 3] {
    if let Some(operation) = record.mcp.as_ref().and_then(|mcp| mcp.only_operation())
        && let Some(method) = &operation.message.method
    {
        return match operation.tool().or(operation.prompt()) {
            Some(target) => [method.as_str(), " ", target.as_str()],
            None => [method.as_str(), "", ""],
        };
    }
    let Some(call) = &record.call else {
        return [method(&record.http.method), "", ""];
    };
    let operation = call.series.operation.as_str();
    match &call.request.model {
        Some(model) => [operation, " ", model.as_str()],
        None => [operation, "", ""],
    }
}

fn error_message(record: &Record, failed: bool) -> Option<&str> {
    let error = record.error_type.as_ref().filter(|_| failed);
    error.map(Name::as_str)
}

fn wall_time(record: &Record, at: MonotonicInstant) -> WallTime {
    record.wall + at.since(record.timestamps.accept)
}

/// Returns the timestamps that the request reached, in chronological order.
fn events(record: &Record) -> impl Iterator<Item = (&'static str, MonotonicInstant)> {
    let timestamps = &record.timestamps;
    let [admit, sent, uploaded, head, byte, event, token, visible, last] = key::EVENTS;
    let mut events = [
        (admit, timestamps.admit),
        (sent, timestamps.sent),
        (uploaded, timestamps.uploaded),
        (head, timestamps.head),
        (byte, timestamps.byte),
        (event, timestamps.event),
        (token, timestamps.token),
        (visible, timestamps.visible),
        (last, timestamps.last),
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
    use crate::sampling::SamplingReason;
    use crate::testing;
    use tokengauge_llm::content::CapturedContent;
    use tokengauge_llm::dialect::ByModality;
    use tokengauge_measure::record::{ChoiceStatus, FinishedChoice, Outcome, Verdict};
    use tokengauge_types::event::RejectReason;
    use tokengauge_types::label::Label;

    fn find(span: &Span, key: &str) -> Option<String> {
        let mut found = span.attributes.iter().filter(|kv| kv.key == key);
        let first = found.next();
        assert!(found.next().is_none(), "{key} appears twice");
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
                panic!("{other:?} has an unexpected type")
            }
        }
    }

    fn spans_of(record: &Record, style: Option<usize>, kept: SamplingDecision) -> Vec<Span> {
        let spans = encode_spans(record, style, kept);
        assert_eq!(spans.len(), span_count(record));
        spans.iter().map(EncodedSpan::decode).collect()
    }

    fn both_spans(record: &Record) -> [Span; 2] {
        spans_of(record, None, SamplingDecision::default()).try_into().unwrap()
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
        "tokengauge.position=outbound",
        "tokengauge.outcome=ok",
        "tokengauge.error_source=none",
        "url.scheme=http",
        "url.path=/v1/chat/completions",
        "network.protocol.version=1.1",
        "user_agent.original=OpenAI/Python 2.8.1",
        "user_agent.name=OpenAI/Python",
        "user_agent.version=2.8.1",
        "client.address=192.0.2.7",
        "server.address=gateway.example.com",
        "http.request.body.size=812",
        "http.response.body.size=20480",
        "tokengauge.queue.edge=0.075",
        "tokengauge.network.rtt=0.004",
        "tokengauge.network.rtt_min=0.003",
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
        "tokengauge.position=outbound",
        "tokengauge.outcome=ok",
        "tokengauge.error_source=none",
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
        "tokengauge.rate_limit.tokens.remaining=29000",
        "tokengauge.time_to_headers=0.3",
        "tokengauge.time_to_first_byte=0.301",
        "tokengauge.time_to_first_event=0.302",
        "tokengauge.time_to_first_token=0.4",
        "tokengauge.time_to_first_visible_token=0.6",
        "tokengauge.stage.admission=0",
        "tokengauge.stage.connect=0.02",
        "tokengauge.stage.upload=0.001",
        "tokengauge.stage.headers=0.279",
        "tokengauge.stage.first_byte=0.001",
        "tokengauge.stage.first_event=0.001",
        "tokengauge.stage.first_token=0.098",
        "tokengauge.stage.reasoning=0.2",
        "tokengauge.stage.decode=1.8",
        "tokengauge.stage.tail=0.1",
        "tokengauge.output_token_rate=50",
        "tokengauge.total_token_rate=40.4",
        "tokengauge.tokenizer=o200k_base",
        "tokengauge.output_tokens.counted=101",
        "tokengauge.output_tokens.normalized=101",
        "tokengauge.token.source=reported",
        "tokengauge.complete=true",
        "tokengauge.queue.depth=3",
        "tokengauge.warmup_state=warming",
        "tokengauge.slo.ttft=good",
        "tokengauge.sampling.reason=always_on",
    ];

    #[test]
    fn writes_a_stall_as_an_event_at_the_time_it_was_raised() {
        let mut record = testing::streamed();
        let stall = tokengauge_measure::timing::Stall {
            phase: tokengauge_measure::timing::StallPhase::NextToken,
            kind: tokengauge_measure::timing::StallKind::KeepAliveOnly,
            begun: record.timestamps.accept + Duration::from_secs(1),
            raised: record.timestamps.accept + Duration::from_secs(3),
            lasted: Some(Duration::from_millis(2_500)),
        };
        record.call.as_mut().unwrap().stalls =
            Stalls { count: 20, total: Duration::from_secs(50), first: vec![stall] };
        let spans = encode_spans(&record, None, SamplingDecision::default());
        let client = spans[1].decode();
        assert_eq!(find(&client, "tokengauge.stall.count").unwrap(), "20");
        assert_eq!(find(&client, "tokengauge.stall.total_duration").unwrap(), "50");
        let event = client.events.iter().find(|event| event.name == "stall");
        let event = event.unwrap();
        let raised = record.wall + Duration::from_secs(3);
        assert_eq!(event.time_unix_nano, raised.unix_nanos());
        let facts: Vec<_> = event.attributes.iter().map(|it| it.key.as_str()).collect();
        assert_eq!(
            facts,
            ["tokengauge.stall_phase", "tokengauge.stall_kind", "tokengauge.stall.duration"]
        );
    }

    #[test]
    fn writes_all_attributes_of_a_streamed_chat() {
        let [server, client] = both_spans(&testing::streamed());
        assert_eq!(written(&server), SERVER);
        assert_eq!(written(&client), CLIENT);
        assert_eq!([&server.trace_state, &client.trace_state], ["vendor=1"; 2]);
        assert_eq!(client.trace_id, server.trace_id);
        assert_eq!(client.parent_span_id, server.span_id);
    }

    #[test]
    fn an_error_status_fails_only_the_client_span() {
        let [server, client] = both_spans(&testing::refused());
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
    fn a_truncated_stream_fails_both_spans() {
        let mut record = testing::streamed();
        record.outcome = Outcome::Truncated;
        record.error_type = testing::name("truncated");
        for span in both_spans(&record) {
            assert_eq!(span.status, failed("truncated"));
            assert_eq!(find(&span, "error.type").unwrap(), "truncated");
        }
    }

    #[test]
    fn plain_http_has_no_gen_ai_attributes() {
        let [server, client] = both_spans(&testing::plain());
        assert_eq!((server.name.as_str(), client.name.as_str()), ("GET", "GET"));
        assert!(client.attributes.iter().all(|kv| !kv.key.starts_with("gen_ai.")));
        assert_eq!(find(&client, "server.address").unwrap(), "api.example.com");
    }

    #[test]
    fn a_request_rejected_by_the_proxy_has_no_client_span() {
        let mut record = testing::plain();
        record.ending = Ending::Rejected(RejectReason::NoRoute);
        record.outcome = Outcome::Rejected;
        assert_eq!(spans_of(&record, None, SamplingDecision::default()).len(), 1);
    }

    #[test]
    fn the_innermost_span_has_the_slo_results() {
        let mut record = testing::streamed();
        let verdicts = vec![(Label::from_trusted("availability"), Verdict::Bad)];
        record.call.as_mut().unwrap().verdicts = verdicts;
        let results = |record: &Record| {
            let spans = spans_of(record, None, SamplingDecision::default());
            let result = |span: &Span| find(span, "tokengauge.slo.availability");
            spans.iter().map(result).collect::<Vec<_>>()
        };
        assert_eq!(results(&record), [None, Some("bad".to_owned())]);
        record.ending = Ending::Rejected(RejectReason::Overload);
        assert_eq!(results(&record), [Some("bad".to_owned())], "only a SERVER span exists");
    }

    #[test]
    fn both_spans_record_the_sampling_reason() {
        let attributes = |reason, against_parent| {
            let kept = SamplingDecision { reason, against_parent };
            let [server, client] = spans_of(&testing::streamed(), None, kept).try_into().unwrap();
            let sampling = |span| {
                ["reason", "ratio", "overrides_parent"]
                    .map(|word| find(span, &format!("tokengauge.sampling.{word}")))
            };
            assert_eq!(sampling(&server), sampling(&client));
            sampling(&server)
        };
        let words =
            |words: [&str; 3]| words.map(|word| (!word.is_empty()).then(|| word.to_owned()));
        assert_eq!(attributes(SamplingReason::Parent, false), words(["parent", "", ""]));
        assert_eq!(attributes(SamplingReason::Ratio(0.25), false), words(["ratio", "0.25", ""]));
        assert_eq!(attributes(SamplingReason::Error, true), words(["error", "", "true"]));
    }

    /// The semantic conventions define `gen_ai.request.top_k` as an integer, and the other parameters as doubles.
    #[test]
    fn parameters_of_sampling_have_their_types() {
        let mut record = testing::streamed();
        let request = &mut record.call.as_mut().unwrap().request;
        (request.top_k, request.top_p, request.temperature) = (Some(40), Some(1.0), Some(0.0));
        let [_, client] = both_spans(&record);
        for (key, expected) in [
            ("top_k", Value::IntValue(40)),
            ("top_p", Value::DoubleValue(1.0)),
            ("temperature", Value::DoubleValue(0.0)),
        ] {
            let key = format!("gen_ai.request.{key}");
            let found = client.attributes.iter().find(|kv| kv.key == key).expect(&key);
            let value = found.value.as_ref().unwrap().value.as_ref();
            assert_eq!(value, Some(&expected), "{key}");
        }
    }

    #[test]
    fn usage_is_split_by_modality_under_the_names_of_the_conventions() {
        let mut record = testing::streamed();
        let usage = record.call.as_mut().unwrap().usage.as_mut().unwrap();
        let split = |text, image, audio| ByModality {
            text: Some(text),
            image: Some(image),
            audio: Some(audio),
            ..ByModality::default()
        };
        usage.input_by = split(100, 20, 0);
        usage.cache_read_by = split(60, 0, 4);
        usage.output_by = split(71, 0, 30);
        let [_, client] = both_spans(&record);
        let written = client.attributes.iter().filter_map(|kv| {
            let rest = kv.key.strip_prefix("gen_ai.usage.")?;
            let modality = ["text.", "image.", "audio."].iter().find(|it| rest.starts_with(**it));
            modality.map(|_| format!("{rest}={}", shown(kv)))
        });
        assert_eq!(
            written.collect::<Vec<_>>(),
            [
                "text.input_tokens=100",
                "image.input_tokens=20",
                "text.cache_read.input_tokens=60",
                "audio.cache_read.input_tokens=4",
                "text.output_tokens=71",
                "audio.output_tokens=30",
            ]
        );
    }

    #[test]
    fn a_prompt_template_a_compaction_and_received_finish_reasons_are_attributes() {
        let mut record = testing::streamed();
        let call = record.call.as_mut().unwrap();
        call.request.prompt_name = testing::name("pmpt_1");
        call.request.prompt_version = testing::name("2");
        call.compacted = true;
        call.choices.push(FinishedChoice { reason: None, status: ChoiceStatus::Unfinished });
        let [_, client] = both_spans(&record);
        assert_eq!(find(&client, "gen_ai.prompt.name").unwrap(), "pmpt_1");
        assert_eq!(find(&client, "gen_ai.prompt.version").unwrap(), "2");
        assert_eq!(find(&client, "gen_ai.conversation.compacted").unwrap(), "true");
        let reasons = find(&client, "gen_ai.response.finish_reasons").unwrap();
        assert_eq!(reasons, r#"["stop"]"#, "the other choice has no reason");
        let [_, other] = both_spans(&testing::streamed());
        assert_eq!(find(&other, "gen_ai.conversation.compacted"), None);
    }

    #[test]
    fn stop_sequences_are_written_only_with_captured_content() {
        let mut record = testing::streamed();
        let key = "gen_ai.request.stop_sequences";
        record.call.as_mut().unwrap().request.stop_sequences = Some(2);
        assert_eq!(find(&both_spans(&record)[1], key), None);
        let content = CapturedContent {
            stop_sequences: vec!["\n\n".into(), "END".into()],
            ..CapturedContent::default()
        };
        record.call.as_mut().unwrap().content = Some(content.into());
        assert_eq!(find(&both_spans(&record)[1], key).unwrap(), r#"["\n\n", "END"]"#);
    }

    #[test]
    fn a_tool_call_is_the_client_span() {
        let [server, client] = both_spans(&testing::tool_call());
        assert_eq!(server.name, "POST");
        assert!(server.attributes.iter().all(|kv| !kv.key.starts_with("mcp.")));
        assert_eq!(client.name, "tools/call get-weather");
        assert_eq!(client.status, Some(Status::default()));
        for (key, value) in [
            ("mcp.method.name", "tools/call"),
            ("mcp.session.id", "1868a90c"),
            ("mcp.protocol.version", "2025-06-18"),
            ("jsonrpc.request.id", "7"),
            ("gen_ai.operation.name", "execute_tool"),
            ("gen_ai.tool.name", "get-weather"),
            ("network.transport", "tcp"),
            ("network.protocol.name", "http"),
        ] {
            assert_eq!(find(&client, key).as_deref(), Some(value), "{key}");
        }
        assert_eq!(find(&client, "rpc.response.status_code"), None);
    }

    #[test]
    fn an_error_of_json_rpc_or_of_a_tool_fails_the_client_span() {
        let client_of = |change: fn(&mut McpOperation)| {
            let mut record = testing::tool_call();
            change(&mut record.mcp.as_mut().unwrap().operations[0]);
            let [server, client] = both_spans(&record);
            assert_eq!(server.status, Some(Status::default()));
            client
        };
        let client = client_of(|operation| operation.error_code = Some(-32_602));
        assert_eq!(client.status, failed("-32602"));
        assert_eq!(find(&client, "error.type").unwrap(), "-32602");
        assert_eq!(find(&client, "rpc.response.status_code").unwrap(), "-32602");
        let client = client_of(|operation| operation.is_tool_error = true);
        assert_eq!(client.status, failed("tool_error"));
        assert_eq!(find(&client, "rpc.response.status_code"), None);
    }

    #[test]
    fn a_batch_has_only_the_attributes_of_the_session() {
        let mut record = testing::tool_call();
        let operations = &mut record.mcp.as_mut().unwrap().operations;
        operations.push(operations[0].clone());
        let [_, client] = both_spans(&record);
        assert_eq!(client.name, "POST");
        assert_eq!(find(&client, "mcp.session.id").unwrap(), "1868a90c");
        assert_eq!(find(&client, "mcp.method.name"), None);
    }

    #[test]
    fn without_a_parent_the_server_span_is_a_root() {
        let mut record = testing::plain();
        record.trace.parent = None;
        let [server, _] = both_spans(&record);
        assert_eq!((server.parent_span_id, server.flags), (Vec::new(), 0x101));
    }

    #[test]
    fn truncates_values_at_the_configured_length() {
        let mut record = testing::streamed();
        record.call.as_mut().unwrap().response_id = testing::name("ééééé");
        let spans = spans_of(&record, Some(3), SamplingDecision::default());
        assert_eq!(find(&spans[1], "gen_ai.response.id").unwrap(), "ééé");
        assert_eq!(find(&spans[1], "gen_ai.response.finish_reasons").unwrap(), "[\"sto\"]");
    }

    #[test]
    fn writes_only_attributes_and_values_of_the_catalog() {
        let registered = |key: &str| {
            catalog::spans::ALL.iter().find(|known| {
                known.key == key
                    || known.key.strip_suffix('*').is_some_and(|start| key.starts_with(start))
            })
        };
        for record in
            [testing::streamed(), testing::refused(), testing::plain(), testing::tool_call()]
        {
            let kept =
                SamplingDecision { reason: SamplingReason::Ratio(0.5), against_parent: true };
            for kv in spans_of(&record, None, kept).iter().flat_map(|span| &span.attributes) {
                let known = registered(&kv.key)
                    .unwrap_or_else(|| panic!("{} is not in the catalog", kv.key));
                if let Values::Closed(values) = known.values {
                    let value = shown(kv);
                    assert!(values.contains(&value.as_str()), "{}={value}", kv.key);
                }
            }
        }
    }
}
