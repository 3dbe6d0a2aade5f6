//! Replaces strings of a log with numbers, so that a request needs little memory. The number of strings is limited.

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use tokengauge_types::label::OTHER;

/// Distinct strings in order of first appearance. The id of a string is its position. If the limit is reached, each
/// new string gets the id of `other`.
#[derive(Debug)]
pub struct StringInterner {
    texts: IndexSet<Box<str>, FxBuildHasher>,
    most: usize,
    overflow_count: u64,
}

impl StringInterner {
    /// Creates an interner for at most `most` distinct strings. The string `other` does not count.
    pub fn new(most: usize) -> Self {
        Self { texts: IndexSet::default(), most, overflow_count: 0 }
    }

    pub fn intern(&mut self, text: &str) -> u32 {
        let place = self.texts.get_index_of(text).unwrap_or_else(|| {
            let is_full = self.texts.len() >= self.most;
            self.overflow_count += u64::from(is_full);
            self.texts.insert_full(if is_full { OTHER } else { text }.into()).0
        });
        u32::try_from(place).unwrap_or(u32::MAX)
    }

    pub fn resolve(&self, id: u32) -> Option<&str> {
        self.texts.get_index(usize::try_from(id).ok()?).map(AsRef::as_ref)
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.texts.iter().map(AsRef::as_ref)
    }

    /// Returns the number of strings that became `other`.
    pub const fn overflow_count(&self) -> u64 {
        self.overflow_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_beyond_the_limit_become_other() {
        let mut texts = StringInterner::new(2);
        let ids = ["a", "b", "c", "a", "d"].map(|text| texts.intern(text));
        assert_eq!(ids, [0, 1, 2, 0, 2]);
        assert_eq!(texts.iter().collect::<Vec<_>>(), ["a", "b", "other"]);
        assert_eq!(texts.overflow_count(), 2);
        assert_eq!(texts.resolve(9), None);
    }
}
