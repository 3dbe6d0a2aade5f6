//! Accumulates the events of one response.

use crate::anomalies::Anomalies;
use crate::tool_arguments::ToolArguments;
use tokengauge_llm::content::ResponseCapture;
use tokengauge_llm::count::{Source, TokenCounter, Tokenizers};
use tokengauge_llm::dialect::{Event, Part, Timings, Usage};
use tokengauge_llm::frame::ParseError;
use tokengauge_measure::record::{ChoiceContent, ChoiceStatus, TokenCounts};
use tokengauge_measure::timing::{LiveSample, StreamTiming, Timestamps};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::label::{Label, Name};

/// Maximum number of tracked choices. All providers that document a limit for `n` allow at most 128.
const MOST_CHOICES: usize = 128;

/// The parsed part of a response.
#[derive(Debug)]
pub(super) struct ResponseAccumulator {
    counter: TokenCounter,
    /// Token counts of the finished turns of a session.
    past: TokenCounts,
    stream: StreamTiming,
    pub(super) id: Option<Name>,
    pub(super) model: Option<Name>,
    pub(super) service_tier: Option<Name>,
    pub(super) system_fingerprint: Option<Name>,
    pub(super) usage: Option<Usage>,
    pub(super) timings: Option<Timings>,
    pub(super) failed: bool,
    pub(super) failure: Option<Name>,
    choices: Vec<Choice>,
    arguments: ToolArguments,
    done: bool,
    /// Tokens of the first chunk with text.
    first: u64,
    anomalies: Anomalies,
    /// The captured content, if content is captured.
    pub(super) heard: Option<Box<ResponseCapture>>,
}

#[derive(Clone, Debug, Default)]
struct Choice {
    said: ChoiceContent,
    stopped: Option<Name>,
}

/// The content of one frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameContent {
    /// Whether the frame is a well-formed message other than the end marker.
    event: bool,
    pub(super) text: bool,
    visible: bool,
    tokens: u32,
}

impl ResponseAccumulator {
    pub(super) fn new(model: Option<&Name>, tokenizers: &Tokenizers) -> Self {
        Self {
            counter: counter(model, tokenizers),
            past: TokenCounts::default(),
            stream: StreamTiming::default(),
            id: None,
            model: None,
            service_tier: None,
            system_fingerprint: None,
            usage: None,
            timings: None,
            failed: false,
            failure: None,
            choices: Vec::new(),
            arguments: ToolArguments::default(),
            done: false,
            first: 0,
            anomalies: Anomalies::default(),
            heard: None,
        }
    }

    /// Applies one event of the frame that `content` describes.
    pub(super) fn event(
        &mut self,
        event: &Event<'_>,
        content: &mut FrameContent,
        out: &mut impl FnMut(LiveSample),
    ) {
        if let Some(heard) = &mut self.heard {
            heard.event(event);
        }
        match event {
            Event::ParseError(anomaly) => return self.odd(*anomaly),
            // This event is relevant for captured content only.
            Event::Call { .. } => return,
            Event::Done => {
                self.done = true;
                return;
            }
            Event::Started { id, model } => self.started(*id, *model),
            Event::Text { choice, part, text } => self.text((*choice, *part), text, content, out),
            Event::Timings(timings) => self.timings.get_or_insert_default().merge(*timings),
            Event::Usage(usage) => self.usage.get_or_insert_default().merge(*usage),
            Event::Stopped { choice, reason } => {
                if let Some(choice) = self.choice(*choice) {
                    choice.stopped = Name::new(reason);
                }
            }
            Event::Failed { kind } => {
                self.failed = true;
                self.failure = kind.and_then(Name::new).or(self.failure.take());
            }
            Event::Tier { service_tier, system_fingerprint } => {
                set_name(&mut self.service_tier, *service_tier);
                set_name(&mut self.system_fingerprint, *system_fingerprint);
            }
        }
        content.event = true;
    }

    /// Ends a frame of a stream: records its timestamps and gaps.
    pub(super) fn chunk(
        &mut self,
        at: MonotonicInstant,
        content: FrameContent,
        points: &mut Timestamps,
        out: &mut impl FnMut(LiveSample),
    ) {
        if !content.event {
            return;
        }
        points.event.get_or_insert(at);
        if content.text {
            if points.token.is_none() {
                points.token = Some(at);
                self.first = u64::from(content.tokens);
            }
            points.last = Some(at);
        }
        if content.visible {
            points.visible.get_or_insert(at);
        }
        self.stream.chunk(at, content.tokens, out);
    }

    pub(super) fn odd(&mut self, anomaly: ParseError) {
        self.anomalies.note(anomaly);
    }

    pub(super) const fn stream(&mut self) -> &mut StreamTiming {
        &mut self.stream
    }

    /// Returns exact totals. Reports the standard tokens that were not counted before.
    pub(super) fn count(&mut self, out: &mut impl FnMut(LiveSample)) -> TokenCounts {
        let totals = self.counter.finish();
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

    /// Ends a turn of a session. Further text is counted separately, in the encoding of `model` unless the response
    /// has named another model.
    pub(super) fn end_turn(
        &mut self,
        model: Option<&Name>,
        tokenizers: &Tokenizers,
        out: &mut impl FnMut(LiveSample),
    ) {
        self.past = self.count(out);
        self.counter = counter(self.model.as_ref().or(model), tokenizers);
    }

    /// Returns whether the response is complete: the end marker of the API was received, or at least `fewest` choices
    /// began and each has a stop reason.
    pub(super) fn is_finished(&self, fewest: usize) -> bool {
        self.done
            || (!self.choices.is_empty()
                && self.choices.len() >= fewest.min(MOST_CHOICES)
                && self.choices.iter().all(|choice| choice.stopped.is_some()))
    }

    /// Returns the provider's stop reasons in the order of choices, each with the status of its choice. `cut`: the
    /// response was truncated, so a choice without a stop reason gets `error`. `seen`: the response was observed
    /// completely.
    pub(super) fn finish_reasons(&self, cut: bool, seen: bool) -> (Vec<Name>, Vec<ChoiceStatus>) {
        let truncated = || Name::new("error").filter(|_| cut);
        let mut reasons = Vec::new();
        for (index, choice) in (0..).zip(&self.choices) {
            let Some(reason) = choice.stopped.clone().or_else(truncated) else {
                continue;
            };
            let said = ChoiceContent {
                anything: choice.said.anything || !seen,
                broken_arguments: seen && self.arguments.are_broken(index),
                ..choice.said
            };
            let became = ChoiceStatus::of(&reason, said);
            reasons.push((reason, became));
        }
        if reasons.is_empty() {
            reasons.extend(truncated().map(|reason| (reason, ChoiceStatus::Unfinished)));
        }
        reasons.into_iter().unzip()
    }

    pub(super) fn anomalies(&mut self) -> Vec<(ParseError, u32)> {
        self.anomalies.take()
    }

    /// Returns the name of the tokenizer.
    pub(super) fn tokenizer(&self) -> Label {
        self.counter.tokenizer()
    }

    pub(super) fn source(&self) -> Source {
        self.counter.source()
    }

    fn started(&mut self, id: Option<&str>, model: Option<&str>) {
        if self.id.is_none() {
            set_name(&mut self.id, id);
        }
        if let Some(model) =
            model.filter(|model| self.model.as_ref().is_none_or(|known| known.as_str() != *model))
        {
            self.counter.set_model(model);
            set_name(&mut self.model, Some(model));
        }
    }

    fn text(
        &mut self,
        (choice, part): (u32, Part),
        text: &str,
        content: &mut FrameContent,
        out: &mut impl FnMut(LiveSample),
    ) {
        if let Some(choice) = self.choice(choice) {
            choice.said.anything = true;
            choice.said.refusal |= part == Part::Refusal;
        }
        if let Part::Tool(number) = part {
            self.arguments.push(choice, number, text);
        }
        let added = self.counter.push(choice, part, text);
        if added.native > 0 {
            out(LiveSample::Tokens {
                kind: part.kind(),
                tokens: added.native,
                source: self.source(),
            });
        }
        if added.standard > 0 {
            out(LiveSample::Standard { tokens: added.standard });
        }
        content.text = true;
        content.visible |= part.is_visible();
        content.tokens = content.tokens.saturating_add(added.native);
    }

    fn choice(&mut self, index: u32) -> Option<&mut Choice> {
        let index = usize::try_from(index).ok().filter(|index| *index < MOST_CHOICES)?;
        if self.choices.len() <= index {
            self.choices.resize(index + 1, Choice::default());
        }
        self.choices.get_mut(index)
    }
}

fn counter(model: Option<&Name>, tokenizers: &Tokenizers) -> TokenCounter {
    let mut counter = TokenCounter::new(tokenizers);
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
