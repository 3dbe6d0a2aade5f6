//! The object that an answer is → events, as its values go by: the body of an answer that is one message, or what a
//! message of a Responses stream carries.

use super::choices::Choices;
use super::responses::Output;
use super::usage::RawUsage;
use crate::dialect::failure::identifier;
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Short, Step, Value};
use crate::dialect::once::Once;
use crate::dialect::{Api, Event, Part};

/// Every key on the way to a value that is read.
pub const KEYS: &[&str] = &[
    "id",
    "model",
    "object",
    "service_tier",
    "system_fingerprint",
    // Chat and completions.
    "choices",
    "message",
    "text",
    "finish_reason",
    "stop_reason",
    "content",
    "thinking",
    "reasoning_content",
    "reasoning",
    "reasoning_text",
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
    // Responses.
    "response",
    "item",
    "output",
    "status",
    "type",
    "code",
    "operation",
    "diff",
    // Errors.
    "error",
    "errors",
    "error_type",
    "error_code",
    "base_resp",
    "status_code",
    // Counts.
    "usage",
    "x_groq",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "prompt_cache_hit_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "prompt_tokens_details",
    "completion_tokens_details",
    "input_tokens_details",
    "output_tokens_details",
    "input_token_details",
    "output_token_details",
    "cache_write_tokens",
    "text_tokens",
    "image_tokens",
    "audio_tokens",
    "video_tokens",
    // Clocks.
    "timings",
    "time_info",
    "perf_metrics",
    "stats",
    "queue_time",
    "prompt_time",
    "completion_time",
    "total_time",
    "total_prompt_time_sec",
    "total_completion_time_sec",
    "total_time_sec",
    "generation_time",
    "prompt_ms",
    "predicted_ms",
    "total_latency",
    "server-processing-time",
    // Of calls of tools.
    "call_id",
    "name",
];

/// What is known of the object so far.
#[derive(Debug)]
pub struct Object {
    api: Api,
    /// The status says that this is an error and nothing else.
    failed: bool,
    once: Once,
    short: Short,
    usage: RawUsage,
    choices: Choices,
    pub output: Output,
    /// Whether a Responses object said how it ended.
    pub ended: bool,
    error: Failure,
}

/// An error, as far as it has been read.
#[derive(Debug, Default)]
struct Failure {
    seen: bool,
    kind: Option<String>,
    code: Option<String>,
    /// MiniMax: the status of the answer, where it is not good.
    refused: Option<String>,
    /// What the whole object says that it is; `error` in some old shapes.
    object: Option<String>,
    /// `type`, `code` and `error_type` at the top.
    top_kind: Option<String>,
    top_code: Option<String>,
    short: Short,
}

impl Object {
    pub fn new(api: Api, failed: bool) -> Self {
        Self {
            api,
            failed,
            once: Once::default(),
            short: Short::default(),
            usage: RawUsage::default(),
            choices: Choices::new(api == Api::OpenAiCompletions),
            output: Output::default(),
            ended: false,
            error: Failure::default(),
        }
    }

    pub fn take(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        // Some wrap an error in a list.
        let path = match path {
            [At(0), rest @ ..] => rest,
            _ => path,
        };
        self.error.take(path, value);
        if self.failed {
            return;
        }
        if let [Key("id" | "model" | "service_tier" | "system_fingerprint")] = path {
            return self.head(path, value, out);
        }
        match (self.api, path) {
            // It was generated before, and counted then; and what is only counted is not used.
            (Api::OpenAiStoredResponse | Api::OpenAiInputTokens, _) => {}
            (
                _,
                [Key("usage"), rest @ ..]
                | [Key("x_groq"), Key("usage"), rest @ ..]
                | [Key("choices"), At(_), Key("usage"), rest @ ..]
                | [Key("timings" | "time_info" | "perf_metrics" | "stats"), rest @ ..],
            ) => self.count(rest, value, out),
            (Api::OpenAiChat | Api::OpenAiCompletions, [Key("choices"), At(choice), rest @ ..]) => {
                self.choices.take(*choice, rest, value, out)
            }
            (Api::OpenAiResponses, [Key("output"), rest @ ..]) => {
                self.output.take(rest, value, out);
            }
            (Api::OpenAiResponses, [Key("status")]) => self.status(value, out),
            (Api::OpenAiTranscription, [Key("text")]) => {
                if let Value::Text(text) = value {
                    let (choice, part) = (0, Part::Transcript);
                    out(Event::Text { choice, part, text });
                }
            }
            _ => {}
        }
    }

    /// The object is over.
    pub fn end(&self, out: &mut impl FnMut(Event<'_>)) {
        // A stored response that has failed is fetched all the same.
        let stored = self.api == Api::OpenAiStoredResponse;
        if self.failed || (self.error.is_one() && !stored) {
            let kind = self.error.kind();
            out(Event::Failed { kind });
        }
    }

    pub fn is_speech(&self) -> bool {
        self.api == Api::OpenAiSpeech
    }

    fn head(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        let Some(word) = self.short.word(value) else {
            return;
        };
        let word = Some(&*word);
        match path {
            [Key("id")] => self.once.started(word, None, out),
            [Key("model")] => self.once.started(None, word, out),
            // What was asked for: a stream of responses says so until the tier that answers is known.
            [Key("service_tier")] if word == Some("auto") => {}
            [Key("service_tier")] => self.once.tier(word, None, out),
            [Key("system_fingerprint")] => self.once.tier(None, word, out),
            _ => {}
        }
    }

    fn count(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        match (path, value) {
            ([], Value::Object) => self.usage = RawUsage::default(),
            ([], Value::End) => {
                let raw = std::mem::take(&mut self.usage);
                let usage = match self.api == Api::OpenAiEmbeddings {
                    true => raw.harmonised_input(),
                    false => raw.harmonised(),
                };
                if let Some(usage) = usage {
                    out(Event::Usage(usage));
                }
                if let Some(timings) = raw.timings() {
                    out(Event::Timings(timings));
                }
            }
            _ => {
                let word = self.short.word(value);
                let number = word.and_then(|word| word.parse().ok());
                if let Some(number) = number.filter(|number: &f64| number.is_finite()) {
                    self.usage.set(path, number);
                }
            }
        }
    }

    /// How far a response is; one that waits or works has not ended yet.
    fn status(&mut self, value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        let Some(reason) = self.short.word(value) else {
            return;
        };
        if matches!(&*reason, "queued" | "in_progress") {
            return;
        }
        self.ended = true;
        self.error.seen |= reason == "failed";
        let (choice, reason) = (0, &*reason);
        out(Event::Stopped { choice, reason });
    }
}

impl Failure {
    /// Reads what the object says of an error; most of it is there only if it is one.
    fn take(&mut self, path: &[Step], value: Value<'_>) {
        let path = match path {
            [Key("choices"), At(_), rest @ ..] | [Key("x_groq"), rest @ ..] => rest,
            _ => path,
        };
        let field = match path {
            [Key("error")] | [Key("errors"), At(0)] => {
                self.seen |= matches!(value, Value::Object | Value::Text(_));
                return;
            }
            [Key("error"), Key("type")] => &mut self.kind,
            [Key("error"), Key("code")] | [Key("errors"), At(0), Key("code")] => &mut self.code,
            [Key("base_resp"), Key("status_code")] => &mut self.refused,
            [Key("error_type" | "type")] => &mut self.top_kind,
            [Key("code" | "error_code")] => &mut self.top_code,
            [Key("object")] => &mut self.object,
            _ => return,
        };
        if let Some(word) = self.short.word(value) {
            *field = Some(word);
        }
        self.refused.take_if(|code| code == "0");
    }

    fn is_one(&self) -> bool {
        self.seen || self.refused.is_some() || self.object.as_deref() == Some("error")
    }

    /// The first that is an identifier, from the most to the least particular home.
    fn kind(&self) -> Option<&str> {
        [&self.kind, &self.code, &self.refused, &self.top_kind, &self.top_code]
            .into_iter()
            .find_map(|word| word.as_deref().and_then(identifier))
    }
}
