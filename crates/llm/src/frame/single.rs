//! A body that is one message. It is passed on piece by piece and never buffered.

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

    /// Emits the end of the message if the whole body was observed.
    pub fn finish(&mut self, out: &mut impl FnMut(Frame<'_>)) {
        if self.begun && !self.lost {
            out(Frame::BodyEnd);
        }
        *self = Self::default();
    }

    /// Ignores the rest of the body, because a single message has no next frame to resume at.
    pub fn gap(&mut self) {
        self.lost = true;
    }
}
