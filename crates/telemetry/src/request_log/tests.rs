use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;

use super::*;
use crate::export_counters::DropReason;
use crate::testing;
use tokengauge_llm::dialect::{Api, ByModality, RateLimit, RateLimits, Timings};
use tokengauge_llm::frame::ParseError;
use tokengauge_measure::record::{Call, CloseFrame, ConnectionSample, Network, Outcome, WebSocket};
use tokengauge_measure::timing::{Stall, StallKind, StallPhase, Stalls, Unrated};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{
    CallerIdentity, ConnectTimings, Direction, Ending, ErrorSource, RouteFacts, SessionSource,
    UpstreamFailure,
};
use tokengauge_types::label::Label;

/// Returns a record in which every optional field has a value.
fn full() -> Record {
    let mut record = testing::streamed();
    record.route = Arc::new(RouteFacts {
        provider: Some(Label::from_trusted("openai")),
        learned_provider: Default::default(),
        dialect: Some(Label::from_trusted("openai.chat")),
        ..(*testing::route()).clone()
    });
    record.websocket = Some(WebSocket {
        closed: Some(CloseFrame { by: Direction::Response, code: Some(1011) }),
        left: Some(Direction::Request),
        ..WebSocket::default()
    });
    record.connected = Some(ConnectTimings {
        reused: false,
        wait: Some(Duration::from_millis(1)),
        dns: Some(Duration::from_millis(2)),
        tcp: Some(Duration::from_millis(3)),
        tls: Some(Duration::from_millis(4)),
        connection: None,
    });
    let connection = ConnectionSample {
        rtt: Some(Duration::from_millis(4)),
        least_rtt: Some(Duration::from_millis(3)),
        retransmits: 1,
    };
    record.network = Network { client: Some(connection), upstream: Some(connection) };
    record.trace.state = Some("a=b".into());
    record.caller = CallerIdentity {
        tenant: testing::name("tenant"),
        session: testing::name("session"),
        session_source: Some(SessionSource::ClaudeCode),
        sub_agent: testing::name("agent"),
        variant: testing::name("variant"),
    };
    record.outcome = Outcome::Truncated;
    record.ending = Ending::UpstreamFailed(UpstreamFailure::MidBody);
    record.error_source = ErrorSource::Upstream;
    record.error_type = testing::name("upstream_truncated");
    record.anomalies = vec![(ParseError::Gap, 1), (ParseError::BadJson, 2), (ParseError::Gap, 1)];
    let header = |name, value| (name, testing::name(value).unwrap());
    record.http.request_headers.set("x-stainless-retry-count", "1");
    record.http.response_headers = [
        header("x-request-id", "value"),
        header("x-litellm-attempted-retries", "2"),
        header("x-litellm-attempted-fallbacks", "0"),
    ]
    .into_iter()
    .collect();
    complete(record.call.as_mut().unwrap());
    record.mcp = testing::tool_call().mcp;
    let operation = &mut record.mcp.as_mut().unwrap().operations[0];
    (operation.error_code, operation.is_tool_error) = (Some(-32_603), true);
    record
}

fn complete(call: &mut Call) {
    call.request.reasoning = true;
    call.request.background = true;
    call.series.tenant = Some(Label::from_trusted("tenant"));
    call.series.variant = Some(Label::from_trusted("variant"));
    call.request.conversation = testing::name("conversation");
    call.stalls = Stalls {
        count: 1,
        total: Duration::from_secs(3),
        first: vec![Stall {
            phase: StallPhase::NextToken,
            kind: StallKind::Silent,
            begun: MonotonicInstant::from_secs(1),
            raised: MonotonicInstant::from_secs(3),
            lasted: Some(Duration::from_secs(3)),
        }],
    };
    call.rates.unrated = Some(Unrated::FewTokens);
    call.compacted = true;
    let (some, word) = (Some(Duration::from_millis(5)), testing::name("word"));
    call.timings =
        Some(Timings { queue: some, load: some, prefill: some, decode: some, total: some });
    let allowed = RateLimit { limit: Some(10), remaining: Some(9), reset: some };
    call.quota = Some(RateLimits {
        requests: allowed,
        tokens: allowed,
        input_tokens: allowed,
        output_tokens: allowed,
    });
    let usage = call.usage.as_mut().unwrap();
    (usage.cache_write, usage.compaction, usage.unlisted) = (Some(2), Some(1), Some(1));
    (usage.cache_write_5m, usage.cache_write_1h) = (Some(1), Some(1));
    usage.output_in_doubt = true;
    usage.cost_ticks = Some(9);
    usage.input_by.text = Some(1);
    usage.cache_read_by.text = Some(1);
    usage.output_by = ByModality { audio: Some(2), ..ByModality::default() };
    let request = &mut call.request;
    request.api = Some(Api::OpenAiChat);
    (request.top_p, request.frequency_penalty) = (Some(0.5), Some(0.5));
    (request.top_k, request.presence_penalty) = (Some(5), Some(0.5));
    (request.seed, request.choices) = (Some(5), Some(5));
    (request.stop_sequences, request.dimensions) = (Some(5), Some(5));
    (request.previous_response, request.reasoning_level) = (word.clone(), word.clone());
    (request.prompt_name, request.prompt_version) = (word.clone(), word.clone());
    (request.service_tier, request.encoding_format) = (word.clone(), word);
    (request.output_type, request.echo) = (Some("text"), Some(true));
}

fn value(record: &Record) -> Value {
    serde_json::to_value(Line::new(record, "0123456789abcdef")).unwrap()
}

/// The fields of a line or of the schema, each with its type. All entries of a map (`*`) or of a list (`[]`) count as
/// one field.
type Fields = BTreeMap<String, String>;

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn documented() -> Fields {
    let row = |row: &str| {
        let mut cells = row.split(" | ");
        let path = cells.next().unwrap().trim_matches(['|', '`', ' ']);
        (path.to_owned(), cells.next().unwrap().to_owned())
    };
    table().lines().skip(2).map(row).collect()
}

fn written(path: &str, value: &Value, documented: &Fields, out: &mut Fields) {
    let below = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let any = below("*");
                let path = if documented.contains_key(&any) { any } else { below(name) };
                written(&path, field, documented, out);
            }
        }
        Value::Array(items) => {
            for item in items {
                written(&format!("{path}[]"), item, documented, out);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            out.insert(path.to_owned(), kind(value).to_owned());
        }
    }
}

#[test]
fn lines_match_the_schema() {
    let documented = documented();
    let mut found = Fields::new();
    written("", &value(&full()), &documented, &mut found);
    assert_eq!(found, documented);
}

#[test]
fn every_field_has_a_description() {
    for row in table().lines().skip(2) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [path, kind, unit, about] = cells[..] else {
            panic!("{row}");
        };
        assert!(!kind.is_empty() && !about.is_empty(), "{row}");
        let counts = ["temperature", "top_", "penalty", "seed", "choices", "sequences", "port"];
        let counts = counts.iter().chain(&["status", "_code", "request_number", "dimensions"]);
        let is_number = matches!(kind, "number" | "integer");
        let exempt = counts.clone().any(|name| path.contains(name)) || path.contains("rate_limits");
        assert!(!is_number || exempt || path.contains("parse_errors") || !unit.is_empty(), "{row}");
    }
}

#[test]
fn the_page_lists_exactly_these_fields() {
    let page = include_str!("../../../../docs/reference/request-log.md");
    let table = table();
    assert!(
        page.contains(table.trim_end()),
        "docs/reference/request-log.md differs from the fields; its table should read:\n{table}"
    );
}

#[test]
fn unknown_values_are_left_out() {
    fn no_nulls(value: &Value) -> bool {
        match value {
            Value::Null => false,
            Value::Array(items) => items.iter().all(no_nulls),
            Value::Object(fields) => fields.values().all(no_nulls),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        }
    }
    let mut plain = testing::plain();
    plain.http.status = None;
    plain.timestamps.sent = None;
    let line = value(&plain);
    assert!(no_nulls(&line), "{line}");
    let keys: BTreeSet<_> = line.as_object().unwrap().keys().map(String::as_str).collect();
    for absent in ["call", "websocket", "error_type", "parse_errors"] {
        assert!(!keys.contains(absent), "{absent} in {line}");
    }
    assert!(line["http"].get("status").is_none());
    assert!(line["times"].get("request_headers_sent").is_none());
    let mut odd = testing::streamed();
    odd.call.as_mut().unwrap().request.temperature = Some(f64::INFINITY);
    assert!(no_nulls(&value(&odd)));
}

#[test]
fn numbers_equal_those_of_the_record() {
    let line = value(&full());
    assert_eq!(line["time"], "2027-01-15T08:00:00.000000000Z");
    assert_eq!(line["trace"]["trace_id"], "30313233343536373839616263646566");
    assert_eq!(line["trace"]["parent_span_id"], "706172656e743030");
    assert_eq!(line["times"]["first_token"], 0.4);
    assert_eq!(line["stages"]["reasoning"], 0.2);
    assert_eq!(line["ending"]["kind"], "upstream_failed");
    assert_eq!(line["ending"]["cause"], "mid_body");
    assert_eq!(line["parse_errors"]["gap"], 2);
    assert_eq!(line["call"]["usage"]["input"], 120);
    assert_eq!(line["call"]["output"]["by_kind"]["reasoning"], 20);
    assert_eq!(line["call"]["rates"]["output"], 50.0);
    assert_eq!(line["call"]["slos"]["ttft"], "good");
}

fn log_to(path: &std::path::Path) -> RequestLogConfig {
    RequestLogConfig {
        destination: Destination::File(path.to_owned()),
        rotate: Rotation::default(),
    }
}

fn exchanges(path: &std::path::Path) -> Vec<u64> {
    let text = fs::read_to_string(path).unwrap();
    let exchange = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["request_number"].as_u64().unwrap()
    };
    text.lines().map(exchange).collect()
}

fn record(log: &RequestLog, exchange: u64) {
    let mut record = testing::plain();
    record.exchange.0 = exchange;
    log.record(&record);
}

#[test]
fn writes_all_lines_in_the_order_of_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = RequestLog::start(Some(&log_to(&path)), "").unwrap();
    let order = [5, 3, 4, 1, 2];
    order.iter().for_each(|exchange| record(&log, *exchange));
    assert!(log.stop(Duration::from_secs(30)));
    assert_eq!(exchanges(&path), order);
    assert_eq!(log.counts().written, 5);
    record(&log, 6);
    assert_eq!(exchanges(&path), order, "a stopped log writes nothing");
}

#[test]
fn a_reload_starts_moves_reopens_and_stops_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two, moved] = ["one", "two", "moved"].map(|name| folder.path().join(name));
    let log = RequestLog::start(None, "").unwrap();
    record(&log, 1);
    log.reload(Some(&log_to(&one)), "").unwrap();
    record(&log, 2);
    log.reload(Some(&log_to(&two)), "").unwrap();
    record(&log, 3);
    while log.counts().written < 2 {
        std::thread::yield_now();
    }
    fs::rename(&two, &moved).unwrap();
    log.reload(Some(&log_to(&two)), "").unwrap();
    record(&log, 4);
    let nowhere = folder.path().join("no folder").join("log");
    let refused = log.reload(Some(&log_to(&nowhere)), "").unwrap_err().to_string();
    assert!(refused.contains("cannot open "), "{refused}");
    record(&log, 5);
    log.reload(None, "").unwrap();
    record(&log, 6);
    assert_eq!(exchanges(&one), [2]);
    assert_eq!((exchanges(&moved), exchanges(&two)), (vec![3], vec![4, 5]));
    let counts = log.counts();
    assert_eq!((counts.written, counts.dropped), (4, LineCounts::default().dropped));
}

fn dropped(counters: &LineCounters) -> Vec<(DropReason, bool)> {
    DropReason::ALL.into_iter().map(|reason| (reason, counters.dropped.get(reason) > 0)).collect()
}

#[test]
fn a_full_pipe_does_not_block_and_lost_lines_are_counted() {
    let (mut reader, pipe) = io::pipe().unwrap();
    let counters = Arc::new(LineCounters::default());
    let target = Sink::stream(pipe).unwrap();
    let writer = LineWriter::start(&WRITER, target, Arc::clone(&counters)).unwrap();
    let line = [b"a".repeat(1 << 20), b"\n".to_vec()].concat();
    let mut offered = 0;
    while counters.dropped.get(DropReason::QueueFull) == 0 {
        writer.offer(&line);
        offered += 1;
    }
    assert!(!writer.stop(Duration::ZERO), "the pipe is full, so nothing can be written");
    let expected = [
        (DropReason::QueueFull, true),
        (DropReason::Failed, false),
        (DropReason::Rejected, false),
        (DropReason::TooLarge, false),
        (DropReason::Shutdown, true),
    ];
    assert_eq!(dropped(&counters), expected);
    let lost: u64 = DropReason::ALL.map(|reason| counters.dropped.get(reason)).iter().sum();
    assert_eq!(lost, offered, "each line is counted once");
    let mut first = [0];
    reader.read_exact(&mut first).unwrap();
    assert_eq!(first, *b"a");
}

#[test]
fn counts_lines_lost_to_a_full_disk_and_continues() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let counters = Arc::new(LineCounters::default());
    let full = Sink::stream(OpenOptions::new().write(true).open("/dev/full").unwrap()).unwrap();
    let writer = LineWriter::start(&WRITER, full, Arc::clone(&counters)).unwrap();
    writer.offer(b"a\n");
    writer.offer(b"b\n");
    // The first two lines are still written to the full disk and dropped there.
    let good = Sink::open(&Destination::File(path.clone()), Rotation::default()).unwrap();
    writer.switch_to(good);
    while counters.dropped.get(DropReason::Failed) < 2 {
        std::thread::yield_now();
    }
    writer.offer(b"c\n");
    assert!(writer.stop(Duration::from_secs(30)));
    assert_eq!(fs::read_to_string(&path).unwrap(), "c\n");
    assert_eq!(counters.written.load(Ordering::Relaxed), 1);
}

/// Returns the table in `docs/reference/request-log.md` as Markdown. It has one row for each field with a value.
fn table() -> String {
    let mut text = String::from("| field | type | unit | what |\n|---|---|---|---|\n");
    // The result is ignored, because writing to a `String` cannot fail.
    let _ok: fmt::Result = rows("", schema().as_value(), &mut text);
    text
}

fn rows(path: &str, schema: &Value, out: &mut String) -> fmt::Result {
    let below = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    if let Some(fields) = schema["properties"].as_object() {
        let required = |name: &String| match schema["required"].as_array() {
            Some(required) => required.iter().any(|field| field == name),
            None => false,
        };
        // Required fields come before optional fields. Both groups are in the order in which fields are written.
        let (always, known): (Vec<_>, Vec<_>) = fields.iter().partition(|(name, _)| required(name));
        for (name, field) in always.into_iter().chain(known) {
            rows(&below(name), field, out)?;
        }
        return Ok(());
    }
    let about = schema["description"].as_str().unwrap_or_default();
    let unit = schema["x-unit"].as_str().map(|unit| format!("`{unit}`"));
    let inner = |key: &str| schema.get(key).filter(|inner| inner.is_object());
    let (path, kind) = match (inner("additionalProperties"), inner("items")) {
        (Some(each), _) => (below("*"), each),
        (None, Some(each)) => (format!("{path}[]"), each),
        (None, None) => (path.to_owned(), schema),
    };
    if kind["properties"].is_object() {
        return rows(&path, kind, out);
    }
    let kind = kind["type"].as_str().unwrap_or_default();
    let about = about.replace('\n', " ");
    writeln!(out, "| `{path}` | {kind} | {} | {about} |", unit.unwrap_or_default())
}
