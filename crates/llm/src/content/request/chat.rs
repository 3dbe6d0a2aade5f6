//! Converts captured requests in formats that OpenAI introduced and most providers adopted: messages, prompts and
//! Responses items.

use serde_json::Value;

use super::{Messages, list, word};
use crate::content::parts;

pub(super) fn read(body: &Value, out: &mut Messages) {
    if let Some(text) =
        word(body, "instructions").or(word(body, "system")).or(word(body, "preamble"))
    {
        out.instruct(text);
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
                Value::String(text) => out.say("user", None, vec![parts::text(text)]),
                // This is the requested format of the response text, not a prompt.
                Value::Object(_) if key == "text" => {}
                // A prompt as token ids, or with several parts.
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Array(_)
                | Value::Object(_) => out.leave_out(),
            }
        }
    }
    for tool in list(body, "tools").iter().chain(list(body, "functions")) {
        self::tool(tool, out);
    }
}

fn message(message: &Value, out: &mut Messages) {
    let role = word(message, "role").unwrap_or("user");
    let role = match role {
        "USER" | "User" => "user",
        "CHATBOT" | "Chatbot" => "assistant",
        "SYSTEM" | "System" => "system",
        "TOOL" | "Tool" => "tool",
        role => role,
    };
    let mut said = Vec::new();
    for key in ["reasoning_content", "reasoning", "thinking", "tool_plan"] {
        if let Some(text) = word(message, key) {
            said.push(parts::reasoning(text));
            break;
        }
    }
    let content = if message.get("content").is_some() { "content" } else { "message" };
    let id = word(message, "tool_call_id");
    if matches!(role, "tool" | "function") {
        let response = message.get(content).cloned().unwrap_or_default();
        said.push(parts::tool_response(id, response));
    } else {
        said.extend(out.convert(list(message, content), part));
    }
    // Ollama sends images in a field next to the text.
    for _ in list(message, "images") {
        out.leave_out();
    }
    if let Some(text) = word(message, "refusal") {
        said.push(parts::refusal(text));
    }
    let legacy = message.get("function_call").filter(|call| call.is_object());
    for call in list(message, "tool_calls") {
        said.push(self::call(call));
    }
    if let Some(function) = legacy {
        said.push(function_call(None, function));
    }
    let name = word(message, "name").or(word(message, "tool_name"));
    out.say(role, name, said);
}

/// Converts a part of a message. Returns `None` if the part is neither text nor a reference to media.
fn part(part: &Value) -> Option<Value> {
    if let Some(text) = part.as_str() {
        return Some(parts::text(text));
    }
    match word(part, "type") {
        Some("text" | "input_text" | "output_text") | None => word(part, "text").map(parts::text),
        Some("refusal") => word(part, "refusal").map(parts::refusal),
        Some("reasoning_text" | "summary_text") => word(part, "text").map(parts::reasoning),
        Some("thinking") => word(part, "thinking").map(parts::reasoning),
        Some("image_url" | "input_image" | "image") => media(part, "image", "image_url"),
        Some("video_url") => media(part, "video", "video_url"),
        Some("file" | "input_file") => media(part, "document", "file_url")
            .or_else(|| media(part.get("file")?, "document", "file_url")),
        Some(_) => None,
    }
}

/// Returns a reference to media by address or id. Returns `None` for media that the request itself contains.
fn media(part: &Value, modality: &str, key: &str) -> Option<Value> {
    let address = part.get(key).and_then(|of| of.as_str().or_else(|| word(of, "url")));
    match address {
        Some(address) if !address.starts_with("data:") => Some(parts::uri(modality, address)),
        Some(_) | None => word(part, "file_id").map(|id| parts::file(modality, id)),
    }
}

fn call(call: &Value) -> Value {
    let id = word(call, "id");
    let function = call.get("function").or_else(|| call.get("custom"));
    function_call(id, function.unwrap_or(call))
}

fn function_call(id: Option<&str>, function: &Value) -> Value {
    let given = ["arguments", "input", "parameters"];
    let given = given.into_iter().find_map(|key| function.get(key));
    parts::tool_call(id, word(function, "name"), arguments(given))
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
        return out.say("user", None, vec![parts::text(text)]);
    }
    let id = word(item, "call_id");
    match word(item, "type") {
        Some("message") | None if item.get("role").is_some() => message(item, out),
        Some("function_call" | "custom_tool_call") => {
            let call = function_call(id, item);
            out.say("assistant", None, vec![call]);
        }
        Some("function_call_output" | "custom_tool_call_output") => {
            let response = item.get("output").cloned().unwrap_or_default();
            out.say("tool", None, vec![parts::tool_response(id, response)]);
        }
        Some("reasoning") => {
            let texts = list(item, "content").iter().chain(list(item, "summary"));
            let thoughts = texts.filter_map(|part| word(part, "text")).map(parts::reasoning);
            let thoughts: Vec<_> = thoughts.collect();
            if thoughts.is_empty() {
                out.leave_out();
            }
            out.say("assistant", None, thoughts);
        }
        // An input of a moderation request, or of an embeddings request with images.
        Some("text") => match part(item) {
            Some(text) => out.say("user", None, vec![text]),
            None => out.leave_out(),
        },
        // DashScope and Replicate wrap the request.
        None if item.get("messages").or(item.get("prompt")).is_some() => read(item, out),
        Some(_) | None => out.leave_out(),
    }
}

fn tool(tool: &Value, out: &mut Messages) {
    let function = tool.get("function").filter(|function| function.is_object());
    let kind = word(tool, "type").unwrap_or("function");
    let about = function.unwrap_or(tool);
    let Some(name) = word(about, "name") else {
        return match (kind, function) {
            ("function", _) | (_, Some(_)) => out.leave_out(),
            (kind, None) => out.offer(parts::tool(kind, None)),
        };
    };
    if kind != "function" {
        return out.offer(parts::tool(kind, Some(name)));
    }
    let parameters = about.get("parameters").or_else(|| about.get("parameter_definitions"));
    let description = word(about, "description");
    out.offer(parts::function(name, description, parameters));
}
