//! The choices of an answer that is one message as a whole, as they go by → events.

use crate::dialect::called::called;
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Short, Step, Value};
use crate::dialect::{Event, Part};

#[derive(Debug)]
pub struct Choices {
    /// Whether they are of the older API, whose text stands beside the end. Mistral has messages there, too.
    plain: bool,
    /// Under which key the text of a choice of the older API stands.
    body: Option<(u32, &'static str)>,
    /// Where the reasoning of a choice stands: some providers send the same text in several places.
    home: Option<(u32, &'static str)>,
    /// The last choice whose end was told.
    ended: Option<u32>,
    short: Short,
}

impl Choices {
    pub fn new(plain: bool) -> Self {
        Self { plain, body: None, home: None, ended: None, short: Short::default() }
    }

    /// Takes a value of one choice.
    pub fn take(
        &mut self,
        choice: u32,
        path: &[Step],
        value: Value<'_>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        if let [Key(key @ ("finish_reason" | "stop_reason"))] = path {
            // Beside a reason, the other word is what the text ended with.
            let beside = *key == "stop_reason" && self.ended == Some(choice);
            if let Some(reason) = self.short.word(value).filter(|_| !beside) {
                self.ended = Some(choice);
                let reason = &reason;
                out(Event::Stopped { choice, reason });
            }
            return;
        }
        if let Some((number, key)) = call(path) {
            if let Some(word) = self.short.word(value) {
                let word = Some(word.as_str());
                let (id, name) = if key == "id" { (word, None) } else { (None, word) };
                called((choice, number), id, name, out);
            }
            return;
        }
        let part = match path {
            [Key("text")] if self.plain => Some(Part::Text),
            [Key("message"), rest @ ..] => part(rest),
            _ => None,
        };
        let (Some(part), Value::Text(text)) = (part, value) else {
            return;
        };
        if let [Key(body), ..] = path
            && self.plain
            && !is_first(&mut self.body, choice, body)
        {
            return;
        }
        if let [_, Key(home), ..] = path
            && part == Part::Reasoning
            && !is_first(&mut self.home, choice, home)
        {
            return;
        }
        out(Event::Text { choice, part, text });
    }
}

/// Whether a choice has its text under this key, and not already under another.
fn is_first(known: &mut Option<(u32, &'static str)>, choice: u32, key: &'static str) -> bool {
    match known {
        Some((of, first)) if *of == choice => *first == key,
        _ => {
            *known = Some((choice, key));
            true
        }
    }
}

/// The call of a tool that this is the id or the name of.
fn call(path: &[Step]) -> Option<(u32, &'static str)> {
    match path {
        [Key("message"), Key("tool_calls"), At(call), Key("id")] => Some((*call, "id")),
        [Key("message"), Key("tool_calls"), At(call), Key("function" | "custom"), Key("name")] => {
            Some((*call, "name"))
        }
        [Key("message"), Key("function_call"), Key("name")] => Some((0, "name")),
        _ => None,
    }
}

/// The part that a text in a message belongs to; `path` is the way to it from the message.
fn part(path: &[Step]) -> Option<Part> {
    Some(match path {
        [Key("content")] | [Key("content"), At(_), Key("text")] => Part::Text,
        [Key("reasoning_content" | "reasoning" | "reasoning_text")]
        | [Key("reasoning_details"), At(_), Key("text" | "summary")]
        | [Key("content"), At(_), Key("thinking")]
        | [Key("content"), At(_), Key("thinking" | "summary"), At(_), Key("text")] => {
            Part::Reasoning
        }
        [Key("refusal")] => Part::Refusal,
        [Key("tool_calls"), At(call), Key("function"), Key("arguments")]
        | [Key("tool_calls"), At(call), Key("custom"), Key("input")] => Part::Tool(*call),
        [Key("function_call"), Key("arguments")] => Part::Tool(0),
        [Key("audio"), Key("transcript")] => Part::Transcript,
        _ => return None,
    })
}
