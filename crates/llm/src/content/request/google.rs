//! Converts captured requests of Gemini's `generateContent`, on every platform that serves this API.

use serde_json::Value;

use super::{Messages, list, modality, string_at};
use crate::content::parts;

pub(super) fn read(body: &Value, out: &mut Messages) {
    // Code Assist wraps the request in another object.
    if let Some(inner) = body.get("request").filter(|inner| inner.is_object()) {
        return read(inner, out);
    }
    let system = body.get("systemInstruction").or_else(|| body.get("system_instruction"));
    for part in system.map_or(&[][..], |system| list(system, "parts")) {
        out.add_instruction_or_leave_out(string_at(part, "text"));
    }
    for content in list(body, "contents").iter().chain(list(body, "content")) {
        let role = match string_at(content, "role") {
            Some("model") => "assistant",
            Some("function") => "tool",
            Some(role) => role,
            None => "user",
        };
        let parts = out.convert(list(content, "parts"), part);
        out.add_message(role, None, parts);
    }
    // `input` is a field of the Interactions API.
    for input in list(body, "input") {
        match input.as_str().or_else(|| string_at(input, "text")) {
            Some(text) => out.add_message("user", None, vec![parts::text(text)]),
            None => out.count_left_out(),
        }
    }
    for tool in list(body, "tools") {
        tools(tool, out);
    }
}

fn part(part: &Value) -> Option<Value> {
    let either = |camel: &str, snake: &str| part.get(camel).or_else(|| part.get(snake));
    if let Some(text) = string_at(part, "text") {
        let thought = part.get("thought").and_then(Value::as_bool) == Some(true);
        return Some(if thought { parts::reasoning(text) } else { parts::text(text) });
    }
    if let Some(call) = either("functionCall", "function_call") {
        let arguments = call.get("args").cloned().unwrap_or_default();
        return Some(parts::tool_call(string_at(call, "id"), string_at(call, "name"), arguments));
    }
    if let Some(answer) = either("functionResponse", "function_response") {
        let response = answer.get("response").cloned().unwrap_or_default();
        // A function response has an id only if the call had one. Otherwise its name identifies the call.
        let id = string_at(answer, "id").or(string_at(answer, "name"));
        return Some(parts::tool_response(id, response));
    }
    let file = either("fileData", "file_data")?;
    let kind = string_at(file, "mimeType").or(string_at(file, "mime_type"));
    let address = string_at(file, "fileUri").or(string_at(file, "file_uri"))?;
    Some(parts::uri(modality(kind), address))
}

/// Converts an entry of the tool list: a list of functions, or tools that Google provides, each under its name.
fn tools(tool: &Value, out: &mut Messages) {
    let Some(fields) = tool.as_object() else {
        return out.count_left_out();
    };
    for (kind, of) in fields {
        if !matches!(kind.as_str(), "functionDeclarations" | "function_declarations") {
            out.add_tool(parts::tool(kind, None));
            continue;
        }
        for function in of.as_array().map_or(&[][..], Vec::as_slice) {
            let schema = ["parameters", "parametersJsonSchema", "parameters_json_schema"];
            let schema = schema.into_iter().find_map(|key| function.get(key));
            out.add_function(function, schema);
        }
    }
}
