//! Reads responses of generateContent, embeddings and predictions.

use serde::Deserialize;

use super::usage::RawUsage;
use crate::dialect::emit::{Preamble, emit_call, emit_text, emit_usage, index};
use crate::dialect::errors::HasError;
use crate::dialect::finish;
use crate::dialect::json::{Expected, Found, Paths, Typed, Value};
use crate::dialect::lenient::{self, Code, Count, Flag, JsonText, List, Object, Text};
use crate::dialect::response::{ErrorReport, Format, Message};
use crate::dialect::token_count::parse_token_count;
use crate::dialect::{EventSink, Part, Usage};

/// Maximum number of candidates (choices) whose tool calls are numbered separately. The format does not number calls.
/// Google allows 8 candidates.
const MAX_CANDIDATES: usize = 128;

/// Maximum length in bytes of buffered text. Text is buffered because the flag of a thought can follow the text.
/// Thought summaries have a few kilobytes, so longer text belongs to the answer.
const MAX_BUFFERED_BYTES: usize = 64 << 10;

/// Finish reasons with the same number in Gemini and Vertex AI. Clients receive numbers if they set
/// `enum-encoding=int`. Other numbers have different meanings in the two APIs and are exported as digits.
const FINISH_REASONS: [&str; 6] =
    ["FINISH_REASON_UNSPECIFIED", "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER"];

/// Reasons for refusing a prompt that have the same number in Gemini and Vertex AI.
const BLOCK_REASONS: [&str; 5] =
    ["BLOCK_REASON_UNSPECIFIED", "SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT"];

#[derive(Debug, Default)]
pub struct Generate {
    preamble: Preamble,
    calls: CandidateCalls,
    /// Index of the candidate that is being read from a JSON body.
    choice: u32,
    buffered: String,
    is_thought: Option<bool>,
    /// Sum of the tokens of all embedded instances.
    embedded: Option<u64>,
}

/// The meaning of a value in a JSON body.
#[derive(Clone, Copy, Debug)]
pub enum GenerateField {
    Id,
    Model,
    FinishReason,
    BlockReason,
    Usage,
    EmbeddedTokens,
    /// A vector.
    Embedding,
    Part,
    Text,
    Thought,
    Call,
    CallId,
    CallName,
    Arguments,
}

impl Typed for GenerateField {
    fn expected(self) -> Expected {
        match self {
            Self::Id
            | Self::Model
            | Self::FinishReason
            | Self::BlockReason
            | Self::CallId
            | Self::CallName => Expected::Text { is_generated: false },
            Self::Text | Self::Arguments => Expected::Text { is_generated: true },
            Self::EmbeddedTokens => Expected::Tokens { is_added: true },
            Self::Thought => Expected::Flag,
            Self::Usage => Expected::Container { may_be_text: true },
            Self::Part | Self::Call => Expected::Container { may_be_text: false },
            Self::Embedding => Expected::Any,
        }
    }
}

/// Paths of the values in a JSON body. Code Assist wraps responses in another object.
static PATHS: Paths<GenerateField> = Paths::new(&[
    ("responseId", GenerateField::Id),
    ("modelVersion", GenerateField::Model),
    ("candidates.*.finishReason", GenerateField::FinishReason),
    ("promptFeedback.blockReason", GenerateField::BlockReason),
    ("usageMetadata{}", GenerateField::Usage),
    ("predictions.*.embeddings.statistics.token_count", GenerateField::EmbeddedTokens),
    ("embedding", GenerateField::Embedding),
    ("embeddings.*", GenerateField::Embedding),
    ("candidates.*.content.parts.*", GenerateField::Part),
    ("candidates.*.content.parts.*.text", GenerateField::Text),
    ("candidates.*.content.parts.*.thought", GenerateField::Thought),
    ("candidates.*.content.parts.*.functionCall|toolCall|executableCode", GenerateField::Call),
    ("candidates.*.content.parts.*.functionCall|toolCall.id", GenerateField::CallId),
    ("candidates.*.content.parts.*.functionCall|toolCall.name", GenerateField::CallName),
    ("candidates.*.content.parts.*.functionCall|toolCall.args{}", GenerateField::Arguments),
    ("candidates.*.content.parts.*.executableCode.code", GenerateField::Arguments),
])
.with_errors()
.unwraps(&["response"]);

/// A message of a stream. Strings are borrowed from the frame. Rare fields are boxed, so that the struct stays small.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Chunk<'a> {
    candidates: List<Candidate<'a>>,
    prompt_feedback: Object<Feedback<'a>>,
    usage_metadata: Object<RawUsage<'a>>,
    model_version: Text<'a>,
    response_id: Text<'a>,
    error: HasError,
    /// The message itself, if Code Assist wraps it.
    response: Object<Box<Chunk<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Feedback<'a> {
    block_reason: Code<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Candidate<'a> {
    index: Count,
    content: Object<Content<'a>>,
    finish_reason: Code<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Content<'a> {
    parts: List<ContentPart<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct ContentPart<'a> {
    text: Text<'a>,
    /// Whether the text is a summary of a thought.
    thought: Flag,
    function_call: Object<Box<Call<'a>>>,
    /// Call of a tool that Google executes.
    tool_call: Object<Box<Call<'a>>>,
    executable_code: Object<Box<Executable<'a>>>,
}

/// A function call. If the arguments are streamed, the first message has the name, and later messages have
/// `partialArgs`. The last of these messages has no `willContinue`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Call<'a> {
    id: Text<'a>,
    name: Text<'a>,
    args: JsonText,
    partial_args: List<Argument<'a>>,
}

/// One value of the arguments, or a piece of a string. The path is not counted, because the model did not generate it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Argument<'a> {
    string_value: Text<'a>,
    number_value: JsonText,
    bool_value: JsonText,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Executable<'a> {
    code: Text<'a>,
}

impl Format for Generate {
    type Field = GenerateField;

    fn paths(&self) -> &'static Paths<GenerateField> {
        &PATHS
    }

    fn message(&mut self, message: Message<'_>, out: &mut impl EventSink) {
        // A list can wrap an error.
        message.parse_all::<Chunk<'_>, _>(&mut None, out, |chunk, out| {
            self.chunk(chunk.unwrapped(), out);
        });
    }

    fn is_answer(field: GenerateField) -> bool {
        !matches!(field, GenerateField::Id | GenerateField::Model | GenerateField::Usage)
    }

    fn value(&mut self, field: GenerateField, found: Found<'_>, out: &mut impl EventSink) {
        let choice = found.position.list(0);
        match (field, found.value) {
            (GenerateField::Part, Value::Object) => {
                self.choice = choice;
                self.is_thought = None;
            }
            (GenerateField::Part, Value::End) => self.end_part(out),
            (GenerateField::Thought, Value::Bool(true)) => {
                self.is_thought.get_or_insert(true);
                self.emit_buffered(out);
            }
            (GenerateField::Text, Value::Text(text)) => self.buffer_text(text, out),
            (GenerateField::Call, Value::Object) => {
                self.calls.begin(choice);
            }
            (GenerateField::Arguments, Value::Text(text)) => {
                emit_text(choice, self.calls.current(choice), text, out);
            }
            (GenerateField::Usage, value) => {
                if let Some(json) = value.word() {
                    let (usage, tier) = lenient::parse_with(json, |json| {
                        let usage: RawUsage<'_> = lenient::parse(json);
                        (usage.usage(), usage.tier().map(str::to_owned))
                    });
                    self.preamble.emit_tier(tier.as_deref(), None, out);
                    emit_usage(usage, out);
                }
            }
            _ => self.read_string(field, found, out),
        }
    }

    fn end(&mut self, _: &mut bool, out: &mut impl EventSink) {
        self.end_part(out);
        emit_usage(Usage { input: self.embedded, ..Usage::default() }, out);
    }
}

impl Generate {
    fn chunk(&mut self, chunk: &Chunk<'_>, out: &mut impl EventSink) {
        self.preamble.emit_started(chunk.response_id.some(), chunk.model_version.some(), out);
        let mut has_candidates = false;
        for (position, candidate) in (0..).zip(chunk.candidates.iter()) {
            has_candidates = true;
            let choice = index(candidate.index).unwrap_or(position);
            let content = candidate.content.0.iter();
            for part in content.flat_map(|content| content.parts.iter()) {
                self.emit_part(choice, part, out);
            }
            emit_stopped(choice, &candidate.finish_reason.0, &FINISH_REASONS, out);
        }
        // A response to a refused prompt has no candidates.
        let feedback = chunk.prompt_feedback.0.as_ref().filter(|_| !has_candidates);
        if let Some(feedback) = feedback {
            emit_stopped(0, &feedback.block_reason.0, &BLOCK_REASONS, out);
        }
        if let Some(usage) = &chunk.usage_metadata.0 {
            self.usage(usage, out);
        }
    }

    /// Emits a part of a candidate. Code that Google executes counts as tool arguments, because the model generated it.
    /// The output of this code is not counted.
    fn emit_part(&mut self, choice: u32, part: &ContentPart<'_>, out: &mut impl EventSink) {
        let text_part = if part.thought.0 { Part::Reasoning } else { Part::Text };
        emit_text(choice, text_part, &part.text.0, out);
        if let Some(call) = &part.function_call.0 {
            // If the arguments are streamed, only the first message of a call contains the name.
            if call.name.some().is_some() {
                self.calls.begin(choice);
            }
            call.emit((choice, self.calls.number(choice)), out);
        }
        if let Some(call) = &part.tool_call.0 {
            self.calls.begin(choice);
            call.emit((choice, self.calls.number(choice)), out);
        }
        if let Some(executable) = &part.executable_code.0 {
            let part = self.calls.begin(choice);
            emit_text(choice, part, &executable.code.0, out);
        }
    }

    /// Emits usage. Nearly every message contains usage with cumulative counts.
    fn usage(&mut self, usage: &RawUsage<'_>, out: &mut impl EventSink) {
        self.preamble.emit_tier(usage.tier(), None, out);
        emit_usage(usage.usage(), out);
    }

    fn read_string(&mut self, field: GenerateField, found: Found<'_>, out: &mut impl EventSink) {
        let Some(word) = found.value.word() else {
            return;
        };
        let choice = found.position.list(0);
        match field {
            GenerateField::Id => self.preamble.emit_started(Some(word), None, out),
            GenerateField::Model => self.preamble.emit_started(None, Some(word), out),
            GenerateField::FinishReason => emit_stopped(choice, word, &FINISH_REASONS, out),
            GenerateField::BlockReason => emit_stopped(0, word, &BLOCK_REASONS, out),
            GenerateField::EmbeddedTokens => {
                if let Some(tokens) = parse_token_count(word) {
                    self.embedded = Some(self.embedded.unwrap_or(0).saturating_add(tokens));
                }
            }
            GenerateField::CallId => {
                emit_call((choice, self.calls.number(choice)), Some(word), None, out);
            }
            GenerateField::CallName => {
                emit_call((choice, self.calls.number(choice)), None, Some(word), out);
            }
            _ => {}
        }
    }

    /// Buffers text until a flag shows whether the text is a thought.
    fn buffer_text(&mut self, text: &str, out: &mut impl EventSink) {
        self.buffered.push_str(text);
        if self.buffered.len() > MAX_BUFFERED_BYTES {
            self.is_thought.get_or_insert(false);
        }
        if self.is_thought.is_some() {
            self.emit_buffered(out);
        }
    }

    fn end_part(&mut self, out: &mut impl EventSink) {
        self.emit_buffered(out);
        self.is_thought = None;
    }

    fn emit_buffered(&mut self, out: &mut impl EventSink) {
        let part = if self.is_thought == Some(true) { Part::Reasoning } else { Part::Text };
        emit_text(self.choice, part, &self.buffered, out);
        self.buffered.clear();
    }
}

impl Chunk<'_> {
    fn unwrapped(&self) -> &Self {
        self.response.0.as_deref().unwrap_or(self)
    }
}

impl ErrorReport for Chunk<'_> {
    fn is_error(&self) -> bool {
        self.unwrapped().error.0
    }

    fn may_be_error(&self) -> bool {
        let chunk = self.unwrapped();
        chunk.candidates.first().is_none() && chunk.usage_metadata.0.is_none()
    }
}

impl Call<'_> {
    fn emit(&self, (choice, number): (u32, u32), out: &mut impl EventSink) {
        emit_call((choice, number), self.id.some(), self.name.some(), out);
        let part = Part::Tool(number);
        emit_text(choice, part, &self.args.0, out);
        for argument in self.partial_args.iter() {
            emit_text(choice, part, &argument.string_value.0, out);
            emit_text(choice, part, &argument.number_value.0, out);
            emit_text(choice, part, &argument.bool_value.0, out);
        }
    }
}

/// The number of tool calls of each candidate.
#[derive(Debug, Default)]
struct CandidateCalls(Vec<u32>);

impl CandidateCalls {
    /// Counts a new tool call. Returns the part for the arguments of the call.
    fn begin(&mut self, choice: u32) -> Part {
        if let Some(calls) = self.count_mut(choice) {
            *calls = calls.saturating_add(1);
        }
        self.current(choice)
    }

    /// Returns the part for the arguments of the latest tool call.
    fn current(&mut self, choice: u32) -> Part {
        Part::Tool(self.number(choice))
    }

    /// Returns the number of the latest call.
    fn number(&mut self, choice: u32) -> u32 {
        self.count_mut(choice).map_or(0, |calls| calls.saturating_sub(1))
    }

    fn count_mut(&mut self, choice: u32) -> Option<&mut u32> {
        let choice = usize::try_from(choice).ok().filter(|choice| *choice < MAX_CANDIDATES)?;
        if self.0.len() <= choice {
            self.0.resize(choice + 1, 0);
        }
        self.0.get_mut(choice)
    }
}

/// Emits why a choice stopped. Emits nothing if the reason is unspecified. `value` is the name or the number of an enum
/// value.
fn emit_stopped(choice: u32, value: &str, names: &[&str], out: &mut impl EventSink) {
    let number = value.parse::<usize>().ok();
    let reason = number.and_then(|number| names.get(number).copied()).unwrap_or(value);
    finish::emit_stopped(choice, reason, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Event;

    fn reason(value: &str, names: &[&str]) -> Option<String> {
        let mut emitted = None;
        emit_stopped(0, value, names, &mut |event: Event<'_>| {
            if let Event::Stopped { reason, .. } = event {
                emitted = Some(reason.to_owned());
            }
        });
        emitted
    }

    #[test]
    fn names_numbers_that_both_apis_share() {
        let names = |value| [reason(value, &FINISH_REASONS), reason(value, &BLOCK_REASONS)];
        assert_eq!(names("1"), ["STOP", "SAFETY"].map(|name| Some(name.to_owned())));
        assert_eq!(names("5"), ["OTHER", "5"].map(|name| Some(name.to_owned())));
        assert_eq!(names("12"), ["12", "12"].map(|name| Some(name.to_owned())));
        assert_eq!(names("NEW_WORD"), ["NEW_WORD"; 2].map(|name| Some(name.to_owned())));
        for none in ["", "0", "FINISH_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED"] {
            assert_eq!(names(none), [None, None], "{none}");
        }
    }
}
