//! Converts captured requests of the Anthropic Messages API, on every platform that serves this API.

use serde_json::Value;

use super::{Messages, list, string_at};
use crate::content::parts;

pub(super) fn read(body: &Value, out: &mut Messages) {
    for block in list(body, "system") {
        out.add_instruction_or_leave_out(block.as_str().or_else(|| string_at(block, "text")));
    }
    for message in list(body, "messages") {
        let parts = out.convert(list(message, "content"), block);
        out.add_message(string_at(message, "role").unwrap_or("user"), None, parts);
    }
    if let Some(prompt) = string_at(body, "prompt") {
        out.add_message("user", None, vec![parts::text(prompt)]);
    }
    for tool in list(body, "tools") {
        let kind = string_at(tool, "type").unwrap_or("custom");
        match string_at(tool, "name") {
            Some(name) if kind != "custom" => out.add_tool(parts::tool(kind, Some(name))),
            _ => out.add_function(tool, tool.get("input_schema")),
        }
    }
}

fn block(block: &Value) -> Option<Value> {
    if let Some(text) = block.as_str() {
        return Some(parts::text(text));
    }
    Some(match string_at(block, "type")? {
        "text" => parts::text(string_at(block, "text")?),
        "thinking" => parts::reasoning(string_at(block, "thinking")?),
        "tool_use" => {
            let input = block.get("input").cloned().unwrap_or_default();
            parts::tool_call(string_at(block, "id"), string_at(block, "name"), input)
        }
        "tool_result" => {
            let content = block.get("content").cloned().unwrap_or_default();
            parts::tool_response(string_at(block, "tool_use_id"), content)
        }
        kind @ ("image" | "document") => {
            let source = block.get("source")?;
            match (string_at(source, "url"), string_at(source, "file_id")) {
                (Some(url), _) => parts::uri(kind, url),
                (None, Some(id)) => parts::file(kind, id),
                // The block contains the data itself and no reference to it.
                (None, None) => return None,
            }
        }
        _ => return None,
    })
}
