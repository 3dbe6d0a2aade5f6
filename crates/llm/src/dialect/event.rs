//! Defines the events of a response and the facts of a request. They are the same for all API formats.

use std::time::Duration;

use serde::Serialize;

use super::Api;
use super::token_count::MAX_TOKENS;
use crate::frame::ParseError;
use tokengauge_types::event::SessionSignal;
use tokengauge_types::label::Name;
use tokengauge_types::label_enum;

/// One item of information from a response, such as a piece of text. Borrows all large values, because events are passed
/// through many functions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// The response has begun. This event can occur more than once, because some providers send the model late.
    Started { id: Option<&'a str>, model: Option<&'a str> },
    /// Generated text. Never empty.
    Text { choice: u32, part: Part, text: &'a str },
    /// Name and id of a tool call. The tool's result refers to the id. The event can occur before, between or after the
    /// pieces of the call's arguments.
    Call { choice: u32, number: u32, id: Option<&'a str>, name: Option<&'a str> },
    /// Token counts that the provider reported. A later count overwrites an earlier count of the same field.
    Usage(&'a Usage),
    /// A choice has ended. `reason` is the finish reason of the provider.
    Stopped { choice: u32, reason: &'a str },
    /// The provider reported an error. `kind` is its type or code, if known.
    Failed { kind: Option<&'a str> },
    /// The service tier that processes the request, and the fingerprint of the system.
    Tier { service_tier: Option<&'a str>, system_fingerprint: Option<&'a str> },
    /// Durations that the backend reported. A later value overwrites an earlier value of the same field.
    Timings(&'a Timings),
    /// The provider compacted the conversation for this response.
    Compacted,
    /// The JSON body is a response of its API, even if it contains no text.
    Answered,
    /// The end marker of the stream, such as `[DONE]`.
    Done,
    /// The input was malformed.
    ParseError(ParseError),
}

/// A function that receives the events of a response.
pub trait EventSink: FnMut(Event<'_>) {}

impl<F: FnMut(Event<'_>)> EventSink for F {}

/// The kind of a generated text, such as the reasoning or one tool call. The pieces of a part are counted together.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Part {
    /// Text of the answer, which the user sees.
    Text,
    /// Reasoning.
    Reasoning,
    /// Arguments of the tool call with this number.
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

    /// Returns whether the user sees the text. Used for the time to the first visible token.
    pub const fn is_visible(self) -> bool {
        matches!(self, Self::Text | Self::Refusal | Self::Transcript)
    }
}

label_enum! {
    /// The kind of generated text, as a metric label.
    #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub enum TextKind {
        Text = "text",
        Reasoning = "reasoning",
        Tool = "tool",
        Refusal = "refusal",
        Transcript = "transcript",
    }
}

/// Token counts that the provider reported, as OpenTelemetry defines them: input includes cached tokens, and output
/// includes reasoning. Other definitions are converted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Usage {
    pub input: Option<u64>,
    pub output: Option<u64>,
    /// Input tokens read from the provider's cache, part of `input`.
    pub cache_read: Option<u64>,
    /// Input tokens written to the provider's cache, part of `input`.
    pub cache_write: Option<u64>,
    /// Input tokens written to the cache for 5 minutes and for 1 hour, parts of `cache_write`. Providers charge more for
    /// the longer lifetime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_5m: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_1h: Option<u64>,
    /// Reasoning tokens, part of `output`.
    pub reasoning: Option<u64>,
    /// Output tokens of compaction, a summary of the conversation that is not sent as text. Part of `output`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction: Option<u64>,
    /// Output tokens that no count except the reported total contains, part of `output`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlisted: Option<u64>,
    /// The tokens of `input` for each modality, if reported.
    pub input_by: ByModality,
    /// The tokens of `cache_read` for each modality, if reported.
    #[serde(skip_serializing_if = "ByModality::is_empty")]
    pub cache_read_by: ByModality,
    /// The tokens of `output` for each modality, if reported.
    pub output_by: ByModality,
    /// Whether another number of the same report contradicts `output`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub output_in_doubt: bool,
    /// Cost of the call that the provider or a gateway reports, in ticks of 10⁻¹⁰ US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_ticks: Option<u64>,
}

/// Fractions of a US dollar in which xAI reports costs. Other providers report dollars with up to ten decimals.
pub const TICKS_PER_USD: f64 = 1e10;

/// Maximum plausible cost of one call: 10,000 US dollars, 100 times the cost of 10 million tokens at 10 dollars a million.
const MAX_COST_TICKS: u64 = 100_000_000_000_000;

/// Converts US dollars. A negative or infinite amount becomes an implausible one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
pub fn ticks_of_usd(amount: f64) -> u64 {
    let ticks = (amount * TICKS_PER_USD).round();
    if (0.0..=MAX_COST_TICKS as f64).contains(&ticks) { ticks as u64 } else { u64::MAX }
}

/// Token counts by modality (`gen_ai.token.modality`). A count that was not reported is absent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct ByModality {
    pub text: Option<u64>,
    pub image: Option<u64>,
    pub audio: Option<u64>,
    pub video: Option<u64>,
    pub document: Option<u64>,
}

impl ByModality {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn counts_mut(&mut self) -> [&mut Option<u64>; 5] {
        let Self { text, image, audio, video, document } = self;
        [text, image, audio, video, document]
    }

    fn merge(&mut self, later: Self) {
        self.text = later.text.or(self.text);
        self.image = later.image.or(self.image);
        self.audio = later.audio.or(self.audio);
        self.video = later.video.or(self.video);
        self.document = later.document.or(self.document);
    }

    /// Applies a function to each count.
    pub(super) fn map(self, change: impl Fn(Option<u64>) -> Option<u64>) -> Self {
        Self {
            text: change(self.text),
            image: change(self.image),
            audio: change(self.audio),
            video: change(self.video),
            document: change(self.document),
        }
    }

    /// Returns the sum of all modalities, and `None` if none is reported.
    fn total(self) -> Option<u64> {
        [self.text, self.image, self.audio, self.video, self.document]
            .into_iter()
            .reduce(|one, other| sum((one, other)))?
    }

    fn sum(self, other: Self) -> Self {
        Self {
            text: sum((self.text, other.text)),
            image: sum((self.image, other.image)),
            audio: sum((self.audio, other.audio)),
            video: sum((self.video, other.video)),
            document: sum((self.document, other.document)),
        }
    }
}

/// Durations of the phases of a call, measured by the backend. A phase that was not reported is absent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Timings {
    /// Time in the queue before the backend started to work.
    pub queue: Option<Duration>,
    /// Time to load the model.
    pub load: Option<Duration>,
    /// Time to process the prompt.
    pub prefill: Option<Duration>,
    /// Time to generate the tokens.
    pub decode: Option<Duration>,
    /// Time of the whole call.
    pub total: Option<Duration>,
}

impl Timings {
    /// Overwrites the fields that `later` contains.
    pub fn merge(&mut self, later: Self) {
        self.queue = later.queue.or(self.queue);
        self.load = later.load.or(self.load);
        self.prefill = later.prefill.or(self.prefill);
        self.decode = later.decode.or(self.decode);
        self.total = later.total.or(self.total);
    }
}

impl Usage {
    /// Overwrites the fields that `later` contains, because usage can arrive in parts or as cumulative counts.
    ///
    /// Parts that exceed the merged counts are then removed.
    pub fn merge(&mut self, later: Self) {
        if later.output.is_some() {
            self.output = later.output;
            self.unlisted = later.unlisted;
            self.output_in_doubt = later.output_in_doubt;
        }
        self.input = later.input.or(self.input);
        // Anthropic divides cache writes by lifetime only at the start of a stream.
        if later.cache_write_5m.or(later.cache_write_1h).is_some() {
            self.cache_write_5m = later.cache_write_5m;
            self.cache_write_1h = later.cache_write_1h;
        }
        self.cache_write = later.cache_write.or(self.cache_write);
        self.cache_read = later.cache_read.or(self.cache_read);
        self.reasoning = later.reasoning.or(self.reasoning);
        self.compaction = later.compaction.or(self.compaction);
        self.cost_ticks = later.cost_ticks.or(self.cost_ticks);
        self.input_by.merge(later.input_by);
        self.cache_read_by.merge(later.cache_read_by);
        self.output_by.merge(later.output_by);
        self.remove_excess();
    }

    /// Returns the reported cost in US dollars.
    #[expect(clippy::cast_precision_loss, reason = "plausible costs are below 2^53")]
    pub fn cost_in_usd(&self) -> Option<f64> {
        self.cost_ticks.map(|ticks| ticks as f64 / TICKS_PER_USD)
    }

    /// Returns the output tokens that are sent only if the provider shows its reasoning: reasoning, and tokens that only
    /// the total shows. Returns `None` if neither is reported.
    pub fn unshown(&self) -> Option<u64> {
        sum((self.reasoning, self.unlisted))
    }

    /// Returns the output tokens that are no answer: reasoning, tokens that only the total shows, and compaction.
    /// Returns `None` if none of them is reported.
    pub fn besides_answer(&self) -> Option<u64> {
        sum((self.unshown(), self.compaction))
    }

    /// Removes counts that no call can have. Returns whether there were any.
    pub(crate) fn remove_implausible(&mut self) -> bool {
        let mut found = false;
        for count in self.counts_mut() {
            let is_implausible = count.is_some_and(|tokens| tokens > MAX_TOKENS);
            found |= is_implausible;
            *count = count.filter(|_| !is_implausible);
        }
        if found && self.output.is_none() {
            self.unlisted = None;
            self.compaction = None;
            self.output_in_doubt = false;
        }
        if found {
            self.remove_excess();
        }
        let is_implausible_cost = self.cost_ticks.is_some_and(|ticks| ticks > MAX_COST_TICKS);
        self.cost_ticks = self.cost_ticks.filter(|_| !is_implausible_cost);
        found || is_implausible_cost
    }

    fn counts_mut(&mut self) -> impl Iterator<Item = &mut Option<u64>> {
        let modalities =
            [&mut self.input_by, &mut self.cache_read_by, &mut self.output_by].into_iter();
        [
            &mut self.input,
            &mut self.output,
            &mut self.cache_read,
            &mut self.cache_write,
            &mut self.cache_write_5m,
            &mut self.cache_write_1h,
            &mut self.reasoning,
            &mut self.compaction,
            &mut self.unlisted,
        ]
        .into_iter()
        .chain(modalities.flat_map(ByModality::counts_mut))
    }

    /// Returns whether no part exceeds the input or output to which it belongs.
    pub(super) fn is_consistent(&self) -> bool {
        !self.has_excess_cache() && !self.has_excess_output()
    }

    fn has_excess_cache(&self) -> bool {
        exceeds(sum((self.cache_read, self.cache_write)), self.input)
    }

    fn has_excess_output(&self) -> bool {
        exceeds(self.besides_answer(), self.output)
    }

    /// Removes parts that exceed the count to which they belong. The provider's numbers then contradict each other, and
    /// the part is the less reliable number: providers bill the whole. If the part belongs to the output, the output is
    /// in doubt, too.
    pub(super) fn remove_excess(&mut self) {
        if self.has_excess_cache() {
            self.cache_read = None;
            self.cache_write = None;
        }
        let by_lifetime = sum((self.cache_write_5m, self.cache_write_1h));
        if by_lifetime.is_some()
            && (self.cache_write.is_none() || exceeds(by_lifetime, self.cache_write))
        {
            self.cache_write_5m = None;
            self.cache_write_1h = None;
        }
        if self.has_excess_output() {
            self.reasoning = None;
            self.compaction = None;
            self.unlisted = None;
            self.output_in_doubt = true;
        }
        if exceeds(self.input_by.total(), self.input) {
            self.input_by = ByModality::default();
        }
        if self.cache_read.is_none() || exceeds(self.cache_read_by.total(), self.cache_read) {
            self.cache_read_by = ByModality::default();
        }
        if exceeds(self.output_by.total(), self.output) {
            self.output_by = ByModality::default();
        }
    }

    /// Returns the sum of two reports. A count that only one report contains is kept.
    pub(super) fn sum(self, other: Self) -> Self {
        Self {
            input: sum((self.input, other.input)),
            output: sum((self.output, other.output)),
            cache_read: sum((self.cache_read, other.cache_read)),
            cache_write: sum((self.cache_write, other.cache_write)),
            cache_write_5m: sum((self.cache_write_5m, other.cache_write_5m)),
            cache_write_1h: sum((self.cache_write_1h, other.cache_write_1h)),
            reasoning: sum((self.reasoning, other.reasoning)),
            compaction: sum((self.compaction, other.compaction)),
            unlisted: sum((self.unlisted, other.unlisted)),
            output_in_doubt: self.output_in_doubt || other.output_in_doubt,
            cost_ticks: sum((self.cost_ticks, other.cost_ticks)),
            input_by: self.input_by.sum(other.input_by),
            cache_read_by: self.cache_read_by.sum(other.cache_read_by),
            output_by: self.output_by.sum(other.output_by),
        }
    }

    /// Adds the usage of another choice of the same response. Only output is added, because each choice reports the
    /// prompt.
    pub fn add_choice(&mut self, other: Self) {
        let Self { output, reasoning, compaction, unlisted, output_by, output_in_doubt, .. } =
            self.sum(other);
        self.merge(Self {
            output,
            reasoning,
            compaction,
            unlisted,
            output_by,
            output_in_doubt,
            ..other
        });
    }
}

/// Returns the sum of two counts, and `None` if neither is reported.
pub fn sum((one, other): (Option<u64>, Option<u64>)) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    }
}

/// Returns whether a part is larger than its whole. Returns `false` if one of them is not reported, and for an
/// implausible part, which is removed for this reason.
fn exceeds(part: Option<u64>, whole: Option<u64>) -> bool {
    part.zip(whole).is_some_and(|(part, whole)| part > whole && part <= MAX_TOKENS)
}

/// The settings and other facts of a request, in OpenTelemetry's terms. The content of the request is never included.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RequestFacts {
    /// The API that the request body shows. Used only if several APIs share the path.
    pub api: Option<Api>,
    pub model: Option<Name>,
    /// Whether the request asks for a stream. `None` if the request does not contain this setting.
    pub stream: Option<bool>,
    pub max_tokens: Option<i64>,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub top_k: Option<i64>,
    pub frequency_penalty: Option<f64>,
    pub presence_penalty: Option<f64>,
    pub seed: Option<i64>,
    /// Number of requested choices. `None` if it is 1.
    pub choices: Option<i64>,
    /// Number of stop sequences. Their text is content and not stored.
    pub stop_sequences: Option<usize>,
    /// Id and version of the stored prompt template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_name: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_version: Option<Name>,
    /// Whether the request contains a compaction: a summary that replaces the beginning of the conversation.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub compacted: bool,
    /// Id of the response that the request continues.
    pub previous_response: Option<Name>,
    /// Whether the provider generates the response after it has answered the request.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// Id of the conversation, from the body or from the caller's baggage header.
    pub conversation: Option<Name>,
    /// The preferred session in the body, if it has one. Not hashed.
    #[serde(skip)]
    pub session: Option<SessionSignal>,
    pub reasoning_level: Option<Name>,
    /// Whether the request enables reasoning without naming a level.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reasoning: bool,
    pub service_tier: Option<Name>,
    /// The requested type of output: `text`, `json`, `image` or `speech`.
    pub output_type: Option<&'static str>,
    pub dimensions: Option<i64>,
    pub encoding_format: Option<Name>,
    /// Length in bytes of all texts in the prompt (message contents, `prompt`, `input`) without escapes. Used to
    /// estimate the prompt's tokens.
    pub prompt_bytes: u64,
    /// Whether the request offers tools.
    pub tools: bool,
    /// Whether the server repeats the prompt before the generated text.
    pub echo: Option<bool>,
    /// Number of counts that were ignored because they are implausible.
    #[serde(skip)]
    pub bad_counts: u32,
}

impl RequestFacts {
    /// Returns whether the request enables reasoning by a switch, a level or a budget.
    pub fn asks_to_reason(&self) -> bool {
        let level = self.reasoning_level.as_ref().map(Name::as_str);
        self.reasoning
            || level
                .is_some_and(|level| !matches!(level, "none" | "off" | "disabled" | "false" | "0"))
    }
}
