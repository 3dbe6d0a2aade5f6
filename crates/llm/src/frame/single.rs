//! Frames a body that is one message. The framer passes the body on piece by piece and never buffers it.

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

    /// Emits the end of the message, if no bytes were lost.
    pub fn finish(&mut self, out: &mut impl FnMut(Frame<'_>)) {
        if self.begun && !self.lost {
            out(Frame::BodyEnd);
        }
        *self = Self::default();
    }

    /// Records that bytes were lost. The rest of the body is ignored, because no further message begins in it.
    pub fn gap(&mut self) {
        self.lost = true;
    }
}
