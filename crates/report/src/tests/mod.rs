//! Tests that the JSON of a report follows its schema.

mod calendar;
mod focus;
mod totals;

use std::fs;

use serde_json::{Map, Value};

use super::*;
use crate::read::File;

const LINE: &str = r#"{"time":"2026-01-01T00:00:00Z","outcome":"ok","times":{"first_token":0.1,"last_token":1,"end":1},"call":{"labels":{"model":"m","stream":true}}}"#;
const COMPLETE_LINE: &str = r#"{"time":"2026-01-01T00:00:05Z","outcome":"ok","times":{"first_token":0.1,"last_token":1,"end":1},"identity":{"variant":"a"},"call":{"labels":{"model":"m","stream":true},"rates":{"output":10,"time_per_output_token":0.1},"output":{"tokens":10},"usage":{"input":5,"output":12,"reasoning":2,"cached":1},"response":{"finish_reasons":["stop"]},"choices":{"complete":1},"cost":{"amount":0.5,"currency":"USD"}}}"#;

/// Returns the report of `text` in JSON.
fn json(text: &str, request: Request) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    fs::write(&path, text).unwrap();
    let files = vec![File { path, side: Side::Neither }];
    let by = vec!["model".parse().unwrap()];
    serde_json::to_value(evaluate(&Request { files, by, ..request }).unwrap()).unwrap()
}

/// Checks that `value` follows `schema`, and that the schema contains all fields of `value`.
fn check(path: &str, value: &Value, schema: &Value, root: &Value) {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.trim_start_matches('#')).unwrap();
        return check(path, value, target, root);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let of_kind = |schema: &&Value| (schema["type"] == "null") == value.is_null();
        return check(path, value, any.iter().find(of_kind).expect(path), root);
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is_allowed = |allowed: &str| allowed == kind || (allowed, kind) == ("number", "integer");
    let allowed = if let Some(kinds) = schema["type"].as_array() {
        kinds.iter().any(|allowed| is_allowed(allowed.as_str().unwrap()))
    } else {
        schema["type"].as_str().is_none_or(is_allowed)
    };
    assert!(allowed, "{path} is of type {kind}: {schema}");
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(value.get(name.as_str().unwrap()).is_some(), "{path} lacks {name}: {value}");
    }
    for (name, below) in value.as_object().into_iter().flatten() {
        let schema = properties.get(name).or_else(|| schema.get("additionalProperties"));
        let path = format!("{path}.{name}");
        check(&path, below, schema.expect(&path), root);
    }
    for item in value.as_array().into_iter().flatten() {
        check(&format!("{path}[]"), item, &schema["items"], root);
    }
}

#[test]
fn json_follows_the_schema_with_and_without_values() {
    let schema = schema();
    let [a, b] = ["model=m", "variant=a"].map(|side| side.parse().unwrap());
    let compare = Compare::Within { a: b, b: a };
    let both = format!("{LINE}\n{COMPLETE_LINE}\n");
    let reports = [
        json(LINE, Request::default()),
        json(COMPLETE_LINE, Request::default()),
        json(&both, Request { compare, ..Request::default() }),
    ];
    for report in &reports {
        check("", report, schema.as_value(), schema.as_value());
    }
    let cost = "/subjects/0/statistics/cost";
    assert_eq!(reports[0].pointer(cost), None);
    assert!(reports[1].pointer(cost).is_some());
}

#[test]
fn tells_selectors_without_a_match_from_files_without_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    fs::write(&path, format!("{LINE}\n{LINE}\n")).unwrap();
    let error = |only: &[&str], compare| {
        let runs = matches!(compare, Compare::Runs);
        let file = |side| File { path: path.clone(), side };
        let files = match runs {
            true => vec![file(Side::A), file(Side::B)],
            false => vec![file(Side::Neither)],
        };
        let only = only.iter().map(|only| only.parse().unwrap()).collect();
        let request = Request { files, only, compare, ..Request::default() };
        evaluate(&request).map(|_| ()).unwrap_err().to_string()
    };
    let none = error(&["model=nope", "stream=true"], Compare::Nothing);
    assert_eq!(
        none,
        "none of 2 calls matches model=nope and stream=true; values of model: m; values of stream: true"
    );
    let models: String =
        (10..22).map(|n| LINE.replace("\"m\"", &format!("\"m{n}\"")) + "\n").collect();
    fs::write(&path, models).unwrap();
    let none = error(&["model=nope", "variant=b"], Compare::Nothing);
    let listed = none.split_once("values of model: ").unwrap().1;
    assert_eq!(listed.matches(", m").count(), 9, "ten models: {none}");
    assert!(listed.ends_with(", …; no call has a variant"), "{none}");
    fs::write(&path, "{}\n").unwrap();
    let none = error(&["model=nope"], Compare::Nothing);
    assert!(none.contains("no call of a known API in 1 lines"), "{none}");
}
