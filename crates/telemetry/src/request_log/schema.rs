//! Derives the JSON Schema of a log line from the types in `line`.

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

/// Removes `null` and `format` from the schema. Unknown fields are omitted and never `null`, and `format` describes
/// Rust types.
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
