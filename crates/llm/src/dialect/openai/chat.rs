//! Reads chat completions and completions, and other APIs whose response is one object, such as embeddings and
//! moderations.

use super::chunk::{BaseResponse, ChatMessage, Choice, Chunk, Content, ContentPart};
use super::tools::ToolCalls;
use super::usage::RawUsage;
use crate::dialect::emit::{Preamble, emit_call, emit_text, emit_timings, emit_usage, index};
use crate::dialect::finish::finish_reason;
use crate::dialect::json::{Expected, Found, Paths, Typed, Value};
use crate::dialect::lenient::record_misfit;
use crate::dialect::response::{ANY_ERROR, ErrorReport, Format, Message};
use crate::dialect::usage::ResultUsage;
use crate::dialect::{Api, Event, EventSink, Part, RequestFacts, Timings};

#[derive(Debug)]
pub struct Chat {
    api: Api,
    preamble: Preamble,
    tools: ToolCalls,
    /// Usage that the response reports separately for each choice.
    by_choice: ResultUsage,
    /// Whether some text of the stream arrived under the key `delta` or `text`.
    has_pieces: bool,
    /// In a non-streaming body: the index of the current choice, and the first key under which its text was found.
    text_key: Option<(u32, TextKey)>,
    /// In a non-streaming body: the index of the current choice, and the first key of its reasoning. Some providers
    /// repeat the reasoning under a second key, which is ignored.
    reasoning_key: Option<(u32, ReasoningKey)>,
    /// In a non-streaming body: whether the current content part has a member of a known kind.
    is_known_part: bool,
    /// In a non-streaming body: the choice whose stop reason was read last.
    stopped: Option<u32>,
}

/// The meaning of a value in a JSON body.
#[derive(Clone, Copy, Debug)]
pub enum ChatField {
    Id,
    Model,
    ServiceTier,
    SystemFingerprint,
    /// An object with token counts or durations.
    Usage,
    /// One of the results of an API that generates no text, such as a vector.
    Result,
    FinishReason,
    /// Finish reason of Mistral and DeepSeek on Bedrock. Other providers use this key for the text that stopped the
    /// choice.
    StopReason,
    Transcription,
    Text(Part, TextKey),
    Reasoning(ReasoningKey),
    ContentPart,
    /// A member that every content part of some kind has.
    ContentPartMember,
    CallId,
    CallName,
    Arguments,
    /// The name of a call in the older API, in which a message has at most one call.
    FunctionName,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TextKey {
    /// The text of a choice of a completion.
    Text,
    Message,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReasoningKey {
    ReasoningContent,
    Reasoning,
    /// GitHub Copilot.
    ReasoningText,
    Details,
    /// A part of the content (Mistral and Databricks).
    Content,
}

impl Typed for ChatField {
    fn expected(self) -> Expected {
        match self {
            Self::Id
            | Self::Model
            | Self::ServiceTier
            | Self::SystemFingerprint
            | Self::FinishReason
            | Self::StopReason
            | Self::CallId
            | Self::CallName
            | Self::FunctionName => Expected::Text { is_generated: false },
            Self::Transcription | Self::Text(..) | Self::Reasoning(_) | Self::Arguments => {
                Expected::Text { is_generated: true }
            }
            Self::Usage => Expected::Container { may_be_text: true },
            Self::Result | Self::ContentPart | Self::ContentPartMember => Expected::Any,
        }
    }
}

static PATHS: Paths<ChatField> = Paths::new(&[
    ("id", ChatField::Id),
    // watsonx names the model `model_id`.
    ("model|model_id", ChatField::Model),
    ("service_tier", ChatField::ServiceTier),
    ("system_fingerprint", ChatField::SystemFingerprint),
    ("usage|timings|time_info|perf_metrics|stats{}", ChatField::Usage),
    ("x_groq.usage{}", ChatField::Usage),
    ("provider_metadata.gateway{}", ChatField::Usage),
    ("choices.*.message.provider_metadata.gateway{}", ChatField::Usage),
    ("choices.*.usage{}", ChatField::Usage),
    ("data|results.*", ChatField::Result),
    ("text", ChatField::Transcription),
    ("choices.*.finish_reason", ChatField::FinishReason),
    ("choices.*.stop_reason", ChatField::StopReason),
    ("choices.*.text", ChatField::Text(Part::Text, TextKey::Text)),
    ("choices.*.message.content", ChatField::Text(Part::Text, TextKey::Message)),
    ("choices.*.message.content.*", ChatField::ContentPart),
    ("choices.*.message.content.*.type|text|thinking|summary", ChatField::ContentPartMember),
    ("choices.*.message.content.*.text", ChatField::Text(Part::Text, TextKey::Message)),
    ("choices.*.message.reasoning_content", ChatField::Reasoning(ReasoningKey::ReasoningContent)),
    ("choices.*.message.reasoning", ChatField::Reasoning(ReasoningKey::Reasoning)),
    ("choices.*.message.reasoning_text", ChatField::Reasoning(ReasoningKey::ReasoningText)),
    (
        "choices.*.message.reasoning_details.*.text|summary",
        ChatField::Reasoning(ReasoningKey::Details),
    ),
    ("choices.*.message.content.*.thinking", ChatField::Reasoning(ReasoningKey::Content)),
    (
        "choices.*.message.content.*.thinking|summary.*.text",
        ChatField::Reasoning(ReasoningKey::Content),
    ),
    ("choices.*.message.refusal", ChatField::Text(Part::Refusal, TextKey::Message)),
    ("choices.*.message.tool_calls.*.id", ChatField::CallId),
    ("choices.*.message.tool_calls.*.function|custom.name", ChatField::CallName),
    ("choices.*.message.tool_calls.*.function.arguments{}", ChatField::Arguments),
    ("choices.*.message.tool_calls.*.custom.input{}", ChatField::Arguments),
    ("choices.*.message.function_call.name", ChatField::FunctionName),
    (
        "choices.*.message.function_call.arguments{}",
        ChatField::Text(Part::Tool(0), TextKey::Message),
    ),
    ("choices.*.message.audio.transcript", ChatField::Text(Part::Transcript, TextKey::Message)),
])
.with_errors();

impl Chat {
    pub fn new(api: Api) -> Self {
        Self {
            api,
            preamble: Preamble::default(),
            tools: ToolCalls::default(),
            by_choice: ResultUsage::default(),
            has_pieces: false,
            text_key: None,
            reasoning_key: None,
            is_known_part: false,
            stopped: None,
        }
    }

    /// Sets the number of choices per prompt, by which usage that each choice reports is added up.
    pub fn with_request(self, request: &RequestFacts) -> Self {
        Self { by_choice: ResultUsage::new(request), ..self }
    }

    fn chunk(&mut self, chunk: &Chunk<'_>, out: &mut impl EventSink) {
        let model = chunk.model.some().or(chunk.model_id.some());
        self.preamble.emit_started(chunk.id.some(), model, out);
        let tier = chunk.service_tier.some();
        self.preamble.emit_tier(tier, chunk.system_fingerprint.some(), out);
        for (position, choice) in (0..).zip(chunk.choices.iter()) {
            self.choice(index(choice.index).unwrap_or(position), choice, out);
        }
        self.usage(chunk, out);
        emit_timings(timings(chunk), out);
        if let Some(text) = chunk.value.some() {
            // Writer's completions have no end marker, so every message counts as the last one.
            emit_text(0, Part::Text, text, out);
            out(Event::Done);
        }
    }

    fn choice(&mut self, index: u32, choice: &Choice<'_>, out: &mut impl EventSink) {
        let delta = choice.delta.0.as_ref();
        // Some providers repeat the message so far next to each delta. The repetition is read only if no delta has
        // text.
        let whole = choice.message.0.as_deref().filter(|_| !self.has_pieces);
        // Other providers send each piece in the formats of both APIs.
        let text = choice.text.some();
        match (self.api, delta, text) {
            (Api::OpenAiCompletions, _, Some(text)) | (_, None, Some(text)) => {
                self.has_pieces = true;
                emit_text(index, Part::Text, text, out);
            }
            (_, Some(delta), _) => {
                self.has_pieces = true;
                self.chat_message(index, delta, out);
            }
            (_, None, None) => {
                if let Some(whole) = whole {
                    self.chat_message(index, whole, out);
                }
            }
        }
        if let Some(reason) = choice.finish_reason() {
            out(Event::Stopped { choice: index, reason });
        }
    }

    fn chat_message(&mut self, choice: u32, message: &ChatMessage<'_>, out: &mut impl EventSink) {
        emit_reasoning(choice, message, out);
        match &message.content {
            Content::None => {}
            Content::Text(text) => emit_text(choice, self.content_part(), text, out),
            Content::Parts(parts) => {
                for part in parts.iter() {
                    part.reasoning(&mut |text| emit_text(choice, Part::Reasoning, text, out));
                    emit_text(choice, self.content_part(), &part.text.0, out);
                }
            }
        }
        emit_text(choice, Part::Refusal, &message.refusal.0, out);
        for call in message.tool_calls.iter() {
            let number = self.tools.number(choice, call);
            let mut functions = call.function.0.iter().chain(&call.custom.0);
            let name = functions.find_map(|function| function.name.some());
            emit_call((choice, number), call.id.some(), name, out);
            let part = Part::Tool(number);
            for function in call.function.0.iter().chain(&call.custom.0) {
                emit_text(choice, part, &function.arguments.0, out);
                emit_text(choice, part, &function.input.0, out);
            }
        }
        if let Some(function) = &message.function_call.0 {
            emit_call((choice, 0), None, function.name.some(), out);
            emit_text(choice, Part::Tool(0), &function.arguments.0, out);
        }
        if let Some(audio) = &message.audio.0 {
            emit_text(choice, Part::Transcript, &audio.transcript.0, out);
        }
    }

    /// Returns whether the content is text or a transcript. vLLM streams transcripts in the chat format.
    fn content_part(&self) -> Part {
        if self.api == Api::OpenAiTranscription { Part::Transcript } else { Part::Text }
    }

    /// Emits usage. Usage is normally cumulative, so the last value applies. TGI is an exception: for completions of
    /// several prompts, it reports the usage of each prompt. These values are added up.
    fn usage(&mut self, chunk: &Chunk<'_>, out: &mut impl EventSink) {
        let mut choices = chunk.choices.iter();
        let only = match (choices.next(), choices.next()) {
            (Some(choice), None) => Some(choice),
            _ => None,
        };
        let of_groq = chunk.x_groq.0.as_ref().and_then(|groq| groq.usage.0.as_deref());
        let of_choice = only.and_then(|choice| choice.usage.0.as_deref());
        let raw = chunk.usage.0.as_deref().or(of_groq).or(of_choice);
        let mut usage = raw.map(RawUsage::usage).unwrap_or_default();
        if let Some(gateway) = gateway(chunk) {
            usage.cost_ticks = usage.cost_ticks.or(gateway.usage().cost_ticks);
        }
        let ended = only
            .filter(|choice| choice.finish_reason().is_some())
            .and_then(|choice| index(choice.index));
        match ended {
            Some(choice) if self.api == Api::OpenAiCompletions => {
                self.by_choice.add(choice, usage, out);
            }
            _ => emit_usage(usage, out),
        }
    }

    /// Reads generated text of a JSON body. Only one key of each choice is read.
    fn body_text(&mut self, part: Part, key: TextKey, found: Found<'_>, out: &mut impl EventSink) {
        let Value::Text(text) = found.value else {
            return;
        };
        let choice = found.position.list(0);
        let is_read = match self.api {
            // Mistral answers requests for completions with chat messages.
            Api::OpenAiCompletions => is_first(&mut self.text_key, choice, key),
            Api::OpenAiChat => key == TextKey::Message,
            _ => false,
        };
        if is_read {
            emit_text(choice, part, text, out);
        }
    }

    /// Records a content part that is not of a known form.
    fn check_content_part(&mut self, value: Value<'_>) {
        match value {
            Value::Object => self.is_known_part = false,
            Value::End if self.is_known_part => {}
            Value::End | Value::TextEnd(_) | Value::Number(_) | Value::Bool(_) => record_misfit(),
            Value::Null | Value::Array | Value::Text(_) | Value::TextLength(_) => {}
        }
    }

    fn read_string(&mut self, field: ChatField, found: Found<'_>, out: &mut impl EventSink) {
        let Some(word) = found.value.word() else {
            return;
        };
        let (choice, call) = (found.position.list(0), found.position.last());
        let generates = matches!(self.api, Api::OpenAiChat | Api::OpenAiCompletions);
        match field {
            ChatField::Id => self.preamble.emit_started(Some(word), None, out),
            ChatField::Model => self.preamble.emit_started(None, Some(word), out),
            // This is the requested tier. A later message names the tier that processes the request.
            ChatField::ServiceTier if word == "auto" => {}
            ChatField::ServiceTier => self.preamble.emit_tier(Some(word), None, out),
            ChatField::SystemFingerprint => self.preamble.emit_tier(None, Some(word), out),
            _ if !generates => {}
            ChatField::FinishReason | ChatField::StopReason => {
                let Some(reason) = found.value.string().and_then(finish_reason) else {
                    return;
                };
                let is_finish_reason = matches!(field, ChatField::FinishReason);
                if is_finish_reason || self.stopped != Some(choice) {
                    self.stopped = Some(choice);
                    out(Event::Stopped { choice, reason });
                }
            }
            ChatField::CallId => emit_call((choice, call), Some(word), None, out),
            ChatField::CallName => emit_call((choice, call), None, Some(word), out),
            ChatField::FunctionName => emit_call((choice, 0), None, Some(word), out),
            _ => {}
        }
    }
}

/// Returns the object with the cost of Vercel's AI Gateway.
fn gateway<'a>(chunk: &'a Chunk<'_>) -> Option<&'a RawUsage> {
    let of_choice = |choice: &'a Choice<'_>| {
        let message = choice.delta.0.as_ref().or(choice.message.0.as_deref())?;
        message.provider_metadata.0.as_deref()
    };
    let metadata = chunk.provider_metadata.0.as_deref();
    let metadata = metadata.or_else(|| chunk.choices.iter().find_map(of_choice))?;
    metadata.gateway.0.as_deref()
}

impl Format for Chat {
    type Field = ChatField;

    /// Members that may differ between messages: the response id, which is read once, and padding against traffic
    /// analysis.
    const IGNORED: &'static [&'static str] = &["id", "obfuscation", "p"];

    fn paths(&self) -> &'static Paths<ChatField> {
        &PATHS
    }

    fn message(&mut self, message: Message<'_>, out: &mut impl EventSink) {
        message.parse::<Chunk<'_>, _>(&mut None, out, |chunk, out| self.chunk(chunk, out));
    }

    fn is_answer(field: ChatField) -> bool {
        !matches!(
            field,
            ChatField::Id
                | ChatField::Model
                | ChatField::ServiceTier
                | ChatField::SystemFingerprint
                | ChatField::Usage
                | ChatField::Transcription
        )
    }

    fn value(&mut self, field: ChatField, found: Found<'_>, out: &mut impl EventSink) {
        match (field, found.value) {
            (ChatField::Usage, value) => {
                if let Some(json) = value.word()
                    && self.api != Api::OpenAiInputTokens
                {
                    RawUsage::emit(json, self.api == Api::OpenAiEmbeddings, out);
                }
            }
            (ChatField::Transcription, Value::Text(text)) => {
                if self.api == Api::OpenAiTranscription {
                    emit_text(0, Part::Transcript, text, out);
                }
            }
            (ChatField::ContentPart, value) => self.check_content_part(value),
            (ChatField::ContentPartMember, _) => self.is_known_part = true,
            (ChatField::Text(part, key), _) => self.body_text(part, key, found, out),
            (ChatField::Reasoning(key), Value::Text(_)) => {
                if is_first(&mut self.reasoning_key, found.position.list(0), key) {
                    self.body_text(Part::Reasoning, TextKey::Message, found, out);
                }
            }
            (ChatField::Arguments, _) => {
                let part = Part::Tool(found.position.last());
                self.body_text(part, TextKey::Message, found, out);
            }
            _ => self.read_string(field, found, out),
        }
    }
}

impl ErrorReport for Chunk<'_> {
    fn is_error(&self) -> bool {
        self.error.0
            || self.choices.iter().any(|choice| choice.error.0)
            || self.x_groq.0.as_ref().is_some_and(|groq| groq.error.0)
            || self.errors.iter().any(|error| error.0)
            || self.base_resp.0.as_ref().is_some_and(|response| response.is_error())
            || self.object.0 == "error"
    }

    fn may_be_error(&self) -> bool {
        self.choices.first().is_none() && self.usage.0.is_none()
    }

    fn error_paths() -> &'static Paths<()> {
        &ANY_ERROR
    }
}

impl Choice<'_> {
    /// Returns the finish reason, or `None` if the choice has not ended.
    fn finish_reason(&self) -> Option<&str> {
        finish_reason(&self.finish_reason.0).or_else(|| finish_reason(&self.stop_reason.0))
    }
}

impl BaseResponse<'_> {
    fn is_error(&self) -> bool {
        !matches!(&*self.status_code.0, "" | "0")
    }
}

impl ContentPart<'_> {
    /// Passes the reasoning in this part to `out`.
    fn reasoning(&self, out: &mut impl FnMut(&str)) {
        match &*self.thinking {
            Content::None => {}
            Content::Text(text) => out(text),
            Content::Parts(parts) => parts.iter().for_each(|part| out(&part.text.0)),
        }
        self.summary.iter().for_each(|part| out(&part.text.0));
    }
}

/// Emits reasoning. A message has four places for reasoning, and some providers fill several. Only the first place that
/// is not empty is read.
fn emit_reasoning(choice: u32, message: &ChatMessage<'_>, out: &mut impl EventSink) {
    if let Content::Parts(parts) = &message.content
        && parts.iter().any(ContentPart::is_reasoning)
    {
        return;
    }
    let plain = message
        .reasoning_content
        .some()
        .or(message.reasoning.some())
        .or(message.reasoning_text.some());
    if let Some(text) = plain {
        return emit_text(choice, Part::Reasoning, text, out);
    }
    for detail in message.reasoning_details.iter() {
        let text = detail.text.some().or(detail.summary.some());
        emit_text(choice, Part::Reasoning, text.unwrap_or_default(), out);
    }
}

/// Returns the durations that the backend reported, in the usage object or in a separate object.
fn timings(chunk: &Chunk<'_>) -> Timings {
    let places =
        [&chunk.timings, &chunk.time_info, &chunk.perf_metrics, &chunk.stats, &chunk.usage];
    let of_groq = chunk.x_groq.0.iter().map(|groq| &groq.usage);
    let mut all = places.into_iter().chain(of_groq).filter_map(|place| place.0.as_deref());
    all.find_map(RawUsage::timings).unwrap_or_default()
}

/// Returns whether the first text of the choice had this key. Records the key of a new choice.
fn is_first<K: Copy + PartialEq>(known: &mut Option<(u32, K)>, choice: u32, key: K) -> bool {
    match known {
        Some((of, first)) if *of == choice => *first == key,
        _ => {
            *known = Some((choice, key));
            true
        }
    }
}
