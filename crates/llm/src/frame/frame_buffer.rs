//! Buffers a frame until its end arrives.

use std::borrow::Cow;

use super::{Frame, ParseError};

/// Buffer for the part of a frame that has arrived. The size of the buffer is limited.
#[derive(Debug)]
pub struct FrameBuffer {
    cap: usize,
    bytes: Vec<u8>,
    /// Whether the frame exceeded the size limit. The error was then reported, and the rest of the frame is skipped.
    is_oversize: bool,
}

impl FrameBuffer {
    /// Creates a buffer for frames of at most `cap` bytes.
    pub fn new(cap: usize) -> Self {
        Self { cap, bytes: Vec::new(), is_oversize: false }
    }

    pub fn cap(&self) -> usize {
        self.cap
    }

    /// Returns the number of buffered bytes of the frame.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the first `COUNT` bytes of the frame, which are in the buffer and in `piece`. Returns `None` if fewer
    /// bytes have arrived.
    pub fn first_bytes<const COUNT: usize>(&self, piece: &[u8]) -> Option<[u8; COUNT]> {
        let mut lead = [0; COUNT];
        for (to, from) in lead.iter_mut().zip(self.bytes.iter().chain(piece)) {
            *to = *from;
        }
        (self.bytes.len() + piece.len() >= COUNT).then_some(lead)
    }

    /// Buffers the next piece of a frame. If the frame exceeds the size limit, reports one error.
    pub fn push(&mut self, piece: &[u8], out: &mut impl FnMut(Frame<'_>)) {
        if self.is_oversize {
            return;
        }
        if self.bytes.len() + piece.len() > self.cap {
            self.bytes = Vec::new();
            self.is_oversize = true;
            out(Frame::ParseError(ParseError::Oversize));
            return;
        }
        append(&mut self.bytes, piece, self.cap);
    }

    /// Ends the frame with `piece`, and returns the complete frame. Returns `None` if the frame exceeded the size
    /// limit. If the buffer is empty, returns `piece` without a copy.
    pub fn finish<'a>(
        &mut self,
        piece: &'a [u8],
        out: &mut impl FnMut(Frame<'_>),
    ) -> Option<Cow<'a, [u8]>> {
        if self.bytes.is_empty() && !self.is_oversize && piece.len() <= self.cap {
            return Some(Cow::Borrowed(piece));
        }
        self.push(piece, out);
        let whole = !std::mem::take(&mut self.is_oversize);
        whole.then(|| Cow::Owned(std::mem::take(&mut self.bytes)))
    }

    pub fn clear(&mut self) {
        *self = Self::new(self.cap);
    }

    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

/// Appends `piece` to `kept`. The caller ensures that the result has at most `cap` bytes. The capacity of the vector
/// doubles when it is full, but never exceeds `cap`.
pub fn append(kept: &mut Vec<u8>, piece: &[u8], cap: usize) {
    let needed = kept.len() + piece.len();
    if needed > kept.capacity() {
        let room = (kept.capacity() * 2).min(cap).max(needed);
        kept.reserve_exact(room - kept.len());
    }
    kept.extend_from_slice(piece);
}
