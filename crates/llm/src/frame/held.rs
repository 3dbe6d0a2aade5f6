//! What is kept of a frame whose end has not come.

use std::borrow::Cow;

use super::{Frame, ParseError};

/// A frame in the making, under a cap that holds while its end is waited for.
#[derive(Debug)]
pub struct Held {
    cap: usize,
    bytes: Vec<u8>,
    /// The frame grew above the cap, and that was said: the rest of it is passed over.
    over: bool,
}

impl Held {
    /// `cap`: the most bytes that a frame may take.
    pub fn new(cap: usize) -> Self {
        Self { cap, bytes: Vec::new(), over: false }
    }

    pub fn cap(&self) -> usize {
        self.cap
    }

    /// How many bytes of the frame are kept.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The first bytes of the frame that `piece` goes on with, if they have come.
    pub fn lead<const COUNT: usize>(&self, piece: &[u8]) -> Option<[u8; COUNT]> {
        let mut lead = [0; COUNT];
        for (to, from) in lead.iter_mut().zip(self.bytes.iter().chain(piece)) {
            *to = *from;
        }
        (self.bytes.len() + piece.len() >= COUNT).then_some(lead)
    }

    /// Keeps a piece of the frame.
    pub fn keep(&mut self, piece: &[u8], out: &mut impl FnMut(Frame<'_>)) {
        if self.over {
            return;
        }
        if self.bytes.len() + piece.len() > self.cap {
            self.bytes = Vec::new();
            self.over = true;
            out(Frame::ParseError(ParseError::Oversize));
            return;
        }
        append(&mut self.bytes, piece, self.cap);
    }

    /// The frame ends with `piece`: gives all of it, in place where none of it had to be kept, or nothing where it is
    /// above the cap.
    pub fn end<'a>(
        &mut self,
        piece: &'a [u8],
        out: &mut impl FnMut(Frame<'_>),
    ) -> Option<Cow<'a, [u8]>> {
        if self.bytes.is_empty() && !self.over && piece.len() <= self.cap {
            return Some(Cow::Borrowed(piece));
        }
        self.keep(piece, out);
        let whole = !std::mem::take(&mut self.over);
        whole.then(|| Cow::Owned(std::mem::take(&mut self.bytes)))
    }

    /// The frame is given up.
    pub fn clear(&mut self) {
        *self = Self::new(self.cap);
    }

    /// How much memory is held.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

/// Appends `piece` to what is kept, which the caller has seen to stay within `cap`. It grows as a vector does, by
/// doubling, but the last step ends at the cap.
pub fn append(kept: &mut Vec<u8>, piece: &[u8], cap: usize) {
    let needed = kept.len() + piece.len();
    if needed > kept.capacity() {
        let room = (kept.capacity() * 2).min(cap).max(needed);
        kept.reserve_exact(room - kept.len());
    }
    kept.extend_from_slice(piece);
}
