//! Messages of a Responses stream → events.

use serde::Deserialize;

use super::heard::{Home, Place};
use crate::dialect::failure::{Failure, identifier};
use crate::dialect::json::Step::Key;
use crate::dialect::json::{Outcome, Skimmer, Step, Value};
use crate::dialect::lenient::{Code, Count, Text};
use crate::dialect::openai::named::kind;
use crate::dialect::openai::object::{KEYS, Object};
use crate::dialect::{Api, Event, repair};
use crate::frame::Anomaly;

/// Reads a stream. What its messages say of the whole answer (which repeats all that was asked for: instructions,
/// tools) and of whole items is skimmed over; only pieces of text are read into a struct.
#[derive(Debug)]
pub struct Stream {
    /// The status says that this is an error and nothing else.
    failed: bool,
    /// It was generated before, and is only fetched.
    stored: bool,
    object: Object,
    /// Whether the answer's beginning was read.
    begun: bool,
    /// Whether an error was told.
    told_failure: bool,
}

/// A message that carries a piece of text, or a whole one, or an error.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Message<'a> {
    output_index: Count,
    content_index: Count,
    summary_index: Count,
    delta: Text<'a>,
    /// The whole, under the name that it has in an item.
    text: Text<'a>,
    refusal: Text<'a>,
    transcript: Text<'a>,
    arguments: Text<'a>,
    input: Text<'a>,
    diff: Text<'a>,
    /// Of an error, or what a code interpreter is to run.
    code: Code<'a>,
    error: Failure<'a>,
}

/// How much of a text a message tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Telling {
    Piece,
    Whole,
}

impl Stream {
    pub fn new(api: Api, failed: bool) -> Self {
        Self {
            failed,
            stored: api == Api::OpenAiStoredResponse,
            object: Object::new(api, failed),
            begun: false,
            told_failure: false,
        }
    }

    /// Reads one event of the stream.
    pub fn read(&mut self, name: &[u8], data: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let data = data.trim_ascii();
        if data.is_empty() {
            return;
        }
        if data == b"[DONE]" && !self.failed {
            return out(Event::Done);
        }
        let kind = kind(name, data);
        match &*kind {
            _ if self.failed => self.message(&kind, data, out),
            "response.created" | "response.queued" | "response.in_progress" => {
                self.begin(data, out);
            }
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled"
            | "response.done" => self.last(&kind, data, out),
            "response.output_item.done" if !self.stored => self.item(data, out),
            _ if text(&kind).is_some() || !kind.starts_with("response.") => {
                self.message(&kind, data, out);
            }
            _ => {}
        }
    }

    /// The first messages say all of the answer that is known at its start, each anew.
    fn begin(&mut self, data: &[u8], out: &mut impl FnMut(Event<'_>)) {
        if !std::mem::replace(&mut self.begun, true) {
            self.answer(data, out);
        }
    }

    /// The last message: how it ended, and all of it once more.
    fn last(&mut self, kind: &str, data: &[u8], out: &mut impl FnMut(Event<'_>)) {
        self.object.output.heard.repeat();
        self.answer(data, out);
        if self.stored {
            return out(Event::Done);
        }
        if !self.object.ended {
            let reason = match kind.rsplit('.').next() {
                None | Some("done") => "completed",
                Some(reason) => reason,
            };
            let choice = 0;
            out(Event::Stopped { choice, reason });
        }
        let told = &mut self.told_failure;
        self.object.end(&mut |event| {
            if !std::mem::replace(told, true) {
                out(event);
            }
        });
        if kind == "response.failed" && !std::mem::replace(told, true) {
            out(Event::Failed { kind: None });
        }
    }

    /// Reads what a message carries of the answer as a whole.
    fn answer(&mut self, data: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let object = &mut self.object;
        skim(data, out, |path, value, out| {
            if let [Key("response"), path @ ..] = path {
                object.take(path, value, out);
            }
        });
    }

    /// Reads an item that is done, if nothing of it was told before.
    fn item(&mut self, data: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let mut room = None;
        let Some((message, _)) = repair::read::<Message<'_>>(data, &mut room) else {
            return out(Event::Odd(Anomaly::BadJson));
        };
        let item = index(message.output_index);
        let output = &mut self.object.output;
        if output.heard.call(item).is_some() {
            return skim(data, out, |path, value, out| {
                if let [Key("item"), path @ ..] = path {
                    output.told(item, path, value, out);
                }
            });
        }
        if output.heard.knows_item(item) {
            return;
        }
        skim(data, out, |path, value, out| {
            if let [Key("item"), path @ ..] = path {
                output.item(item, path, value, out);
            }
        });
    }

    fn message(&mut self, kind: &str, data: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let error = self.failed || kind == "error";
        match repair::read::<Message<'_>>(data, &mut None) {
            Some((message, lossy)) => {
                if lossy && !error {
                    out(Event::Odd(Anomaly::BadText));
                }
                if let Some((home, telling)) = text(kind).filter(|_| !error && !self.stored) {
                    self.text(&message, home, telling, out);
                } else if error || !message.error.is_none() {
                    let kind = message.error.kind().or(identifier(&message.code.0));
                    self.fail(kind, out);
                }
            }
            None if error => self.fail(None, out),
            None => out(Event::Odd(Anomaly::BadJson)),
        }
    }

    fn text(
        &mut self,
        message: &Message<'_>,
        home: Home,
        telling: Telling,
        out: &mut impl FnMut(Event<'_>),
    ) {
        let piece = match home {
            Home::Summary => message.summary_index,
            Home::Tool => Count(None),
            Home::Text | Home::Refusal | Home::Reasoning | Home::Transcript => {
                message.content_index
            }
        };
        let (item, piece) = (index(message.output_index), index(piece));
        let place = Place { item, home, piece };
        let heard = &mut self.object.output.heard;
        let text = match telling {
            Telling::Piece => message.delta.some(),
            Telling::Whole => message.whole().filter(|_| !heard.knows(place)),
        };
        let Some(text) = text else {
            return;
        };
        if let Some(part) = heard.part(place) {
            let choice = 0;
            out(Event::Text { choice, part, text });
        }
    }

    fn fail(&mut self, kind: Option<&str>, out: &mut impl FnMut(Event<'_>)) {
        if !std::mem::replace(&mut self.told_failure, true) {
            out(Event::Failed { kind });
        }
    }
}

impl Message<'_> {
    /// The whole text, if that is what it tells.
    fn whole(&self) -> Option<&str> {
        [
            &*self.text.0,
            &*self.refusal.0,
            &*self.arguments.0,
            &*self.input.0,
            &*self.transcript.0,
            &*self.code.0,
            &*self.diff.0,
        ]
        .into_iter()
        .find(|text| !text.is_empty())
    }
}

/// What kind of text a message of this kind tells; names that were used for a while are read, too.
fn text(kind: &str) -> Option<(Home, Telling)> {
    let (what, telling) = kind.strip_prefix("response.")?.rsplit_once('.')?;
    let telling = match telling {
        "delta" => Telling::Piece,
        "done" => Telling::Whole,
        _ => return None,
    };
    let home = match what {
        "output_text" => Home::Text,
        "refusal" => Home::Refusal,
        "reasoning_text" | "reasoning" => Home::Reasoning,
        "reasoning_summary_text" | "reasoning_summary" => Home::Summary,
        "function_call_arguments"
        | "custom_tool_call_input"
        | "mcp_call_arguments"
        | "mcp_call.arguments"
        | "code_interpreter_call_code"
        | "code_interpreter_call.code"
        | "apply_patch_call_operation_diff"
        | "shell_call_command" => Home::Tool,
        "audio.transcript" | "output_audio_transcript" => Home::Transcript,
        _ => return None,
    };
    Some((home, telling))
}

/// Skims over a message and says what was odd about it.
fn skim<Out: FnMut(Event<'_>)>(
    data: &[u8],
    out: &mut Out,
    mut take: impl FnMut(&[Step], Value<'_>, &mut Out),
) {
    let mut skimmer = Skimmer::new(KEYS);
    skimmer.push(data, &mut |path, value| take(path, value, out));
    match skimmer.finish(&mut |path, value| take(path, value, out)) {
        Outcome::Complete if skimmer.lossy() => out(Event::Odd(Anomaly::BadText)),
        Outcome::Complete => {}
        Outcome::Cut | Outcome::Broken => out(Event::Odd(Anomaly::BadJson)),
    }
}

/// An index that is left out is that of the only one.
fn index(count: Count) -> u32 {
    let index = count.0.unwrap_or_default();
    u32::try_from(index).unwrap_or(u32::MAX)
}
