//! Converts captured requests in formats that OpenAI introduced and most providers adopted: messages, prompts and
//! Responses items.

use serde_json::Value;

use super::{Messages, list, string_at};
use crate::content::parts;

pub(super) fn read(body: &Value, out: &mut Messages) {
    if let Some(text) = string_at(body, "instructions")
        .or(string_at(body, "system"))
        .or(string_at(body, "system_prompt"))
        .or(string_at(body, "preamble"))
    {
        out.add_instruction(text);
    }
    // Cohere v1 sends earlier messages in `chat_history`, and then the current message.
    for message in list(body, "chat_history").iter().chain(list(body, "messages")) {
        self::message(message, out);
    }
    for item in list(body, "input") {
        self::item(item, out);
    }
    for key in ["message", "prompt", "inputs", "text", "texts", "content", "query"] {
        for prompt in list(body, key) {
            match prompt {
                Value::String(text) => out.add_message("user", None, vec![parts::text(text)]),
                // This is the requested format of the response text, not a prompt.
                Value::Object(_) if key == "text" => {}
                // A prompt as token ids, or with several parts.
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Array(_)
                | Value::Object(_) => out.count_left_out(),
            }
        }
    }
    for tool in list(body, "tools").iter().chain(list(body, "functions")) {
        self::tool(tool, out);
    }
}

fn message(message: &Value, out: &mut Messages) {
    let role = string_at(message, "role").unwrap_or("user");
    let role = match role {
        "USER" | "User" => "user",
        "CHATBOT" | "Chatbot" => "assistant",
        "SYSTEM" | "System" => "system",
        "TOOL" | "Tool" => "tool",
        role => role,
    };
    let mut said = Vec::new();
    for key in ["reasoning_content", "reasoning", "thinking", "tool_plan"] {
        if let Some(text) = string_at(message, key) {
            said.push(parts::reasoning(text));
            break;
        }
    }
    let content = if message.get("content").is_some() { "content" } else { "message" };
    let id = string_at(message, "tool_call_id");
    if matches!(role, "tool" | "function") {
        let response = message.get(content).cloned().unwrap_or_default();
        said.push(parts::tool_response(id, response));
    } else {
        said.extend(out.convert(list(message, content), part));
    }
    // Ollama sends images in a field next to the text.
    for _ in list(message, "images") {
        out.count_left_out();
    }
    if let Some(text) = string_at(message, "refusal") {
        said.push(parts::refusal(text));
    }
    let legacy = message.get("function_call").filter(|call| call.is_object());
    for call in list(message, "tool_calls") {
        said.push(self::call(call));
    }
    if let Some(function) = legacy {
        said.push(function_call(None, function));
    }
    let name = string_at(message, "name").or(string_at(message, "tool_name"));
    out.add_message(role, name, said);
}

/// Converts a part of a message. Returns `None` if the part is neither text nor a reference to media.
fn part(part: &Value) -> Option<Value> {
    if let Some(text) = part.as_str() {
        return Some(parts::text(text));
    }
    match string_at(part, "type") {
        Some("text" | "input_text" | "output_text") | None => {
            string_at(part, "text").map(parts::text)
        }
        Some("refusal") => string_at(part, "refusal").map(parts::refusal),
        Some("reasoning_text" | "summary_text") => string_at(part, "text").map(parts::reasoning),
        Some("thinking") => string_at(part, "thinking").map(parts::reasoning),
        Some("image_url" | "input_image" | "image") => media(part, "image", "image_url"),
        Some("video_url") => media(part, "video", "video_url"),
        Some("file" | "input_file") => media(part, "document", "file_url")
            .or_else(|| media(part.get("file")?, "document", "file_url")),
        Some(_) => None,
    }
}

/// Returns a reference to media by address or id. Returns `None` for media that the request itself contains.
fn media(part: &Value, modality: &str, key: &str) -> Option<Value> {
    let address = part.get(key).and_then(|of| of.as_str().or_else(|| string_at(of, "url")));
    match address {
        Some(address) if !address.starts_with("data:") => Some(parts::uri(modality, address)),
        Some(_) | None => string_at(part, "file_id").map(|id| parts::file(modality, id)),
    }
}

fn call(call: &Value) -> Value {
    let id = string_at(call, "id");
    let function = call.get("function").or_else(|| call.get("custom"));
    function_call(id, function.unwrap_or(call))
}

fn function_call(id: Option<&str>, function: &Value) -> Value {
    let given = ["arguments", "input", "parameters"];
    let given = given.into_iter().find_map(|key| function.get(key));
    parts::tool_call(id, string_at(function, "name"), arguments(given))
}

/// Converts tool arguments, which are either a string with JSON or a JSON value.
fn arguments(given: Option<&Value>) -> Value {
    match given {
        Some(Value::String(text)) => parts::arguments(text),
        Some(value) => value.clone(),
        None => Value::Null,
    }
}

/// Converts an entry of `input`: a text, a Responses item or, for some providers, the whole request.
fn item(item: &Value, out: &mut Messages) {
    if let Some(text) = item.as_str() {
        return out.add_message("user", None, vec![parts::text(text)]);
    }
    let id = string_at(item, "call_id");
    match string_at(item, "type") {
        Some("message") | None if item.get("role").is_some() => message(item, out),
        Some("function_call" | "custom_tool_call") => {
            let call = function_call(id, item);
            out.add_message("assistant", None, vec![call]);
        }
        Some("function_call_output" | "custom_tool_call_output") => {
            let response = item.get("output").cloned().unwrap_or_default();
            out.add_message("tool", None, vec![parts::tool_response(id, response)]);
        }
        Some("reasoning") => {
            let texts = list(item, "content").iter().chain(list(item, "summary"));
            let thoughts = texts.filter_map(|part| string_at(part, "text")).map(parts::reasoning);
            let thoughts: Vec<_> = thoughts.collect();
            if thoughts.is_empty() {
                out.count_left_out();
            }
            out.add_message("assistant", None, thoughts);
        }
        // An input of a moderation request, or of an embeddings request with images.
        Some("text") => match part(item) {
            Some(text) => out.add_message("user", None, vec![text]),
            None => out.count_left_out(),
        },
        // DashScope and Replicate wrap the request.
        None if item.get("messages").or(item.get("prompt")).is_some() => read(item, out),
        Some(_) | None => out.count_left_out(),
    }
}

fn tool(tool: &Value, out: &mut Messages) {
    let function = tool.get("function").filter(|function| function.is_object());
    let kind = string_at(tool, "type").unwrap_or("function");
    let about = function.unwrap_or(tool);
    let Some(name) = string_at(about, "name") else {
        return match (kind, function) {
            ("function", _) | (_, Some(_)) => out.count_left_out(),
            (kind, None) => out.add_tool(parts::tool(kind, None)),
        };
    };
    if kind != "function" {
        return out.add_tool(parts::tool(kind, Some(name)));
    }
    let parameters = about.get("parameters").or_else(|| about.get("parameter_definitions"));
    let description = string_at(about, "description");
    out.add_tool(parts::function(name, description, parameters));
}
