//! Derives the JSON Schema and the documentation table of a log line from the types in `line`.

use std::fmt::{self, Write};

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema as _, Schema};
use serde_json::Value;

use crate::request_log::line::Line;

/// Returns the JSON Schema of a line.
pub fn schema() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut generator = settings.into_generator();
    let mut schema = Line::json_schema(&mut generator);
    schema.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
    schema.insert("title".to_owned(), "a line of tokengauge's request log".into());
    NeverNull.transform(&mut schema);
    schema
}

/// Removes `null` from the schema, because unknown fields are omitted, and `format`, because it describes Rust types.
struct NeverNull;

impl Transform for NeverNull {
    fn transform(&mut self, schema: &mut Schema) {
        schema.remove("format");
        if let Some(Value::Array(types)) = schema.get_mut("type") {
            types.retain(|kind| kind != "null");
            if let [only] = types.as_slice() {
                let only = only.clone();
                schema.insert("type".to_owned(), only);
            }
        }
        let described = schema.get("description").cloned();
        let not_null =
            |any: &Value| any.as_array()?.iter().find(|one| one["type"] != "null").cloned();
        if let Some(Value::Object(mut one)) = schema.get("anyOf").and_then(not_null) {
            // The description of the field is more specific than the description of its type.
            if let Some(described) = described {
                one.insert("description".to_owned(), described);
            }
            *schema = Schema::from(one);
        }
        transform_subschemas(self, schema);
    }
}

/// Returns the table in `docs/reference/request-log.md` as Markdown. It has one row for each field with a value.
pub fn table() -> String {
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
