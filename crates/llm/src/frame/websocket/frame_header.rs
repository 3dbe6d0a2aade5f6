//! Parses the header of a WebSocket frame, which contains its type, payload length and mask.

use super::SkipReason;
use crate::frame::shortener::append;

/// Maximum size of a frame header in bytes: 2 bytes, up to 8 bytes of extended length, and 4 bytes of mask.
const MAX_HEADER_BYTES: usize = 14;

/// Maximum payload length of a control frame in bytes (RFC 6455, section 5.5).
const MAX_CONTROL_PAYLOAD: u64 = 125;

/// The bytes of a frame header that have arrived so far.
#[derive(Clone, Copy, Debug)]
pub struct FrameHeader {
    bytes: [u8; MAX_HEADER_BYTES],
    len: usize,
}

/// A frame whose header has arrived.
#[derive(Debug)]
pub struct Frame {
    pub kind: FrameKind,
    /// Whether the frame is the last frame of its message. Always true for control frames.
    pub last: bool,
    /// Content type of a message that begins with this frame. `None` for later frames of the message and for control
    /// frames.
    pub begins: Option<Content>,
    /// Number of payload bytes that have not arrived.
    left: u64,
    /// Mask of the payload, rotated so that the first byte of the mask applies to the next byte of the payload.
    mask: [u8; 4],
    /// Whether a part of the close code was lost.
    pub is_code_lost: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FrameKind {
    /// A message or a part of a message.
    Data,
    Close,
    /// Ping or pong.
    Ping,
}

/// The content type of a message.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    Text,
    /// Text that is compressed with `permessage-deflate`, or a compressed message that is skipped for this reason. It
    /// must be decompressed nevertheless, because later messages can refer to it.
    Compressed(Option<SkipReason>),
    Skipped(SkipReason),
}

impl FrameHeader {
    pub const fn new() -> Self {
        Self { bytes: [0; MAX_HEADER_BYTES], len: 0 }
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn is_complete(&self) -> bool {
        self.len == self.header_length()
    }

    /// Adds bytes to the header until it is complete. Returns the bytes after the header.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let mut rest = bytes;
        while let Some((byte, after)) = rest.split_first().filter(|_| !self.is_complete()) {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = *byte;
            }
            self.len += 1;
            rest = after;
        }
        rest
    }

    /// Returns the frame that the header describes. Returns `None` if the header violates the protocol. `masks` is
    /// true for the frames of a client, which must have a mask.
    pub fn frame(&self, masks: bool) -> Option<Frame> {
        let [first, second, ..] = self.bytes;
        let last = first & 0x80 != 0;
        // The first of three bits for extensions. `permessage-deflate` sets it in the first frame of a message.
        let extended = first & 0x70 != 0;
        let compressed = first & 0x70 == 0x40;
        let left = self.payload_length();
        let (kind, begins) = match first & 0x0f {
            0 => (FrameKind::Data, None),
            1 if compressed => (FrameKind::Data, Some(Content::Compressed(None))),
            2 if compressed => {
                (FrameKind::Data, Some(Content::Compressed(Some(SkipReason::Binary))))
            }
            1 if extended => (FrameKind::Data, Some(Content::Skipped(SkipReason::Compressed))),
            1 => (FrameKind::Data, Some(Content::Text)),
            2 => (FrameKind::Data, Some(Content::Skipped(SkipReason::Binary))),
            8 => (FrameKind::Close, None),
            9 | 10 => (FrameKind::Ping, None),
            _ => return None,
        };
        let sound = match kind {
            FrameKind::Data => left >> 63 == 0,
            FrameKind::Close | FrameKind::Ping => last && !extended && left <= MAX_CONTROL_PAYLOAD,
        };
        let codeless = kind == FrameKind::Close && left == 1;
        if !sound || codeless || masks != (second & 0x80 != 0) {
            return None;
        }
        Some(Frame { kind, last, begins, left, mask: self.mask(), is_code_lost: false })
    }

    /// Returns the length of the header in bytes. Returns 2 until the second byte, which determines the length, has
    /// arrived.
    fn header_length(&self) -> usize {
        let [_, second, ..] = self.bytes;
        if self.len < 2 {
            return 2;
        }
        let mask = if second & 0x80 == 0 { 0 } else { 4 };
        2 + self.length_bytes() + mask
    }

    fn length_bytes(&self) -> usize {
        let [_, second, ..] = self.bytes;
        match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        }
    }

    /// Returns the payload length in bytes.
    fn payload_length(&self) -> u64 {
        let [_, second, a, b, c, d, e, f, g, h, ..] = self.bytes;
        match self.length_bytes() {
            0 => u64::from(second & 0x7f),
            2 => u64::from(u16::from_be_bytes([a, b])),
            _ => u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        }
    }

    /// Returns the mask. A frame without a mask has the mask zero, which leaves the payload unchanged.
    fn mask(&self) -> [u8; 4] {
        let mut mask = [0; 4];
        let key = self.bytes.iter().skip(2 + self.length_bytes());
        for (place, byte) in mask.iter_mut().zip(key) {
            *place = *byte;
        }
        mask
    }
}

impl Frame {
    pub const fn remaining(&self) -> u64 {
        self.left
    }

    /// Splits `bytes` into payload of this frame and the rest. Counts this payload as received.
    pub fn split<'a>(&mut self, bytes: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let (piece, rest) = bytes.split_at_checked(left).unwrap_or((bytes, b""));
        self.left -= piece.len() as u64;
        (piece, rest)
    }

    /// Skips `bytes` bytes of the payload that were lost. Returns `false` if the frame has fewer bytes left.
    pub const fn skip(&mut self, bytes: u64) -> bool {
        let Some(left) = self.left.checked_sub(bytes) else {
            return false;
        };
        self.left = left;
        true
    }

    /// Removes the mask from `piece`, the next part of the payload, and appends it to `to`.
    pub fn unmask_into(&mut self, to: &mut Vec<u8>, piece: &[u8], cap: usize) {
        let start = to.len();
        append(to, piece, cap);
        for four in to.get_mut(start..).unwrap_or_default().chunks_mut(self.mask.len()) {
            for (byte, key) in four.iter_mut().zip(self.mask) {
                *byte ^= key;
            }
        }
        let shift = piece.len() % self.mask.len();
        self.mask.rotate_left(shift);
    }
}
