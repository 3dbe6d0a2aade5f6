//! Emits events. All API formats share these helper functions.

use super::{Event, EventSink, Part, Timings, Usage};
use crate::frame::ParseError;

/// Maximum number of tool calls of one response that are tracked separately. Agents request a few dozen. Further calls
/// count as part of the last tracked call.
const MAX_CALLS: usize = 256;

/// Emits a piece of generated text, unless the piece is empty.
pub fn emit_text(choice: u32, part: Part, text: &str, out: &mut impl EventSink) {
    if !text.is_empty() {
        out(Event::Text { choice, part, text });
    }
}

/// Emits the id and the name of a tool call, unless both are absent.
pub fn emit_call(
    (choice, number): (u32, u32),
    id: Option<&str>,
    name: Option<&str>,
    out: &mut impl EventSink,
) {
    if id.or(name).is_some() {
        out(Event::Call { choice, number, id, name });
    }
}

/// Emits token counts, unless the response reported none. Emits a parse error instead of implausible counts, and leaves
/// out parts that exceed their whole.
pub fn emit_usage(mut usage: Usage, out: &mut impl EventSink) {
    if usage.remove_implausible() {
        out(Event::ParseError(ParseError::BadCount));
    }
    usage.remove_excess();
    if usage != Usage::default() {
        out(Event::Usage(&usage));
    }
}

/// Emits durations unless there are none.
pub fn emit_timings(timings: Timings, out: &mut impl EventSink) {
    if timings != Timings::default() {
        out(Event::Timings(&timings));
    }
}

/// Returns an index from a message, or `None` if the index is absent or exceeds 32 bits.
pub fn index(count: super::lenient::Count) -> Option<u32> {
    u32::try_from(count.0?).ok()
}

/// Emits the id, the model and similar values of a response only once, although every message repeats them.
#[derive(Debug, Default)]
pub struct Preamble {
    id: bool,
    model: bool,
    service_tier: bool,
    system_fingerprint: bool,
}

impl Preamble {
    pub fn emit_started(
        &mut self,
        id: Option<&str>,
        model: Option<&str>,
        out: &mut impl EventSink,
    ) {
        let id = take_first(&mut self.id, id);
        let model = take_first(&mut self.model, model);
        if id.or(model).is_some() {
            out(Event::Started { id, model });
        }
    }

    pub fn emit_tier(
        &mut self,
        service_tier: Option<&str>,
        system_fingerprint: Option<&str>,
        out: &mut impl EventSink,
    ) {
        let service_tier = take_first(&mut self.service_tier, service_tier);
        let system_fingerprint = take_first(&mut self.system_fingerprint, system_fingerprint);
        if service_tier.or(system_fingerprint).is_some() {
            out(Event::Tier { service_tier, system_fingerprint });
        }
    }
}

fn take_first<'v>(known: &mut bool, value: Option<&'v str>) -> Option<&'v str> {
    let value = value.filter(|_| !*known);
    *known |= value.is_some();
    value
}

/// Numbers tool calls, for formats in which tool calls and other content blocks share one sequence of indices.
#[derive(Debug, Default)]
pub struct ToolBlocks {
    /// The block index of each tool call, in order of arrival. `None` if a later block has reused the index.
    calls: Vec<Option<u64>>,
}

impl ToolBlocks {
    /// Begins a content block. A new tool call with a reused index gets its own number.
    pub fn begin(&mut self, index: u64) {
        for call in &mut self.calls {
            *call = call.filter(|known| *known != index);
        }
    }

    /// Returns the number of the tool call in the block with this index. Numbers start at 0.
    pub fn call(&mut self, index: u64) -> u32 {
        let known = self.calls.iter().position(|known| *known == Some(index));
        let number = known.unwrap_or_else(|| {
            if self.calls.len() < MAX_CALLS {
                self.calls.push(Some(index));
            }
            self.calls.len() - 1
        });
        u32::try_from(number).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_calls_in_order_of_arrival() {
        let mut blocks = ToolBlocks::default();
        blocks.begin(0);
        blocks.begin(1);
        assert_eq!((blocks.call(1), blocks.call(1)), (0, 0));
        assert_eq!((blocks.call(3), blocks.call(1), blocks.call(3)), (1, 0, 1));
        blocks.begin(1);
        assert_eq!((blocks.call(1), blocks.call(3)), (2, 1));
    }

    #[test]
    fn bounds_the_number_of_calls() {
        let mut blocks = ToolBlocks::default();
        for index in 0..1000 {
            blocks.call(index);
        }
        assert_eq!(blocks.calls.len(), MAX_CALLS);
        assert_eq!(blocks.call(5000), 255);
    }
}
