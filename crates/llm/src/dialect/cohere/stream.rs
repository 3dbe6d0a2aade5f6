//! Messages of a stream, of either version → events.

use super::chunk::{Answer, Chunk, Delta, Generation, Message};
use super::stopped;
use super::usage::RawUsage;
use crate::dialect::called::called;
use crate::dialect::failure::Failure;
use crate::dialect::once::Once;
use crate::dialect::{Event, Part, repair};
use crate::frame::Anomaly;

#[derive(Debug)]
pub struct Stream {
    /// The status says that this is an error and nothing else.
    failed: bool,
    once: Once,
    /// Whether any text came: some of what ends a stream repeats it.
    spoken: bool,
    /// Whether the calls of tools came in pieces: then they come whole once more.
    called: bool,
    done: bool,
}

impl Stream {
    pub fn new(failed: bool) -> Self {
        Self { failed, once: Once::default(), spoken: false, called: false, done: false }
    }

    /// Reads one event of the stream.
    pub fn read(&mut self, name: &[u8], data: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let data = data.trim_ascii();
        if data.is_empty() {
            return;
        }
        if data == b"[DONE]" {
            if !self.failed {
                self.end(out);
            }
            return;
        }
        let failed = self.failed || name == b"error";
        match repair::read::<Chunk<'_>>(data, &mut None) {
            Some((chunk, lossy)) => {
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
            let id = chunk.id.some().or(chunk.generation_id.some());
            self.once.started(id, None, out);
            self.first_version(chunk, out);
            if let Some(delta) = &chunk.delta.0 {
                self.second_version(chunk, delta, out);
            }
            if chunk.kind.0 == "message-end" || chunk.event_type.0 == "stream-end" {
                self.end(out);
            }
        }
        let of_delta = chunk.delta.0.as_ref().map(|delta| &delta.error);
        let failure =
            std::iter::once(&chunk.error).chain(of_delta).find(|failure| !failure.is_none());
        if failed || failure.is_some() {
            let kind = failure.and_then(Failure::kind);
            out(Event::Failed { kind });
        }
    }

    fn first_version(&mut self, chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        let choice = number(chunk.index.0);
        let repeats = self.spoken && chunk.event_type.0 == "tool-calls-generation";
        if !repeats {
            self.say(choice, Part::Text, &chunk.text.0, out);
        }
        if let Some(call) = &chunk.tool_call_delta.0 {
            self.called = true;
            self.say(0, Part::Text, &call.text.0, out);
            let part = Part::Tool(number(call.index.0));
            self.say(0, part, &call.parameters.0, out);
        }
        if !self.called {
            for (call, position) in chunk.tool_calls.iter().zip(0..) {
                self.say(0, Part::Tool(position), &call.parameters.0, out);
            }
        }
        self.generations(chunk.generations.iter(), out);
        if let Some(answer) = chunk.response.0.as_deref() {
            self.answer(answer, chunk.finish_reason.some(), out);
        } else if let Some(reason) = chunk.finish_reason.some() {
            stopped(choice, reason, out);
        }
    }

    /// Takes the whole answer that ends a stream.
    fn answer(
        &mut self,
        answer: &Answer<'_>,
        reason: Option<&str>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        let id = answer.generation_id.some().or(answer.id.some());
        self.once.started(id, None, out);
        if !self.spoken {
            self.say(0, Part::Text, &answer.text.0, out);
        }
        self.generations(answer.generations.iter(), out);
        if answer.generations.iter().next().is_none()
            && let Some(reason) = reason.or(answer.finish_reason.some())
        {
            stopped(0, reason, out);
        }
        let usage = answer.meta.0.as_ref().and_then(RawUsage::generated);
        if let Some(usage) = usage {
            out(Event::Usage(usage));
        }
    }

    fn generations<'c>(
        &mut self,
        generations: impl Iterator<Item = &'c Generation<'c>>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        let spoken = self.spoken;
        for (generation, position) in generations.zip(0..) {
            let index = generation.index.0.and_then(|index| index.try_into().ok());
            let choice = index.unwrap_or(position);
            if !spoken {
                self.say(choice, Part::Text, &generation.text.0, out);
            }
            if let Some(reason) = generation.finish_reason.some() {
                stopped(choice, reason, out);
            }
        }
    }

    fn second_version(
        &mut self,
        chunk: &Chunk<'_>,
        delta: &Delta<'_>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        if let Some(message) = &delta.message.0 {
            self.message(number(chunk.index.0), message, out);
        }
        if let Some(reason) = delta.finish_reason.some() {
            stopped(0, reason, out);
        }
        let usage = delta.usage.0.as_deref().and_then(RawUsage::generated);
        if let Some(usage) = usage {
            out(Event::Usage(usage));
        }
    }

    /// Reads what is added to the message. The plan for the use of tools is a chain of thought by Cohere's own words.
    fn message(&mut self, index: u32, message: &Message<'_>, out: &mut impl FnMut(Event<'_>)) {
        self.say(0, Part::Reasoning, &message.tool_plan.0, out);
        if let Some(content) = &message.content.0 {
            self.say(0, Part::Reasoning, &content.thinking.0, out);
            self.say(0, Part::Text, &content.text.0, out);
        }
        let tool = message.tool_calls.0.as_deref();
        if let Some((tool, function)) =
            tool.and_then(|tool| Some((tool, tool.function.0.as_ref()?)))
        {
            called((0, index), tool.id.some(), function.name.some(), out);
            self.say(0, Part::Tool(index), &function.arguments.0, out);
        }
    }

    fn say(&mut self, choice: u32, part: Part, text: &str, out: &mut impl FnMut(Event<'_>)) {
        if !text.is_empty() {
            self.spoken |= part == Part::Text;
            out(Event::Text { choice, part, text });
        }
    }

    fn end(&mut self, out: &mut impl FnMut(Event<'_>)) {
        if !std::mem::replace(&mut self.done, true) {
            out(Event::Done);
        }
    }
}

fn number(index: Option<u64>) -> u32 {
    index.and_then(|index| u32::try_from(index).ok()).unwrap_or(0)
}
