//! The two shapes that an answer comes in, a stream of messages or one whole, and what reading each has in common: a
//! second chance for messages with broken text, errors in every place, and an error status that leaves nothing but the
//! error.

use std::fmt;

use serde::Deserialize;

use super::failure::{Failure, Told, identifier};
use super::fault::{Fault, unwrapped};
use super::json::{Outcome, Skimmer, Step, Value};
use super::{Event, Part, lenient, repair};
use crate::frame::{Anomaly, Frame};

/// Reads the messages of a stream in one format.
pub trait Messages: fmt::Debug + Default {
    /// A message, as far as it is read.
    type Message<'a>: Deserialize<'a>;

    /// Takes the next message; `name`: that of the event that it came in, if it had one.
    fn message(
        &mut self,
        name: &[u8],
        message: &Self::Message<'_>,
        out: &mut impl FnMut(Event<'_>),
    );

    /// What the message says of an error.
    fn error<'m>(message: &'m Self::Message<'_>) -> &'m Failure<'m>;

    /// The kind of the error, where it stands beside that.
    fn kind<'m>(message: &'m Self::Message<'_>) -> Option<&'m str> {
        Self::error(message).kind()
    }
}

/// Reads a whole answer in one format, as it goes by.
pub trait Body: fmt::Debug + Default {
    /// Every key on the way to a value that is read, those of [`Fault`] among them.
    const KEYS: &'static [&'static str];
    /// Those whose objects are read as text.
    const RAW: &'static [&'static str] = &[];

    /// Takes the next value.
    fn value(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>));
}

/// Reads an answer in one format, whichever shape it comes in.
#[derive(Debug)]
pub struct Shapes<M, B> {
    messages: M,
    /// Taken when the first piece comes.
    body: B,
    whole: Option<Box<Whole<B>>>,
    /// The status says that the answer is an error.
    failed: bool,
    told: Told,
}

#[derive(Debug)]
struct Whole<B> {
    skimmer: Skimmer,
    body: B,
    fault: Fault,
}

impl<M: Messages, B: Body> Shapes<M, B> {
    /// `failed`: the status says that the answer is an error and nothing else.
    pub fn new(failed: bool) -> Self {
        Self::of(failed, M::default(), B::default())
    }

    /// The same with what is known of the answer beforehand.
    pub const fn of(failed: bool, messages: M, body: B) -> Self {
        Self { messages, body, whole: None, failed, told: Told::Nothing }
    }

    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        match frame {
            Frame::Event { name, data } => self.event(name, data.trim_ascii(), out),
            Frame::Exception { name, .. } => {
                let kind = std::str::from_utf8(name).ok().and_then(identifier);
                self.fail(kind, out);
            }
            // An object by itself is an old way to say that the stream failed.
            Frame::Stray(line) if line.trim_ascii_start().starts_with(b"{") => {
                self.event(b"error", line.trim_ascii(), out);
            }
            Frame::Stray(_) => {}
            Frame::Piece(bytes) => self.piece(bytes, out),
            Frame::Whole => self.end(out),
            Frame::Odd(anomaly) => out(Event::Odd(*anomaly)),
        }
    }

    fn event(&mut self, name: &[u8], data: &[u8], out: &mut impl FnMut(Event<'_>)) {
        if data.is_empty() {
            return;
        }
        if data == b"[DONE]" {
            if !self.failed {
                out(Event::Done);
            }
            return;
        }
        // Serde would read a list as a message, too: its first element as the first field.
        let object = data.first() == Some(&b'{');
        let text = std::str::from_utf8(data).ok().filter(|_| object);
        match text.and_then(|text| serde_json::from_str::<M::Message<'_>>(text).ok()) {
            Some(message) => self.message(name, &message, out),
            None => self.repaired(name, data, out),
        }
    }

    /// Reads what is JSON but for its text, or but for a key that stands twice.
    fn repaired(&mut self, name: &[u8], data: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let repaired = repair::tree(data).filter(|repaired| repaired.tree.is_object());
        let message =
            repaired.as_ref().and_then(|repaired| M::Message::deserialize(&repaired.tree).ok());
        match message {
            Some(message) => {
                if repaired.as_ref().is_some_and(|repaired| repaired.lossy) {
                    out(Event::Odd(Anomaly::BadText));
                }
                self.message(name, &message, out);
            }
            None if self.failed || name == b"error" => self.fail(None, out),
            None => out(Event::Odd(Anomaly::BadJson)),
        }
    }

    fn message(&mut self, name: &[u8], message: &M::Message<'_>, out: &mut impl FnMut(Event<'_>)) {
        if !self.failed {
            self.messages.message(name, message, out);
        }
        if self.failed || name == b"error" || !M::error(message).is_none() {
            self.fail(M::kind(message), out);
        }
    }

    fn fail(&mut self, kind: Option<&str>, out: &mut impl FnMut(Event<'_>)) {
        let event = Event::Failed { kind };
        if self.told.admits(&event) {
            out(event);
        }
    }

    fn piece(&mut self, bytes: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let failed = self.failed;
        let body = &mut self.body;
        let whole = || Box::new(Whole::of(std::mem::take(body)));
        let whole = self.whole.get_or_insert_with(whole);
        let (body, fault) = (&mut whole.body, &mut whole.fault);
        whole.skimmer.push(bytes, &mut |path, value| {
            take(body, fault, failed, (path, value), out);
        });
    }

    fn end(&mut self, out: &mut impl FnMut(Event<'_>)) {
        let Some(mut whole) = self.whole.take() else {
            return;
        };
        let failed = self.failed;
        let (body, fault) = (&mut whole.body, &mut whole.fault);
        let outcome = whole.skimmer.finish(&mut |path, value| {
            take(body, fault, failed, (path, value), out);
        });
        if failed || fault.is_one() {
            self.fail(fault.kind(), out);
        }
        // What comes with an error status may be a web page or nothing; that is not odd.
        match outcome {
            _ if failed => {}
            Outcome::Broken => out(Event::Odd(Anomaly::BadJson)),
            Outcome::Cut => out(Event::Odd(Anomaly::Unterminated)),
            Outcome::Complete if whole.skimmer.lossy() => out(Event::Odd(Anomaly::BadText)),
            Outcome::Complete => {}
        }
    }
}

impl<B: Body> Whole<B> {
    fn of(body: B) -> Self {
        Self { skimmer: Skimmer::new(B::KEYS).raw(B::RAW), body, fault: Fault::default() }
    }
}

fn take<B: Body>(
    body: &mut B,
    fault: &mut Fault,
    failed: bool,
    (path, value): (&[Step], Value<'_>),
    out: &mut impl FnMut(Event<'_>),
) {
    let path = unwrapped(path);
    fault.take(path, value);
    if !failed {
        body.value(path, value, out);
    }
}

/// A number of things.
pub fn count(value: Value<'_>) -> Option<u64> {
    match value {
        Value::Number(number) => number.parse().ok().and_then(lenient::whole),
        Value::Object
        | Value::Array
        | Value::End
        | Value::Text(_)
        | Value::TextEnd
        | Value::Bool(_)
        | Value::Null => None,
    }
}

/// A piece of generated text, if it is one.
pub fn say(part: Part, choice: u32, text: &str, out: &mut impl FnMut(Event<'_>)) {
    if !text.is_empty() {
        out(Event::Text { choice, part, text });
    }
}
