//! The items of an answer, as they go by → events.

use super::heard::{Heard, Home, Place};
use crate::dialect::Event;
use crate::dialect::called::called;
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Short, Step, Value};

#[derive(Debug, Default)]
pub struct Output {
    pub heard: Heard,
    /// Whether the item, or the part of it, that is being read says that it is reasoning. Where the type stands after
    /// the text (keys in the order of the alphabet), reasoning passes for text: it is not held back to be called right.
    reasoning_item: bool,
    reasoning_part: bool,
    short: Short,
    /// Id and name of the call of a tool that the item is.
    call: [Option<String>; 2],
}

impl Output {
    /// Takes a value of the list of items.
    pub fn take(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        if let [At(item), path @ ..] = path {
            self.item(*item, path, value, out);
        }
    }

    /// Takes a value of one item.
    pub fn item(
        &mut self,
        item: u32,
        path: &[Step],
        value: Value<'_>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        match (path, value) {
            ([], Value::Object) => {
                self.reasoning_item = false;
                self.call = [None, None];
            }
            ([], Value::End) => self.called(item, out),
            ([Key("call_id" | "name")], _) => self.name(path, value),
            ([Key("content"), At(_)], Value::Object) => self.reasoning_part = false,
            ([Key("type")], _) => {
                if let Some(word) = self.short.word(value) {
                    self.reasoning_item = word == "reasoning";
                }
            }
            ([Key("content"), At(_), Key("type")], _) => {
                if let Some(word) = self.short.word(value) {
                    self.reasoning_part = word == "reasoning_text";
                }
            }
            (_, Value::Text(text)) => {
                let place = self.home(path).map(|(home, piece)| Place { item, home, piece });
                if let Some(part) = place.and_then(|place| self.heard.part(place)) {
                    let choice = 0;
                    out(Event::Text { choice, part, text });
                }
            }
            _ => {}
        }
    }

    /// Takes a value of an item whose text was told: only which tool it calls.
    pub fn told(
        &mut self,
        item: u32,
        path: &[Step],
        value: Value<'_>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        match (path, value) {
            ([], Value::End) => self.called(item, out),
            ([Key("call_id" | "name")], _) => self.name(path, value),
            _ => {}
        }
    }

    fn name(&mut self, path: &[Step], value: Value<'_>) {
        let [id, name] = &mut self.call;
        if let Some(word) = self.short.word(value) {
            let place = if path == [Key("name")] { name } else { id };
            *place = Some(word);
        }
    }

    fn called(&mut self, item: u32, out: &mut impl FnMut(Event<'_>)) {
        let [id, name] = std::mem::take(&mut self.call);
        if let Some(number) = self.heard.call(item) {
            called((0, number), id.as_deref(), name.as_deref(), out);
        }
    }

    /// What stands at this place of an item, and which of the texts there it is.
    fn home(&self, path: &[Step]) -> Option<(Home, u32)> {
        let text = match self.reasoning_item || self.reasoning_part {
            true => Home::Reasoning,
            false => Home::Text,
        };
        Some(match path {
            [Key("content")] => (text, 0),
            [Key("content"), At(piece), Key("text")] => (text, *piece),
            [Key("content"), At(piece), Key("refusal")] => (Home::Refusal, *piece),
            [Key("content"), At(piece), Key("transcript")] => (Home::Transcript, *piece),
            [Key("summary"), At(piece), Key("text")] => (Home::Summary, *piece),
            [Key("arguments" | "input" | "code")] | [Key("operation"), Key("diff")] => {
                (Home::Tool, 0)
            }
            _ => return None,
        })
    }
}
