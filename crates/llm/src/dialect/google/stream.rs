//! Messages of a streamed generateContent → events.

use super::calls::Calls;
use super::chunk::{Call, Candidate, Chunk, Part as Piece};
use super::words;
use crate::dialect::called::called;
use crate::dialect::lenient::List;
use crate::dialect::once::Once;
use crate::dialect::{Event, Part, repair};
use crate::frame::Anomaly;

#[derive(Debug)]
pub struct Stream {
    /// The status says that this is an error and nothing else.
    failed: bool,
    once: Once,
    calls: Calls,
}

impl Stream {
    pub fn new(failed: bool) -> Self {
        Self { failed, once: Once::default(), calls: Calls::default() }
    }

    /// Reads one message of the stream.
    pub fn read(&mut self, data: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let data = data.trim_ascii();
        if data.is_empty() {
            return;
        }
        // Google has no end mark, but what stands between may add the usual one.
        if data == b"[DONE]" {
            if !self.failed {
                out(Event::Done);
            }
            return;
        }
        // An error may be wrapped in a list here, too.
        if data.starts_with(b"[") {
            match repair::read::<List<Chunk<'_>>>(data, &mut None) {
                Some((chunks, lossy)) => self.chunks(chunks.iter(), lossy, out),
                None => self.bad(out),
            }
        } else {
            match repair::read::<Chunk<'_>>(data, &mut None) {
                Some((chunk, lossy)) => self.chunks(std::iter::once(&chunk), lossy, out),
                None => self.bad(out),
            }
        }
    }

    fn chunks<'c>(
        &mut self,
        chunks: impl Iterator<Item = &'c Chunk<'c>>,
        lossy: bool,
        out: &mut impl FnMut(Event<'_>),
    ) {
        if lossy {
            out(Event::Odd(Anomaly::BadText));
        }
        for chunk in chunks {
            self.chunk(chunk, out);
        }
    }

    /// What came is not JSON.
    fn bad(&self, out: &mut impl FnMut(Event<'_>)) {
        out(if self.failed { Event::Failed { kind: None } } else { Event::Odd(Anomaly::BadJson) });
    }

    fn chunk(&mut self, chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        let chunk = chunk.response.0.as_deref().unwrap_or(chunk);
        if !self.failed {
            let (id, model) = (chunk.response_id.some(), chunk.model_version.some());
            self.once.started(id, model, out);
            let mut none = true;
            for (position, candidate) in (0..).zip(chunk.candidates.iter()) {
                none = false;
                let index = candidate.index.0.and_then(|index| index.try_into().ok());
                self.candidate(index.unwrap_or(position), candidate, out);
            }
            // A prompt that is refused has no candidates; that it was refused is all there is to come.
            let feedback = chunk.prompt_feedback.0.as_ref().filter(|_| none);
            if let Some(reason) =
                feedback.and_then(|feedback| words::block(&feedback.block_reason.0))
            {
                out(Event::Stopped { choice: 0, reason });
            }
            self.usage(chunk, out);
        }
        if self.failed || !chunk.error.is_none() {
            let kind = chunk.error.kind();
            out(Event::Failed { kind });
        }
    }

    fn candidate(
        &mut self,
        choice: u32,
        candidate: &Candidate<'_>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        let content = candidate.content.0.iter();
        for piece in content.flat_map(|content| content.parts.iter()) {
            self.piece(choice, piece, out);
        }
        if let Some(reason) = words::finish(&candidate.finish_reason.0) {
            out(Event::Stopped { choice, reason });
        }
    }

    /// Reads one part of a candidate. Code for Google to run was written by the model, for a tool; what came of running
    /// it was not, and images and sound are no text.
    fn piece(&mut self, choice: u32, piece: &Piece<'_>, out: &mut impl FnMut(Event<'_>)) {
        let part = if piece.thought.0 { Part::Reasoning } else { Part::Text };
        say(out, choice, part, &piece.text.0);
        if let Some(call) = &piece.function_call.0 {
            // Where arguments are streamed, only the first message of a call has its name.
            let part = match call.name.some() {
                Some(_) => self.calls.begin(choice),
                None => self.calls.current(choice),
            };
            name(choice, part, call, out);
            arguments(choice, part, call, out);
        }
        if let Some(call) = &piece.tool_call.0 {
            let part = self.calls.begin(choice);
            name(choice, part, call, out);
            arguments(choice, part, call, out);
        }
        if let Some(executable) = &piece.executable_code.0 {
            let part = self.calls.begin(choice);
            say(out, choice, part, &executable.code.0);
        }
    }

    /// Usage is cumulative and stands in nearly every message; the last one holds.
    fn usage(&mut self, chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        let Some(usage) = &chunk.usage_metadata.0 else {
            return;
        };
        let tier = [&*usage.service_tier.0, &*usage.traffic_type.0].into_iter().find_map(tier);
        self.once.tier(tier, None, out);
        if let Some(usage) = usage.harmonised() {
            out(Event::Usage(usage));
        }
    }
}

/// A service tier, where it is told by its name and not by a number.
pub fn tier(word: &str) -> Option<&str> {
    let named = word.parse::<u64>().is_err();
    (named && !word.is_empty() && !word.ends_with("_UNSPECIFIED")).then_some(word)
}

fn name(choice: u32, part: Part, call: &Call<'_>, out: &mut impl FnMut(Event<'_>)) {
    if let Part::Tool(number) = part {
        called((choice, number), call.id.some(), call.name.some(), out);
    }
}

fn arguments(choice: u32, part: Part, call: &Call<'_>, out: &mut impl FnMut(Event<'_>)) {
    say(out, choice, part, &call.args.0);
    for argument in call.partial_args.iter() {
        say(out, choice, part, &argument.string_value.0);
        say(out, choice, part, &argument.number_value.0);
        say(out, choice, part, &argument.bool_value.0);
    }
}

pub fn say(out: &mut impl FnMut(Event<'_>), choice: u32, part: Part, text: &str) {
    if !text.is_empty() {
        out(Event::Text { choice, part, text });
    }
}
