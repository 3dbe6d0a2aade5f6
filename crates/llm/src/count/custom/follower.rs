//! Counting a growing text with a tokenizer that the user gave.

use std::sync::Arc;

use super::{CustomTokenizer, LEAD};
use crate::count::encoder::{GROWTH, LONGEST_TAIL, ROOMY, SHORT_TAIL, in_stretches};
use crate::count::estimate;

/// Counts one growing text: what lies before a safe place to cut is counted once, the rest whenever the count is asked
/// for. Where the tokenizer has no such places, all of the text is the rest.
#[derive(Clone, Debug)]
pub struct Follower {
    given: Arc<CustomTokenizer>,
    /// Tokens of what was let go of.
    decided: u64,
    /// The rest of the text, behind [`LEAD`] once something was let go of.
    tail: String,
    led: bool,
    /// The tail was so long when it was last counted, and had so many tokens.
    counted: (usize, u64),
    exact: bool,
}

impl Follower {
    pub const fn new(given: Arc<CustomTokenizer>) -> Self {
        Self { given, decided: 0, tail: String::new(), led: false, counted: (0, 0), exact: true }
    }

    /// The text goes on with `delta`.
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

    /// The tokens of the text so far; while the tail is longer than 256 bytes it may be an eighth of the tail behind.
    pub fn count(&mut self) -> u64 {
        let (length, before) = (self.tail.len(), self.counted.0);
        if length <= SHORT_TAIL || length >= before + before / GROWTH {
            return self.total();
        }
        self.decided + self.counted.1
    }

    /// The tokens of the text so far, whatever it costs: for its end.
    pub fn total(&mut self) -> u64 {
        if self.counted.0 != self.tail.len() {
            self.counted = (self.tail.len(), self.tokens_before(self.tail.len()));
        }
        self.decided + self.counted.1
    }

    /// Whether this is the count of the text as a whole: it was cut at safe places only, and could be encoded.
    pub const fn is_exact(&self) -> bool {
        self.exact
    }

    /// Bytes that are held.
    pub const fn held(&self) -> usize {
        self.tail.capacity()
    }

    /// Counts the tail as if the text ended here, and holds it no longer.
    pub fn settle(&mut self) {
        if !self.tail.is_empty() {
            self.let_go(self.tail.len());
            self.tail.shrink_to_fit();
            self.exact = false;
        }
    }

    /// Counts what stands before `place` and lets go of it.
    fn let_go(&mut self, place: usize) {
        // Where each delta is a word, what stands before it was just counted.
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
