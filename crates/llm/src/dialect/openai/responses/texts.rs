//! The texts of a response that were read so far.
//!
//! A text is known by its place and not by the id of its item: some producers use one id for several items, and others
//! (GitHub Copilot) a new id in each message.

use crate::dialect::{Part, TextKind};

/// The most texts of one response. Further texts are read only once. Agents that search the web have about a hundred
/// items.
const MOST_TEXTS: usize = 1_024;

/// The place of a text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TextId {
    /// Position of the item in the output.
    pub item: u32,
    pub location: TextLocation,
    /// Position among the texts at this location.
    pub piece: u32,
}

/// Where in an item a text stands.
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
    const fn kind(self) -> TextKind {
        match self {
            Self::Text => TextKind::Text,
            Self::Refusal => TextKind::Refusal,
            Self::Reasoning | Self::Summary => TextKind::Reasoning,
            Self::Tool => TextKind::Tool,
            Self::Transcript => TextKind::Transcript,
        }
    }
}

#[derive(Debug, Default)]
pub struct ResponseTexts {
    known: Vec<TextId>,
    /// The last lookup and its result: the pieces of one text are consecutive.
    last: Option<(TextId, Option<Part>)>,
    /// How many texts were known when the repetition of the whole response began.
    before_repetition: usize,
}

impl ResponseTexts {
    /// Returns the part that a piece of this text belongs to, `None` if the text was read elsewhere.
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
    pub fn knows(&self, id: TextId) -> bool {
        self.is_full() || self.known.contains(&id)
    }

    /// Returns whether any text of this item was read.
    pub fn knows_item(&self, item: u32) -> bool {
        self.is_full() || self.known.iter().any(|known| known.item == item)
    }

    /// Returns the number of the tool call that this item is, if any of it was read and the repetition of the response
    /// has not begun: items may be numbered anew there.
    pub fn call(&self, item: u32) -> Option<u32> {
        let mut calls = self.known.iter().filter(|known| known.location == TextLocation::Tool);
        let number = calls.position(|known| known.item == item)?;
        u32::try_from(number).ok().filter(|_| self.before_repetition == 0)
    }

    /// Begins the repetition of the whole response: kinds of text that are known are not new there. Items are not
    /// compared individually, because some producers leave out items and number the others anew.
    pub const fn begin_repetition(&mut self) {
        self.before_repetition = self.known.len();
        self.last = None;
    }

    fn find(&mut self, id: TextId) -> Option<Part> {
        let kind = id.location.kind();
        let mut before = self.known.iter().take(self.before_repetition);
        if before.any(|known| known.location.kind() == kind) || self.is_other_form(id) {
            return None;
        }
        let known = self.known.iter().position(|known| *known == id);
        let position = known.unwrap_or(self.known.len());
        if known.is_none() && !self.is_full() {
            self.known.push(id);
        }
        Some(match kind {
            TextKind::Text => Part::Text,
            TextKind::Refusal => Part::Refusal,
            TextKind::Reasoning => Part::Reasoning,
            TextKind::Transcript => Part::Transcript,
            TextKind::Tool => {
                let before = self.known.iter().take(position);
                let calls = before.filter(|known| known.location == TextLocation::Tool).count();
                Part::Tool(u32::try_from(calls).unwrap_or(u32::MAX))
            }
        })
    }

    /// Returns whether this is reasoning whose other form, full or summary, was read.
    fn is_other_form(&self, id: TextId) -> bool {
        let other = match id.location {
            TextLocation::Reasoning => TextLocation::Summary,
            TextLocation::Summary => TextLocation::Reasoning,
            _ => return false,
        };
        self.known.iter().any(|known| known.item == id.item && known.location == other)
    }

    const fn is_full(&self) -> bool {
        self.known.len() >= MOST_TEXTS
    }
}
