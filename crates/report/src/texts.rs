//! Texts of a log as small numbers, in bounded number.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use tokengauge_types::label::OTHER;

/// Texts in the order in which they first came. What comes when there is no more room is `other`.
#[derive(Debug)]
pub struct Texts {
    ids: HashMap<Box<str>, u32, FxBuildHasher>,
    texts: Vec<Box<str>>,
    most: usize,
    folded: u64,
}

impl Texts {
    /// Room for `most` texts, and for `other`.
    pub fn new(most: usize) -> Self {
        Self { ids: HashMap::default(), texts: Vec::new(), most, folded: 0 }
    }

    pub fn id(&mut self, text: &str) -> u32 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        if self.texts.len() >= self.most {
            self.folded += 1;
            return match self.ids.get(OTHER) {
                Some(id) => *id,
                None => self.add(OTHER),
            };
        }
        self.add(text)
    }

    fn add(&mut self, text: &str) -> u32 {
        let id = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.ids.insert(text.into(), id);
        self.texts.push(text.into());
        id
    }

    pub fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(usize::try_from(id).ok()?).map(AsRef::as_ref)
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.texts.iter().map(AsRef::as_ref)
    }

    /// How often a text became `other`.
    pub const fn folded(&self) -> u64 {
        self.folded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_keep_their_names_and_the_rest_is_other() {
        let mut texts = Texts::new(2);
        let ids = ["a", "b", "c", "a", "d"].map(|text| texts.id(text));
        assert_eq!(ids, [0, 1, 2, 0, 2]);
        assert_eq!(texts.iter().collect::<Vec<_>>(), ["a", "b", "other"]);
        assert_eq!(texts.folded(), 2);
        assert_eq!(texts.text(9), None);
    }
}
