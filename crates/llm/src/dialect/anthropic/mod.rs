//! Reads Anthropic's responses: Messages, and the older Complete. Anthropic, Vertex AI, Bedrock and gateways serve
//! these formats. Responses of the token counting API are not read.
//!
//! A message is a list of content blocks. Blocks of all types are numbered together. A response has one choice.

mod usage;

use serde::Deserialize;

use super::emit::{Preamble, ToolBlocks, emit_call, emit_text, emit_usage};
use super::errors::HasError;
use super::finish::emit_stopped;
use super::json::{Found, Paths, Value};
use super::lenient::{self, Count, JsonText, Object, Text};
use super::request::{RequestField, RequestPaths, RequestState};
use super::response::{ErrorReport, Format, FormatReader, Message};
use super::table::{Field, Table, TableFormat};
use super::usage::UncachedUsage;
use super::{Api, Event, EventSink, Part, Reader, RequestFacts, Usage};
use crate::budget::RequestBudget;
use tokengauge_types::event::SessionSource;
use usage::RawUsage;

const CHOICE: u32 = 0;

#[derive(Debug)]
pub struct Messages {
    preamble: Preamble,
    blocks: ToolBlocks,
    /// Index of a content block that began with a complete tool call. Deltas of this block repeat the call and are
    /// ignored.
    complete_block: Option<u64>,
    usage: UncachedUsage,
    /// Output tokens reported at the start of the message. Used only if no later message reports output tokens.
    first_output: Option<u64>,
    body: TableFormat,
}

static BODY: Table = Table {
    has_blocks: true,
    parse_usage: |json| lenient::parse::<RawUsage<'_>>(json).counts().usage(),
    ..Table::new(&[
        ("id", Field::Id),
        ("model", Field::Model),
        ("stop_reason", Field::StopReason),
        ("usage{}", Field::Usage),
        ("completion|content", Field::Text(Part::Text)),
        ("content.*.text", Field::Text(Part::Text)),
        ("content.*.thinking", Field::Text(Part::Reasoning)),
        ("content.*.id", Field::CallId),
        ("content.*.name", Field::CallName),
        ("content.*.input{}", Field::Arguments),
    ])
};

pub static REQUEST: RequestPaths = RequestPaths::new(&[
    ("model", RequestField::Model),
    ("stream", RequestField::Stream),
    ("messages.*.content", RequestField::Prompt),
    ("messages.*.content.*.text|content", RequestField::Prompt),
    ("messages.*.content.*.type", RequestField::PartType),
    // Results of tools.
    ("messages.*.content.*.content.*.text", RequestField::Prompt),
    ("system|prompt", RequestField::Prompt),
    ("system.*.text", RequestField::Prompt),
    ("max_tokens|max_tokens_to_sample", RequestField::MaxTokens),
    ("max_tokens", RequestField::Rule(messages_limit)),
    ("max_tokens_to_sample", RequestField::Rule(complete_limit)),
    ("temperature", RequestField::Temperature),
    ("top_p", RequestField::TopP),
    ("top_k", RequestField::TopK),
    ("stop_sequences.*", RequestField::Stop),
    ("service_tier", RequestField::ServiceTier),
    ("thinking.type", RequestField::Rule(thinking)),
    ("output_config.effort", RequestField::ReasoningLevel),
    ("output_config.format.type", RequestField::OutputFormat),
    ("output_format.type", RequestField::OutputFormat),
    ("tools.*", RequestField::Tools),
    ("metadata.user_id", RequestField::Session(SessionSource::UserId)),
]);

/// A message of a stream, in the newer format (Messages) or the older one (Complete). The two formats share only the
/// type field.
///
/// The field name of a delta shows the kind of its content, because Anthropic often adds types. Generated text is
/// always in `text`, `thinking` or `partial_json`. Signatures, citations and compacted contexts are not generated text.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Chunk<'a> {
    #[serde(rename = "type")]
    kind: Text<'a>,
    message: Object<Box<MessageStart<'a>>>,
    index: Count,
    content_block: Object<Box<Block<'a>>>,
    delta: Object<Delta<'a>>,
    usage: Object<Box<RawUsage<'a>>>,
    error: HasError,
    /// The older format.
    completion: Text<'a>,
    stop_reason: Text<'a>,
    id: Text<'a>,
    model: Text<'a>,
}

/// The message before it has content.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct MessageStart<'a> {
    id: Text<'a>,
    model: Text<'a>,
    usage: Object<RawUsage<'a>>,
}

/// The start of a content block. The content itself usually follows in deltas.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Block<'a> {
    id: Text<'a>,
    name: Text<'a>,
    text: Text<'a>,
    thinking: Text<'a>,
    input: JsonText,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Delta<'a> {
    text: Text<'a>,
    thinking: Text<'a>,
    partial_json: Text<'a>,
    stop_reason: Text<'a>,
}

pub fn reader(failed: bool, budget: &RequestBudget) -> Reader {
    FormatReader::new(Messages::new(), failed).with_templates(budget).into()
}

impl Format for Messages {
    type Field = Field;

    fn bare_object_is_error(&self) -> bool {
        true
    }

    fn paths(&self) -> &'static Paths<Field> {
        self.body.paths()
    }

    fn message(&mut self, message: Message<'_>, out: &mut impl EventSink) {
        message.parse::<Chunk<'_>, _>(&mut None, out, |chunk, out| {
            self.chunk(message.name, chunk, out);
        });
    }

    fn is_answer(field: Field) -> bool {
        TableFormat::is_answer(field)
    }

    fn value(&mut self, field: Field, found: Found<'_>, out: &mut impl EventSink) {
        self.body.value(field, found, out);
    }
}

impl Messages {
    pub fn new() -> Self {
        Self {
            preamble: Preamble::default(),
            blocks: ToolBlocks::default(),
            complete_block: None,
            usage: UncachedUsage::default(),
            first_output: None,
            body: TableFormat::new(&BODY, &RequestFacts::default()),
        }
    }

    fn chunk(&mut self, name: &[u8], chunk: &Chunk<'_>, out: &mut impl EventSink) {
        let index = chunk.index.0.unwrap_or_default();
        if let Some(delta) = &chunk.delta.0 {
            self.delta(index, delta, out);
        }
        if let Some(block) = &chunk.content_block.0 {
            self.begin_block(index, block, out);
        }
        if let Some(start) = &chunk.message.0 {
            self.preamble.emit_started(start.id.some(), start.model.some(), out);
            if let Some(usage) = &start.usage.0 {
                let counts = usage.counts();
                self.first_output = counts.output;
                self.usage(usage, UncachedUsage { output: None, ..counts }, out);
            }
        }
        self.preamble.emit_started(chunk.id.some(), chunk.model.some(), out);
        emit_text(CHOICE, Part::Text, &chunk.completion.0, out);
        emit_stopped(CHOICE, &chunk.stop_reason.0, out);
        if let Some(usage) = &chunk.usage.0 {
            self.usage(usage, usage.counts(), out);
        }
        if chunk.kind.0 == "message_stop" || name == b"message_stop" {
            if let Some(output) = self.first_output.filter(|_| self.usage.output.is_none()) {
                emit_usage(Usage { output: Some(output), ..Usage::default() }, out);
            }
            out(Event::Done);
        }
    }

    fn begin_block(&mut self, index: u64, block: &Block<'_>, out: &mut impl EventSink) {
        self.blocks.begin(index);
        self.complete_block = self.complete_block.filter(|known| *known != index);
        if let Some(name) = block.name.some() {
            let number = self.blocks.call(index);
            emit_call((CHOICE, number), block.id.some(), Some(name), out);
        }
        emit_text(CHOICE, Part::Reasoning, &block.thinking.0, out);
        emit_text(CHOICE, Part::Text, &block.text.0, out);
        // Mostly empty: the deltas hold it.
        let input = block.input.0.as_str();
        if !matches!(input, "" | "{}") {
            emit_text(CHOICE, Part::Tool(self.blocks.call(index)), input, out);
            self.complete_block = Some(index);
        }
    }

    fn delta(&mut self, index: u64, delta: &Delta<'_>, out: &mut impl EventSink) {
        emit_text(CHOICE, Part::Reasoning, &delta.thinking.0, out);
        emit_text(CHOICE, Part::Text, &delta.text.0, out);
        if let Some(input) = delta.partial_json.some()
            && self.complete_block != Some(index)
        {
            emit_text(CHOICE, Part::Tool(self.blocks.call(index)), input, out);
        }
        emit_stopped(CHOICE, &delta.stop_reason.0, out);
    }

    /// Emits token counts. The counts are cumulative: a later count overwrites the earlier count of the same field.
    fn usage(&mut self, raw: &RawUsage<'_>, counts: UncachedUsage, out: &mut impl EventSink) {
        self.preamble.emit_tier(raw.service_tier.some(), None, out);
        self.usage.merge(counts);
        emit_usage(self.usage.usage(), out);
    }
}

impl ErrorReport for Chunk<'_> {
    fn is_error(&self) -> bool {
        self.error.0 || self.kind.0 == "error"
    }

    fn may_be_error(&self) -> bool {
        self.kind.0.is_empty()
    }
}

/// Identifies a request with a token limit as Anthropic Messages. No other format with the prompt in `messages`
/// requires a limit.
fn messages_limit(state: &mut RequestState, Found { value, .. }: Found<'_>) {
    if let Value::Number(_) = value {
        state.facts.api.get_or_insert(Api::AnthropicMessages);
    }
}

fn complete_limit(state: &mut RequestState, Found { value, .. }: Found<'_>) {
    if let Value::Number(_) = value {
        state.facts.api.get_or_insert(Api::AnthropicComplete);
    }
}

fn thinking(state: &mut RequestState, Found { value, .. }: Found<'_>) {
    if let Some(word) = value.string() {
        state.facts.reasoning = word != "disabled";
    }
}

#[cfg(test)]
mod tests;
