//! Counts a growing text with a custom tokenizer.

use std::sync::Arc;

use super::{CustomTokenizer, LEAD};
use crate::count::encoder::{GROWTH, LONGEST_TAIL, ROOMY, SHORT_TAIL, in_stretches};
use crate::count::estimate;

/// Counts one growing text. Text before a safe cut position is counted once, the rest at each query. If the tokenizer
/// has no safe positions, the whole text is counted at each query.
#[derive(Clone, Debug)]
pub struct Follower {
    given: Arc<CustomTokenizer>,
    /// Tokens of the text that was removed.
    decided: u64,
    /// The rest of the text, after [`LEAD`] once some text was removed.
    tail: String,
    led: bool,
    /// The length of the tail at its last count, and its token count.
    counted: (usize, u64),
    exact: bool,
}

impl Follower {
    pub const fn new(given: Arc<CustomTokenizer>) -> Self {
        Self { given, decided: 0, tail: String::new(), led: false, counted: (0, 0), exact: true }
    }

    /// Appends `delta` to the text.
    pub fn push(&mut self, delta: &str) {
        for now in in_stretches(delta) {
            let from = self.tail.len();
            self.tail.push_str(now);
            if let Some(place) = self.given.cuts().last(&self.tail, from)
                && place > LEAD.len()
            {
                self.let_go(place);
            }
            if self.tail.len() > LONGEST_TAIL {
                self.settle();
            }
        }
    }

    /// Returns the token count of the text so far. While the tail is longer than 256 bytes, it may lag by an eighth of
    /// the tail.
    pub fn count(&mut self) -> u64 {
        let (length, before) = (self.tail.len(), self.counted.0);
        if length <= SHORT_TAIL || length >= before + before / GROWTH {
            return self.total();
        }
        self.decided + self.counted.1
    }

    /// Returns the token count of the text so far at any cost. Intended for the end of the text.
    pub fn total(&mut self) -> u64 {
        if self.counted.0 != self.tail.len() {
            self.counted = (self.tail.len(), self.tokens_before(self.tail.len()));
        }
        self.decided + self.counted.1
    }

    /// Reports whether the count is exact: the text was cut only at safe positions, and all of it could be encoded.
    pub const fn is_exact(&self) -> bool {
        self.exact
    }

    /// Returns the allocated memory in bytes.
    pub const fn held(&self) -> usize {
        self.tail.capacity()
    }

    /// Counts the tail as if the text ended here, and frees its memory.
    pub fn settle(&mut self) {
        if !self.tail.is_empty() {
            self.let_go(self.tail.len());
            self.tail.shrink_to_fit();
            self.exact = false;
        }
    }

    /// Counts the text before `place` and removes it.
    fn let_go(&mut self, place: usize) {
        // If each delta is one word, the text before `place` was just counted.
        self.decided +=
            if self.counted.0 == place { self.counted.1 } else { self.tokens_before(place) };
        self.tail.replace_range(..place, LEAD);
        if self.tail.capacity() > ROOMY && self.tail.len() <= ROOMY {
            self.tail.shrink_to(ROOMY);
        }
        self.led = true;
        self.counted = (LEAD.len(), 0);
    }

    fn tokens_before(&mut self, place: usize) -> u64 {
        let text = self.tail.get(..place).unwrap_or_default();
        let lead = if self.led { self.given.lead() } else { 0 };
        match self.given.count(text) {
            Some(tokens) => tokens.saturating_sub(lead),
            None => {
                self.exact = false;
                estimate(text.len() as u64)
            }
        }
    }
}
