//! A body that is one message as a whole: passed on piece by piece, never kept.

use super::Frame;

#[derive(Debug, Default)]
pub struct SingleMessage {
    begun: bool,
    lost: bool,
}

impl SingleMessage {
    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(Frame<'_>)) {
        if !self.lost && !bytes.is_empty() {
            self.begun = true;
            out(Frame::BodyChunk(bytes));
        }
    }

    /// Says that the message is over, if there was one and all of it was seen.
    pub fn finish(&mut self, out: &mut impl FnMut(Frame<'_>)) {
        if self.begun && !self.lost {
            out(Frame::BodyEnd);
        }
        *self = Self::default();
    }

    /// One message has no next frame to pick up from: what comes after lost bytes is not read.
    pub fn gap(&mut self) {
        self.lost = true;
    }
}
