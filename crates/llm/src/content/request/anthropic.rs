//! Requests to Anthropic Messages on every platform that serves it.

use serde_json::Value;

use super::{Messages, list, word};
use crate::content::parts;

pub(super) fn read(body: &Value, out: &mut Messages) {
    for block in list(body, "system") {
        match block.as_str().or_else(|| word(block, "text")) {
            Some(text) => out.instruct(text),
            None => out.leave_out(),
        }
    }
    for message in list(body, "messages") {
        let mut said = Vec::new();
        for block in list(message, "content") {
            match self::block(block) {
                Some(part) => said.push(part),
                None => out.leave_out(),
            }
        }
        out.say(word(message, "role").unwrap_or("user"), None, said);
    }
    if let Some(prompt) = word(body, "prompt") {
        out.say("user", None, vec![parts::text(prompt)]);
    }
    for tool in list(body, "tools") {
        let kind = word(tool, "type").unwrap_or("custom");
        match word(tool, "name") {
            Some(name) if kind == "custom" => {
                let description = word(tool, "description");
                out.offer(parts::function(name, description, tool.get("input_schema")));
            }
            Some(name) => out.offer(parts::tool(kind, Some(name))),
            None => out.leave_out(),
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
                // The content is in the request itself.
                (None, None) => return None,
            }
        }
        _ => return None,
    })
}
