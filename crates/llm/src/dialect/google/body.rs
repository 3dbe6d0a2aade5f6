//! An answer that is one message as a whole → events, as its bytes go by.

use super::parts::Parts;
use super::stream::tier;
use super::usage::Counts;
use super::words;
use crate::dialect::failure::identifier;
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Outcome, Short, Skimmer, Step, Value};
use crate::dialect::once::Once;
use crate::dialect::{Event, Usage, lenient};
use crate::frame::Anomaly;

/// Every key on the way to a value that is read.
const KEYS: [&str; 54] = [
    "response",
    "candidates",
    "content",
    "parts",
    "text",
    "thought",
    "functionCall",
    "toolCall",
    "args",
    "executableCode",
    "name",
    "code",
    "finishReason",
    "promptFeedback",
    "blockReason",
    "modelVersion",
    "responseId",
    "error",
    "status",
    // Of embeddings by Vertex AI.
    "predictions",
    "embeddings",
    "statistics",
    "token_count",
    // Of interactions.
    "id",
    "model",
    "agent",
    "service_tier",
    "steps",
    "outputs",
    "summary",
    "arguments",
    // The counts.
    "usageMetadata",
    "promptTokenCount",
    "cachedContentTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "toolUsePromptTokenCount",
    "promptTokensDetails",
    "toolUsePromptTokensDetails",
    "candidatesTokensDetails",
    "modality",
    "tokenCount",
    "serviceTier",
    "trafficType",
    "usage",
    "total_input_tokens",
    "total_cached_tokens",
    "total_output_tokens",
    "total_thought_tokens",
    "total_tool_use_tokens",
    "input_tokens_by_modality",
    "tool_use_tokens_by_modality",
    "output_tokens_by_modality",
    "tokens",
];

/// The keys of what a tool is called with: an object that the model wrote.
const WRITTEN: [&str; 2] = ["args", "arguments"];

#[derive(Debug)]
pub struct Body {
    skimmer: Skimmer,
    reading: Reading,
}

/// What is known of the message so far.
#[derive(Debug)]
struct Reading {
    /// An interaction, which names itself by other keys.
    interaction: bool,
    /// The status says that this is an error and nothing else.
    failed: bool,
    once: Once,
    short: Short,
    parts: Parts,
    counts: Counts,
    /// One entry of the counts by modality.
    modality: String,
    tokens: u64,
    /// Tokens of all the instances that were embedded.
    embedded: Option<u64>,
    /// Whether an error was reported, and by which words: its status, its code.
    error: bool,
    status: Option<String>,
    code: Option<String>,
}

impl Body {
    pub fn new(interaction: bool, failed: bool) -> Self {
        Self {
            skimmer: Skimmer::new(&KEYS).raw(&WRITTEN),
            reading: Reading {
                interaction,
                failed,
                once: Once::default(),
                short: Short::default(),
                parts: Parts::default(),
                counts: Counts::default(),
                modality: String::new(),
                tokens: 0,
                embedded: None,
                error: false,
                status: None,
                code: None,
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
        reading.parts.end(out);
        if let Some(tokens) = reading.embedded {
            out(Event::Usage(Usage { input: Some(tokens), ..Usage::default() }));
        }
        let failed = reading.failed;
        if failed || reading.error {
            let words = [&reading.status, &reading.code];
            let kind = words.into_iter().find_map(|word| identifier(word.as_deref()?));
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
        // Some errors are wrapped in a list, and Code Assist's answers in an object.
        let path = match path {
            [At(0) | Key("response"), rest @ ..] => rest,
            _ => path,
        };
        if let [Key("error"), rest @ ..] = path {
            return self.failure(rest, value);
        }
        if self.failed {
            return;
        }
        match path {
            [Key("candidates"), At(choice), Key("content"), Key("parts"), At(_), rest @ ..] => {
                self.parts.take(*choice, rest, value, out)
            }
            [Key("steps" | "outputs"), At(_), rest @ ..] => self.parts.step(rest, value, out),
            [Key("usageMetadata" | "usage"), rest @ ..] => self.usage(rest, value, out),
            [
                Key("predictions"),
                At(_),
                Key("embeddings"),
                Key("statistics"),
                Key("token_count"),
            ] => {
                if let Some(tokens) = self.number(value) {
                    self.embedded = Some(self.embedded.unwrap_or(0).saturating_add(tokens));
                }
            }
            _ => self.word(path, value, out),
        }
    }

    /// Takes what is told by a word.
    fn word(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        let is_word = match path {
            [Key("candidates"), At(_), Key("finishReason")]
            | [Key("promptFeedback"), Key("blockReason")]
            | [Key("modelVersion" | "responseId")] => true,
            [Key("id" | "model" | "agent" | "status" | "service_tier")] => self.interaction,
            _ => false,
        };
        let Some(word) = Some(value).filter(|_| is_word).and_then(|value| self.short.word(value))
        else {
            return;
        };
        let word = word.as_str();
        match path {
            [Key("responseId" | "id")] => self.once.started(Some(word), None, out),
            [Key("modelVersion" | "model" | "agent")] => self.once.started(None, Some(word), out),
            [Key("service_tier")] => self.once.tier(Some(word), None, out),
            [Key("status")] => super::steps::ended(word, out),
            [Key("candidates"), At(choice), _] => {
                if let Some(reason) = words::finish(word) {
                    let choice = *choice;
                    out(Event::Stopped { choice, reason });
                }
            }
            [Key("promptFeedback"), _] => {
                if let Some(reason) = words::block(word) {
                    out(Event::Stopped { choice: 0, reason });
                }
            }
            _ => {}
        }
    }

    /// Takes a value of a usage object; `path` is the way to it from there.
    fn usage(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        match (path, value) {
            ([], Value::End) => {
                if let Some(usage) = std::mem::take(&mut self.counts).harmonised() {
                    out(Event::Usage(usage));
                }
            }
            ([Key("serviceTier" | "trafficType")], value) => {
                if let Some(word) = self.short.word(value) {
                    self.once.tier(tier(&word), None, out);
                }
            }
            ([Key(list), At(_)], Value::End) => {
                self.counts.add(list, &self.modality, self.tokens);
                self.modality.clear();
                self.tokens = 0;
            }
            ([Key(_), At(_), Key("modality")], value) => {
                self.modality = self.short.word(value).unwrap_or_default();
            }
            ([Key(_), At(_), Key("tokenCount" | "tokens")], value) => {
                self.tokens = self.number(value).unwrap_or_default();
            }
            ([Key(key)], value) => {
                if let Some(number) = self.number(value) {
                    self.counts.set(key, number);
                }
            }
            _ => {}
        }
    }

    /// Takes a value of an error; `path` is the way to it from there.
    fn failure(&mut self, path: &[Step], value: Value<'_>) {
        match path {
            [] => self.error |= matches!(value, Value::Object | Value::Text(_)),
            [Key("status")] => self.status = self.short.word(value).or(self.status.take()),
            [Key("code")] => self.code = self.short.word(value).or(self.code.take()),
            _ => {}
        }
    }

    /// A count, once it is over: protocol buffers write large numbers as strings.
    fn number(&mut self, value: Value<'_>) -> Option<u64> {
        let word = self.short.word(value)?;
        word.parse().ok().and_then(lenient::whole)
    }
}
