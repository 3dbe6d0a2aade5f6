//! Buffers a frame until its end arrives.

use std::borrow::Cow;

use super::shortener::{Shortener, append};
use super::{Frame, ParseError};

/// Buffer for the part of a frame that has arrived. A frame that exceeds the size limit is shortened while it arrives.
#[derive(Debug)]
pub struct FrameBuffer {
    cap: usize,
    bytes: Vec<u8>,
    /// Shortens a frame that exceeded the size limit. The error was then reported.
    oversize: Option<Box<Shortener>>,
}

impl FrameBuffer {
    /// Creates a buffer for frames of at most `cap` bytes.
    pub fn new(cap: usize) -> Self {
        Self { cap, bytes: Vec::new(), oversize: None }
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

    /// Buffers the next piece of a frame. If the frame exceeds the size limit, reports one error and shortens the
    /// frame.
    pub fn push(&mut self, piece: &[u8], out: &mut impl FnMut(Frame<'_>)) {
        if self.oversize.is_none() {
            if self.bytes.len() + piece.len() <= self.cap {
                return append(&mut self.bytes, piece, self.cap);
            }
            out(Frame::ParseError(ParseError::Oversize));
        }
        let new = || Box::new(Shortener::new(self.cap));
        let shortener = self.oversize.get_or_insert_with(new);
        shortener.push(&std::mem::take(&mut self.bytes));
        shortener.push(piece);
    }

    /// Ends the frame with `piece`, and returns the frame, which is shortened if it exceeded the size limit. Returns
    /// `None` if it could not be shortened. If the buffer is empty, returns `piece` without a copy.
    pub fn finish<'a>(
        &mut self,
        piece: &'a [u8],
        out: &mut impl FnMut(Frame<'_>),
    ) -> Option<Cow<'a, [u8]>> {
        if self.bytes.is_empty() && self.oversize.is_none() && piece.len() <= self.cap {
            return Some(Cow::Borrowed(piece));
        }
        self.push(piece, out);
        match self.oversize.take() {
            Some(shortener) => shortener.finish().map(Cow::Owned),
            None => Some(Cow::Owned(std::mem::take(&mut self.bytes))),
        }
    }

    /// Empties the buffer, and returns its bytes.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity() + self.oversize.as_ref().map_or(0, |shortener| shortener.capacity())
    }
}
