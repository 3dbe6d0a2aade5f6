//! Which texts of an answer were told already.
//!
//! Texts are known by their place, never by the ids of their items: some producers use one id for several items, and
//! some give an item a new id with each message (GitHub Copilot).

use crate::dialect::{Part, TextKind};

/// The most texts that are told apart; more are not told a second time. Agents that search the web come to a hundred
/// items.
const MOST_TEXTS: usize = 1_024;

/// One text of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    /// Which item of the output.
    pub item: u32,
    pub home: Home,
    /// Which of the texts that the item has there.
    pub piece: u32,
}

/// Where in an item a text stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Home {
    Text,
    Refusal,
    Reasoning,
    /// Of the reasoning.
    Summary,
    /// What a tool is called with.
    Tool,
    Transcript,
}

impl Home {
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
pub struct Heard {
    places: Vec<Place>,
    /// The place that was asked for last, and what came of it: pieces of one text follow one another.
    last: Option<(Place, Option<Part>)>,
    /// How many of the places were told before the answer was told as a whole.
    before: usize,
}

impl Heard {
    /// The part that a piece of the text at this place belongs to; `None` where it was told elsewhere.
    pub fn part(&mut self, place: Place) -> Option<Part> {
        if let Some((last, part)) = self.last
            && last == place
        {
            return part;
        }
        let part = self.find(place);
        self.last = Some((place, part));
        part
    }

    /// Whether any of the text at this place was told.
    pub fn knows(&self, place: Place) -> bool {
        self.is_full() || self.places.contains(&place)
    }

    /// Whether any text of this item was told.
    pub fn knows_item(&self, item: u32) -> bool {
        self.is_full() || self.places.iter().any(|known| known.item == item)
    }

    /// The number of the call of a tool that this item is, where any of it was told and none was told before the answer
    /// was told as a whole: items may be counted anew there.
    pub fn call(&self, item: u32) -> Option<u32> {
        let is_call = |known: &&Place| known.home == Home::Tool;
        let mut calls = self.places.iter().filter(is_call);
        let number = calls.position(|known| known.item == item)?;
        u32::try_from(number).ok().filter(|_| self.before == 0)
    }

    /// From now on the answer is told as a whole: what it has of a kind that was told before is not new. Its items are
    /// not compared one by one, because some producers leave out items there, and count the others anew.
    pub fn repeat(&mut self) {
        self.before = self.places.len();
        self.last = None;
    }

    fn find(&mut self, place: Place) -> Option<Part> {
        let kind = place.home.kind();
        let mut before = self.places.iter().take(self.before);
        if before.any(|known| known.home.kind() == kind) || self.is_doubled(place) {
            return None;
        }
        let known = self.places.iter().position(|known| *known == place);
        let position = known.unwrap_or(self.places.len());
        if known.is_none() && !self.is_full() {
            self.places.push(place);
        }
        Some(match kind {
            TextKind::Text => Part::Text,
            TextKind::Refusal => Part::Refusal,
            TextKind::Reasoning => Part::Reasoning,
            TextKind::Transcript => Part::Transcript,
            TextKind::Tool => {
                let before = self.places.iter().take(position);
                let calls = before.filter(|known| known.home == Home::Tool).count();
                Part::Tool(u32::try_from(calls).unwrap_or(u32::MAX))
            }
        })
    }

    /// Whether it is reasoning of which the item has already told the other form.
    fn is_doubled(&self, place: Place) -> bool {
        let other = match place.home {
            Home::Reasoning => Home::Summary,
            Home::Summary => Home::Reasoning,
            Home::Text | Home::Refusal | Home::Tool | Home::Transcript => return false,
        };
        let other = |known: &Place| known.item == place.item && known.home == other;
        self.places.iter().any(other)
    }

    fn is_full(&self) -> bool {
        self.places.len() >= MOST_TEXTS
    }
}
