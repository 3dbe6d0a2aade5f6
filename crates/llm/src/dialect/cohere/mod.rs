//! Cohere: chat and generate of the first version, chat of the second, embeddings, and reranking, which other providers
//! adopted.
//!
//! The message shows the version. Cohere reports what it bills and what the model processed, prompt template included.
//! Only the latter are tokens of the call, except for embeddings, where both are equal and only the former is sent.

use serde::Deserialize;

use super::emit::{Preamble, emit_call, emit_text, emit_usage, index};
use super::error_field::ERROR_ROWS;
use super::errors::ErrorValue;
use super::json::{Paths, Position, ShortText, SmallObject, Value};
use super::lenient::{Count, JsonText, List, Object, Text};
use super::request::{RequestField, RequestPaths};
use super::response::{ErrorReport, Format, FormatReader, Message};
use super::{Api, ByModality, Event, Part, RequestFacts, Usage, openai};

/// Reads the response of one call.
pub type Reader = FormatReader<Cohere>;

#[derive(Debug)]
pub struct Cohere {
    /// Whether the API generates text.
    generates: bool,
    preamble: Preamble,
    /// Some text has arrived: the messages that end a stream repeat it.
    has_text: bool,
    /// Some tool calls have arrived in pieces: they are repeated as a whole.
    has_calls: bool,
    text: ShortText,
    object: SmallObject,
}

/// Meaning of a value of a JSON body.
#[derive(Clone, Copy, Debug)]
pub enum CohereField {
    Id,
    Model,
    Usage,
    StopReason,
    /// Text of the only choice.
    Text,
    /// Text of a choice of generate.
    ChoiceText,
    Reasoning,
    Arguments,
}

static PATHS: Paths<CohereField> = Paths::new(&[
    ("id|generation_id", CohereField::Id),
    ("model", CohereField::Model),
    ("meta|usage{}", CohereField::Usage),
    ("finish_reason", CohereField::StopReason),
    // First version. Its text includes the plan for the use of tools.
    ("text", CohereField::Text),
    ("tool_calls.*.parameters{}", CohereField::Arguments),
    ("generations.*.text", CohereField::ChoiceText),
    ("generations.*.finish_reason", CohereField::StopReason),
    // Second version.
    ("message.content", CohereField::Text),
    ("message.content.*.text", CohereField::Text),
    ("message.content.*.thinking", CohereField::Reasoning),
    ("message.tool_plan", CohereField::Reasoning),
    ("message.tool_calls.*.function.arguments", CohereField::Arguments),
])
.with_errors(ERROR_ROWS);

/// The second version of chat is close to OpenAI's, and an OpenAI-compatible provider shares one path.
static REQUEST: RequestPaths = RequestPaths::new(&[
    ("message|preamble|query", RequestField::Prompt),
    ("query.text", RequestField::Prompt),
    ("chat_history.*.message", RequestField::Prompt),
    ("documents|texts.*", RequestField::Prompt),
    ("documents.*.text|snippet|title|data", RequestField::Prompt),
    ("documents.*.data.text|snippet|title", RequestField::Prompt),
    ("inputs.*.content.*.text", RequestField::Prompt),
    // Keys that only one API has.
    ("message", RequestField::Api(Api::CohereV1Chat)),
    ("prompt", RequestField::Api(Api::CohereV1Generate)),
    ("query", RequestField::Api(Api::Rerank)),
    ("stop_sequences|end_sequences.*", RequestField::Stop),
    ("embedding_types.*", RequestField::EncodingFormat),
    ("thinking.type", RequestField::ReasoningLevelUnlessGiven),
    ("thinking.token_budget", RequestField::ReasoningLevel),
    ("conversation_id", RequestField::Conversation),
    ("p", RequestField::TopP),
    ("k", RequestField::TopK),
    ("num_generations", RequestField::Choices),
    ("output_dimension", RequestField::Dimensions),
])
.extends(openai::REQUEST_ROWS);

/// A message of a stream, of either version. Strings are borrowed from the frame.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Chunk<'a> {
    id: Text<'a>,
    /// The choice of generate; the part of the content or the tool call in the second version of chat.
    index: Count,
    error: ErrorValue<'a>,
    // First version.
    event_type: Text<'a>,
    generation_id: Text<'a>,
    text: Text<'a>,
    tool_call_delta: Object<CallDelta<'a>>,
    tool_calls: List<Call>,
    finish_reason: Text<'a>,
    /// The whole response once more.
    response: Object<Box<Response<'a>>>,
    /// Of a response to generate that is one message.
    generations: List<Generation<'a>>,
    // Second version.
    #[serde(rename = "type")]
    kind: Text<'a>,
    delta: Object<Delta<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct CallDelta<'a> {
    index: Count,
    parameters: Text<'a>,
    /// The plan for the use of tools.
    text: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Call {
    parameters: JsonText,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Response<'a> {
    id: Text<'a>,
    generation_id: Text<'a>,
    text: Text<'a>,
    finish_reason: Text<'a>,
    generations: List<Generation<'a>>,
    meta: Object<RawUsage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Generation<'a> {
    index: Count,
    text: Text<'a>,
    finish_reason: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Delta<'a> {
    message: Object<MessageDelta<'a>>,
    finish_reason: Text<'a>,
    error: ErrorValue<'a>,
    usage: Object<Box<RawUsage>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct MessageDelta<'a> {
    content: Object<Content<'a>>,
    tool_plan: Text<'a>,
    tool_calls: Object<Box<Tool<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Content<'a> {
    text: Text<'a>,
    thinking: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Tool<'a> {
    id: Text<'a>,
    function: Object<Function<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Function<'a> {
    name: Text<'a>,
    arguments: Text<'a>,
}

/// Token counts: `usage` of the second version, `meta` of the first.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawUsage {
    tokens: Object<Units>,
    billed_units: Object<Units>,
    cached_tokens: Count,
    /// Reranking by Jina, Voyage, llama.cpp and vLLM.
    prompt_tokens: Count,
    total_tokens: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Units {
    input_tokens: Count,
    output_tokens: Count,
    reasoning_tokens: Count,
    image_tokens: Count,
}

pub fn reader(api: Api, _: &RequestFacts, failed: bool) -> Reader {
    let cohere = Cohere {
        generates: api.operation().generates(),
        preamble: Preamble::default(),
        has_text: false,
        has_calls: false,
        text: ShortText::default(),
        object: SmallObject::default(),
    };
    FormatReader::new(cohere, failed)
}

pub const fn request_paths(_: Api) -> &'static RequestPaths {
    &REQUEST
}

impl Format for Cohere {
    type Field = CohereField;

    const BARE_OBJECT_IS_ERROR: bool = false;

    fn paths(&self) -> &'static Paths<CohereField> {
        &PATHS
    }

    fn message(&mut self, message: Message<'_>, out: &mut impl FnMut(Event<'_>)) {
        message.parse::<Chunk<'_>, _>(&mut None, out, |chunk, out| {
            let id = chunk.id.some().or(chunk.generation_id.some());
            self.preamble.started(id, None, out);
            self.first_version(chunk, out);
            if let Some(delta) = &chunk.delta.0 {
                self.second_version(chunk, delta, out);
            }
            if chunk.kind.0 == "message-end" || chunk.event_type.0 == "stream-end" {
                out(Event::Done);
            }
        });
    }

    fn value(
        &mut self,
        field: CohereField,
        position: Position<'_>,
        value: Value<'_>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        let choice = position.list(0);
        let (choice, part) = match field {
            CohereField::Text => (0, Part::Text),
            CohereField::ChoiceText => (choice, Part::Text),
            CohereField::Reasoning => (0, Part::Reasoning),
            CohereField::Arguments => (0, Part::Tool(choice)),
            CohereField::Usage => {
                if let Some(json) = self.object.feed(value) {
                    let raw: RawUsage = serde_json::from_str(&json).unwrap_or_default();
                    emit_usage(if self.generates { raw.generated() } else { raw.processed() }, out);
                }
                return;
            }
            CohereField::Id | CohereField::Model | CohereField::StopReason => {
                if let Some(word) = self.text.feed(value) {
                    match field {
                        CohereField::Id => self.preamble.started(Some(&word), None, out),
                        CohereField::Model => self.preamble.started(None, Some(&word), out),
                        _ => emit_stopped(choice, &word, out),
                    }
                }
                return;
            }
        };
        if let Value::Text(text) = value
            && self.generates
        {
            emit_text(choice, part, text, out);
        }
    }
}

impl Cohere {
    fn first_version(&mut self, chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        let choice = index(chunk.index).unwrap_or(0);
        let is_repeated = self.has_text && chunk.event_type.0 == "tool-calls-generation";
        if !is_repeated {
            self.emit(choice, Part::Text, &chunk.text.0, out);
        }
        if let Some(call) = &chunk.tool_call_delta.0 {
            self.has_calls = true;
            self.emit(0, Part::Text, &call.text.0, out);
            let part = Part::Tool(index(call.index).unwrap_or(0));
            self.emit(0, part, &call.parameters.0, out);
        }
        if !self.has_calls {
            for (position, call) in (0..).zip(chunk.tool_calls.iter()) {
                self.emit(0, Part::Tool(position), &call.parameters.0, out);
            }
        }
        self.generations(&chunk.generations, out);
        if let Some(response) = chunk.response.0.as_deref() {
            self.response(response, chunk.finish_reason.some(), out);
        } else if let Some(reason) = chunk.finish_reason.some() {
            emit_stopped(choice, reason, out);
        }
    }

    /// Reads the whole response, which ends a stream.
    fn response(
        &mut self,
        response: &Response<'_>,
        reason: Option<&str>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        let id = response.generation_id.some().or(response.id.some());
        self.preamble.started(id, None, out);
        if !self.has_text {
            self.emit(0, Part::Text, &response.text.0, out);
        }
        self.generations(&response.generations, out);
        if response.generations.iter().next().is_none()
            && let Some(reason) = reason.or(response.finish_reason.some())
        {
            emit_stopped(0, reason, out);
        }
        if let Some(usage) = &response.meta.0 {
            emit_usage(usage.generated(), out);
        }
    }

    fn generations(&mut self, generations: &List<Generation<'_>>, out: &mut impl FnMut(Event<'_>)) {
        let is_new = !self.has_text;
        for (position, generation) in (0..).zip(generations.iter()) {
            let choice = index(generation.index).unwrap_or(position);
            if is_new {
                self.emit(choice, Part::Text, &generation.text.0, out);
            }
            if let Some(reason) = generation.finish_reason.some() {
                emit_stopped(choice, reason, out);
            }
        }
    }

    fn second_version(
        &mut self,
        chunk: &Chunk<'_>,
        delta: &Delta<'_>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        if let Some(message) = &delta.message.0 {
            self.message_delta(index(chunk.index).unwrap_or(0), message, out);
        }
        if let Some(reason) = delta.finish_reason.some() {
            emit_stopped(0, reason, out);
        }
        if let Some(usage) = &delta.usage.0 {
            emit_usage(usage.generated(), out);
        }
    }

    /// Reads a piece of the message. Cohere calls the plan for the use of tools a chain of thought.
    fn message_delta(
        &mut self,
        index: u32,
        message: &MessageDelta<'_>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        self.emit(0, Part::Reasoning, &message.tool_plan.0, out);
        if let Some(content) = &message.content.0 {
            self.emit(0, Part::Reasoning, &content.thinking.0, out);
            self.emit(0, Part::Text, &content.text.0, out);
        }
        if let Some(tool) = &message.tool_calls.0
            && let Some(function) = &tool.function.0
        {
            emit_call((0, index), tool.id.some(), function.name.some(), out);
            self.emit(0, Part::Tool(index), &function.arguments.0, out);
        }
    }

    fn emit(&mut self, choice: u32, part: Part, text: &str, out: &mut impl FnMut(Event<'_>)) {
        self.has_text |= part == Part::Text && !text.is_empty();
        emit_text(choice, part, text, out);
    }
}

impl RawUsage {
    /// Returns the counts of a generation.
    fn generated(&self) -> Usage {
        let Some(tokens) = &self.tokens.0 else {
            return Usage::default();
        };
        Usage {
            input: tokens.input_tokens.0,
            output: tokens.output_tokens.0,
            reasoning: tokens.reasoning_tokens.0,
            cache_read: self.cached_tokens.0,
            ..Usage::default()
        }
    }

    /// Returns the counts of a call that generates nothing: embeddings, reranking.
    fn processed(&self) -> Usage {
        let units = self.tokens.0.as_ref().or(self.billed_units.0.as_ref());
        let text = units.and_then(|units| units.input_tokens.0);
        let image = units.and_then(|units| units.image_tokens.0);
        let both = text.unwrap_or(0).saturating_add(image.unwrap_or(0));
        let input = text.or(image).map(|_| both);
        Usage {
            input: input.or(self.prompt_tokens.0).or(self.total_tokens.0),
            input_by: ByModality {
                text: text.filter(|_| image.is_some()),
                image,
                ..ByModality::default()
            },
            ..Usage::default()
        }
    }
}

impl Chunk<'_> {
    fn reported_error(&self) -> Option<&ErrorValue<'_>> {
        let of_delta = self.delta.0.as_ref().map(|delta| &delta.error);
        std::iter::once(&self.error).chain(of_delta).find(|error| !error.is_none())
    }
}

impl ErrorReport for Chunk<'_> {
    fn is_error(&self) -> bool {
        self.reported_error().is_some()
    }

    fn error_kind(&self) -> Option<&str> {
        self.reported_error().and_then(ErrorValue::kind)
    }
}

/// Emits the end of a choice. Two reasons are errors.
fn emit_stopped(choice: u32, reason: &str, out: &mut impl FnMut(Event<'_>)) {
    out(Event::Stopped { choice, reason });
    if matches!(reason, "ERROR" | "TIMEOUT") {
        out(Event::Failed { kind: Some(reason) });
    }
}

#[cfg(test)]
mod tests;
