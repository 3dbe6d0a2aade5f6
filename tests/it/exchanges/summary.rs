//! Returns the parts of a record that do not depend on time.

use serde_json::{Map, Value, json};
use tokengauge_llm::dialect::TextKind;
use tokengauge_measure::record::{Call, Record};
use tokengauge_types::event::{SessionSource, UserAgent};

/// Facts that the observer reads from a response, in the order of the documentation.
pub const FACTS: [&str; 27] = [
    "model",
    "id",
    "finish reasons",
    "text",
    "reasoning text",
    "tool arguments",
    "refusals",
    "transcripts",
    "input tokens",
    "output tokens",
    "cache reads",
    "cache writes",
    "reasoning tokens",
    "input by modality",
    "output by modality",
    "service tier",
    "system fingerprint",
    "queue time",
    "load time",
    "prefill time",
    "decode time",
    "total time",
    "rate limits",
    "errors",
    "errors within the stream",
    "errors in a 200",
    "oddities",
];

pub fn summarize(record: &Record) -> Value {
    let mut summary = Map::new();
    let mut put = |key: &str, value: Value| {
        if let Some(value) = told(value) {
            summary.insert(key.to_owned(), value);
        }
    };
    put("outcome", json!(record.outcome.as_str()));
    put("fault", json!(record.error_source.as_str()));
    put("error_type", json!(record.error_type));
    let caller = &record.caller;
    put("session", json!(caller.session));
    put("session_source", json!(caller.session_source.map(SessionSource::as_str)));
    put("sub_agent", json!(caller.sub_agent));
    let agent = record.http.request_headers.get("user-agent").and_then(UserAgent::parse);
    put("agent", json!(agent.map(|agent| agent.to_string())));
    put("resend_count", json!(record.http.request_headers.resend_count()));
    let anomalies: Map<String, Value> = record
        .anomalies
        .iter()
        .map(|(anomaly, times)| (anomaly.as_str().to_owned(), json!(times)))
        .collect();
    if !anomalies.is_empty() {
        put("anomalies", Value::Object(anomalies));
    }
    match &record.call {
        Some(call) => self::call(call, &mut put),
        None => put("call", json!("none")),
    }
    Value::Object(summary)
}

fn call(call: &Call, put: &mut impl FnMut(&str, Value)) {
    put("operation", json!(call.series.operation.as_str()));
    put("provider", json!(call.series.provider.as_str()));
    put("streamed", json!(call.streamed));
    put("complete", json!(call.complete.as_str()));
    put("request", json!(call.request));
    put("response_id", json!(call.response_id));
    put("response_model", json!(call.response_model));
    put("service_tier", json!(call.service_tier));
    put("system_fingerprint", json!(call.system_fingerprint));
    let finish_reasons: Vec<_> = call.finish_reasons().collect();
    if !finish_reasons.is_empty() {
        put("finish_reasons", json!(finish_reasons));
    }
    put("usage", json!(call.usage));
    put("reported_cost", json!(call.reported_cost()));
    if let Some(output) = &call.output {
        let mut parts: Vec<(&str, Value)> = vec![
            ("tokens", json!(output.tokens)),
            ("source", json!(output.source.map(|source| source.as_str()))),
            ("first_chunk", json!(output.counted_first)),
            ("hidden", json!(output.hidden)),
        ];
        for (kind, tokens) in TextKind::ALL.iter().zip(output.by_kind) {
            parts.push((kind.as_str(), json!((tokens > 0).then_some(tokens))));
        }
        let parts: Map<String, Value> =
            parts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        put("output", Value::Object(parts));
    }
    put("timings", json!(call.timings));
    put("quota", json!(call.quota));
}

/// Returns the names from [`FACTS`] that the record contains.
pub fn read(record: &Record) -> Vec<&'static str> {
    let summary = summarize(record);
    let there = |path: &str| summary.pointer(path).is_some();
    let failed = there("/error_type");
    let status = record.http.status.unwrap_or_default();
    let streamed = summary.pointer("/streamed") == Some(&json!(true));
    let held = [
        there("/response_model"),
        there("/response_id"),
        there("/finish_reasons"),
        there("/output/text"),
        there("/output/reasoning"),
        there("/output/tool"),
        there("/output/refusal"),
        there("/output/transcript"),
        there("/usage/input"),
        there("/usage/output"),
        there("/usage/cache_read"),
        there("/usage/cache_write"),
        there("/usage/reasoning"),
        there("/usage/input_by"),
        there("/usage/output_by"),
        there("/service_tier"),
        there("/system_fingerprint"),
        there("/timings/queue"),
        there("/timings/load"),
        there("/timings/prefill"),
        there("/timings/decode"),
        there("/timings/total"),
        there("/quota"),
        failed && status >= 400,
        failed && status < 400 && streamed,
        failed && status < 400 && !streamed,
        there("/anomalies"),
    ];
    let facts = FACTS.into_iter().zip(held);
    facts.filter_map(|(fact, held)| held.then_some(fact)).collect()
}

/// Removes null and empty parts from the value.
fn told(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(fields) => {
            let fields: Map<String, Value> =
                fields.into_iter().filter_map(|(key, value)| Some((key, told(value)?))).collect();
            (!fields.is_empty()).then_some(Value::Object(fields))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Some(value),
    }
}
