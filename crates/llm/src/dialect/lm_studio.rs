//! Reads LM Studio's native API, `/api/v1/chat`: a list of messages, reasoning and tool calls.
//!
//! A stream has typed events from `chat.start` to `chat.end`. The last event repeats the whole response. A response has
//! one choice and no finish reason.

use std::time::Duration;

use serde::Deserialize;

use super::emit::{Preamble, emit_call, emit_text, emit_timings, emit_usage};
use super::errors::HasError;
use super::json::{Expected, Found, JsonScanner, Outcome, Paths, Typed, Value, deliver};
use super::lenient::{self, JsonText, Number, Text};
use super::request::{RequestField, RequestPaths, RequestState, SETTINGS};
use super::response::{ErrorReport, Format, FormatReader, Message, report_misfit};
use super::token_count::TokenCount;
use super::{Api, Event, EventSink, Part, Reader, Timings, Usage};
use crate::budget::RequestBudget;
use crate::frame::ParseError;

const CHOICE: u32 = 0;

#[derive(Debug, Default)]
pub struct LmStudio {
    preamble: Preamble,
    /// Number of tool calls so far.
    calls: u32,
    /// The type of the item that is being read from a JSON body.
    item: ItemType,
    /// Whether the events of a stream contained text, which the last event repeats.
    has_pieces: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum ItemType {
    #[default]
    Message,
    Reasoning,
    ToolCall,
}

/// The meaning of a value in a JSON body.
#[derive(Clone, Copy, Debug)]
pub enum LmStudioField {
    Model,
    Id,
    Stats,
    ItemType,
    Content,
    Tool,
    Arguments,
}

impl Typed for LmStudioField {
    fn expected(self) -> Expected {
        match self {
            Self::Model | Self::Id | Self::ItemType | Self::Tool => {
                Expected::Text { is_generated: false }
            }
            Self::Content | Self::Arguments => Expected::Text { is_generated: true },
            Self::Stats => Expected::Container { may_be_text: true },
        }
    }
}

/// Paths of the values in a JSON body. The last event of a stream wraps the body in `result`.
static PATHS: Paths<LmStudioField> = Paths::new(&[
    ("model_instance_id", LmStudioField::Model),
    ("response_id|thread_id", LmStudioField::Id),
    ("stats{}", LmStudioField::Stats),
    // The type is the first key of an item.
    ("output.*.type", LmStudioField::ItemType),
    ("output.*.content", LmStudioField::Content),
    ("output.*.tool", LmStudioField::Tool),
    ("output.*.arguments{}", LmStudioField::Arguments),
])
.with_errors_of_message()
.unwraps(&["result"]);

pub static REQUEST: RequestPaths = RequestPaths::new(&[
    ("model", RequestField::Model),
    ("input", RequestField::Rule(input)),
    ("input.*.content|text", RequestField::Prompt),
    ("system_prompt", RequestField::Prompt),
    ("stream", RequestField::Stream),
    ("reasoning", RequestField::Reasoning),
    ("integrations.*", RequestField::Tools),
    ("previous_response_id", RequestField::PreviousResponse),
    // Other servers that use the same path.
    ("messages", RequestField::ApiOfList(Api::OpenAiChat)),
    ("messages.*.content", RequestField::Prompt),
    ("messages.*.content.*.text", RequestField::Prompt),
    ("message", RequestField::Api(Api::CohereV1Chat)),
    ("message", RequestField::Prompt),
])
.extends(SETTINGS);

/// An event of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Chunk<'a> {
    #[serde(rename = "type")]
    kind: Text<'a>,
    content: Text<'a>,
    model_instance_id: Text<'a>,
    tool: Text<'a>,
    arguments: JsonText,
    error: HasError,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Stats {
    input_tokens: TokenCount,
    total_output_tokens: TokenCount,
    reasoning_output_tokens: TokenCount,
    model_load_time_seconds: Number,
}

pub fn reader(failed: bool, budget: &RequestBudget) -> Reader {
    FormatReader::new(LmStudio::default(), failed).with_templates(budget).into()
}

impl Format for LmStudio {
    type Field = LmStudioField;

    fn paths(&self) -> &'static Paths<LmStudioField> {
        &PATHS
    }

    fn message(&mut self, message: Message<'_>, out: &mut impl EventSink) {
        if message.name == b"chat.end" && !message.is_error {
            return self.last(message.data, out);
        }
        let mut is_last = false;
        message.parse::<Chunk<'_>, _>(&mut None, out, |chunk, out| {
            is_last = chunk.kind.0 == "chat.end";
            self.chunk(chunk, out);
        });
        if is_last {
            self.last(message.data, out);
        }
    }

    fn is_answer(field: LmStudioField) -> bool {
        matches!(field, LmStudioField::ItemType | LmStudioField::Content)
    }

    fn value(&mut self, field: LmStudioField, found: Found<'_>, out: &mut impl EventSink) {
        match (field, found.value) {
            (LmStudioField::Content, Value::Text(text)) => match self.item {
                ItemType::Message => emit_text(CHOICE, Part::Text, text, out),
                ItemType::Reasoning => emit_text(CHOICE, Part::Reasoning, text, out),
                ItemType::ToolCall => {}
            },
            (LmStudioField::Arguments, Value::Text(text)) => {
                emit_text(CHOICE, Part::Tool(self.call()), text, out);
            }
            (field, value) => {
                if let Some(word) = value.string() {
                    self.read_string(field, word, out);
                }
            }
        }
    }
}

impl LmStudio {
    fn chunk(&mut self, chunk: &Chunk<'_>, out: &mut impl EventSink) {
        self.preamble.emit_started(None, chunk.model_instance_id.some(), out);
        let part = match &*chunk.kind.0 {
            "message.delta" => Part::Text,
            "reasoning.delta" => Part::Reasoning,
            "tool_call.start" => {
                self.calls = self.calls.saturating_add(1);
                return emit_call((CHOICE, self.call()), None, chunk.tool.some(), out);
            }
            "tool_call.arguments" => {
                self.has_pieces = true;
                return emit_text(CHOICE, Part::Tool(self.call()), &chunk.arguments.0, out);
            }
            // The result of a tool repeats the arguments.
            _ => return,
        };
        self.has_pieces = true;
        emit_text(CHOICE, part, &chunk.content.0, out);
    }

    /// Reads the last event, which contains the whole response.
    fn last(&mut self, data: &[u8], out: &mut impl EventSink) {
        let has_pieces = self.has_pieces;
        let mut scanner = JsonScanner::new(&PATHS);
        let outcome = scanner.scan(data, &mut |field, found| {
            let repeats =
                !matches!(field, LmStudioField::Model | LmStudioField::Id | LmStudioField::Stats);
            if !(has_pieces && repeats) {
                deliver(field, found, &mut |field, found: Found<'_>| {
                    self.value(field, found, out);
                });
            }
        });
        report_misfit(out);
        if outcome != Outcome::Complete {
            return out(Event::ParseError(ParseError::BadJson));
        }
        out(Event::Done);
    }

    fn read_string(&mut self, field: LmStudioField, word: &str, out: &mut impl EventSink) {
        match field {
            LmStudioField::Model => self.preamble.emit_started(None, Some(word), out),
            LmStudioField::Id => self.preamble.emit_started(Some(word), None, out),
            LmStudioField::Stats => emit_stats(word, out),
            LmStudioField::ItemType => {
                self.item = match word {
                    "reasoning" => ItemType::Reasoning,
                    "tool_call" => {
                        self.calls = self.calls.saturating_add(1);
                        ItemType::ToolCall
                    }
                    _ => ItemType::Message,
                };
            }
            LmStudioField::Tool => emit_call((CHOICE, self.call()), None, Some(word), out),
            LmStudioField::Content | LmStudioField::Arguments => {}
        }
    }

    /// Returns the number of the latest tool call.
    const fn call(&self) -> u32 {
        self.calls.saturating_sub(1)
    }
}

impl ErrorReport for Chunk<'_> {
    fn is_error(&self) -> bool {
        self.error.0
    }
}

fn emit_stats(json: &str, out: &mut impl EventSink) {
    let (usage, load) = lenient::parse_with(json, |json| {
        let stats: Stats = lenient::parse(json);
        let usage = Usage {
            input: stats.input_tokens.0,
            output: stats.total_output_tokens.0,
            reasoning: stats.reasoning_output_tokens.0,
            ..Usage::default()
        };
        (usage, stats.model_load_time_seconds.0)
    });
    emit_usage(usage, out);
    let load = load.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    emit_timings(Timings { load, ..Timings::default() }, out);
}

fn input(state: &mut RequestState, Found { value, .. }: Found<'_>) {
    if matches!(value, Value::Text(_) | Value::Array) {
        state.facts.api.get_or_insert(Api::LmStudioChat);
    }
    state.prompt(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::testing::{JSON, STREAM, TestResponse, asked, failed, started, usage};

    const RESULT: &str = r#"{"model_instance_id":"openai/gpt-oss-20b","output":[{"type":"reasoning","content":"Need it."},{"type":"tool_call","tool":"search","arguments":{"limit": 1},"output":"[]","provider_info":{"type":"plugin"}},{"type":"message","content":"It rains."}],"stats":{"input_tokens":329,"total_output_tokens":26,"reasoning_output_tokens":5,"tokens_per_second":43.73},"response_id":"resp_1"}"#;

    fn stream(messages: &[&str], is_named: bool) -> Vec<String> {
        let event = |message: &&str| {
            let kind = message.split('"').nth(3).unwrap();
            let name = if is_named { format!("event: {kind}\n") } else { String::new() };
            format!("{name}data: {message}\n\n")
        };
        let body: String = messages.iter().map(event).collect();
        TestResponse::new(Api::LmStudioChat, STREAM).read(body.as_bytes())
    }

    #[test]
    fn reads_a_stream() {
        let last = format!(r#"{{"type":"chat.end","result":{RESULT}}}"#);
        let messages = [
            r#"{"type":"chat.start","model_instance_id":"openai/gpt-oss-20b"}"#,
            r#"{"type":"prompt_processing.progress","progress":0.5}"#,
            r#"{"type":"reasoning.delta","content":"Need "}"#,
            r#"{"type":"reasoning.delta","content":"it."}"#,
            r#"{"type":"tool_call.start","tool":"search"}"#,
            r#"{"type":"tool_call.arguments","tool":"search","arguments":{"limit": 1}}"#,
            r#"{"type":"tool_call.result","tool":"search","arguments":{"limit":1},"output":"[]"}"#,
            r#"{"type":"message.start"}"#,
            r#"{"type":"message.delta","content":"It "}"#,
            r#"{"type":"message.delta","content":"rains."}"#,
            &last,
        ];
        let expected = [
            started(None, Some("openai/gpt-oss-20b")),
            r#"0 Reasoning "Need it.""#.to_owned(),
            r#"0 Tool(0) "{\"limit\":1}""#.to_owned(),
            r#"0 Text "It rains.""#.to_owned(),
            usage([Some(329), Some(26), None, None, Some(5)]),
            started(Some("resp_1"), None),
            "Done".to_owned(),
        ];
        assert_eq!(stream(&messages, true), expected);
        assert_eq!(stream(&messages, false), expected);
        let repeated = stream(&[messages[0], &last], true);
        assert!(repeated.contains(&expected[3]), "{repeated:?}");
    }

    #[test]
    fn reads_a_body() {
        let lines = TestResponse::new(Api::LmStudioChat, JSON).read(RESULT.as_bytes());
        let expected = [
            started(None, Some("openai/gpt-oss-20b")),
            r#"0 Reasoning "Need it.""#.to_owned(),
            r#"0 Tool(0) "{\"limit\":1}""#.to_owned(),
            r#"0 Text "It rains.""#.to_owned(),
            usage([Some(329), Some(26), None, None, Some(5)]),
            started(Some("resp_1"), None),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn reads_errors() {
        let error = r#"{"type":"error","error":{"type":"internal_error","message":"No."}}"#;
        let last = r#"{"type":"chat.end","result":{"output":[],"stats":{}}}"#;
        assert_eq!(
            stream(&[error, last], true),
            [failed(Some("internal_error")), "Done".to_owned()]
        );
        let whole = r#"{"error":{"message":"No.","type":"model_not_found"}}"#;
        let lines = TestResponse::new(Api::LmStudioChat, JSON).status(404).read(whole.as_bytes());
        assert_eq!(lines, [failed(Some("model_not_found"))]);
    }

    #[test]
    fn the_request_shows_the_api() {
        let api = |body| asked(Api::LmStudioChat, body).api;
        assert_eq!(api(r#"{"model":"m","input":"Hi"}"#), Some(Api::LmStudioChat));
        assert_eq!(
            api(r#"{"input":[{"type":"message","content":"Hi"}]}"#),
            Some(Api::LmStudioChat)
        );
        assert_eq!(api(r#"{"messages":[]}"#), Some(Api::OpenAiChat));
        assert_eq!(api(r#"{"message":"Hi"}"#), Some(Api::CohereV1Chat));
        assert_eq!(api(r#"{"query":"Hi"}"#), None);
        let facts = asked(
            Api::LmStudioChat,
            r#"{"model":"m","input":"Hi","system_prompt":"Be.","stream":true,"reasoning":"low","max_output_tokens":9,"integrations":[{"type":"plugin"}]}"#,
        );
        assert_eq!((facts.prompt_bytes, facts.stream, facts.max_tokens), (5, Some(true), Some(9)));
        assert!(facts.tools && facts.reasoning_level.is_some());
    }
}
