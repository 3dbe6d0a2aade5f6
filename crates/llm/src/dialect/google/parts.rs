//! The parts of whole candidates, and the steps of a whole interaction.

use super::calls::Calls;
use super::stream::say;
use crate::dialect::called::called;
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Short, Step, Value};
use crate::dialect::{Event, Part};

/// How much of a part's text is held back until it is known whether it is the answer's or was thought: Google says so
/// behind the text. Summaries of thoughts are a few kilobytes; a longer text is taken as the answer's.
const HELD: usize = 64 << 10;

#[derive(Debug, Default)]
pub struct Parts {
    calls: Calls,
    /// The candidate whose part is being read.
    choice: u32,
    held: String,
    nature: Nature,
    /// The step that is being read has called its tool.
    called: bool,
    short: Short,
}

/// What the text of the part that is being read is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Nature {
    #[default]
    Unknown,
    Thought,
    Answer,
}

impl Parts {
    /// Takes a value; `path` is the way to it from its part.
    pub fn take(
        &mut self,
        choice: u32,
        path: &[Step],
        value: Value<'_>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        match (path, value) {
            ([], Value::Object) => {
                self.choice = choice;
                self.nature = Nature::Unknown;
            }
            ([], Value::End) => self.end(out),
            ([Key("thought")], Value::Bool(true)) => {
                if self.nature == Nature::Unknown {
                    self.nature = Nature::Thought;
                }
                self.flush(out);
            }
            ([Key("text")], Value::Text(text)) => self.text(text, out),
            ([Key("functionCall" | "toolCall" | "executableCode")], Value::Object) => {
                self.calls.begin(choice);
            }
            ([Key("functionCall" | "toolCall"), Key(key @ ("id" | "name"))], _) => {
                let word = self.short.word(value);
                if let (Some(word), Part::Tool(number)) = (word, self.calls.current(choice)) {
                    let word = Some(word.as_str());
                    let (id, name) = if *key == "id" { (word, None) } else { (None, word) };
                    called((choice, number), id, name, out);
                }
            }
            (
                [Key("functionCall" | "toolCall"), Key("args")]
                | [Key("executableCode"), Key("code")],
                Value::Text(text),
            ) => say(out, choice, self.calls.current(choice), text),
            _ => {}
        }
    }

    /// Takes a value of an interaction; `path` is the way to it from its step.
    pub fn step(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        match (path, value) {
            ([], Value::Object) => self.called = false,
            ([Key("text")] | [Key("content"), At(_), Key("text")], Value::Text(text)) => {
                say(out, 0, Part::Text, text);
            }
            ([Key("summary"), At(_), Key("text")], Value::Text(text)) => {
                say(out, 0, Part::Reasoning, text);
            }
            ([Key("arguments")], Value::Text(text)) => {
                let part = if std::mem::replace(&mut self.called, true) {
                    self.calls.current(0)
                } else {
                    self.calls.begin(0)
                };
                say(out, 0, part, text);
            }
            _ => {}
        }
    }

    /// No more comes of the part that is being read.
    pub fn end(&mut self, out: &mut impl FnMut(Event<'_>)) {
        self.flush(out);
        self.nature = Nature::Unknown;
    }

    fn text(&mut self, text: &str, out: &mut impl FnMut(Event<'_>)) {
        self.held.push_str(text);
        if self.nature == Nature::Unknown && self.held.len() > HELD {
            self.nature = Nature::Answer;
        }
        if self.nature != Nature::Unknown {
            self.flush(out);
        }
    }

    fn flush(&mut self, out: &mut impl FnMut(Event<'_>)) {
        let part = match self.nature {
            Nature::Thought => Part::Reasoning,
            Nature::Unknown | Nature::Answer => Part::Text,
        };
        say(out, self.choice, part, &self.held);
        self.held.clear();
    }
}
