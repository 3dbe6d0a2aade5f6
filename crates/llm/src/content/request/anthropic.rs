//! Converts captured requests of the Anthropic Messages API, on every platform that serves this API.

use serde_json::Value;

use super::{Messages, list, word};
use crate::content::parts;

pub(super) fn read(body: &Value, out: &mut Messages) {
    for block in list(body, "system") {
        out.instruct_or_leave_out(block.as_str().or_else(|| word(block, "text")));
    }
    for message in list(body, "messages") {
        let parts = out.convert(list(message, "content"), block);
        out.say(word(message, "role").unwrap_or("user"), None, parts);
    }
    if let Some(prompt) = word(body, "prompt") {
        out.say("user", None, vec![parts::text(prompt)]);
    }
    for tool in list(body, "tools") {
        let kind = word(tool, "type").unwrap_or("custom");
        match word(tool, "name") {
            Some(name) if kind != "custom" => out.offer(parts::tool(kind, Some(name))),
            _ => out.offer_function(tool, tool.get("input_schema")),
        }
    }
}

fn block(block: &Value) -> Option<Value> {
    if let Some(text) = block.as_str() {
        return Some(parts::text(text));
    }
    Some(match word(block, "type")? {
        "text" => parts::text(word(block, "text")?),
        "thinking" => parts::reasoning(word(block, "thinking")?),
        "tool_use" => {
            let input = block.get("input").cloned().unwrap_or_default();
            parts::tool_call(word(block, "id"), word(block, "name"), input)
        }
        "tool_result" => {
            let content = block.get("content").cloned().unwrap_or_default();
            parts::tool_response(word(block, "tool_use_id"), content)
        }
        kind @ ("image" | "document") => {
            let source = block.get("source")?;
            match (word(source, "url"), word(source, "file_id")) {
                (Some(url), _) => parts::uri(kind, url),
                (None, Some(id)) => parts::file(kind, id),
                // The block contains the data itself and no reference to it.
                (None, None) => return None,
            }
        }
        _ => return None,
    })
}
