//! Builds message parts in the format of the semantic conventions.

use serde_json::{Map, Value, json};

pub fn text(content: &str) -> Value {
    json!({"type": "text", "content": content})
}

pub fn reasoning(content: &str) -> Value {
    json!({"type": "reasoning", "content": content})
}

/// Returns a refusal. The semantic conventions define no type for it, but allow any type.
pub fn refusal(content: &str) -> Value {
    json!({"type": "refusal", "content": content})
}

/// Returns a tool call. The name is required, and empty if the message has none.
pub fn tool_call(id: Option<&str>, name: Option<&str>, arguments: Value) -> Value {
    let mut part = Map::new();
    part.insert("type".to_owned(), "tool_call".into());
    part.insert("name".to_owned(), name.unwrap_or_default().into());
    if let Some(id) = id {
        part.insert("id".to_owned(), id.into());
    }
    part.insert("arguments".to_owned(), arguments);
    Value::Object(part)
}

pub fn tool_response(id: Option<&str>, response: Value) -> Value {
    let mut part = Map::new();
    part.insert("type".to_owned(), "tool_call_response".into());
    if let Some(id) = id {
        part.insert("id".to_owned(), id.into());
    }
    part.insert("response".to_owned(), response);
    Value::Object(part)
}

/// Returns a reference to content at an external address.
pub fn uri(modality: &str, uri: &str) -> Value {
    json!({"type": "uri", "modality": modality, "uri": uri})
}

pub fn file(modality: &str, id: &str) -> Value {
    json!({"type": "file", "modality": modality, "file_id": id})
}

pub fn message(role: &str, name: Option<&str>, parts: Vec<Value>) -> Value {
    let mut message = Map::new();
    message.insert("role".to_owned(), role.into());
    if let Some(name) = name {
        message.insert("name".to_owned(), name.into());
    }
    message.insert("parts".to_owned(), Value::Array(parts));
    Value::Object(message)
}

/// Returns the definition of an offered tool. `parameters` is a JSON Schema.
pub fn function(name: &str, description: Option<&str>, parameters: Option<&Value>) -> Value {
    let mut tool = Map::new();
    tool.insert("type".to_owned(), "function".into());
    tool.insert("name".to_owned(), name.into());
    if let Some(description) = description {
        tool.insert("description".to_owned(), description.into());
    }
    if let Some(parameters) = parameters {
        tool.insert("parameters".to_owned(), parameters.clone());
    }
    Value::Object(tool)
}

/// Returns a tool that the provider implements. Its type is its name unless it has another name.
pub fn tool(kind: &str, name: Option<&str>) -> Value {
    json!({"type": kind, "name": name.unwrap_or(kind)})
}

/// Returns the arguments as JSON if they parse, and as text otherwise.
pub fn arguments(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}
