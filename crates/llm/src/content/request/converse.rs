//! Converts captured requests of Bedrock: the Converse API, and requests in a model's own format.

use serde_json::Value;

use super::{Messages, chat, list, string_at};
use crate::content::parts;

pub(super) fn read(body: &Value, out: &mut Messages) {
    // Content blocks in the format of another API have a `type` field. Converse blocks do not.
    let is_converse = list(body, "messages").iter().any(|message| {
        list(message, "content")
            .iter()
            .any(|block| block.get("type").is_none() && block.is_object())
    });
    if !is_converse {
        // The format of Amazon Titan, or the common chat format.
        return match string_at(body, "inputText") {
            Some(text) => out.add_message("user", None, vec![parts::text(text)]),
            None => chat::read(body, out),
        };
    }
    for block in list(body, "system") {
        out.add_instruction_or_leave_out(string_at(block, "text"));
    }
    for message in list(body, "messages") {
        let parts = out.convert(list(message, "content"), block);
        out.add_message(string_at(message, "role").unwrap_or("user"), None, parts);
    }
    for tool in body.get("toolConfig").map_or(&[][..], |config| list(config, "tools")) {
        // Other entries are prompt cache markers and tools that Amazon provides.
        let spec = tool.get("toolSpec").unwrap_or(&Value::Null);
        out.add_function(spec, spec.get("inputSchema").and_then(|schema| schema.get("json")));
    }
}

fn block(block: &Value) -> Option<Value> {
    if let Some(text) = string_at(block, "text") {
        return Some(parts::text(text));
    }
    if let Some(tool) = block.get("toolUse") {
        let input = tool.get("input").cloned().unwrap_or_default();
        return Some(parts::tool_call(
            string_at(tool, "toolUseId"),
            string_at(tool, "name"),
            input,
        ));
    }
    if let Some(result) = block.get("toolResult") {
        let content = result.get("content").cloned().unwrap_or_default();
        return Some(parts::tool_response(string_at(result, "toolUseId"), content));
    }
    let thought = block.get("reasoningContent")?.get("reasoningText")?;
    string_at(thought, "text").map(parts::reasoning)
}
