//! Splits a body into frames. The memory of incomplete frames counts towards the budget of the request.

use super::{Frame, Framer, JsonFraming, ParseError};
use crate::budget::{MemoryPermit, RequestBudget};

/// A [`Framer`] that discards an incomplete frame if the memory budget is used up.
#[derive(Debug)]
pub struct BudgetedFramer {
    framer: Framer,
    memory: MemoryPermit,
}

impl BudgetedFramer {
    /// Creates a framer. See [`Framer::new`].
    pub fn new(content_type: Option<&str>, json: JsonFraming, budget: &RequestBudget) -> Self {
        Self { framer: Framer::new(content_type, json), memory: budget.hold() }
    }

    /// Parses the next bytes of the body, and calls `out` for every frame that is now complete. If the budget has no
    /// memory for an incomplete frame, the framer discards the frame and continues as after lost bytes.
    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(Frame<'_>)) {
        self.framer.push(bytes, out);
        if !self.account() {
            self.gap();
            out(Frame::ParseError(ParseError::Budget));
        }
    }

    /// Ends the body. Emits the readable part of an incomplete frame.
    pub fn finish(&mut self, out: &mut impl FnMut(Frame<'_>)) {
        self.framer.finish(out);
        self.account();
    }

    /// Records that bytes were lost. See [`Framer::gap`].
    pub fn gap(&mut self) {
        self.framer.gap();
        self.account();
    }

    /// Returns whether the body is a stream of messages. Returns `None` until enough bytes have arrived.
    pub fn is_stream(&self) -> Option<bool> {
        self.framer.is_stream()
    }

    fn account(&mut self) -> bool {
        self.memory.resize(self.framer.held_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    fn framer(budget: &RequestBudget) -> BudgetedFramer {
        BudgetedFramer::new(Some("text/event-stream"), JsonFraming::Single, budget)
    }

    /// Parses `bytes`. Returns the data of the events and the names of the errors.
    fn push(framer: &mut BudgetedFramer, bytes: &[u8]) -> Vec<String> {
        let mut frames = Vec::new();
        framer.push(bytes, &mut |frame| {
            if let Frame::Event { data, .. } = frame {
                frames.push(String::from_utf8_lossy(data).into_owned());
            } else if let Frame::ParseError(error) = frame {
                frames.push(error.as_str().to_owned());
            }
        });
        frames
    }

    #[test]
    fn incomplete_frames_of_all_bodies_share_a_budget() {
        let budget = Budget::new(10_000);
        let mut framers: Vec<_> = (0..10).map(|_| framer(&budget.request())).collect();
        let half = [b"data: ".as_slice(), &[b'x'; 2_000]].concat();
        let refused = framers.iter_mut().filter_map(|framer| push(framer, &half).pop()).count();
        assert_eq!(refused, 6, "four times 2 KB fit");
        assert!(budget.held_bytes() <= 10_000);
        let ends: Vec<_> =
            framers.iter_mut().map(|framer| push(framer, b"\n\ndata: y\n\n")).collect();
        assert!(ends.iter().all(|end| end.last().is_some_and(|data| data == "y")), "{ends:?}");
        assert_eq!(ends.iter().filter(|end| end.len() == 2).count(), 4);
        assert_eq!(budget.held_bytes(), 0);
    }
}
