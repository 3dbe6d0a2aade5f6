//! Frames → events: what a message means, in the words of one API.
//!
//! One file per API; each reads the request's facts and the response's events. A dialect has no error: what it does
//! not understand it skips, and says so as an [`Anomaly`].

mod aleph_alpha;
mod anthropic;
mod api;
mod asked;
mod bedrock;
mod blocks;
mod called;
mod characters;
mod cloudflare;
mod cohere;
mod dashscope;
mod detect;
mod engines;
mod failure;
mod fault;
mod form;
mod google;
mod grown;
pub mod headers;
mod json;
mod lenient;
mod ollama;
mod once;
mod openai;
mod provider;
mod rate_limits;
mod reader;
mod repair;
mod replicate;
mod request;
mod shapes;
mod tally;
#[cfg(test)]
mod testing;
mod watsonx;

pub use api::{Api, Family};
pub use detect::{DetectedApi, RequestTarget, detect, is_hint};
pub use openai::Realtime;
pub use provider::provider;
pub use rate_limits::{RateLimit, RateLimits};
pub use reader::{ResponseReader, is_error};
pub use request::RequestReader;

use std::time::Duration;

use serde::Serialize;

use crate::frame::Anomaly;
use tokengauge_types::label::Name;

/// What a response says, one thing at a time. Text is borrowed: nothing of it is kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    /// The answer has begun: who answers. May come more than once (some providers name the model late).
    Started { id: Option<&'a str>, model: Option<&'a str> },
    /// Generated text. Never empty.
    Text { choice: u32, part: Part, text: &'a str },
    /// Which tool the call of this number of a choice calls, and by which id its result will be told. It is no text, and
    /// may come before, between or after the pieces of what the tool is called with.
    Call { choice: u32, number: u32, id: Option<&'a str>, name: Option<&'a str> },
    /// Token counts as the provider reported them; a later one replaces an earlier one field by field.
    Usage(Usage),
    /// A choice is finished, with the provider's own word for why.
    Stopped { choice: u32, reason: &'a str },
    /// The provider reported an error, in the stream or in the body: its own type or code where it gave one.
    Failed { kind: Option<&'a str> },
    /// The service tier that answered, and the fingerprint of the system, where given.
    Tier { service_tier: Option<&'a str>, system_fingerprint: Option<&'a str> },
    /// How long the backend says that its own phases took; a later one replaces an earlier one field by field.
    Timings(Timings),
    /// The dialect's own end of stream (`[DONE]`).
    Done,
    /// Something was odd.
    Odd(Anomaly),
}

/// Which stream of text a piece belongs to. Pieces of one part of one choice belong together and are counted together.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Part {
    /// What a person sees.
    Text,
    /// Reasoning that the provider streams.
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

    /// Whether a person would see it (for first visible token).
    pub const fn is_visible(self) -> bool {
        matches!(self, Self::Text | Self::Refusal | Self::Transcript)
    }
}

/// The kinds of generated text, as a label.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TextKind {
    Text,
    Reasoning,
    Tool,
    Refusal,
    Transcript,
}

impl TextKind {
    pub const ALL: [Self; 5] =
        [Self::Text, Self::Reasoning, Self::Tool, Self::Refusal, Self::Transcript];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Reasoning => "reasoning",
            Self::Tool => "tool",
            Self::Refusal => "refusal",
            Self::Transcript => "transcript",
        }
    }
}

/// Tokens as the provider reported them, harmonised to the standard's meaning: input includes cached tokens, output
/// includes reasoning. A dialect whose provider reports otherwise adds up before it says so.
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
    /// `input` by modality, where given.
    pub input_by: ByModality,
    /// `output` by modality, where given.
    pub output_by: ByModality,
}

/// Tokens by the kind of matter that they stand for (the standard's `gen_ai.token.modality`), as far as reported.
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

/// Phases of a call by the backend's own clock. What it does not tell is absent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Timings {
    /// Waiting before the work began.
    pub queue: Option<Duration>,
    /// Loading the model.
    pub load: Option<Duration>,
    /// Reading the prompt.
    pub prefill: Option<Duration>,
    /// Generating.
    pub decode: Option<Duration>,
    /// All of it.
    pub total: Option<Duration>,
}

impl Timings {
    /// Takes over every field that `later` has.
    pub fn merge(&mut self, later: Self) {
        self.queue = later.queue.or(self.queue);
        self.load = later.load.or(self.load);
        self.prefill = later.prefill.or(self.prefill);
        self.decode = later.decode.or(self.decode);
        self.total = later.total.or(self.total);
    }
}

impl Usage {
    /// Takes over every field that `later` has: usage may come in parts, and cumulative ones replace each other.
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

/// What an exchange is, by the standard's `gen_ai.operation.name` where it has a word, else by ours.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Operation {
    Chat,
    TextCompletion,
    GenerateContent,
    /// Speech to text, translated or not. Ours.
    Transcription,
    Embeddings,
    /// An answer that was generated before is fetched.
    FetchResponse,
    /// Ours, as all below.
    CountTokens,
    Rerank,
    Moderation,
    ImageGeneration,
    Speech,
    /// A session of many answers over one connection: each of the standard's words is one question with one answer, and a
    /// session that lasts an hour among chats would spoil what is known of their durations.
    Realtime,
}

impl Operation {
    pub const ALL: [Self; 12] = [
        Self::Chat,
        Self::TextCompletion,
        Self::GenerateContent,
        Self::Transcription,
        Self::Embeddings,
        Self::FetchResponse,
        Self::CountTokens,
        Self::Rerank,
        Self::Moderation,
        Self::ImageGeneration,
        Self::Speech,
        Self::Realtime,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::TextCompletion => "text_completion",
            Self::GenerateContent => "generate_content",
            Self::Transcription => "transcription",
            Self::Embeddings => "embeddings",
            Self::FetchResponse => "fetch_response",
            Self::CountTokens => "count_tokens",
            Self::Rerank => "rerank",
            Self::Moderation => "moderation",
            Self::ImageGeneration => "image_generation",
            Self::Speech => "speech",
            Self::Realtime => "realtime",
        }
    }

    /// Whether it generates text, token by token.
    pub const fn generates(self) -> bool {
        match self {
            Self::Chat
            | Self::TextCompletion
            | Self::GenerateContent
            | Self::Transcription
            | Self::Realtime => true,
            Self::Embeddings
            | Self::FetchResponse
            | Self::CountTokens
            | Self::Rerank
            | Self::Moderation
            | Self::ImageGeneration
            | Self::Speech => false,
        }
    }
}

/// What a request asks for, as far as the standard names it. Never its content.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RequestFacts {
    /// The API that the body's shape shows; looked at only where the path fits several.
    pub api: Option<Api>,
    pub model: Option<Name>,
    /// Whether a streamed answer was asked for; `None` where the request does not say.
    pub stream: Option<bool>,
    pub max_tokens: Option<i64>,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub top_k: Option<i64>,
    pub frequency_penalty: Option<f64>,
    pub presence_penalty: Option<f64>,
    pub seed: Option<i64>,
    /// How many choices, where not 1.
    pub choices: Option<i64>,
    /// How many stop sequences (their text is content and is not kept).
    pub stop_sequences: Option<usize>,
    /// The response that the request goes on from.
    pub previous_response: Option<Name>,
    /// The conversation that the request belongs to: as the body says, else as the caller's baggage does.
    pub conversation: Option<Name>,
    pub reasoning_level: Option<Name>,
    /// Whether the request switches reasoning on without naming a level.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reasoning: bool,
    pub service_tier: Option<Name>,
    /// `text`, `json`, `image` or `speech`, by the standard's words.
    pub output_type: Option<&'static str>,
    pub dimensions: Option<i64>,
    pub encoding_format: Option<Name>,
    /// Bytes of all texts in the prompt (message contents, `prompt`, `input`), unescaped: the base of an estimate.
    pub prompt_bytes: u64,
    /// Whether the request offers tools.
    pub tools: bool,
    /// Whether the prompt is asked for again, at the head of the generated text.
    pub echo: Option<bool>,
}

impl RequestFacts {
    /// Whether the request asks for reasoning: it switches it on, or names a level or a budget other than none.
    pub fn asks_to_reason(&self) -> bool {
        let level = self.reasoning_level.as_ref().map(Name::as_str);
        self.reasoning
            || level
                .is_some_and(|level| !matches!(level, "none" | "off" | "disabled" | "false" | "0"))
    }
}
