//! Records which texts of a response were read, so that repetitions are skipped.
//!
//! The position identifies a text, not the id of its item. Some servers use one id for several items, and others
//! (GitHub Copilot) send a new id in each message.

use crate::dialect::Part;

/// Maximum number of recorded texts per response. Each further text is read in one form only. Agents that search the
/// web have about a hundred items.
const MAX_TEXTS: usize = 1_024;

/// The position of a text in the response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TextId {
    /// Index of the item in the output.
    pub item: u32,
    pub location: TextLocation,
    /// Index among the texts at this location.
    pub piece: u32,
}

/// The place of a text in its item.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TextLocation {
    Text,
    Refusal,
    Reasoning,
    /// Summary of the reasoning.
    Summary,
    /// Arguments of a tool call.
    Tool,
    Transcript,
}

impl TextLocation {
    /// Returns the kind of text at this location. `call` is the number of the tool call for [`Self::Tool`].
    const fn part(self, call: u32) -> Part {
        match self {
            Self::Text => Part::Text,
            Self::Refusal => Part::Refusal,
            Self::Reasoning | Self::Summary => Part::Reasoning,
            Self::Tool => Part::Tool(call),
            Self::Transcript => Part::Transcript,
        }
    }
}

#[derive(Debug, Default)]
pub struct ResponseTexts {
    known: Vec<TextId>,
    /// The last lookup and its result. The next piece usually belongs to the same text.
    last: Option<(TextId, Option<Part>)>,
    /// Number of recorded texts when the last message began to repeat the whole response.
    before_repetition: usize,
}

impl ResponseTexts {
    /// Returns the part to which a piece of this text belongs. Returns `None` if the text was already read in another
    /// form.
    pub fn part(&mut self, id: TextId) -> Option<Part> {
        if let Some((last, part)) = self.last
            && last == id
        {
            return part;
        }
        let part = self.find(id);
        self.last = Some((id, part));
        part
    }

    /// Returns whether any piece of this text was read.
    pub fn contains(&self, id: TextId) -> bool {
        self.is_full() || self.known.contains(&id)
    }

    /// Returns whether any text of this item was read.
    pub fn contains_item(&self, item: u32) -> bool {
        self.is_full() || self.known.iter().any(|known| known.item == item)
    }

    /// Returns the number of the item's tool call, if any text of the call was read. Returns `None` while the last
    /// message of a stream repeats the response, because repeated items can have other numbers.
    pub fn call(&self, item: u32) -> Option<u32> {
        let mut calls = self.known.iter().filter(|known| known.location == TextLocation::Tool);
        let number = calls.position(|known| known.item == item)?;
        u32::try_from(number).ok().filter(|_| self.before_repetition == 0)
    }

    /// Begins the last message of a stream, which repeats the whole response. A repeated text is new only if no text of
    /// its kind was read before. Items are not compared, because some servers omit items and renumber the others.
    pub const fn begin_repetition(&mut self) {
        self.before_repetition = self.known.len();
        self.last = None;
    }

    fn find(&mut self, id: TextId) -> Option<Part> {
        let is_same_kind = |known: &TextId| known.location.part(0) == id.location.part(0);
        let mut before = self.known.iter().take(self.before_repetition);
        if before.any(is_same_kind) || self.is_other_form(id) {
            return None;
        }
        let known = self.known.iter().position(|known| *known == id);
        let position = known.unwrap_or(self.known.len());
        if known.is_none() && !self.is_full() {
            self.known.push(id);
        }
        let before = self.known.iter().take(position);
        let calls = before.filter(|known| known.location == TextLocation::Tool).count();
        Some(id.location.part(u32::try_from(calls).unwrap_or(u32::MAX)))
    }

    /// Returns whether this reasoning was already read in its other form: the full text or the summary.
    fn is_other_form(&self, id: TextId) -> bool {
        let other = match id.location {
            TextLocation::Reasoning => TextLocation::Summary,
            TextLocation::Summary => TextLocation::Reasoning,
            _ => return false,
        };
        self.known.iter().any(|known| known.item == id.item && known.location == other)
    }

    const fn is_full(&self) -> bool {
        self.known.len() >= MAX_TEXTS
    }
}
