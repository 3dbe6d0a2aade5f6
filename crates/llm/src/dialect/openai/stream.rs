//! Messages of a stream → events.

use std::collections::BTreeMap;

use super::chunk::{Choice, Chunk, Content, ContentPart, Message};
use super::tools::Tools;
use super::usage::RawUsage;
use crate::dialect::called::called;
use crate::dialect::failure::{Failure, identifier};
use crate::dialect::once::Once;
use crate::dialect::repair;
use crate::dialect::{Api, Event, Part, Timings, Usage};
use crate::frame::Anomaly;

/// The most choices whose usage is added up (see [`Stream::usage`]); more than anyone asks for.
const MOST_CHOICES: usize = 128;

#[derive(Debug)]
pub struct Stream {
    api: Api,
    /// The status says that this is an error and nothing else.
    failed: bool,
    once: Once,
    tools: Tools,
    /// Usage that was reported beside each choice's end.
    by_choice: BTreeMap<u32, Usage>,
    /// Whether anything came by `delta` or `text`.
    spoken: bool,
    /// Whether the one thing was said that an error status lets be said.
    refused: bool,
}

impl Stream {
    pub fn new(api: Api, failed: bool) -> Self {
        Self {
            api,
            failed,
            once: Once::default(),
            tools: Tools::default(),
            by_choice: BTreeMap::new(),
            spoken: false,
            refused: false,
        }
    }

    /// Whether the status says that it is an error.
    pub const fn failed(&self) -> bool {
        self.failed
    }

    /// Reads one event of the stream.
    pub fn read(&mut self, name: &[u8], data: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let data = data.trim_ascii();
        if data.is_empty() || self.refused {
            return;
        }
        if data == b"[DONE]" && !self.failed {
            return out(Event::Done);
        }
        self.refused = self.failed;
        let failed = self.failed || name == b"error";
        match repair::read::<Chunk<'_>>(data, &mut None) {
            Some((chunk, lossy)) => {
                // The rest of the text was generated all the same.
                if lossy {
                    out(Event::Odd(Anomaly::BadText));
                }
                self.chunk(&chunk, failed, out);
            }
            None if failed => out(Event::Failed { kind: None }),
            None => out(Event::Odd(Anomaly::BadJson)),
        }
    }

    fn chunk(&mut self, chunk: &Chunk<'_>, failed: bool, out: &mut impl FnMut(Event<'_>)) {
        if !failed {
            self.once.started(chunk.id.some(), chunk.model.some(), out);
            let tier = chunk.service_tier.some();
            self.once.tier(tier, chunk.system_fingerprint.some(), out);
            for (position, choice) in (0..).zip(chunk.choices.iter()) {
                let index = choice.index.0.and_then(|index| u32::try_from(index).ok());
                self.choice(index.unwrap_or(position), choice, out);
            }
            self.usage(chunk, out);
            if let Some(timings) = timings(chunk) {
                out(Event::Timings(timings));
            }
            if let Some(text) = chunk.value.some() {
                // This format has no end mark, so its messages say of themselves that none is missing.
                say(out, 0, Part::Text, text);
                out(Event::Done);
            }
        }
        if failed || is_error(chunk) {
            let kind = kind(chunk);
            out(Event::Failed { kind });
        }
    }

    fn choice(&mut self, index: u32, choice: &Choice<'_>, out: &mut impl FnMut(Event<'_>)) {
        let delta = choice.delta.0.as_ref();
        // Some send the whole message so far beside each delta: it counts only where nothing came by deltas.
        let whole = choice.message.0.as_deref().filter(|_| !self.spoken);
        // And some send each piece twice, in the forms of both APIs.
        let text = choice.text.some();
        match (self.api, delta, text) {
            (Api::OpenAiCompletions, _, Some(text)) | (_, None, Some(text)) => {
                self.spoken = true;
                say(out, index, Part::Text, text);
            }
            (_, Some(delta), _) => {
                self.spoken = true;
                self.message(index, delta, out);
            }
            (_, None, None) => {
                if let Some(whole) = whole {
                    self.message(index, whole, out);
                }
            }
        }
        if let Some(reason) = choice.finish_reason.some().or(choice.stop_reason.some()) {
            out(Event::Stopped { choice: index, reason });
        }
    }

    fn message(&mut self, choice: u32, message: &Message<'_>, out: &mut impl FnMut(Event<'_>)) {
        reasoning(choice, message, out);
        match &message.content {
            Content::None => {}
            Content::Text(text) => say(out, choice, self.text(), text),
            Content::Parts(parts) => {
                for part in parts {
                    thoughts(part, &mut |text| say(out, choice, Part::Reasoning, text));
                    say(out, choice, self.text(), &part.text.0);
                }
            }
        }
        say(out, choice, Part::Refusal, &message.refusal.0);
        for call in &message.tool_calls.0 {
            let number = self.tools.number(choice, call);
            let mut functions = call.function.0.iter().chain(&call.custom.0);
            let name = functions.find_map(|function| function.name.some());
            called((choice, number), call.id.some(), name, out);
            let part = Part::Tool(number);
            for function in call.function.0.iter().chain(&call.custom.0) {
                say(out, choice, part, &function.arguments.0);
                say(out, choice, part, &function.input.0);
            }
        }
        if let Some(function) = &message.function_call.0 {
            called((choice, 0), None, function.name.some(), out);
            say(out, choice, Part::Tool(0), &function.arguments.0);
        }
        if let Some(audio) = &message.audio.0 {
            say(out, choice, Part::Transcript, &audio.transcript.0);
        }
    }

    /// What the text of a message is: vLLM streams transcripts in the form of a chat.
    fn text(&self) -> Part {
        if self.api == Api::OpenAiTranscription { Part::Transcript } else { Part::Text }
    }

    /// Usage is cumulative, wherever it stands; the last one holds. One exception: TGI answers completions of several
    /// prompts with one usage for each, beside its choice's end, and the sum is the answer's.
    fn usage(&mut self, chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        let mut choices = chunk.choices.iter();
        let only = match (choices.next(), choices.next()) {
            (Some(choice), None) => Some(choice),
            _ => None,
        };
        let of_groq = chunk.x_groq.0.as_ref().and_then(|groq| groq.usage.0.as_deref());
        let of_choice = only.and_then(|choice| choice.usage.0.as_deref());
        let raw = chunk.usage.0.as_deref().or(of_groq).or(of_choice);
        let Some(usage) = raw.and_then(RawUsage::harmonised) else {
            return;
        };
        let ended = only
            .filter(|choice| choice.finish_reason.some().is_some())
            .and_then(|choice| u32::try_from(choice.index.0?).ok());
        let usage = match ended {
            Some(choice) if self.api == Api::OpenAiCompletions => self.sum(choice, usage),
            _ => usage,
        };
        out(Event::Usage(usage));
    }

    fn sum(&mut self, choice: u32, usage: Usage) -> Usage {
        if self.by_choice.len() < MOST_CHOICES || self.by_choice.contains_key(&choice) {
            self.by_choice.insert(choice, usage);
        }
        let sum = |field: fn(&Usage) -> Option<u64>| {
            let counts = self.by_choice.values().filter_map(field);
            counts.reduce(u64::saturating_add)
        };
        Usage {
            input: sum(|usage| usage.input),
            output: sum(|usage| usage.output),
            cache_read: sum(|usage| usage.cache_read),
            cache_write: sum(|usage| usage.cache_write),
            reasoning: sum(|usage| usage.reasoning),
            ..Usage::default()
        }
    }
}

/// Reasoning has four homes, and some providers fill several of them with the same text: the first that has any counts.
fn reasoning(choice: u32, message: &Message<'_>, out: &mut impl FnMut(Event<'_>)) {
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
        return say(out, choice, Part::Reasoning, text);
    }
    for detail in &message.reasoning_details.0 {
        let text = detail.text.some().or(detail.summary.some());
        say(out, choice, Part::Reasoning, text.unwrap_or_default());
    }
}

/// The texts of a part that is reasoning.
fn thoughts(part: &ContentPart<'_>, out: &mut impl FnMut(&str)) {
    match &*part.thinking {
        Content::None => {}
        Content::Text(text) => out(text),
        Content::Parts(parts) => parts.iter().for_each(|part| out(&part.text.0)),
    }
    part.summary.0.iter().for_each(|part| out(&part.text.0));
}

fn say(out: &mut impl FnMut(Event<'_>), choice: u32, part: Part, text: &str) {
    if !text.is_empty() {
        out(Event::Text { choice, part, text });
    }
}

/// The clocks of the backend, beside the counts or in a place of their own.
fn timings(chunk: &Chunk<'_>) -> Option<Timings> {
    let homes = [&chunk.timings, &chunk.time_info, &chunk.perf_metrics, &chunk.stats, &chunk.usage];
    let of_groq = chunk.x_groq.0.iter().map(|groq| &groq.usage);
    homes.into_iter().chain(of_groq).find_map(|home| home.0.as_deref().and_then(RawUsage::timings))
}

fn is_error(chunk: &Chunk<'_>) -> bool {
    reported(chunk).is_some()
        || !chunk.errors.0.is_empty()
        || refused(chunk).is_some()
        || chunk.object.0 == "error"
}

/// The first error that a message reports.
fn reported<'a>(chunk: &'a Chunk<'a>) -> Option<&'a Failure<'a>> {
    let of_choices = chunk.choices.iter().map(|choice| &choice.error);
    let of_groq = chunk.x_groq.0.iter().map(|groq| &groq.error);
    std::iter::once(&chunk.error)
        .chain(of_choices)
        .chain(of_groq)
        .find(|failure| !failure.is_none())
}

/// The code of a status that is not zero, as MiniMax sends it.
fn refused<'a>(chunk: &'a Chunk<'_>) -> Option<&'a str> {
    let code = &*chunk.base_resp.0.as_ref()?.status_code.0;
    (!matches!(code, "" | "0")).then_some(code)
}

/// The kind of an error: the first that is an identifier, from the most to the least particular home.
fn kind<'a>(chunk: &'a Chunk<'_>) -> Option<&'a str> {
    let object = match reported(chunk) {
        Some(Failure::Object(object)) => Some(&**object),
        Some(Failure::None | Failure::Message) | None => chunk.errors.0.first(),
    };
    [
        object.map(|object| &*object.kind.0),
        object.map(|object| &*object.code.0),
        refused(chunk),
        Some(&*chunk.error_type.0),
        Some(&*chunk.kind.0).filter(|kind| *kind != "error"),
        Some(&*chunk.code.0),
    ]
    .into_iter()
    .flatten()
    .find_map(identifier)
}
