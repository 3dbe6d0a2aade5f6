//! Accumulates the events of one response: identifiers, usage, errors, choices and token counts.

use crate::budget::RequestBudget;
use crate::count::{Source, TokenCounter, TokenDelta, TokenTotals, Tokenizers};
use crate::dialect::{Event, Part, Timings, Usage};
use crate::frame::ParseError;
use tokengauge_types::label::{Label, Name};

/// Maximum number of tracked choices. Providers that document a limit for the request's `n` allow at most 128.
pub const MAX_CHOICES: usize = 128;

/// The facts that the events of a response have reported so far, and the counted tokens of its text.
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
    /// The durations that the backend reported.
    pub timings: Option<Timings>,
    /// Whether the body contains an error.
    pub failed: bool,
    /// The type or code of the error that the provider reported.
    pub error_type: Option<Name>,
    /// The choices that have started, by index.
    pub choices: Vec<Choice>,
    is_done: bool,
    /// The kinds of parse errors, and how often each occurred.
    pub parse_errors: Vec<(ParseError, u32)>,
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
    /// Creates an accumulator. `model` is the requested model. It selects the tokenizer until the response names a
    /// model.
    pub fn new(model: Option<&Name>, tokenizers: &Tokenizers, budget: &RequestBudget) -> Self {
        Self {
            counter: counter(model, tokenizers, budget),
            id: None,
            model: None,
            service_tier: None,
            system_fingerprint: None,
            usage: None,
            timings: None,
            failed: false,
            error_type: None,
            choices: Vec::new(),
            is_done: false,
            parse_errors: Vec::new(),
        }
    }

    /// Applies one event and returns the tokens that it adds.
    pub fn apply(&mut self, event: &Event<'_>) -> TokenDelta {
        match event {
            Event::Started { id, model } => self.start(*id, *model),
            Event::Text { choice, part, text } => {
                if let Some(choice) = self.choice(*choice) {
                    choice.has_text = true;
                    choice.has_refusal |= *part == Part::Refusal;
                }
                return self.counter.push(*choice, *part, text);
            }
            // Only content capture uses the call's name and id.
            Event::Call { .. } => {}
            Event::Usage(usage) => self.usage.get_or_insert_default().merge(*usage),
            Event::Stopped { choice, reason } => {
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
            Event::Timings(timings) => self.timings.get_or_insert_default().merge(*timings),
            Event::Done => self.is_done = true,
            Event::ParseError(error) => error.add_to(&mut self.parse_errors),
        }
        TokenDelta::default()
    }

    /// Returns whether the response is complete: the API's end marker was received, or at least `fewest` choices
    /// started and each of them has a finish reason.
    pub fn is_finished(&self, fewest: usize) -> bool {
        let all_stopped = self.choices.iter().all(|choice| choice.finish_reason.is_some());
        let enough = self.choices.len() >= fewest.clamp(1, MAX_CHOICES);
        self.is_done || (enough && all_stopped)
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

    /// Starts a new count for further text. Uses the encoding of the model that the response named, or else of `model`.
    pub fn restart_count(
        &mut self,
        model: Option<&Name>,
        tokenizers: &Tokenizers,
        budget: &RequestBudget,
    ) {
        self.counter = counter(self.model.as_ref().or(model), tokenizers, budget);
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
