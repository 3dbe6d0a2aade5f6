//! An answer that is one message as a whole, of any version → events, as its bytes go by.

use super::stopped;
use super::usage::RawUsage;
use crate::dialect::failure::identifier;
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Outcome, Short, Skimmer, Step, Value};
use crate::dialect::once::Once;
use crate::dialect::{Api, Event, Part, lenient};
use crate::frame::Anomaly;

/// Every key on the way to a value that is read.
const KEYS: [&str; 29] = [
    "id",
    "generation_id",
    "model",
    "text",
    "tool_calls",
    "parameters",
    "message",
    "content",
    "thinking",
    "tool_plan",
    "function",
    "arguments",
    "generations",
    "finish_reason",
    "error",
    "error_type",
    "type",
    "code",
    // The counts.
    "meta",
    "usage",
    "tokens",
    "billed_units",
    "input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "image_tokens",
    "cached_tokens",
    "prompt_tokens",
    "total_tokens",
];

/// What a tool is called with in the first version: an object that the model wrote.
const WRITTEN: [&str; 1] = ["parameters"];

#[derive(Debug)]
pub struct Body {
    skimmer: Skimmer,
    reading: Reading,
}

/// What is known of the message so far.
#[derive(Debug)]
struct Reading {
    api: Api,
    /// The status says that this is an error and nothing else.
    failed: bool,
    once: Once,
    short: Short,
    usage: RawUsage,
    /// Whether an error was reported, and by which words, from the most to the least particular place.
    error: bool,
    words: [Option<String>; 5],
}

impl Body {
    pub fn new(api: Api, failed: bool) -> Self {
        Self {
            skimmer: Skimmer::new(&KEYS).raw(&WRITTEN),
            reading: Reading {
                api,
                failed,
                once: Once::default(),
                short: Short::default(),
                usage: RawUsage::default(),
                error: false,
                words: [const { None }; 5],
            },
        }
    }

    pub fn piece(&mut self, bytes: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let reading = &mut self.reading;
        self.skimmer.push(bytes, &mut |path, value| reading.take(path, value, out));
    }

    /// The message is over.
    pub fn end(mut self, out: &mut impl FnMut(Event<'_>)) {
        let reading = &mut self.reading;
        let outcome = self.skimmer.finish(&mut |path, value| reading.take(path, value, out));
        let failed = reading.failed;
        if failed || reading.error {
            let kind = reading.words.iter().find_map(|word| identifier(word.as_deref()?));
            out(Event::Failed { kind });
        }
        // What comes with an error status may be a web page; that is not odd.
        match outcome {
            _ if failed => {}
            Outcome::Broken => out(Event::Odd(Anomaly::BadJson)),
            Outcome::Cut => out(Event::Odd(Anomaly::Unterminated)),
            Outcome::Complete if self.skimmer.lossy() => out(Event::Odd(Anomaly::BadText)),
            Outcome::Complete => {}
        }
    }
}

impl Reading {
    fn take(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        self.failure(path, value);
        if self.failed {
            return;
        }
        match path {
            [Key("meta" | "usage"), rest @ ..] => self.count(rest, value, out),
            [Key("id" | "generation_id" | "model" | "finish_reason")]
            | [Key("generations"), At(_), Key("finish_reason")] => {
                if let Some(word) = self.short.word(value) {
                    self.word(path, &word, out);
                }
            }
            _ => {
                if let (Some((choice, part)), Value::Text(text)) = (part(self.api, path), value) {
                    out(Event::Text { choice, part, text });
                }
            }
        }
    }

    fn word(&mut self, path: &[Step], word: &str, out: &mut impl FnMut(Event<'_>)) {
        match path {
            [Key("id" | "generation_id")] => self.once.started(Some(word), None, out),
            [Key("model")] => self.once.started(None, Some(word), out),
            [Key("finish_reason")] => stopped(0, word, out),
            [_, At(choice), _] => stopped(*choice, word, out),
            _ => {}
        }
    }

    /// Takes a value of a usage object; `path` is the way to it from there.
    fn count(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        if let ([], Value::End) = (path, value) {
            let usage = std::mem::take(&mut self.usage);
            let usage =
                if self.api.operation().generates() { usage.generated() } else { usage.taken_in() };
            if let Some(usage) = usage {
                out(Event::Usage(usage));
            }
        } else if let Value::Number(number) = value
            && let Some(number) = number.parse().ok().and_then(lenient::whole)
        {
            self.usage.set(path, number);
        }
    }

    /// Reads what the message says of an error; most of it is there only if it is one.
    fn failure(&mut self, path: &[Step], value: Value<'_>) {
        let place = match path {
            [Key("error")] => {
                self.error |= matches!(value, Value::Object | Value::Text(_));
                return;
            }
            [Key("error"), Key("type")] => 0,
            [Key("error_type")] => 1,
            [Key("type")] => 2,
            [Key("error"), Key("code")] => 3,
            [Key("code")] => 4,
            _ => return,
        };
        let word = self.short.word(value);
        if let (Some(word), Some(place)) = (word, self.words.get_mut(place)) {
            *place = Some(word);
        }
    }
}

/// The choice and the part that a text belongs to.
fn part(api: Api, path: &[Step]) -> Option<(u32, Part)> {
    if !api.operation().generates() {
        return None;
    }
    Some(match path {
        // The plan for the use of tools is in here, too, in the first version.
        [Key("text")] => (0, Part::Text),
        [Key("tool_calls"), At(call), Key("parameters")] => (0, Part::Tool(*call)),
        [Key("generations"), At(choice), Key("text")] => (*choice, Part::Text),
        [Key("message"), Key("content")] | [Key("message"), Key("content"), At(_), Key("text")] => {
            (0, Part::Text)
        }
        [Key("message"), Key("tool_plan")]
        | [Key("message"), Key("content"), At(_), Key("thinking")] => (0, Part::Reasoning),
        [Key("message"), Key("tool_calls"), At(call), Key("function"), Key("arguments")] => {
            (0, Part::Tool(*call))
        }
        _ => return None,
    })
}
