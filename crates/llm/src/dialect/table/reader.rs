//! Reads responses in a format that a table describes.

use std::time::Duration;

use serde::Deserialize;

use super::fragments::{Fragments, Target};
use super::{Counter, Counts, Field, Table, Texts, TimingPhase, Unit};
use crate::dialect::cumulative::{CumulativeTexts, PromptEcho};
use crate::dialect::emit::{Preamble, ToolBlocks, emit_call, emit_text, emit_timings, emit_usage};
use crate::dialect::errors::states_error;
use crate::dialect::finish::{emit_stopped, finish_reason};
use crate::dialect::json::{Found, JsonScanner, Outcome, Paths, Value, deliver, identifier};
use crate::dialect::lenient::{self, Text, whole_number};
use crate::dialect::response::{Format, FormatReader, Message, report_misfit};
use crate::dialect::token_count::parse_token_count;
use crate::dialect::usage::{Placement, ReportedUsage, ResultUsage};
use crate::dialect::{Event, EventSink, Part, RequestFacts, Timings, Usage};
use crate::frame::ParseError;

pub type TableReader = FormatReader<TableFormat>;

#[derive(Debug)]
pub struct TableFormat {
    table: &'static Table,
    preamble: Preamble,
    blocks: ToolBlocks,
    echo: PromptEcho,
    /// The known texts, reasoning and arguments of a stream whose messages repeat the text so far.
    cumulative: [CumulativeTexts; 3],
    results: ResultUsage,
    usage: Usage,
    total: Option<u64>,
    timings: Timings,
    /// Sum of the output tokens so far, if each message reports only its own output.
    output: Option<u64>,
    /// Whether text, or arguments, arrived in pieces.
    has_text: bool,
    has_arguments: bool,
    /// Number of tool calls in the messages so far.
    calls: u32,
    /// Scans the messages of a stream.
    scanner: JsonScanner<Field>,
    fragments: Fragments,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Tier<'a> {
    service_tier: Text<'a>,
}

impl Format for TableFormat {
    type Field = Field;

    fn paths(&self) -> &'static Paths<Field> {
        &self.table.paths
    }

    fn bare_object_is_error(&self) -> bool {
        self.table.bare_object_is_error
    }

    fn message(&mut self, message: Message<'_>, out: &mut impl EventSink) {
        let has_blocks = self.table.has_blocks;
        let mut fragments = std::mem::take(&mut self.fragments);
        let outcome = self.scanner.scan(message.data, &mut |field, found| {
            deliver(field, found, &mut |field, found: Found<'_>| {
                let target = Target::for_field(field, found.position, has_blocks);
                fragments.push(field, target, found.value);
            });
        });
        let is_message = outcome == Outcome::Complete && message.data.starts_with(b"{");
        if is_message && self.scanner.is_lossy() {
            out(Event::ParseError(ParseError::BadText));
        }
        if is_message && !message.is_error {
            self.fragments(&fragments, message.name, out);
            report_misfit(out);
        } else if !is_message && !message.is_error {
            out(Event::ParseError(ParseError::BadJson));
        }
        let code = fragments.first(Field::ErrorCode).filter(|code| states_error(code));
        let errors = self.scanner.errors();
        if is_message && (message.is_error || errors.is_error() || code.is_some()) {
            // The type of a message is not the kind of its error.
            let kind = errors.kind().filter(|kind| fragments.first(Field::Type) != Some(*kind));
            out(Event::Failed { kind });
        }
        fragments.clear();
        self.fragments = fragments;
    }

    fn is_answer(field: Field) -> bool {
        matches!(
            field,
            Field::Text(_)
                | Field::Token
                | Field::FullText
                | Field::DigitsOrText
                | Field::CallId
                | Field::CallName
                | Field::Arguments
                | Field::FullArguments
                | Field::StopReason
                | Field::StopFlag(_)
                | Field::Done
                | Field::DoneUnlessStopped
                | Field::Result
        )
    }

    fn value(&mut self, field: Field, found: Found<'_>, out: &mut impl EventSink) {
        let target = Target::for_field(field, found.position, self.table.has_blocks);
        let Target { choice, call } = target;
        match (field, found.value) {
            (Field::Text(part), Value::Text(piece)) => {
                emit_text(choice, part, self.echo.strip(piece), out);
            }
            (Field::FullText | Field::DigitsOrText, Value::Text(piece)) => {
                emit_text(choice, Part::Text, self.echo.strip(piece), out);
            }
            (Field::Text(_) | Field::FullText, Value::TextEnd(_)) => self.echo.end(),
            (Field::Arguments | Field::FullArguments, Value::Text(piece)) => {
                emit_text(choice, Part::Tool(self.call_number(call)), piece, out);
            }
            (field, value) => self.read_value(field, target, value, out),
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
            preamble: Preamble::default(),
            blocks: ToolBlocks::default(),
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
            scanner: JsonScanner::new(&table.paths),
            fragments: Fragments::default(),
        }
    }

    /// Translates a complete message into events.
    fn fragments(&mut self, fragments: &Fragments, name: &[u8], out: &mut impl EventSink) {
        // The index of a token is not the index of a choice.
        let has_token = fragments.first(Field::Token).is_some();
        let choice = fragments.number(Field::Choice).filter(|_| !has_token);
        let block = fragments.number(Field::Block);
        let target = |target: Target| Target {
            choice: choice.unwrap_or(target.choice),
            call: block.unwrap_or(target.call),
        };
        for (field, at, text) in fragments.texts() {
            if matches!(field, Field::Id | Field::Model | Field::ServiceTier) {
                self.read_string(field, target(at), text, out);
            }
        }
        let is_repetition =
            self.has_text && fragments.first(Field::Type) == Some(self.table.repeating_type);
        for (field, at, text) in fragments.texts() {
            if !(is_repetition && matches!(field, Field::Text(_))) {
                self.text(field, target(at), text, fragments, out);
            }
        }
        let had_text = self.has_text;
        for (field, at, text) in fragments.texts().filter(|_| !had_text) {
            if field == Field::FullText {
                self.has_text = true;
                emit_text(target(at).choice, Part::Text, text, out);
            }
        }
        let mut calls = 0;
        let mut stopped = Vec::new();
        for (field, at, text) in fragments.texts() {
            match field {
                Field::Arguments => calls = calls.max(at.call.saturating_add(1)),
                Field::FullArguments if !self.has_arguments => {
                    emit_text(0, Part::Tool(at.call), text, out);
                }
                // A message can contain the stop reason of a choice in two places.
                Field::StopReason
                    if finish_reason(text).is_some() && !stopped.contains(&target(at).choice) =>
                {
                    stopped.push(target(at).choice);
                    self.read_string(field, target(at), text, out);
                }
                Field::StopError => self.read_string(field, target(at), text, out),
                _ => {}
            }
        }
        self.calls = self.calls.saturating_add(calls);
        for (field, at, value) in fragments.values().filter(|(field, _, _)| field.follows_texts()) {
            self.read_value(field, target(at), value, out);
        }
        let last = self.table.last_event.as_bytes();
        let is_last_event = !last.is_empty() && name == last;
        if fragments.is_last(self.table) || is_last_event {
            out(Event::Done);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the position of the value and its context")]
    /// Emits generated text of a message.
    fn text(
        &mut self,
        field: Field,
        target: Target,
        text: &str,
        fragments: &Fragments,
        out: &mut impl EventSink,
    ) {
        let Target { choice, call } = target;
        let part = match field {
            Field::Text(part) => part,
            Field::DigitsOrText => Part::Text,
            Field::Token if !fragments.has_flag(Field::SpecialToken) => Part::Text,
            Field::FirstArguments if text == "{}" => return,
            Field::CallId | Field::CallName | Field::Arguments | Field::FirstArguments => {
                Part::Tool(match fragments.call_index(choice, call) {
                    Some(index) => index,
                    None if self.table.numbers_calls => self.calls.saturating_add(call),
                    None => self.call_number(call),
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

    /// Reads a value that is not generated text.
    fn read_value(
        &mut self,
        field: Field,
        target: Target,
        value: Value<'_>,
        out: &mut impl EventSink,
    ) {
        match (field, value) {
            (Field::StopFlag(reason), Value::Bool(true)) => {
                emit_stopped(target.choice, reason, out)
            }
            (Field::Report, Value::End) => self.report(target.choice, out),
            (field, value) => {
                if let Some(word) = value.word() {
                    self.read_string(field, target, word, out);
                }
            }
        }
    }

    /// Reads a short string or a number.
    fn read_string(
        &mut self,
        field: Field,
        Target { choice, call }: Target,
        word: &str,
        out: &mut impl EventSink,
    ) {
        match field {
            Field::Id => self.preamble.emit_started(Some(word), None, out),
            Field::Model => self.preamble.emit_started(None, Some(word), out),
            Field::ServiceTier => self.preamble.emit_tier(Some(word), None, out),
            Field::CallId => emit_call((choice, self.call_number(call)), Some(word), None, out),
            Field::CallName => emit_call((choice, self.call_number(call)), None, Some(word), out),
            Field::StopReason => emit_stopped(choice, word, out),
            Field::ErrorCode if states_error(word) => out(Event::Failed { kind: identifier(word) }),
            Field::StopError => out(Event::Failed { kind: identifier(word) }),
            Field::Usage => self.usage(word, out),
            Field::Count(counter) => {
                let is_known = |count: &u64| counter != Counter::InputOnce || *count > 0;
                if let Some(count) = parse_token_count(word).filter(is_known) {
                    *self.counter(counter) = Some(count);
                }
            }
            Field::Addend(counter) => {
                if let Some(count) = parse_token_count(word) {
                    let sum = self.counter(counter);
                    *sum = Some(sum.unwrap_or(0).saturating_add(count));
                }
            }
            Field::Clock(phase, unit) => self.clock(phase, unit, word),
            _ => {}
        }
    }

    /// Returns the number of a tool call from its index, or from the index of its content block.
    fn call_number(&mut self, call: u32) -> u32 {
        if self.table.has_blocks { self.blocks.call(call.into()) } else { call }
    }

    /// Reads an object with token counts. The object can contain the service tier.
    fn usage(&mut self, json: &str, out: &mut impl EventSink) {
        let tier = lenient::parse::<Tier<'_>>(json);
        self.preamble.emit_tier(tier.service_tier.some(), None, out);
        emit_usage(lenient::parse_with(json, self.table.parse_usage), out);
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

    fn clock(&mut self, phase: TimingPhase, unit: Unit, word: &str) {
        let duration = match unit {
            Unit::Nanoseconds => whole_number(word).map(Duration::from_nanos),
            Unit::Milliseconds => seconds(word, 1e3),
            Unit::Seconds => seconds(word, 1.0),
        };
        let clock = match phase {
            TimingPhase::Load => &mut self.timings.load,
            TimingPhase::Prefill => &mut self.timings.prefill,
            TimingPhase::Decode => &mut self.timings.decode,
            TimingPhase::Total => &mut self.timings.total,
        };
        *clock = duration;
    }

    /// Emits the counts and durations collected since the last report.
    fn report(&mut self, choice: u32, out: &mut impl EventSink) {
        let counts = std::mem::take(&mut self.usage);
        let total = self.total.take();
        let only_total = total.filter(|_| counts.output.is_none());
        let counts = Usage { input: counts.input.or(only_total), ..counts };
        let mut usage =
            ReportedUsage { counts, total, ..ReportedUsage::default() }.resolve(Placement::INSIDE);
        match self.table.counts {
            Counts::Result => self.results.add(choice, usage, out),
            Counts::Message => {
                if usage.remove_implausible() {
                    out(Event::ParseError(ParseError::BadCount));
                }
                if let Some(output) = usage.output {
                    self.output = Some(self.output.unwrap_or(0).saturating_add(output));
                }
                usage.output = self.output.filter(|_| usage != Usage::default());
                emit_usage(usage, out);
            }
            Counts::Response => emit_usage(usage, out),
        }
        emit_timings(std::mem::take(&mut self.timings), out);
    }
}

fn seconds(word: &str, per_second: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(word.parse::<f64>().ok()? / per_second).ok()
}
