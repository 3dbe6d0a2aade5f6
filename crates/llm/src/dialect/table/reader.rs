//! Reads responses by a table.

use std::time::Duration;

use super::fragments::{Content, Fragments, Place};
use super::{Counter, Counts, Field, Phase, Table, Texts, Unit};
use crate::dialect::cumulative::{CumulativeTexts, PromptEcho};
use crate::dialect::emit::{Preamble, emit_call, emit_text, emit_timings, emit_usage};
use crate::dialect::errors::{ErrorScanner, identifier};
use crate::dialect::json::{JsonScanner, Meaning, Outcome, Paths, Position, ShortText, Value};
use crate::dialect::lenient::whole;
use crate::dialect::response::{Format, FormatReader, Message};
use crate::dialect::result_usage::ResultUsage;
use crate::dialect::{Event, Part, RequestFacts, Timings, Usage};
use crate::frame::ParseError;

/// Reads a response by a table.
pub type TableReader = FormatReader<TableFormat>;

#[derive(Debug)]
pub struct TableFormat {
    table: &'static Table,
    text: ShortText,
    preamble: Preamble,
    echo: PromptEcho,
    /// Texts, reasoning and arguments of a cumulative stream.
    cumulative: [CumulativeTexts; 3],
    results: ResultUsage,
    usage: Usage,
    total: Option<u64>,
    timings: Timings,
    /// Output of the messages so far, if each reports its own.
    output: Option<u64>,
    /// Some text, and some arguments, arrived in pieces.
    has_text: bool,
    has_arguments: bool,
    /// Tool calls of the messages so far.
    calls: u32,
    /// The choice stopped for an error, whose kind is this one unless the response names it.
    stop_error: Option<Option<&'static str>>,
    stop_error_kind: Option<String>,
    fragments: Fragments,
}

impl Format for TableFormat {
    type Field = Field;

    fn paths(&self) -> &'static Paths<Field> {
        &self.table.paths
    }

    fn message(&mut self, message: Message<'_>, out: &mut impl FnMut(Event<'_>)) {
        let mut fragments = std::mem::take(&mut self.fragments);
        let mut errors = ErrorScanner::default();
        let mut scanner = JsonScanner::new(&self.table.paths);
        let mut read = |meaning, position: Position<'_>, value: Value<'_>| match meaning {
            Meaning::Error(field) => errors.read(field, value),
            Meaning::Field(field) => fragments.push(field, Place::of(field, position), value),
        };
        scanner.push(message.data, &mut read);
        let outcome = scanner.finish(&mut read);
        let is_message = outcome == Outcome::Complete && message.data.starts_with(b"{");
        if is_message && scanner.is_lossy() {
            out(Event::ParseError(ParseError::BadText));
        }
        if is_message && !message.is_error {
            self.fragments(&fragments, message.name, out);
        } else if !is_message && !message.is_error {
            out(Event::ParseError(ParseError::BadJson));
        }
        let code = fragments.first(Field::ErrorCode);
        if is_message && (message.is_error || errors.is_error() || code.is_some()) {
            let kind = errors.kind();
            out(Event::Failed { kind });
        }
        fragments.clear();
        self.fragments = fragments;
    }

    fn value(
        &mut self,
        field: Field,
        position: Position<'_>,
        value: Value<'_>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        let place = Place::of(field, position);
        let Place { choice, call } = place;
        match (field, value) {
            (Field::Text(part), Value::Text(piece)) => {
                emit_text(choice, part, self.echo.strip(piece), out);
            }
            (Field::FullText | Field::DigitsOrText, Value::Text(piece)) => {
                emit_text(choice, Part::Text, self.echo.strip(piece), out);
            }
            (Field::Text(_) | Field::FullText, Value::TextEnd) => self.echo.end(),
            (Field::Arguments | Field::FullArguments, Value::Text(piece)) => {
                emit_text(choice, Part::Tool(call), piece, out);
            }
            (Field::Text(_) | Field::FullText | Field::DigitsOrText | Field::Token, _)
            | (Field::Arguments | Field::FullArguments, _)
            | (Field::Choice | Field::CallIndex | Field::SpecialToken | Field::ErrorCode, _)
            | (Field::Done | Field::DoneUnlessStopped | Field::DoneIf(_), _) => {}
            (Field::StopError, value) => {
                if let Some(kind) = self.text.feed(value) {
                    self.note_stop_error(&kind);
                }
            }
            (field, Value::Bool(flag)) => self.flag(field, flag, choice, out),
            (Field::Report, Value::End) => self.report(choice, out),
            (Field::Report, _) => {}
            (field, value) => {
                if let Some(word) = self.text.feed(value) {
                    self.word(field, place, &word, out);
                }
            }
        }
    }
}

impl TableFormat {
    pub fn new(table: &'static Table, request: &RequestFacts) -> Self {
        let echo = PromptEcho::new(request, table.texts == Texts::PromptAndCumulative);
        let cumulative = || match table.texts {
            Texts::PromptAndCumulative => CumulativeTexts::after(echo.bytes()),
            Texts::Pieces | Texts::MaybeCumulative => CumulativeTexts::default(),
        };
        Self {
            table,
            text: ShortText::default(),
            preamble: Preamble::default(),
            cumulative: [cumulative(), cumulative(), cumulative()],
            echo,
            results: ResultUsage::new(request),
            usage: Usage::default(),
            total: None,
            timings: Timings::default(),
            output: None,
            has_text: false,
            has_arguments: false,
            calls: 0,
            stop_error: None,
            stop_error_kind: None,
            fragments: Fragments::default(),
        }
    }

    /// Reads a complete message.
    fn fragments(&mut self, fragments: &Fragments, name: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let choice = fragments.number(Field::Choice).and_then(|index| u32::try_from(index).ok());
        // The index of a token is not that of a choice.
        let choice = choice.filter(|_| fragments.first(Field::Token).is_none());
        let place = |place: Place| Place { choice: choice.unwrap_or(place.choice), ..place };
        for (field, at, text) in fragments.texts() {
            if matches!(field, Field::Id | Field::Model) {
                self.word(field, place(at), text, out);
            }
        }
        for (field, at, text) in fragments.texts() {
            self.text(field, place(at), text, fragments, out);
        }
        for (field, at, text) in fragments.texts().filter(|_| !self.has_text) {
            if field == Field::FullText {
                emit_text(place(at).choice, Part::Text, text, out);
            }
        }
        let mut calls = 0;
        for (field, at, text) in fragments.texts() {
            match field {
                Field::Arguments => calls = calls.max(at.call.saturating_add(1)),
                Field::FullArguments if !self.has_arguments => {
                    emit_text(0, Part::Tool(at.call), text, out);
                }
                Field::StopReason => self.word(field, place(at), text, out),
                Field::StopError => self.note_stop_error(text),
                _ => {}
            }
        }
        self.calls = self.calls.saturating_add(calls);
        self.numbers(fragments, place, out);
        let last = self.table.last_event.as_bytes();
        let is_last_event = !last.is_empty() && name == last;
        if fragments.is_last(self.table) || is_last_event {
            out(Event::Done);
        }
    }

    /// Reads the flags and the counts of a message.
    fn numbers(
        &mut self,
        fragments: &Fragments,
        place: impl Fn(Place) -> Place,
        out: &mut impl FnMut(Event<'_>),
    ) {
        for fragment in &fragments.list {
            let at = place(fragment.place);
            match &fragment.content {
                Content::Number(range) | Content::Text(range) if fragment.is_number() => {
                    let number = fragments.text.get(range.clone()).unwrap_or_default();
                    self.word(fragment.field, at, number, out);
                }
                Content::Number(_) | Content::Text(_) => {}
                Content::Flag(flag) => self.flag(fragment.field, *flag, at.choice, out),
                Content::End => self.report(at.choice, out),
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the position of the value and its context")]
    /// Reads generated text of a message.
    fn text(
        &mut self,
        field: Field,
        place: Place,
        text: &str,
        fragments: &Fragments,
        out: &mut impl FnMut(Event<'_>),
    ) {
        let Place { choice, call } = place;
        let part = match field {
            Field::Text(part) => part,
            Field::DigitsOrText => Part::Text,
            Field::Token if !fragments.has_flag(Field::SpecialToken) => Part::Text,
            Field::CallId | Field::CallName | Field::Arguments => {
                Part::Tool(match fragments.call_index(choice, call) {
                    Some(index) => index,
                    None if self.table.numbers_calls => self.calls.saturating_add(call),
                    None => call,
                })
            }
            _ => return,
        };
        match (field, part) {
            (Field::CallId, Part::Tool(number)) => {
                return emit_call((choice, number), Some(text), None, out);
            }
            (Field::CallName, Part::Tool(number)) => {
                return emit_call((choice, number), None, Some(text), out);
            }
            _ => {}
        }
        let [texts, reasoning, arguments] = &mut self.cumulative;
        let (known, key) = match part {
            Part::Tool(number) => (arguments, number),
            Part::Reasoning => (reasoning, choice),
            Part::Text | Part::Refusal | Part::Transcript => (texts, choice),
        };
        let text = match self.table.texts {
            Texts::Pieces => text,
            Texts::MaybeCumulative | Texts::PromptAndCumulative => known.new_suffix(key, text),
        };
        self.has_text |= part == Part::Text && !text.is_empty();
        self.has_arguments |= matches!(part, Part::Tool(_));
        emit_text(choice, part, text, out);
    }

    /// Reads a short string or a number.
    fn word(
        &mut self,
        field: Field,
        Place { choice, call }: Place,
        word: &str,
        out: &mut impl FnMut(Event<'_>),
    ) {
        match field {
            Field::Id => self.preamble.started(Some(word), None, out),
            Field::Model => self.preamble.started(None, Some(word), out),
            Field::CallId => emit_call((choice, call), Some(word), None, out),
            Field::CallName => emit_call((choice, call), None, Some(word), out),
            Field::StopReason => self.stop(choice, word, out),
            Field::Count(counter) => {
                let is_known = |count: &u64| counter != Counter::InputOnce || *count > 0;
                if let Some(count) = count(word).filter(is_known) {
                    *self.counter(counter) = Some(count);
                }
            }
            Field::Addend(counter) => {
                if let Some(count) = count(word) {
                    let sum = self.counter(counter);
                    *sum = Some(sum.unwrap_or(0).saturating_add(count));
                }
            }
            Field::Clock(phase, unit) => self.clock(phase, unit, word),
            Field::Choice
            | Field::Text(_)
            | Field::Token
            | Field::SpecialToken
            | Field::FullText
            | Field::DigitsOrText
            | Field::CallIndex
            | Field::Arguments
            | Field::FullArguments
            | Field::StopFlag(_)
            | Field::StopError
            | Field::Report
            | Field::Done
            | Field::DoneUnlessStopped
            | Field::DoneIf(_)
            | Field::ErrorCode => {}
        }
    }

    fn flag(&mut self, field: Field, flag: bool, choice: u32, out: &mut impl FnMut(Event<'_>)) {
        if let (Field::StopFlag(reason), true) = (field, flag) {
            self.stop(choice, reason, out);
        }
    }

    fn stop(&mut self, choice: u32, reason: &str, out: &mut impl FnMut(Event<'_>)) {
        if self.table.no_reasons.iter().any(|none| none.eq_ignore_ascii_case(reason)) {
            return;
        }
        out(Event::Stopped { choice, reason });
        let mut errors = self.table.error_reasons.iter();
        if let Some((_, kind)) = errors.find(|(error, _)| error.eq_ignore_ascii_case(reason)) {
            self.stop_error = Some(*kind);
        }
    }

    fn note_stop_error(&mut self, kind: &str) {
        self.stop_error_kind = identifier(kind).map(str::to_owned);
    }

    fn counter(&mut self, counter: Counter) -> &mut Option<u64> {
        match counter {
            Counter::Input | Counter::InputOnce => &mut self.usage.input,
            Counter::Output => &mut self.usage.output,
            Counter::Total => &mut self.total,
            Counter::CacheRead => &mut self.usage.cache_read,
            Counter::Reasoning => &mut self.usage.reasoning,
        }
    }

    fn clock(&mut self, phase: Phase, unit: Unit, word: &str) {
        let duration = match unit {
            Unit::Nanoseconds => count(word).map(Duration::from_nanos),
            Unit::Milliseconds => seconds(word, 1e3),
            Unit::Seconds => seconds(word, 1.0),
        };
        let clock = match phase {
            Phase::Load => &mut self.timings.load,
            Phase::Prefill => &mut self.timings.prefill,
            Phase::Decode => &mut self.timings.decode,
            Phase::Total => &mut self.timings.total,
        };
        *clock = duration;
    }

    /// Emits what was counted and measured since the last report.
    fn report(&mut self, choice: u32, out: &mut impl FnMut(Event<'_>)) {
        let mut usage = std::mem::take(&mut self.usage);
        let total = self.total.take().filter(|_| usage.output.is_none());
        usage.input = usage.input.or(total);
        match self.table.counts {
            Counts::Result => self.results.add(choice, usage, out),
            Counts::Message => {
                if let Some(output) = usage.output {
                    self.output = Some(self.output.unwrap_or(0).saturating_add(output));
                }
                usage.output = self.output.filter(|_| usage != Usage::default());
                emit_usage(usage, out);
            }
            Counts::Response => emit_usage(usage, out),
        }
        emit_timings(std::mem::take(&mut self.timings), out);
        let named = self.stop_error_kind.take();
        if let Some(kind) = self.stop_error.take() {
            let kind = named.as_deref().or(kind);
            out(Event::Failed { kind });
        }
    }
}

fn count(word: &str) -> Option<u64> {
    whole(word.parse().ok()?)
}

fn seconds(word: &str, per_second: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(word.parse::<f64>().ok()? / per_second).ok()
}
