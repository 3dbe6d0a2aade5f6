//! Fuzzes the YAML patcher with a text and a patch.
//!
//! The documents of a text must add up to the text, an empty patch must change nothing, and a patched text must have
//! the patched value.

use json_patch::Patch;
use serde_json::{Value, json};
use tokengauge_kubernetes::yaml::{Document, parse_documents};

use super::script::Script;

pub fn manifests(input: &[u8]) {
    let mut script = Script::new(input);
    let choices = [script.digit(), script.digit(), script.digit()];
    let text = String::from_utf8_lossy(script.rest());
    let Ok(all) = parse_documents(&text) else {
        return;
    };
    assert_eq!(all.iter().map(Document::text).collect::<String>(), text);
    for document in &all {
        let same = document.apply(&Patch(Vec::new())).unwrap();
        assert_eq!(same.text, document.text());
        assert!(same.losses.is_empty());
        patched(document, choices);
    }
}

fn patched(document: &Document<'_>, [kind, place, value]: [u8; 3]) {
    let mut places = Vec::new();
    collect(document.value(), String::new(), &mut places);
    let place = &places[usize::from(place) % places.len()];
    let value = match value % 4 {
        0 => json!("yes"),
        1 => json!({"name": "x", "args": ["--a", {"b": null}]}),
        2 => json!([1.5, "a\nb\n"]),
        _ => json!({}),
    };
    let target = document.value().pointer(place);
    let operation = match (kind % 4, target) {
        (0, Some(Value::Object(_))) => {
            json!({"op": "add", "path": format!("{place}/added"), "value": value})
        }
        (0, Some(Value::Array(_))) => {
            json!({"op": "add", "path": format!("{place}/-"), "value": value})
        }
        (1, Some(Value::Array(_))) => {
            json!({"op": "add", "path": format!("{place}/0"), "value": value})
        }
        (2, _) if !place.is_empty() => json!({"op": "remove", "path": place}),
        _ => json!({"op": "replace", "path": place, "value": value}),
    };
    let patch: Patch = serde_json::from_value(json!([operation])).unwrap();
    let mut wanted = document.value().clone();
    json_patch::patch(&mut wanted, &patch).unwrap();
    // A patch that cannot be written is refused, and a written one is correct.
    if let Ok(edited) = document.apply(&patch) {
        let again = parse_documents(&edited.text).unwrap();
        assert_eq!(again.len(), 1);
        assert_eq!(*again[0].value(), wanted);
    }
}

fn collect(value: &Value, place: String, places: &mut Vec<String>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                let key = key.replace('~', "~0").replace('/', "~1");
                collect(value, format!("{place}/{key}"), places);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                collect(value, format!("{place}/{index}"), places);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    places.push(place);
}
