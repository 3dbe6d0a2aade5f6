//! Requests to Bedrock: the Converse API, and models that are invoked in their own format.

use serde_json::Value;

use super::{Messages, chat, list, word};
use crate::content::parts;

pub(super) fn read(body: &Value, out: &mut Messages) {
    // A request in another API's format has content blocks with that format's `type` field.
    let is_converse = list(body, "messages").iter().any(|message| {
        list(message, "content")
            .iter()
            .any(|block| block.get("type").is_none() && block.is_object())
    });
    if !is_converse {
        return other(body, out);
    }
    for block in list(body, "system") {
        match word(block, "text") {
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
    for tool in body.get("toolConfig").map_or(&[][..], |config| list(config, "tools")) {
        let Some((spec, name)) =
            tool.get("toolSpec").and_then(|spec| Some((spec, word(spec, "name")?)))
        else {
            // A prompt cache marker, or a tool of Amazon's own.
            out.leave_out();
            continue;
        };
        let schema = spec.get("inputSchema").and_then(|schema| schema.get("json"));
        out.offer(parts::function(name, word(spec, "description"), schema));
    }
}

/// Reads Titan's own format, or the common chat format.
fn other(body: &Value, out: &mut Messages) {
    match word(body, "inputText") {
        Some(text) => out.say("user", None, vec![parts::text(text)]),
        None => chat::read(body, out),
    }
}

fn block(block: &Value) -> Option<Value> {
    if let Some(text) = word(block, "text") {
        return Some(parts::text(text));
    }
    if let Some(tool) = block.get("toolUse") {
        let input = tool.get("input").cloned().unwrap_or_default();
        return Some(parts::tool_call(word(tool, "toolUseId"), word(tool, "name"), input));
    }
    if let Some(result) = block.get("toolResult") {
        let content = result.get("content").cloned().unwrap_or_default();
        return Some(parts::tool_response(word(result, "toolUseId"), content));
    }
    let thought = block.get("reasoningContent")?.get("reasoningText")?;
    word(thought, "text").map(parts::reasoning)
}
