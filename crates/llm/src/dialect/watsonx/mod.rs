//! watsonx.ai: text generation, which is IBM's own, and chat, which is OpenAI's but for the name of the model.

mod generation;
mod request;

use serde::Deserialize;

use super::asked::Format;
use super::failure::{Failure, Told};
use super::json::Step::Key;
use super::json::{Short, Step, Value};
use super::lenient::Text;
use super::shapes::{Body, Messages, Shapes};
use super::{Api, Event, openai};
use crate::frame::Frame;

pub const REQUEST: Format = Format { keys: request::KEYS, take: request::take };

/// Reads the answer of one call.
#[derive(Debug)]
pub enum Response {
    Generation(Shapes<generation::Stream, generation::Whole>),
    Chat(Box<Chat>),
}

impl Response {
    /// `failed`: the status says that the answer is an error.
    pub fn new(api: Api, failed: bool) -> Self {
        if api == Api::WatsonxChat {
            return Self::Chat(Box::new(Chat {
                failed,
                head: Shapes::new(failed),
                named: false,
                told: Told::default(),
                rest: openai::Response::new(Api::OpenAiChat, failed),
            }));
        }
        Self::Generation(Shapes::new(failed))
    }

    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        match self {
            Self::Generation(shapes) => shapes.read(frame, out),
            Self::Chat(chat) => chat.read(frame, out),
        }
    }
}

/// A chat's answer: what is IBM's own in it is read here, the rest as OpenAI's.
#[derive(Debug)]
pub struct Chat {
    failed: bool,
    head: Shapes<Head, Head>,
    /// Who answers was said.
    named: bool,
    /// Both may report one error.
    told: Told,
    rest: openai::Response,
}

impl Chat {
    fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        let error = matches!(frame, Frame::Event { name: b"error", .. });
        if !self.failed && !error {
            let told = &mut self.told;
            self.rest.read(frame, &mut |event| {
                if told.admits(&event) {
                    out(event);
                }
            });
        }
        let known = self.named && matches!(frame, Frame::Event { .. });
        if known && !error {
            return;
        }
        // The end, and what is odd, was said.
        let (named, told) = (&mut self.named, &mut self.told);
        self.head.read(frame, &mut |event| {
            *named |= matches!(event, Event::Started { .. });
            let said = matches!(event, Event::Odd(_) | Event::Done);
            if !said && told.admits(&event) {
                out(event);
            }
        });
    }
}

/// Who answers a chat: `model_id`, which newer versions say under `model`, too.
#[derive(Debug, Default)]
pub struct Head {
    short: Short,
    model: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Named<'a> {
    model_id: Text<'a>,
    errors: Failure<'a>,
}

impl Messages for Head {
    type Message<'a> = Named<'a>;

    fn message(&mut self, _name: &[u8], named: &Named<'_>, out: &mut impl FnMut(Event<'_>)) {
        say(named.model_id.some(), out);
    }

    fn error<'m>(named: &'m Named<'_>) -> &'m Failure<'m> {
        &named.errors
    }
}

impl Body for Head {
    const KEYS: &'static [&'static str] =
        &["model_id", "error", "errors", "type", "code", "error_type"];

    fn value(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        match path {
            [Key("model_id")] => self.model = self.short.word(value).or(self.model.take()),
            [] if value == Value::End => say(self.model.as_deref(), out),
            _ => {}
        }
    }
}

fn say(model: Option<&str>, out: &mut impl FnMut(Event<'_>)) {
    if model.is_some() {
        out(Event::Started { id: None, model });
    }
}

#[cfg(test)]
mod tests;
