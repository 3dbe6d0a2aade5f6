//! Converse, the format that all models share, and that of Amazon Nova, which adds the name of each event.

use std::time::Duration;

use serde::Deserialize;

use crate::dialect::emit::{Preamble, ToolBlocks, emit_call, emit_text, emit_timings};
use crate::dialect::error_field::ERROR_ROWS;
use crate::dialect::errors::ErrorValue;
use crate::dialect::json::{Paths, Position, ShortText, SmallObject, Value};
use crate::dialect::lenient::{Count, Object, Text};
use crate::dialect::response::{ErrorReport, Format, Message};
use crate::dialect::uncached_usage::UncachedUsage;
use crate::dialect::{Event, Part, Timings, Usage};

#[derive(Debug, Default)]
pub struct Converse {
    /// Messages are in an object under the name of their event.
    is_nova: bool,
    preamble: Preamble,
    blocks: ToolBlocks,
    text: ShortText,
    object: SmallObject,
    /// Id and name of the current tool call of a body.
    call: [Option<String>; 2],
}

/// Meaning of a value of a JSON body.
#[derive(Clone, Copy, Debug)]
pub enum ConverseField {
    /// The model that a prompt router chose.
    Model,
    ServiceTier,
    StopReason,
    Usage,
    Latency,
    Text,
    Reasoning,
    Call,
    CallId,
    CallName,
    Input,
}

static PATHS: Paths<ConverseField> = Paths::new(&[
    ("trace.promptRouter.invokedModelId", ConverseField::Model),
    ("serviceTier.type", ConverseField::ServiceTier),
    ("stopReason", ConverseField::StopReason),
    ("usage{}", ConverseField::Usage),
    ("metrics.latencyMs", ConverseField::Latency),
    ("output.message.content.*.text", ConverseField::Text),
    ("output.message.content.*.citationsContent.content.*.text", ConverseField::Text),
    ("output.message.content.*.reasoningContent.reasoningText.text", ConverseField::Reasoning),
    ("output.message.content.*.toolUse", ConverseField::Call),
    ("output.message.content.*.toolUse.toolUseId", ConverseField::CallId),
    ("output.message.content.*.toolUse.name", ConverseField::CallName),
    ("output.message.content.*.toolUse.input{}", ConverseField::Input),
])
.with_errors(ERROR_ROWS);

/// Any event of a stream. No two events use one field for two things.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Chunk<'a> {
    content_block_index: Count,
    start: Object<Box<Start<'a>>>,
    delta: Object<Delta<'a>>,
    stop_reason: Text<'a>,
    usage: Object<Box<RawUsage>>,
    metrics: Object<Metrics>,
    service_tier: Object<Box<Tier<'a>>>,
    trace: Object<Box<Trace<'a>>>,
    error: ErrorValue<'a>,
}

/// An event of Nova.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct NovaChunk<'a> {
    content_block_start: Object<Box<Chunk<'a>>>,
    content_block_delta: Object<Box<Chunk<'a>>>,
    message_stop: Object<Box<Chunk<'a>>>,
    metadata: Object<Box<Chunk<'a>>>,
    error: ErrorValue<'a>,
}

/// The start of a block, which need not be a tool call.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Start<'a> {
    tool_use: Object<ToolStart<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct ToolStart<'a> {
    tool_use_id: Text<'a>,
    name: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Delta<'a> {
    text: Text<'a>,
    tool_use: Object<ToolDelta<'a>>,
    reasoning_content: Object<Reasoning<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ToolDelta<'a> {
    input: Text<'a>,
}

/// Reasoning. Redacted reasoning has no text.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Reasoning<'a> {
    text: Text<'a>,
    /// Nova: the form that it has in a body.
    reasoning_text: Object<ReasoningText<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ReasoningText<'a> {
    text: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metrics {
    latency_ms: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Tier<'a> {
    #[serde(rename = "type")]
    kind: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Trace<'a> {
    prompt_router: Object<PromptRouter<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct PromptRouter<'a> {
    invoked_model_id: Text<'a>,
}

/// Usage of Converse, or the metrics that Bedrock adds to the last message of any model.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RawUsage {
    input_tokens: Count,
    output_tokens: Count,
    cache_read_input_tokens: Count,
    cache_write_input_tokens: Count,
    // Nova and the metrics. Converse has both spellings of the cache counts.
    input_token_count: Count,
    output_token_count: Count,
    cache_read_input_token_count: Count,
    cache_write_input_token_count: Count,
    /// Milliseconds, in the metrics.
    invocation_latency: Count,
}

impl Converse {
    pub fn nova() -> Self {
        Self { is_nova: true, ..Self::default() }
    }

    /// Reads an event. The end of the message is not that of the stream: usage and metrics follow.
    fn chunk(&mut self, chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        let index = chunk.content_block_index.0.unwrap_or_default();
        if let Some(start) = &chunk.start.0 {
            self.blocks.begin(index);
            if let Some(tool) = &start.tool_use.0 {
                let number = self.blocks.call(index);
                emit_call((0, number), tool.tool_use_id.some(), tool.name.some(), out);
            }
        }
        if let Some(delta) = &chunk.delta.0 {
            self.delta(index, delta, out);
        }
        if let Some(reason) = chunk.stop_reason.some() {
            out(Event::Stopped { choice: 0, reason });
        }
        if let Some(usage) = chunk.usage.0.as_ref().and_then(|raw| raw.usage()) {
            out(Event::Usage(usage));
        }
        if let Some(metrics) = &chunk.metrics.0 {
            emit_timings(total(metrics.latency_ms.0), out);
        }
        if let Some(tier) = &chunk.service_tier.0 {
            self.preamble.tier(tier.kind.some(), None, out);
        }
        let router = chunk.trace.0.as_ref().and_then(|trace| trace.prompt_router.0.as_ref());
        if let Some(router) = router {
            self.preamble.started(None, router.invoked_model_id.some(), out);
        }
    }

    fn delta(&mut self, index: u64, delta: &Delta<'_>, out: &mut impl FnMut(Event<'_>)) {
        if let Some(reasoning) = &delta.reasoning_content.0 {
            emit_text(0, Part::Reasoning, &reasoning.text.0, out);
            if let Some(nested) = &reasoning.reasoning_text.0 {
                emit_text(0, Part::Reasoning, &nested.text.0, out);
            }
        }
        emit_text(0, Part::Text, &delta.text.0, out);
        if let Some(input) = delta.tool_use.0.as_ref().and_then(|tool| tool.input.some()) {
            emit_text(0, Part::Tool(self.blocks.call(index)), input, out);
        }
    }

    /// Reads a short value of a body.
    fn word(&mut self, field: ConverseField, word: String, out: &mut impl FnMut(Event<'_>)) {
        let [id, name] = &mut self.call;
        match field {
            ConverseField::CallId => *id = Some(word),
            ConverseField::CallName => *name = Some(word),
            ConverseField::Model => self.preamble.started(None, Some(&word), out),
            ConverseField::ServiceTier => self.preamble.tier(Some(&word), None, out),
            ConverseField::StopReason => out(Event::Stopped { choice: 0, reason: &word }),
            ConverseField::Latency => emit_timings(total(word.parse().ok()), out),
            ConverseField::Usage
            | ConverseField::Text
            | ConverseField::Reasoning
            | ConverseField::Call
            | ConverseField::Input => {}
        }
    }
}

impl Format for Converse {
    type Field = ConverseField;

    fn paths(&self) -> &'static Paths<ConverseField> {
        &PATHS
    }

    fn message(&mut self, message: Message<'_>, out: &mut impl FnMut(Event<'_>)) {
        if self.is_nova {
            message.parse::<NovaChunk<'_>, _>(&mut None, out, |named, out| {
                if let Some(chunk) = named.chunk() {
                    self.chunk(chunk, out);
                }
            });
        } else {
            message.parse::<Chunk<'_>, _>(&mut None, out, |chunk, out| self.chunk(chunk, out));
        }
    }

    fn value(
        &mut self,
        field: ConverseField,
        position: Position<'_>,
        value: Value<'_>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        let block = u64::from(position.list(0));
        let part = match field {
            ConverseField::Text => Part::Text,
            ConverseField::Reasoning => Part::Reasoning,
            ConverseField::Input => Part::Tool(self.blocks.call(block)),
            ConverseField::Call => {
                if value == Value::End {
                    let [id, name] = std::mem::take(&mut self.call);
                    let number = self.blocks.call(block);
                    emit_call((0, number), id.as_deref(), name.as_deref(), out);
                }
                return;
            }
            ConverseField::Usage => {
                if let Some(json) = self.object.feed(value) {
                    let raw: RawUsage = serde_json::from_str(&json).unwrap_or_default();
                    if let Some(usage) = raw.usage() {
                        out(Event::Usage(usage));
                    }
                }
                return;
            }
            field => {
                if let Some(word) = self.text.feed(value) {
                    self.word(field, word, out);
                }
                return;
            }
        };
        if let Value::Text(text) = value {
            emit_text(0, part, text, out);
        }
    }
}

impl<'a> NovaChunk<'a> {
    fn chunk(&self) -> Option<&Chunk<'a>> {
        [&self.content_block_delta, &self.content_block_start, &self.message_stop, &self.metadata]
            .into_iter()
            .find_map(|event| event.0.as_deref())
    }
}

impl RawUsage {
    /// Returns the counts as OpenTelemetry defines them, `None` if there are none.
    pub fn usage(&self) -> Option<Usage> {
        let counts = UncachedUsage {
            input: self.input_tokens.0.or(self.input_token_count.0),
            output: self.output_tokens.0.or(self.output_token_count.0),
            cache_read: self.cache_read_input_tokens.0.or(self.cache_read_input_token_count.0),
            cache_write: self.cache_write_input_tokens.0.or(self.cache_write_input_token_count.0),
            reasoning: None,
        };
        counts.usage()
    }

    /// Returns the duration of the call by Bedrock's clock. The latency of the first byte in the metrics is not used: it
    /// is the sum of queueing and prefill.
    pub fn timings(&self) -> Timings {
        total(self.invocation_latency.0)
    }
}

impl ErrorReport for Chunk<'_> {
    fn is_error(&self) -> bool {
        !self.error.is_none()
    }

    fn error_kind(&self) -> Option<&str> {
        self.error.kind()
    }
}

impl ErrorReport for NovaChunk<'_> {
    fn is_error(&self) -> bool {
        !self.error.is_none()
    }

    fn error_kind(&self) -> Option<&str> {
        self.error.kind()
    }
}

fn total(milliseconds: Option<u64>) -> Timings {
    Timings { total: milliseconds.map(Duration::from_millis), ..Timings::default() }
}
