//! An answer that is one message as a whole → events, as its bytes go by.

use super::usage::RawUsage;
use super::{Once, identifier};
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Outcome, Short, Skimmer, Step, Value};
use crate::dialect::{Api, Event, Part, lenient};
use crate::frame::Anomaly;

/// Every key on the way to a value that is read.
const KEYS: [&str; 41] = [
    "id",
    "model",
    "object",
    "service_tier",
    "system_fingerprint",
    "choices",
    "message",
    "text",
    "finish_reason",
    "content",
    "thinking",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "summary",
    "refusal",
    "tool_calls",
    "function",
    "arguments",
    "custom",
    "input",
    "function_call",
    "audio",
    "transcript",
    "x_groq",
    "error",
    "type",
    "code",
    "error_type",
    // The counts.
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "prompt_cache_hit_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "prompt_tokens_details",
    "cache_write_tokens",
    "completion_tokens_details",
    "usage",
];

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
    /// Where the reasoning of a choice stands: some providers send the same text in several places.
    home: Option<(u32, &'static str)>,
    error: Failure,
}

/// An error, as far as it has been read.
#[derive(Debug, Default)]
struct Failure {
    seen: bool,
    kind: Option<String>,
    code: Option<String>,
    /// What the whole message says that it is; `error` in some old shapes.
    object: Option<String>,
    /// `type`, `code` and `error_type` at the top.
    top_kind: Option<String>,
    top_code: Option<String>,
}

impl Body {
    pub fn new(api: Api, failed: bool) -> Self {
        Self {
            skimmer: Skimmer::new(&KEYS),
            reading: Reading {
                api,
                failed,
                once: Once::default(),
                short: Short::default(),
                usage: RawUsage::default(),
                home: None,
                error: Failure::default(),
            },
        }
    }

    pub fn piece(&mut self, bytes: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let reading = &mut self.reading;
        self.skimmer
            .push(bytes, &mut |path, value| reading.take(path, value, out));
    }

    /// The message is over.
    pub fn end(mut self, out: &mut impl FnMut(Event<'_>)) {
        let reading = &mut self.reading;
        let outcome = self
            .skimmer
            .finish(&mut |path, value| reading.take(path, value, out));
        let failed = reading.failed;
        if failed || reading.error.is_one() {
            let kind = reading.error.kind();
            out(Event::Failed { kind });
        }
        // What comes with an error status may be a web page or nothing; that is not odd.
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
        // Some wrap an error in a list.
        let path = match path {
            [At(0), rest @ ..] => rest,
            _ => path,
        };
        self.failure(path, value);
        if self.failed {
            return;
        }
        match path {
            [Key("usage"), rest @ ..]
            | [Key("x_groq"), Key("usage"), rest @ ..]
            | [Key("choices"), At(_), Key("usage"), rest @ ..] => self.count(rest, value, out),
            [Key("choices"), At(choice), rest @ ..] => self.choice(*choice, rest, value, out),
            [Key("id" | "model" | "service_tier" | "system_fingerprint")] => {
                if let Some(word) = word(&mut self.short, value) {
                    self.head(path, &word, out);
                }
            }
            _ => {}
        }
    }

    fn head(&mut self, path: &[Step], word: &str, out: &mut impl FnMut(Event<'_>)) {
        let word = Some(word);
        match path {
            [Key("id")] => self.once.started(word, None, out),
            [Key("model")] => self.once.started(None, word, out),
            [Key("service_tier")] => self.once.tier(word, None, out),
            [Key("system_fingerprint")] => self.once.tier(None, word, out),
            _ => {}
        }
    }

    fn count(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        match (path, value) {
            ([], Value::Object) => self.usage = RawUsage::default(),
            ([], Value::End) => {
                if let Some(usage) = std::mem::take(&mut self.usage).harmonised() {
                    out(Event::Usage(usage));
                }
            }
            (path, Value::Number(number)) => {
                if let Some(number) = number.parse().ok().and_then(lenient::whole) {
                    self.usage.set(path, number);
                }
            }
            _ => {}
        }
    }

    fn choice(
        &mut self,
        choice: u32,
        path: &[Step],
        value: Value<'_>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        if let [Key("finish_reason")] = path {
            if let Some(reason) = word(&mut self.short, value) {
                let reason = &reason;
                out(Event::Stopped { choice, reason });
            }
            return;
        }
        let part = match path {
            [Key("text")] if self.api == Api::OpenAiCompletions => Some(Part::Text),
            [Key("message"), rest @ ..] if self.api == Api::OpenAiChat => part(rest),
            _ => None,
        };
        let (Some(part), Value::Text(text)) = (part, value) else {
            return;
        };
        if let [_, Key(home), ..] = path
            && part == Part::Reasoning
        {
            let known = self.home.filter(|(of, _)| *of == choice);
            if known.is_some_and(|(_, known)| known != *home) {
                return;
            }
            self.home = Some((choice, home));
        }
        out(Event::Text { choice, part, text });
    }

    /// Reads what the message says of an error; most of it is there only if it is one.
    fn failure(&mut self, path: &[Step], value: Value<'_>) {
        let path = match path {
            [Key("choices"), At(_), rest @ ..] => rest,
            _ => path,
        };
        let field = match path {
            [Key("error")] => {
                self.error.seen |= matches!(value, Value::Object | Value::Text(_));
                return;
            }
            [Key("error"), Key("type")] => &mut self.error.kind,
            [Key("error"), Key("code")] => &mut self.error.code,
            [Key("error_type" | "type")] => &mut self.error.top_kind,
            [Key("code")] => &mut self.error.top_code,
            [Key("object")] => &mut self.error.object,
            _ => return,
        };
        if let Some(word) = word(&mut self.short, value) {
            *field = Some(word);
        }
    }
}

impl Failure {
    fn is_one(&self) -> bool {
        self.seen || self.object.as_deref() == Some("error")
    }

    /// The first that is an identifier, from the most to the least particular home.
    fn kind(&self) -> Option<&str> {
        [&self.kind, &self.code, &self.top_kind, &self.top_code]
            .into_iter()
            .find_map(|word| word.as_deref().and_then(identifier))
    }
}

/// A short value, once it is whole.
fn word(short: &mut Short, value: Value<'_>) -> Option<String> {
    match value {
        Value::Text(piece) => {
            short.push(piece);
            None
        }
        Value::TextEnd => Some(short.take()).filter(|word| !word.is_empty()),
        Value::Number(number) => Some(number.to_owned()),
        Value::Object | Value::Array | Value::End | Value::Bool(_) | Value::Null => None,
    }
}

/// The part that a text in a message belongs to; `path` is the way to it from the message.
fn part(path: &[Step]) -> Option<Part> {
    Some(match path {
        [Key("content")] | [Key("content"), At(_), Key("text")] => Part::Text,
        [Key("reasoning_content" | "reasoning")]
        | [Key("reasoning_details"), At(_), Key("text" | "summary")]
        | [Key("content"), At(_), Key("thinking")]
        | [Key("content"), At(_), Key("thinking"), At(_), Key("text")] => Part::Reasoning,
        [Key("refusal")] => Part::Refusal,
        [
            Key("tool_calls"),
            At(call),
            Key("function"),
            Key("arguments"),
        ]
        | [Key("tool_calls"), At(call), Key("custom"), Key("input")] => Part::Tool(*call),
        [Key("function_call"), Key("arguments")] => Part::Tool(0),
        [Key("audio"), Key("transcript")] => Part::Transcript,
        _ => return None,
    })
}
