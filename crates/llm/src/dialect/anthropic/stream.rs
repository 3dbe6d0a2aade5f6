//! Messages of a stream → events.

use super::chunk::{Block, Chunk, Delta, Head};
use super::usage::RawUsage;
use crate::dialect::blocks::Blocks;
use crate::dialect::called::called;
use crate::dialect::failure::Failure;
use crate::dialect::once::Once;
use crate::dialect::shapes::{Messages, say};
use crate::dialect::tally::Tally;
use crate::dialect::{Event, Part, Usage};

/// There is one choice only.
const CHOICE: u32 = 0;

#[derive(Debug, Default)]
pub struct Stream {
    once: Once,
    blocks: Blocks,
    /// The block whose tool call came whole with its start: what deltas it has say the same again.
    whole: Option<u64>,
    tally: Tally,
    /// The output as it was at the start of the message, before there was any: it counts only if no other comes.
    placeholder: Option<u64>,
}

impl Messages for Stream {
    type Message<'a> = Chunk<'a>;

    fn message(&mut self, name: &[u8], chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        let index = chunk.index.0.unwrap_or_default();
        if let Some(delta) = &chunk.delta.0 {
            self.delta(index, delta, out);
        }
        if let Some(block) = &chunk.content_block.0 {
            self.block(index, block, out);
        }
        if let Some(head) = &chunk.message.0 {
            self.head(head, out);
        }
        self.once.started(chunk.id.some(), chunk.model.some(), out);
        say(Part::Text, CHOICE, &chunk.completion.0, out);
        stopped(chunk.stop_reason.some(), out);
        if let Some(usage) = &chunk.usage.0 {
            self.usage(usage, usage.tally(), out);
        }
        if chunk.kind.0 == "message_stop" || name == b"message_stop" {
            self.end(out);
        }
    }

    fn error<'m>(chunk: &'m Chunk<'_>) -> &'m Failure<'m> {
        &chunk.error
    }
}

impl Stream {
    fn head(&mut self, head: &Head<'_>, out: &mut impl FnMut(Event<'_>)) {
        self.once.started(head.id.some(), head.model.some(), out);
        if let Some(usage) = &head.usage.0 {
            let tally = usage.tally();
            self.placeholder = tally.output;
            let before = Tally { output: None, ..tally };
            self.usage(usage, before, out);
        }
    }

    fn block(&mut self, index: u64, block: &Block<'_>, out: &mut impl FnMut(Event<'_>)) {
        self.blocks.begin(index);
        self.whole = self.whole.filter(|whole| *whole != index);
        if let Some(name) = block.name.some() {
            let number = self.blocks.call(index);
            called((CHOICE, number), block.id.some(), Some(name), out);
        }
        say(Part::Reasoning, CHOICE, &block.thinking.0, out);
        say(Part::Text, CHOICE, &block.text.0, out);
        // Mostly it is there and empty, and the deltas hold it.
        let input = block.input.0.as_str();
        if !matches!(input, "" | "{}") {
            say(Part::Tool(self.blocks.call(index)), CHOICE, input, out);
            self.whole = Some(index);
        }
    }

    fn delta(&mut self, index: u64, delta: &Delta<'_>, out: &mut impl FnMut(Event<'_>)) {
        say(Part::Reasoning, CHOICE, &delta.thinking.0, out);
        say(Part::Text, CHOICE, &delta.text.0, out);
        if let Some(input) = delta.partial_json.some()
            && self.whole != Some(index)
        {
            say(Part::Tool(self.blocks.call(index)), CHOICE, input, out);
        }
        stopped(delta.stop_reason.some(), out);
    }

    /// Counts are cumulative, and those of a later message hold, field by field.
    fn usage(&mut self, raw: &RawUsage<'_>, tally: Tally, out: &mut impl FnMut(Event<'_>)) {
        self.once.tier(raw.service_tier.some(), None, out);
        self.tally.merge(tally);
        if let Some(usage) = self.tally.usage() {
            out(Event::Usage(usage));
        }
    }

    fn end(&mut self, out: &mut impl FnMut(Event<'_>)) {
        if let Some(output) = self.placeholder.filter(|_| self.tally.output.is_none()) {
            out(Event::Usage(Usage { output: Some(output), ..Usage::default() }));
        }
        out(Event::Done);
    }
}

fn stopped(reason: Option<&str>, out: &mut impl FnMut(Event<'_>)) {
    if let Some(reason) = reason {
        out(Event::Stopped { choice: CHOICE, reason });
    }
}
