//! Converse, the format that all models share, and that of Amazon's Nova, which is the same with each event under its
//! name.

mod body;
mod chunk;

use super::counts::took;
use chunk::{Chunk, Delta, Named};

use crate::dialect::blocks::Blocks;
use crate::dialect::called::called;
use crate::dialect::failure::Failure;
use crate::dialect::once::Once;
use crate::dialect::shapes::{Messages, Shapes, say};
use crate::dialect::{Event, Part};

/// Reads an answer of Converse.
pub type Response = Shapes<Stream, body::Message>;

/// Reads an answer of Nova.
pub type NovaResponse = Shapes<NovaStream, body::Message>;

#[derive(Debug, Default)]
pub struct Stream {
    once: Once,
    blocks: Blocks,
}

#[derive(Debug, Default)]
pub struct NovaStream(Stream);

impl Messages for Stream {
    type Message<'a> = Chunk<'a>;

    fn message(&mut self, _name: &[u8], chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        self.chunk(chunk, out);
    }

    fn error<'m>(chunk: &'m Chunk<'_>) -> &'m Failure<'m> {
        &chunk.error
    }
}

impl Messages for NovaStream {
    type Message<'a> = Named<'a>;

    fn message(&mut self, _name: &[u8], named: &Named<'_>, out: &mut impl FnMut(Event<'_>)) {
        if let Some(chunk) = named.chunk() {
            self.0.chunk(chunk, out);
        }
    }

    fn error<'m>(named: &'m Named<'_>) -> &'m Failure<'m> {
        &named.error
    }
}

impl Stream {
    /// The message's end is not the stream's: usage and metrics come after it.
    fn chunk(&mut self, chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        let index = chunk.content_block_index.0.unwrap_or_default();
        if let Some(start) = &chunk.start.0 {
            self.blocks.begin(index);
            if let Some(tool) = &start.tool_use.0 {
                let number = self.blocks.call(index);
                called((0, number), tool.tool_use_id.some(), tool.name.some(), out);
            }
        }
        if let Some(delta) = &chunk.delta.0 {
            self.delta(index, delta, out);
        }
        if let Some(reason) = chunk.stop_reason.some() {
            out(Event::Stopped { choice: 0, reason });
        }
        if let Some(usage) = chunk.usage.0.as_ref().and_then(|raw| raw.tally().usage()) {
            out(Event::Usage(usage));
        }
        let metrics = chunk.metrics.0.as_ref();
        if let Some(latency) = metrics.and_then(|metrics| metrics.latency_ms.0) {
            out(Event::Timings(took(latency)));
        }
        if let Some(tier) = &chunk.service_tier.0 {
            self.once.tier(tier.kind.some(), None, out);
        }
        let router = chunk.trace.0.as_ref().and_then(|trace| trace.prompt_router.0.as_ref());
        if let Some(router) = router {
            self.once.started(None, router.invoked_model_id.some(), out);
        }
    }

    fn delta(&mut self, index: u64, delta: &Delta<'_>, out: &mut impl FnMut(Event<'_>)) {
        if let Some(reasoning) = &delta.reasoning_content.0 {
            say(Part::Reasoning, 0, &reasoning.text.0, out);
            if let Some(inner) = &reasoning.reasoning_text.0 {
                say(Part::Reasoning, 0, &inner.text.0, out);
            }
        }
        say(Part::Text, 0, &delta.text.0, out);
        if let Some(input) = delta.tool_use.0.as_ref().and_then(|tool| tool.input.some()) {
            say(Part::Tool(self.blocks.call(index)), 0, input, out);
        }
    }
}

#[cfg(test)]
pub fn keys() -> &'static [&'static str] {
    use crate::dialect::shapes::Body;
    body::Message::KEYS
}
