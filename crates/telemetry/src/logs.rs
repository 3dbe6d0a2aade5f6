//! Exports OTLP log records: the proxy's own log, one record per finished request, and the content and the errors of
//! calls as GenAI events.
//!
//! Records wait in the same kind of bounded queue as spans, and the telemetry thread exports them, so emitting a record
//! never blocks. The SDK's batch processor is not used, because it reports losses only as log lines and flushes without
//! a time limit. Telemetry is suppressed on the telemetry thread. Otherwise each export would log lines that cause
//! another export.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::logs::{AnyValue, LogRecord, Logger, LoggerProvider, Severity};
use opentelemetry::{InstrumentationScope, Key, SpanId, TraceId};
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogProcessor, SdkLogRecord, SdkLogger, SdkLoggerProvider};
use serde_json::Value;
use tokengauge_llm::content::CapturedContent;
use tokengauge_measure::record::{Call, Outcome, Record};
use tokengauge_types::label::Name;

use crate::catalog::spans;
use crate::catalog::values::is_inference;
use crate::catalog::{self, Attribute};
use crate::queue::Queue;
use crate::span::attributes::{self, AttributeWriter};
use crate::span::{self, end_time, innermost_span_id};

/// Name of the log event for a finished request. The body of the event has the same fields as a line of the request
/// log.
pub const REQUEST_EVENT: &str = "tokengauge.request";

/// Event name for the content of a call, defined by the GenAI semantic conventions.
pub const CONTENT_EVENT: &str = "gen_ai.client.inference.operation.details";

/// Event name for a failed inference, defined by the GenAI semantic conventions.
pub const EXCEPTION_EVENT: &str = "gen_ai.client.inference.exception";

/// Prefix of the `tracing` targets whose log events are exported. Events of other libraries are not exported.
const OWN_TARGETS: &str = "tokengauge";

/// Estimated size of a log record in bytes, without its texts.
const RECORD_BYTES: usize = 256;

pub type QueuedLog = (SdkLogRecord, InstrumentationScope);

/// A layer for `tracing` that exports the proxy's own log.
pub type TracingLayer = OpenTelemetryTracingBridge<SdkLoggerProvider, SdkLogger>;

/// Adds log records to the export queue.
#[derive(Clone, Debug)]
pub struct LogEmitter {
    provider: SdkLoggerProvider,
    logger: SdkLogger,
    queue: Arc<Queue<QueuedLog>>,
}

impl LogEmitter {
    pub(crate) fn new(queue: Arc<Queue<QueuedLog>>, resource: &Resource) -> Self {
        let provider = SdkLoggerProvider::builder()
            .with_resource(resource.clone())
            .with_log_processor(QueueProcessor(Arc::clone(&queue)))
            .build();
        let logger = provider.logger_with_scope(catalog::scope());
        Self { provider, logger, queue }
    }

    /// Returns a layer for `tracing` that exports the proxy's log events.
    pub fn tracing_layer(&self) -> TracingLayer {
        OpenTelemetryTracingBridge::new(&self.provider)
    }

    /// Emits a log record for a finished request, one for its content if the route captures content, and one for the
    /// error if an inference failed. `line` computes the line of the request log. It is called only if the queue can
    /// accept a record.
    pub(crate) fn emit_request(&self, record: &Record, line: impl FnOnce() -> Option<Value>) {
        let content = record.call.as_ref().and_then(|call| Some((call, call.content.as_deref()?)));
        let exception = failed_inference(record);
        if let Some(reason) = self.queue.refusal() {
            let events = usize::from(content.is_some()) + usize::from(exception.is_some());
            return self.queue.count_dropped(reason, 1 + events);
        }
        if let Some(body) = line().and_then(any_value) {
            let mut request = self.log_record(record, REQUEST_EVENT, request_severity(record));
            request.set_body(body);
            self.logger.emit(request);
        }
        if let Some((call, content)) = content {
            self.emit_content(record, call, content);
        }
        if let Some(error) = exception {
            let mut event = self.log_record(record, EXCEPTION_EVENT, Severity::Warn);
            event.name(spans::EXCEPTION_TYPE, Some(error));
            self.logger.emit(event);
        }
    }

    fn emit_content(&self, record: &Record, call: &Call, content: &CapturedContent) {
        let mut event = self.log_record(record, CONTENT_EVENT, Severity::Debug);
        attributes::inference(&mut event, record, call);
        for (attribute, text) in attributes::content_texts(content) {
            // The semantic conventions require structured values in events. Span attributes contain the same content as
            // JSON text.
            if let Some(value) = serde_json::from_str(text).ok().and_then(any_value) {
                event.add_attribute(attribute.key, value);
            }
        }
        attributes::stop_sequences(&mut event, content);
        attributes::content_gaps(&mut event, content);
        self.logger.emit(event);
    }

    /// Creates a log record with the end time, trace id and span id of a request.
    fn log_record(&self, record: &Record, event: &'static str, severity: Severity) -> SdkLogRecord {
        let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(end_time(record).unix_nanos());
        let mut log = self.logger.create_log_record();
        log.set_event_name(event);
        log.set_severity_number(severity);
        log.set_severity_text(severity.name());
        log.set_timestamp(time);
        log.set_observed_timestamp(time);
        log.set_trace_context(
            TraceId::from_bytes(record.trace.trace_id),
            SpanId::from_bytes(innermost_span_id(record)),
            None,
        );
        log
    }
}

const fn request_severity(record: &Record) -> Severity {
    match record.outcome {
        Outcome::Ok | Outcome::Cancelled => Severity::Info,
        Outcome::Error | Outcome::Timeout | Outcome::Truncated | Outcome::Rejected => {
            Severity::Warn
        }
    }
}

/// Returns the kind of error if the request is an inference that failed. A client that gives up is not an error.
fn failed_inference(record: &Record) -> Option<&Name> {
    let call = record.call.as_ref().filter(|_| record.outcome != Outcome::Cancelled)?;
    record.error_type.as_ref().filter(|_| is_inference(record, call) && span::has_client(record))
}

/// Adds the SDK's records to the export queue.
#[derive(Debug)]
struct QueueProcessor(Arc<Queue<QueuedLog>>);

impl LogProcessor for QueueProcessor {
    fn emit(&self, record: &mut SdkLogRecord, scope: &InstrumentationScope) {
        // The bridge names a log line after its place in the source code. A record with a name is an event.
        if record.event_name().is_some_and(|name| name.starts_with("event ")) {
            record.set_event_name("");
        }
        let bytes = approximate_bytes(record);
        self.0.offer((record.clone(), scope.clone()), bytes);
    }

    fn event_enabled(&self, _level: Severity, target: &str, _name: Option<&str>) -> bool {
        target.starts_with(OWN_TARGETS)
    }

    /// Does nothing, because the telemetry thread exports the rest of the queue when it stops.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl AttributeWriter for SdkLogRecord {
    fn text_under(&mut self, namespace: &str, name: &str, value: &str) {
        self.add_attribute([namespace, name].concat(), value.to_owned());
    }

    fn texts(&mut self, attribute: Attribute, values: &[&str]) {
        let values = values.iter().map(|text| AnyValue::from((*text).to_owned())).collect();
        self.add_attribute(attribute.key, AnyValue::ListAny(Box::new(values)));
    }

    fn flag(&mut self, attribute: Attribute, value: bool) {
        self.add_attribute(attribute.key, value);
    }

    fn int(&mut self, attribute: Attribute, value: i64) {
        self.add_attribute(attribute.key, value);
    }

    fn double(&mut self, attribute: Attribute, value: f64) {
        self.add_attribute(attribute.key, value);
    }
}

/// Converts JSON to a log value. `null` has no equivalent and is left out.
fn any_value(json: Value) -> Option<AnyValue> {
    Some(match json {
        Value::Null => return None,
        Value::Bool(flag) => flag.into(),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => integer.into(),
            None => number.as_f64()?.into(),
        },
        Value::String(text) => text.into(),
        Value::Array(values) => {
            AnyValue::ListAny(Box::new(values.into_iter().filter_map(any_value).collect()))
        }
        Value::Object(fields) => {
            let fields = fields.into_iter();
            let fields: HashMap<Key, AnyValue> =
                fields.filter_map(|(key, value)| Some((key.into(), any_value(value)?))).collect();
            AnyValue::Map(Box::new(fields))
        }
    })
}

/// Estimates the memory of a log record in bytes, for the byte limit of the queue.
fn approximate_bytes(record: &SdkLogRecord) -> usize {
    let attributes = record.attributes_iter();
    let attributes: usize =
        attributes.map(|(key, value)| key.as_str().len() + value_bytes(value)).sum();
    RECORD_BYTES + record.body().map_or(0, value_bytes) + attributes
}

fn value_bytes(value: &AnyValue) -> usize {
    size_of::<AnyValue>()
        + match value {
            AnyValue::String(text) => text.as_str().len(),
            AnyValue::Bytes(bytes) => bytes.len(),
            AnyValue::ListAny(values) => values.iter().map(value_bytes).sum(),
            AnyValue::Map(fields) => {
                fields.iter().map(|(key, value)| key.as_str().len() + value_bytes(value)).sum()
            }
            AnyValue::Int(_) | AnyValue::Double(_) | AnyValue::Boolean(_) => 0,
            // The SDK's enum is non-exhaustive. Unknown variants count as 0 bytes.
            _ => 0,
        }
}
