//! Converts captured requests of Bedrock: the Converse API, and requests in a model's own format.

use serde_json::Value;

use super::{Messages, chat, list, word};
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
        return match word(body, "inputText") {
            Some(text) => out.say("user", None, vec![parts::text(text)]),
            None => chat::read(body, out),
        };
    }
    for block in list(body, "system") {
        out.instruct_or_leave_out(word(block, "text"));
    }
    for message in list(body, "messages") {
        let parts = out.convert(list(message, "content"), block);
        out.say(word(message, "role").unwrap_or("user"), None, parts);
    }
    for tool in body.get("toolConfig").map_or(&[][..], |config| list(config, "tools")) {
        // Other entries are prompt cache markers and tools that Amazon provides.
        let spec = tool.get("toolSpec").unwrap_or(&Value::Null);
        out.offer_function(spec, spec.get("inputSchema").and_then(|schema| schema.get("json")));
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
