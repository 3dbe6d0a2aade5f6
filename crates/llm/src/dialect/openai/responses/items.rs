//! Reads the items in the JSON of a response: messages, reasoning and tool calls.

use super::ResponseField;
use super::texts::{ResponseTexts, TextId, TextLocation};
use crate::dialect::emit::{emit_call, emit_text};
use crate::dialect::json::{Row, Value};
use crate::dialect::{Event, EventSink};

/// The meaning of a value inside an item.
#[derive(Clone, Copy, Debug)]
pub enum ItemField {
    Item,
    CallId,
    CallName,
    Type,
    Part,
    PartType,
    /// Text at a location that can have several texts.
    Text(TextLocation),
    /// The only text at the location.
    OnlyText(TextLocation),
}

macro_rules! item_rows {
    ($item:literal) => {
        &[
            ($item, ResponseField::Item(ItemField::Item)),
            (concat!($item, ".call_id"), ResponseField::Item(ItemField::CallId)),
            (concat!($item, ".name"), ResponseField::Item(ItemField::CallName)),
            (concat!($item, ".type"), ResponseField::Item(ItemField::Type)),
            (concat!($item, ".content.*"), ResponseField::Item(ItemField::Part)),
            (concat!($item, ".content.*.type"), ResponseField::Item(ItemField::PartType)),
            (
                concat!($item, ".content"),
                ResponseField::Item(ItemField::OnlyText(TextLocation::Text)),
            ),
            (
                concat!($item, ".content.*.text"),
                ResponseField::Item(ItemField::Text(TextLocation::Text)),
            ),
            (
                concat!($item, ".content.*.refusal"),
                ResponseField::Item(ItemField::Text(TextLocation::Refusal)),
            ),
            (
                concat!($item, ".content.*.transcript"),
                ResponseField::Item(ItemField::Text(TextLocation::Transcript)),
            ),
            (
                concat!($item, ".summary.*.text"),
                ResponseField::Item(ItemField::Text(TextLocation::Summary)),
            ),
            (
                concat!($item, ".arguments|input|code{}"),
                ResponseField::Item(ItemField::OnlyText(TextLocation::Tool)),
            ),
            (
                concat!($item, ".operation.diff"),
                ResponseField::Item(ItemField::OnlyText(TextLocation::Tool)),
            ),
        ]
    };
}

/// The rows for the items of a response.
pub const OUTPUT_ROWS: &[Row<ResponseField>] = item_rows!("output.*");

/// The rows for the item in a message.
pub const ITEM_ROWS: &[Row<ResponseField>] = item_rows!("item");

#[derive(Debug, Default)]
pub struct Items {
    pub texts: ResponseTexts,
    /// Whether the type of the current item, or of its current part, is reasoning. If the type follows the text,
    /// reasoning counts as text, because waiting for the type would delay the text.
    item_is_reasoning: bool,
    part_is_reasoning: bool,
    /// Id and name of the tool call, if the current item is a tool call.
    call: [Option<String>; 2],
}

impl Items {
    #[expect(clippy::too_many_arguments, reason = "the position of the value and its context")]
    /// Reads a value. `is_known` is set if the text of the item was read before. The text is then ignored, and the
    /// reasoning state and the call of the item are still read.
    pub fn read(
        &mut self,
        field: ItemField,
        (item, piece): (u32, u32),
        value: Value<'_>,
        is_known: bool,
        out: &mut impl EventSink,
    ) {
        match (field, value) {
            (ItemField::Item, Value::Object) => {
                self.item_is_reasoning = false;
                self.call = [None, None];
            }
            (ItemField::Item, Value::End) => self.end(item, out),
            (ItemField::CallId | ItemField::CallName, value) => {
                let [id, name] = &mut self.call;
                if let Some(word) = value.word() {
                    *(if matches!(field, ItemField::CallId) { id } else { name }) =
                        Some(word.to_owned());
                }
            }
            (ItemField::Part, Value::Object) => self.part_is_reasoning = false,
            (ItemField::Type, value) => {
                if let Some(word) = value.word() {
                    self.item_is_reasoning = word == "reasoning";
                    emit_compaction(word, out);
                }
            }
            (ItemField::PartType, value) => {
                if let Some(word) = value.word() {
                    self.part_is_reasoning = word == "reasoning_text";
                }
            }
            (ItemField::Text(location) | ItemField::OnlyText(location), Value::Text(text))
                if !is_known =>
            {
                let is_reasoning = self.item_is_reasoning || self.part_is_reasoning;
                let location = match location {
                    TextLocation::Text if is_reasoning => TextLocation::Reasoning,
                    location => location,
                };
                let piece = if matches!(field, ItemField::Text(_)) { piece } else { 0 };
                if let Some(part) = self.texts.part(TextId { item, location, piece }) {
                    emit_text(0, part, text, out);
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, item: u32, out: &mut impl EventSink) {
        let [id, name] = std::mem::take(&mut self.call);
        if let Some(number) = self.texts.call(item) {
            emit_call((0, number), id.as_deref(), name.as_deref(), out);
        }
    }
}

/// Reports a compaction, whose item has a type of its own.
fn emit_compaction(item_type: &str, out: &mut impl EventSink) {
    if item_type == "compaction" {
        out(Event::Compacted);
    }
}
