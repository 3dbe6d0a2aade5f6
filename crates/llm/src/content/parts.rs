//! Builds message parts in the JSON format of OpenTelemetry's GenAI semantic conventions.

use serde_json::{Value, json};

pub fn text(content: &str) -> Value {
    json!({"type": "text", "content": content})
}

pub fn reasoning(content: &str) -> Value {
    json!({"type": "reasoning", "content": content})
}

/// Returns a refusal. The semantic conventions define no type for a refusal, but allow further types.
pub fn refusal(content: &str) -> Value {
    json!({"type": "refusal", "content": content})
}

/// Returns a tool call. Without `name`, the name is empty, because the conventions require one.
pub fn tool_call(id: Option<&str>, name: Option<&str>, arguments: Value) -> Value {
    let name = name.unwrap_or_default();
    let mut part = json!({"type": "tool_call", "name": name});
    add(&mut part, "id", id);
    add(&mut part, "arguments", Some(arguments));
    part
}

pub fn tool_response(id: Option<&str>, response: Value) -> Value {
    let mut part = json!({"type": "tool_call_response"});
    add(&mut part, "id", id);
    add(&mut part, "response", Some(response));
    part
}

/// Returns a reference to content at an external address.
pub fn uri(modality: &str, uri: &str) -> Value {
    json!({"type": "uri", "modality": modality, "uri": uri})
}

pub fn file(modality: &str, id: &str) -> Value {
    json!({"type": "file", "modality": modality, "file_id": id})
}

pub fn message(role: &str, name: Option<&str>, parts: Vec<Value>) -> Value {
    let mut message = json!({"role": role});
    add(&mut message, "name", name);
    add(&mut message, "parts", Some(parts));
    message
}

/// Returns the definition of an offered tool. `parameters` is a JSON Schema.
pub fn function(name: &str, description: Option<&str>, parameters: Option<&Value>) -> Value {
    let mut tool = json!({"type": "function", "name": name});
    add(&mut tool, "description", description);
    add(&mut tool, "parameters", parameters.cloned());
    tool
}

/// Returns the definition of a tool that the provider implements. Without `name`, `kind` is the name.
pub fn tool(kind: &str, name: Option<&str>) -> Value {
    json!({"type": kind, "name": name.unwrap_or(kind)})
}

/// Parses tool arguments. Returns `text` as a JSON string if `text` is not valid JSON.
pub fn arguments(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// Adds the field `key` to a JSON object. Does nothing if `value` is `None`.
pub fn add(object: &mut Value, key: &str, value: Option<impl Into<Value>>) {
    if let (Some(fields), Some(value)) = (object.as_object_mut(), value) {
        fields.insert(key.to_owned(), value.into());
    }
}
