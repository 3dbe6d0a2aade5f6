//! Events of responses and facts of requests.

use std::time::Duration;

use serde::Serialize;

use super::Api;
use crate::frame::ParseError;
use tokengauge_types::label::Name;

/// One piece of information from a response. Text is borrowed and never kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    /// The response has begun. May come more than once: some providers name the model late.
    Started { id: Option<&'a str>, model: Option<&'a str> },
    /// Generated text. Never empty.
    Text { choice: u32, part: Part, text: &'a str },
    /// Name of the tool of a call, and the id that its result will refer to. May come before, between or after the
    /// pieces of its arguments.
    Call { choice: u32, number: u32, id: Option<&'a str>, name: Option<&'a str> },
    /// Token counts that the provider reports. Later ones overwrite earlier ones field by field.
    Usage(Usage),
    /// A choice has ended, with the reason that the provider gives.
    Stopped { choice: u32, reason: &'a str },
    /// The provider reports an error, with its type or code if known.
    Failed { kind: Option<&'a str> },
    /// The service tier that answers, and the fingerprint of the system.
    Tier { service_tier: Option<&'a str>, system_fingerprint: Option<&'a str> },
    /// Durations that the backend reports. Later ones overwrite earlier ones field by field.
    Timings(Timings),
    /// The end mark of the stream, such as `[DONE]`.
    Done,
    /// Malformed input.
    ParseError(ParseError),
}

/// Receives the events of a response.
pub trait EventSink: FnMut(Event<'_>) {}

impl<F: FnMut(Event<'_>)> EventSink for F {}

/// The text of a choice that a piece belongs to. Pieces of one part of one choice are counted together.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Part {
    /// Text for the user.
    Text,
    /// Reasoning.
    Reasoning,
    /// Arguments of the n-th tool call.
    Tool(u32),
    Refusal,
    /// Transcribed speech.
    Transcript,
}

impl Part {
    pub const fn kind(self) -> TextKind {
        match self {
            Self::Text => TextKind::Text,
            Self::Reasoning => TextKind::Reasoning,
            Self::Tool(_) => TextKind::Tool,
            Self::Refusal => TextKind::Refusal,
            Self::Transcript => TextKind::Transcript,
        }
    }

    /// Whether the user sees it, for the time to the first visible token.
    pub const fn is_visible(self) -> bool {
        matches!(self, Self::Text | Self::Refusal | Self::Transcript)
    }
}

named! {
    /// Kinds of generated text, as a label.
    pub enum TextKind {
        Text = "text",
        Reasoning = "reasoning",
        Tool = "tool",
        Refusal = "refusal",
        Transcript = "transcript",
    }
}

/// Token counts that the provider reports, as OpenTelemetry defines them: input includes cached tokens, output includes
/// reasoning. A format that reports other counts converts them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Usage {
    pub input: Option<u64>,
    pub output: Option<u64>,
    /// Part of `input`.
    pub cache_read: Option<u64>,
    /// Part of `input`.
    pub cache_write: Option<u64>,
    /// Part of `output`.
    pub reasoning: Option<u64>,
    /// `input` by modality, if reported.
    pub input_by: ByModality,
    /// `output` by modality, if reported.
    pub output_by: ByModality,
}

/// Tokens by modality (`gen_ai.token.modality`). Counts that are not reported are absent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct ByModality {
    pub text: Option<u64>,
    pub image: Option<u64>,
    pub audio: Option<u64>,
    pub video: Option<u64>,
    pub document: Option<u64>,
}

impl ByModality {
    fn merge(&mut self, later: Self) {
        self.text = later.text.or(self.text);
        self.image = later.image.or(self.image);
        self.audio = later.audio.or(self.audio);
        self.video = later.video.or(self.video);
        self.document = later.document.or(self.document);
    }
}

/// Durations of the phases of a call by the clock of the backend. Phases that are not reported are absent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Timings {
    /// Waiting before the work begins.
    pub queue: Option<Duration>,
    /// Loading the model.
    pub load: Option<Duration>,
    /// Reading the prompt.
    pub prefill: Option<Duration>,
    /// Generating tokens.
    pub decode: Option<Duration>,
    /// The whole call.
    pub total: Option<Duration>,
}

impl Timings {
    /// Overwrites every field that `later` has.
    pub fn merge(&mut self, later: Self) {
        self.queue = later.queue.or(self.queue);
        self.load = later.load.or(self.load);
        self.prefill = later.prefill.or(self.prefill);
        self.decode = later.decode.or(self.decode);
        self.total = later.total.or(self.total);
    }
}

impl Usage {
    /// Overwrites every field that `later` has: usage may come in parts or be cumulative.
    pub fn merge(&mut self, later: Self) {
        self.input = later.input.or(self.input);
        self.output = later.output.or(self.output);
        self.cache_read = later.cache_read.or(self.cache_read);
        self.cache_write = later.cache_write.or(self.cache_write);
        self.reasoning = later.reasoning.or(self.reasoning);
        self.input_by.merge(later.input_by);
        self.output_by.merge(later.output_by);
    }
}

/// What a request asks for, in the terms of OpenTelemetry. Never its content.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RequestFacts {
    /// The API that the body shows. Used only if several APIs share the path.
    pub api: Option<Api>,
    pub model: Option<Name>,
    /// Whether a streamed response is requested. `None` if the request does not say.
    pub stream: Option<bool>,
    pub max_tokens: Option<i64>,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub top_k: Option<i64>,
    pub frequency_penalty: Option<f64>,
    pub presence_penalty: Option<f64>,
    pub seed: Option<i64>,
    /// Number of choices, unless it is 1.
    pub choices: Option<i64>,
    /// Number of stop sequences. Their text is content and not kept.
    pub stop_sequences: Option<usize>,
    /// The response that the request continues.
    pub previous_response: Option<Name>,
    /// The conversation that the body, or the baggage of the caller, names.
    pub conversation: Option<Name>,
    pub reasoning_level: Option<Name>,
    /// Whether the request enables reasoning without a level.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reasoning: bool,
    pub service_tier: Option<Name>,
    /// `text`, `json`, `image` or `speech`.
    pub output_type: Option<&'static str>,
    pub dimensions: Option<i64>,
    pub encoding_format: Option<Name>,
    /// Unescaped bytes of all texts in the prompt (message contents, `prompt`, `input`), to estimate its tokens.
    pub prompt_bytes: u64,
    /// Whether the request offers tools.
    pub tools: bool,
    /// Whether the request asks for the prompt at the start of the generated text.
    pub echo: Option<bool>,
}

impl RequestFacts {
    /// Whether the request enables reasoning, by a switch, a level or a budget.
    pub fn asks_to_reason(&self) -> bool {
        let level = self.reasoning_level.as_ref().map(Name::as_str);
        self.reasoning
            || level
                .is_some_and(|level| !matches!(level, "none" | "off" | "disabled" | "false" | "0"))
    }
}
