//! The observed response: its facts, timestamps and token samples.

use crate::tool_arguments::ToolArguments;
use tokengauge_llm::budget::RequestBudget;
use tokengauge_llm::content::ResponseCapture;
use tokengauge_llm::count::{TokenDelta, Tokenizers};
use tokengauge_llm::dialect::{Api, Event, FinishMeaning, Part, TextKind};
use tokengauge_llm::{BodyItem, ResponseAccumulator};
use tokengauge_measure::record::{ChoiceContent, ChoiceStatus, FinishedChoice, TokenCounts};
use tokengauge_measure::timing::{LiveSample, StreamTiming, Timestamps};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::label::Name;

/// The parsed part of a response.
#[derive(Debug)]
pub(super) struct ObservedResponse {
    pub(super) facts: ResponseAccumulator,
    /// Token counts of the finished turns of a session (responses in one WebSocket), without the current turn.
    past: TokenCounts,
    pub(super) timing: StreamTiming,
    arguments: ToolArguments,
    /// Number of tokens in the first chunk with text.
    first: u64,
    /// The captured content, if content is captured.
    pub(super) capture: Option<Box<ResponseCapture>>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameContent {
    /// Whether the current frame contains a well-formed message. End markers do not count.
    event: bool,
    pub(super) text: bool,
    visible: bool,
    tokens: u32,
}

impl ObservedResponse {
    pub(super) fn new(
        model: Option<&Name>,
        (tokenizers, budget): (&Tokenizers, &RequestBudget),
        capture: Option<Box<ResponseCapture>>,
    ) -> Self {
        Self {
            facts: ResponseAccumulator::new(model, tokenizers, budget),
            past: TokenCounts::default(),
            timing: StreamTiming::default(),
            arguments: ToolArguments::default(),
            first: 0,
            capture,
        }
    }

    /// Applies one event of the frame that `content` describes.
    pub(super) fn event(
        &mut self,
        event: &Event<'_>,
        content: &mut FrameContent,
        out: &mut impl FnMut(LiveSample),
    ) {
        if let Some(capture) = &mut self.capture {
            capture.event(event);
        }
        let tokens = self.facts.apply(event);
        if let Event::Text { choice, part, text } = event {
            if let Part::Tool(number) = part {
                self.arguments.push(*choice, *number, text);
            }
            self.report_text(*part, tokens, content, out);
        }
        content.event |= !matches!(
            event,
            Event::ParseError(_)
                | Event::Call { .. }
                | Event::Compacted
                | Event::Answered
                | Event::Done
        );
    }

    /// Applies a parsed item of the response body, which arrived at `at`. `content` accumulates the facts about the
    /// current frame.
    pub(super) fn item(
        &mut self,
        (at, item): (MonotonicInstant, BodyItem<'_>),
        content: &mut FrameContent,
        timestamps: &mut Timestamps,
        out: &mut impl FnMut(LiveSample),
    ) {
        match item {
            BodyItem::Event(event) => self.event(&event, content, out),
            BodyItem::FrameEnd { is_message } => {
                self.facts.end_frame();
                let content = std::mem::take(content);
                if is_message {
                    self.chunk(at, content, timestamps, out);
                }
            }
        }
    }

    /// Records the timestamps and gaps of a complete frame of the stream.
    fn chunk(
        &mut self,
        at: MonotonicInstant,
        content: FrameContent,
        timestamps: &mut Timestamps,
        out: &mut impl FnMut(LiveSample),
    ) {
        if !content.event {
            return;
        }
        timestamps.event.get_or_insert(at);
        if content.text {
            if timestamps.token.is_none() {
                timestamps.token = Some(at);
                self.first = u64::from(content.tokens);
            }
            timestamps.last = Some(at);
        }
        if content.visible {
            timestamps.visible.get_or_insert(at);
        }
        self.timing.chunk(at, content.text.then_some(content.tokens), out);
    }

    /// Returns the exact token counts. Also sends tokens to `out` that were not reported live.
    pub(super) fn count(&mut self, out: &mut impl FnMut(LiveSample)) -> TokenCounts {
        let totals = self.facts.tokens();
        for (kind, tokens) in TextKind::ALL.into_iter().zip(totals.native_unreported) {
            if tokens > 0 {
                out(LiveSample::Tokens { kind, tokens, source: totals.source });
            }
        }
        if totals.standard_unreported > 0 {
            out(LiveSample::Standard { tokens: totals.standard_unreported });
        }
        let last = TokenCounts {
            total: totals.native,
            first: self.first,
            standard: totals.standard,
            by_kind: totals.by_kind,
            source: Some(totals.source),
        };
        self.past.followed_by(&last)
    }

    /// Ends a turn (one response of a WebSocket session). Later text is counted separately, with the tokeniser of
    /// `model` if the response has named no other model.
    pub(super) fn end_turn(
        &mut self,
        model: Option<&Name>,
        (tokenizers, budget): (&Tokenizers, &RequestBudget),
        out: &mut impl FnMut(LiveSample),
    ) {
        self.past = self.count(out);
        self.facts.restart_count(model, tokenizers, budget);
    }

    /// Returns the choices (alternative answers), in order. `seen` is true if the response was observed completely.
    /// With `needs_reason`, a choice without a finish reason is unfinished. Otherwise it is left out.
    pub(super) fn finished_choices(
        &self,
        api: Api,
        needs_reason: bool,
        seen: bool,
    ) -> Vec<FinishedChoice> {
        let mut choices = Vec::new();
        for (index, choice) in (0..).zip(&self.facts.choices) {
            let reason = choice.finish_reason.clone();
            if reason.is_none() && !needs_reason {
                continue;
            }
            let content = ChoiceContent {
                anything: choice.has_text || !seen,
                refusal: choice.has_refusal,
                broken_arguments: seen && self.arguments.are_broken(index),
            };
            let meaning = reason.as_ref().map(|reason| FinishMeaning::of(api, reason.as_str()));
            choices.push(FinishedChoice { reason, status: ChoiceStatus::new(meaning, content) });
        }
        if choices.is_empty() && needs_reason {
            choices.push(FinishedChoice { reason: None, status: ChoiceStatus::Unfinished });
        }
        choices
    }

    fn report_text(
        &self,
        part: Part,
        tokens: TokenDelta,
        content: &mut FrameContent,
        out: &mut impl FnMut(LiveSample),
    ) {
        if tokens.native > 0 {
            let (kind, source) = (part.kind(), self.facts.source());
            out(LiveSample::Tokens { kind, tokens: tokens.native, source });
        }
        if tokens.standard > 0 {
            out(LiveSample::Standard { tokens: tokens.standard });
        }
        content.text = true;
        content.visible |= part.is_visible();
        content.tokens = content.tokens.saturating_add(tokens.chunk);
    }
}
