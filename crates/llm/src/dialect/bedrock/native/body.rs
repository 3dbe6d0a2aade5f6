//! An answer that is one message as a whole → events, as its bytes go by.

use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Short, Step, Value};
use crate::dialect::once::Once;
use crate::dialect::shapes::{Body, count, say};
use crate::dialect::{Event, Part, Usage};

#[derive(Debug, Default)]
pub struct Message {
    short: Short,
    once: Once,
    usage: Usage,
}

impl Body for Message {
    const KEYS: &'static [&'static str] = &[
        "text",
        // Titan, which embeds, too.
        "results",
        "outputText",
        "completionReason",
        "inputTextTokenCount",
        "tokenCount",
        // Llama.
        "generation",
        "content",
        "prompt_token_count",
        "generation_token_count",
        "stop_reason",
        // Mistral's completions.
        "outputs",
        // Cohere.
        "generations",
        "generation_id",
        "finish_reason",
        "tool_calls",
        "parameters",
        // Jurassic.
        "completions",
        "data",
        "finishReason",
        "reason",
        // TGI and those who write as it does.
        "generated_text",
        "generated_texts",
        "details",
        "generated_tokens",
        // Of errors.
        "error",
        "type",
        "code",
        "status",
        "__type",
        "ErrorCode",
        "Output",
    ];
    const RAW: &'static [&'static str] = &["parameters"];

    fn value(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        if let Some((choice, part)) = generated(path) {
            if let Value::Text(text) = value {
                say(part, choice, text, out);
            }
        } else if let Some(choice) = ended(path) {
            if let Some(reason) = &self.short.word(value) {
                out(Event::Stopped { choice, reason });
            }
        } else if path == [Key("generation_id")] {
            if let Some(id) = &self.short.word(value) {
                self.once.started(Some(id), None, out);
            }
        } else if let Some(number) = count(value) {
            self.count(path, number, out);
        }
    }
}

impl Message {
    fn count(&mut self, path: &[Step], number: u64, out: &mut impl FnMut(Event<'_>)) {
        match path {
            [Key("inputTextTokenCount" | "prompt_token_count")] => self.usage.input = Some(number),
            [Key("generation_token_count")] | [Key("details"), Key("generated_tokens")] => {
                self.usage.output = Some(number);
            }
            // Titan counts each result by itself.
            [Key("results"), At(_), Key("tokenCount")] => {
                let output = self.usage.output.get_or_insert(0);
                *output = output.saturating_add(number);
            }
            _ => return,
        }
        out(Event::Usage(self.usage));
    }
}

/// The choice and part that a text there belongs to, if it is a generated one.
fn generated(path: &[Step]) -> Option<(u32, Part)> {
    let (choice, part) = match path {
        [Key("generation" | "text" | "generated_text")] | [Key("generation"), Key("content")] => {
            (0, Part::Text)
        }
        [Key("results"), At(choice), Key("outputText")]
        | [Key("outputs" | "generations"), At(choice), Key("text")]
        | [Key("completions"), At(choice), Key("data"), Key("text")]
        | [Key("generated_texts"), At(choice)] => (*choice, Part::Text),
        [Key("tool_calls"), At(call), Key("parameters")] => (0, Part::Tool(*call)),
        _ => return None,
    };
    Some((choice, part))
}

/// The choice whose reason to end stands there.
fn ended(path: &[Step]) -> Option<u32> {
    match path {
        [Key("stop_reason" | "finish_reason")] | [Key("details"), Key("finish_reason")] => Some(0),
        [Key("results"), At(choice), Key("completionReason")]
        | [Key("outputs"), At(choice), Key("stop_reason")]
        | [Key("generations"), At(choice), Key("finish_reason")]
        | [Key("completions"), At(choice), Key("finishReason"), Key("reason")] => Some(*choice),
        _ => None,
    }
}
