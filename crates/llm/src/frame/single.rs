//! Handles a body that is a single message. The body is passed on piece by piece and never buffered.

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

    /// Ends the body. Emits [`Frame::BodyEnd`] if no bytes were lost.
    pub fn finish(&mut self, out: &mut impl FnMut(Frame<'_>)) {
        if self.begun && !self.lost {
            out(Frame::BodyEnd);
        }
        *self = Self::default();
    }

    /// Handles the loss of bytes. The rest of the body is ignored, because it contains no other message.
    pub fn gap(&mut self) {
        self.lost = true;
    }
}
