//! Accumulates the events of one response: identifiers, usage, errors, choices and token counts.

use crate::body::BodyReader;
use crate::budget::RequestBudget;
use crate::count::{Source, TokenCounter, TokenDelta, TokenTotals, Tokenizers};
use crate::dialect::{Api, Event, Part, Timings, Usage};
use crate::frame::ParseError;
use tokengauge_types::label::{Label, Name};

/// Maximum number of tracked choices. Providers that document a limit for the request's `n` allow at most 128.
pub const MAX_CHOICES: usize = 128;

/// Error type of a successful response without an answer, such as an empty body or `"choices": []`.
const EMPTY_RESPONSE: &str = "empty_response";

/// Error type of a successful response that is not JSON, such as a web page.
const INVALID_RESPONSE: &str = "invalid_response";

/// State of one response: the data of all events so far, and the token counts of the text.
#[derive(Debug)]
pub struct ResponseAccumulator {
    counter: TokenCounter,
    /// The identifier of the response.
    pub id: Option<Name>,
    /// The model that the response names.
    pub model: Option<Name>,
    pub service_tier: Option<Name>,
    pub system_fingerprint: Option<Name>,
    /// The token counts that the provider reported.
    pub usage: Option<Usage>,
    /// Sum of the token usage of earlier choices, if the server reports usage for each choice.
    usage_of_choices: Option<Usage>,
    reports: UsageReports,
    /// Whether the current frame contains a part of a choice.
    frame_has_choice: bool,
    /// Whether the current frame contains text.
    frame_has_text: bool,
    /// The durations that the backend reported.
    pub timings: Option<Timings>,
    /// Whether the body contains an error.
    pub failed: bool,
    /// The type or code of the error that the provider reported.
    pub error_type: Option<Name>,
    /// The choices that have started, by index.
    pub choices: Vec<Choice>,
    is_done: bool,
    /// Whether a JSON body is a response of its API.
    is_answered: bool,
    /// Whether the provider compacted the conversation for this response.
    pub is_compacted: bool,
    last_usage: LastUsage,
    /// The kinds of parse errors, and how often each occurred.
    pub parse_errors: Vec<(ParseError, u32)>,
}

/// How the server has reported token usage so far, in messages without a choice.
///
/// The API defines one message for all choices. llama.cpp sends one after each choice, with the tokens of that choice
/// only. Other servers repeat the message, with the tokens of all choices so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum UsageReports {
    None,
    /// Each message so far arrived after a further choice had stopped. `stopped` is the number of stopped choices.
    AfterStop {
        stopped: usize,
    },
    Repeated,
}

/// The position of the first report of output tokens in a stream.
///
/// Servers that report usage once do so after the text. Servers that report it continuously do so with each text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LastUsage {
    None,
    /// The report was not in a message with text, and no text has followed.
    AfterTexts,
    BesideTexts,
}

impl LastUsage {
    fn report(&mut self, frame_has_text: bool) {
        *self = match self {
            Self::None if !frame_has_text => Self::AfterTexts,
            Self::None | Self::BesideTexts => Self::BesideTexts,
            Self::AfterTexts => Self::AfterTexts,
        };
    }

    fn follow_with_text(&mut self) {
        if *self == Self::AfterTexts {
            *self = Self::BesideTexts;
        }
    }
}

/// The state of one choice.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    pub has_text: bool,
    pub has_refusal: bool,
    /// The provider's finish reason.
    pub finish_reason: Option<Name>,
}

impl ResponseAccumulator {
    /// Creates an accumulator. `model` is the requested model, which selects the tokenizer until the response names a
    /// model.
    pub fn new(model: Option<&Name>, tokenizers: &Tokenizers, budget: &RequestBudget) -> Self {
        Self {
            counter: counter(model, tokenizers, budget),
            id: None,
            model: None,
            service_tier: None,
            system_fingerprint: None,
            usage: None,
            usage_of_choices: None,
            reports: UsageReports::None,
            frame_has_choice: false,
            frame_has_text: false,
            timings: None,
            failed: false,
            error_type: None,
            choices: Vec::new(),
            is_done: false,
            is_answered: false,
            is_compacted: false,
            last_usage: LastUsage::None,
            parse_errors: Vec::new(),
        }
    }

    /// Applies one event and returns the tokens that it adds.
    pub fn apply(&mut self, event: &Event<'_>) -> TokenDelta {
        match event {
            Event::Started { id, model } => self.start(*id, *model),
            Event::Text { choice, part, text } => {
                self.frame_has_choice = true;
                self.frame_has_text = true;
                self.last_usage.follow_with_text();
                if let Some(choice) = self.choice(*choice) {
                    choice.has_text = true;
                    choice.has_refusal |= *part == Part::Refusal;
                }
                return self.counter.push(*choice, *part, text);
            }
            // Only content capture uses the call's name and id.
            Event::Call { .. } => {}
            Event::Usage(usage) => {
                self.is_compacted |= usage.compaction.is_some();
                self.report_usage(**usage);
            }
            Event::Stopped { choice, reason } => {
                self.frame_has_choice = true;
                if let Some(choice) = self.choice(*choice) {
                    set_name(&mut choice.finish_reason, Some(reason));
                }
            }
            Event::Failed { kind } => {
                self.failed = true;
                set_name(&mut self.error_type, *kind);
            }
            Event::Tier { service_tier, system_fingerprint } => {
                set_name(&mut self.service_tier, *service_tier);
                set_name(&mut self.system_fingerprint, *system_fingerprint);
            }
            Event::Timings(timings) => self.timings.get_or_insert_default().merge(**timings),
            Event::Compacted => self.is_compacted = true,
            Event::Answered => self.is_answered = true,
            Event::Done => self.is_done = true,
            Event::ParseError(error) => error.add_to(&mut self.parse_errors),
        }
        TokenDelta::default()
    }

    /// Ends a frame of the body.
    pub const fn end_frame(&mut self) {
        self.frame_has_choice = false;
        self.frame_has_text = false;
    }

    /// Returns whether the response is complete: after the API's end marker, or when at least `fewest` choices have
    /// started and each has a finish reason.
    pub fn is_finished(&self, fewest: usize) -> bool {
        let all_stopped = self.choices.iter().all(|choice| choice.finish_reason.is_some());
        let enough = self.choices.len() >= fewest.clamp(1, MAX_CHOICES);
        self.is_done || (enough && all_stopped)
    }

    /// Returns whether the last message reported the usage of the whole response. If HTTP then delivers the end of the
    /// body, the response is complete, even without a finish reason or an end marker.
    pub const fn has_final_usage(&self) -> bool {
        matches!(self.last_usage, LastUsage::AfterTexts)
    }

    /// Returns whether the response has any of the values that show its API: a choice, token counts, or in a JSON body
    /// another value that only responses of the API have.
    pub fn has_answer(&self) -> bool {
        self.is_answered || !self.choices.is_empty() || self.usage.is_some()
    }

    /// Records an error if a successful response contains no answer: no text, no finish reason, and in a JSON body none
    /// of the values that its API requires. Called after the end of `body`, which HTTP delivered completely.
    pub fn require_answer(&mut self, api: Api, status: u16, body: &BodyReader) {
        let is_observed =
            !(body.is_lossy() || body.is_unread() || body.is_foreign() || body.is_short());
        if self.failed || !has_body(status) || !is_observed || self.is_answered(api, body) {
            return;
        }
        let is_malformed = self
            .parse_errors
            .iter()
            .any(|(error, _)| matches!(error, ParseError::BadJson | ParseError::Unterminated));
        self.failed = true;
        self.error_type = Name::new(if is_malformed { INVALID_RESPONSE } else { EMPTY_RESPONSE });
    }

    fn is_answered(&self, api: Api, body: &BodyReader) -> bool {
        if self.is_answered || !self.choices.is_empty() {
            return true;
        }
        match body.is_stream() {
            // A stream without an end marker is truncated.
            Some(true) => !(self.is_done && api.has_choice_in_each_stream()),
            Some(false) => !api.has_answer_in_each_body(),
            None => !api.has_body(),
        }
    }

    /// Returns the token counts of the text received so far.
    pub fn tokens(&mut self) -> TokenTotals {
        self.counter.finish()
    }

    /// Returns the name of the tokenizer.
    pub fn tokenizer(&self) -> Label {
        self.counter.tokenizer()
    }

    /// Returns how the tokens were counted.
    pub fn source(&self) -> Source {
        self.counter.source()
    }

    /// Starts a new count for further text. The tokenizer depends on the model that the response named, or else on
    /// `model`.
    pub fn restart_count(
        &mut self,
        model: Option<&Name>,
        tokenizers: &Tokenizers,
        budget: &RequestBudget,
    ) {
        self.counter = counter(self.model.as_ref().or(model), tokenizers, budget);
    }

    fn report_usage(&mut self, usage: Usage) {
        if usage.output.is_some() {
            self.last_usage.report(self.frame_has_text);
        }
        if !self.frame_has_choice {
            let stopped = self.choices.iter().filter(|it| it.finish_reason.is_some()).count();
            self.reports = match self.reports {
                UsageReports::None if stopped > 0 => UsageReports::AfterStop { stopped },
                UsageReports::AfterStop { stopped: before } if stopped > before => {
                    self.usage_of_choices = self.usage.take();
                    UsageReports::AfterStop { stopped }
                }
                UsageReports::None | UsageReports::AfterStop { .. } | UsageReports::Repeated => {
                    UsageReports::Repeated
                }
            };
        }
        let known = self.usage.get_or_insert_default();
        known.merge(usage);
        if let Some(earlier) = self.usage_of_choices.take() {
            known.add_choice(earlier);
            if known.remove_implausible() {
                ParseError::BadCount.add_to(&mut self.parse_errors);
            }
        }
    }

    fn start(&mut self, id: Option<&str>, model: Option<&str>) {
        if self.id.is_none() {
            set_name(&mut self.id, id);
        }
        let known = self.model.as_ref().map(Name::as_str);
        if let Some(model) = model.filter(|model| known != Some(*model)) {
            self.counter.set_model(model);
            set_name(&mut self.model, Some(model));
        }
    }

    fn choice(&mut self, index: u32) -> Option<&mut Choice> {
        let index = usize::try_from(index).ok().filter(|index| *index < MAX_CHOICES)?;
        if self.choices.len() <= index {
            self.choices.resize(index + 1, Choice::default());
        }
        self.choices.get_mut(index)
    }
}

/// Returns whether a response with this status has a body with the result of the call. 202 accepts a call without its
/// result.
const fn has_body(status: u16) -> bool {
    matches!(status, 200..=299) && !matches!(status, 202 | 204 | 205)
}

fn counter(model: Option<&Name>, tokenizers: &Tokenizers, budget: &RequestBudget) -> TokenCounter {
    let mut counter = TokenCounter::new(tokenizers, budget);
    if let Some(model) = model {
        counter.set_model(model.as_str());
    }
    counter
}

fn set_name(field: &mut Option<Name>, text: Option<&str>) {
    if let Some(name) = text.and_then(Name::new) {
        *field = Some(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response() -> ResponseAccumulator {
        ResponseAccumulator::new(None, &Tokenizers::default(), &RequestBudget::default())
    }

    fn usage(input: u64, output: u64) -> Event<'static> {
        let usage = Usage { input: Some(input), output: Some(output), ..Usage::default() };
        Event::Usage(Box::leak(Box::new(usage)))
    }

    fn stopped(choice: u32) -> Event<'static> {
        Event::Stopped { choice, reason: "stop" }
    }

    fn text(choice: u32) -> Event<'static> {
        Event::Text { choice, part: Part::Text, text: " word" }
    }

    /// Applies the events of each frame, and returns the reported numbers of input and output tokens.
    fn reported(frames: &[&[Event<'static>]]) -> (Option<u64>, Option<u64>) {
        let mut response = response();
        for frame in frames {
            for event in *frame {
                response.apply(event);
            }
            response.end_frame();
        }
        let usage = response.usage.unwrap();
        (usage.input, usage.output)
    }

    #[test]
    fn usage_of_each_choice_adds_up() {
        let frames: [&[Event<'_>]; 8] = [
            &[text(0)],
            &[text(1)],
            &[stopped(0)],
            &[usage(12, 30)],
            &[text(1)],
            &[stopped(1)],
            &[usage(12, 31)],
            &[Event::Done],
        ];
        assert_eq!(reported(&frames), (Some(12), Some(61)));
        let one_after_the_other: [&[Event<'_>]; 7] = [
            &[stopped(0)],
            &[usage(12, 30)],
            &[stopped(1)],
            &[usage(12, 31)],
            &[text(2)],
            &[stopped(2)],
            &[usage(12, 32)],
        ];
        assert_eq!(reported(&one_after_the_other), (Some(12), Some(93)));
    }

    #[test]
    fn usage_of_all_choices_is_taken_as_it_is() {
        let once: [&[Event<'_>]; 3] = [&[stopped(0)], &[stopped(1)], &[usage(12, 60)]];
        assert_eq!(reported(&once), (Some(12), Some(60)));
        let twice: [&[Event<'_>]; 4] =
            [&[stopped(0)], &[stopped(1)], &[usage(12, 60)], &[usage(12, 60)]];
        assert_eq!(reported(&twice), (Some(12), Some(60)));
    }

    #[test]
    fn usage_that_grows_with_the_stream_is_not_added_up() {
        // vLLM with `continuous_usage_stats`: in the messages of each choice, and for all choices at the end.
        let with_choices: [&[Event<'_>]; 4] = [
            &[text(0), usage(12, 29)],
            &[stopped(0), usage(12, 30)],
            &[stopped(1), usage(12, 30)],
            &[usage(12, 60)],
        ];
        assert_eq!(reported(&with_choices), (Some(12), Some(60)));
        let without: [&[Event<'_>]; 6] = [
            &[text(0)],
            &[usage(12, 40)],
            &[stopped(0)],
            &[usage(12, 50)],
            &[stopped(1)],
            &[usage(12, 60)],
        ];
        assert_eq!(reported(&without), (Some(12), Some(60)));
    }
}
