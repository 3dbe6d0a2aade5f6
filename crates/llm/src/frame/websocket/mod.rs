//! Parses one direction of a WebSocket connection (RFC 6455) into messages.
//!
//! A text message that arrives unmasked in one frame and one push is emitted without a copy. Other text messages are
//! unmasked and assembled in a buffer, and a large buffer is freed after use. A text message above the size limit is
//! shortened while it arrives. A message with unreadable content (binary, or compressed in an unknown way) is skipped and
//! still counted. Frames begin with their length, so lost bytes affect
//! only the message that contains them. After a protocol violation, the parser does not know where the next frame
//! begins and ignores the rest.

mod frame_header;

use frame_header::{Content, Frame, FrameHeader, FrameKind};

use super::ParseError;
use super::shortener::{Shortener, append};
use crate::decode::MessageInflater;

/// Maximum size in bytes of a buffer that is kept for the next message. Many text messages of a few hundred bytes can
/// reuse a buffer. A larger buffer is freed: audio messages can have megabytes, and the session may be idle for an
/// hour afterwards.
const MAX_KEPT_BYTES: usize = 16 * 1024;

/// Number of bytes of a message above the size limit that are unmasked at a time.
const UNMASKED_BYTES: usize = 4 * 1024;

/// Parses the WebSocket data that one end of the connection sends.
#[derive(Debug)]
pub struct WebSocket {
    cap: usize,
    /// Whether the sender masks its frames. Clients mask all frames, and servers mask none.
    masks: bool,
    state: MessageState,
    /// The current message. `None` between messages.
    message: Option<Content>,
    /// Received part of a text message or of a close code, without the mask.
    text: Vec<u8>,
    /// Shortens a text message that exceeds the size limit.
    oversize: Option<Box<Shortener>>,
    /// Decompresses messages, if the peers have agreed on compression.
    inflater: Option<Box<MessageInflater>>,
}

#[derive(Debug)]
enum MessageState {
    /// Inside the header of a frame.
    Header(FrameHeader),
    /// Inside the payload of a frame.
    Payload(Frame),
    /// Terminal state after a close frame or a protocol violation. Later data is ignored.
    Stopped,
}

/// A message, or another result of parsing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Message<'a> {
    /// A complete text message. The parser does not check that the text is valid UTF-8.
    Text(&'a [u8]),
    /// A message whose content was not read.
    Skipped(SkipReason),
    /// The sender closes the connection. `None` if the sender gave no close code. No message follows.
    Close(Option<u16>),
    /// A parse error.
    ParseError(ParseError),
}

/// Why the content of a message was not read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SkipReason {
    Binary,
    /// The content is compressed and cannot be read, or was changed by an extension other than `permessage-deflate`.
    Compressed,
    /// The message exceeds the size limit and is not JSON.
    Oversize,
    /// Part of the message was lost before this parser received it.
    Lost,
}

impl WebSocket {
    /// Creates a parser for the data of a client. Messages of more than `cap` bytes are shortened.
    pub const fn client(cap: usize) -> Self {
        Self::new(cap, true)
    }

    /// Creates a parser for the data of a server. Messages of more than `cap` bytes are shortened.
    pub const fn server(cap: usize) -> Self {
        Self::new(cap, false)
    }

    const fn new(cap: usize, masks: bool) -> Self {
        Self {
            cap,
            masks,
            state: MessageState::Header(FrameHeader::new()),
            message: None,
            text: Vec::new(),
            oversize: None,
            inflater: None,
        }
    }

    /// Reads compressed messages, too.
    pub fn with_inflater(mut self, inflater: MessageInflater) -> Self {
        self.inflater = Some(Box::new(inflater));
        self
    }

    /// Parses the next bytes. Calls `out` for every message that is now complete.
    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(Message<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = match &mut self.state {
                MessageState::Header(header) => {
                    let after = header.push(rest);
                    if header.is_complete() {
                        let frame = header.frame(self.masks);
                        self.begin_frame(frame, out);
                    }
                    after
                }
                MessageState::Payload(frame) => {
                    let (piece, after) = frame.split(rest);
                    self.read_payload(piece, out);
                    after
                }
                MessageState::Stopped => return,
            };
        }
    }

    /// Handles the loss of `bytes` bytes. If the lost bytes are in the payload of one frame, only the message of this
    /// frame is lost. In other cases, the start of the next frame is unknown, and the rest of the connection is
    /// ignored.
    pub fn gap(&mut self, bytes: u64, out: &mut impl FnMut(Message<'_>)) {
        let MessageState::Payload(frame) = &mut self.state else {
            return self.stop_parsing();
        };
        if !frame.skip(bytes) {
            return self.stop_parsing();
        }
        match (frame.kind, &mut self.message) {
            (FrameKind::Data, Some(content)) => {
                if let (Content::Compressed(_), Some(inflater)) = (*content, &mut self.inflater) {
                    inflater.lose();
                }
                *content = Content::Skipped(SkipReason::Lost);
                self.free_text();
            }
            (FrameKind::Close, _) => frame.is_code_lost |= self.text.len() < size_of::<u16>(),
            (FrameKind::Data | FrameKind::Ping, _) => {}
        }
        self.end_frame(out);
    }

    /// Ends the connection. Reports an error if the connection ended inside a message.
    pub fn finish(&mut self, out: &mut impl FnMut(Message<'_>)) {
        let within = match &self.state {
            MessageState::Header(header) => !header.is_empty() || self.message.is_some(),
            MessageState::Payload(_) => true,
            MessageState::Stopped => false,
        };
        self.stop_parsing();
        if within {
            out(Message::ParseError(ParseError::Unterminated));
        }
    }

    /// Returns the allocated bytes of an incomplete message.
    pub fn held_bytes(&self) -> usize {
        self.text.capacity() + self.oversize.as_ref().map_or(0, |shortener| shortener.capacity())
    }

    /// Discards the current message, because the memory budget is used up. Parsing continues with the next message.
    pub fn discard_message(&mut self) {
        self.message = self.message.map(|content| match content {
            Content::Compressed(_) => Content::Compressed(Some(SkipReason::Lost)),
            Content::Text | Content::Skipped(_) => Content::Skipped(SkipReason::Lost),
        });
        self.free_text();
    }

    /// Starts to read the payload of a frame. `frame` is `None` if the header violates the protocol.
    fn begin_frame(&mut self, frame: Option<Frame>, out: &mut impl FnMut(Message<'_>)) {
        // The frames of a message are consecutive, but control frames can be between them.
        let fits = |frame: &Frame| match frame.kind {
            FrameKind::Data => frame.begins.is_some() == self.message.is_none(),
            FrameKind::Close | FrameKind::Ping => true,
        };
        let Some(frame) = frame.filter(fits) else {
            self.stop_parsing();
            return out(Message::ParseError(ParseError::BadFrame));
        };
        self.message = frame.begins.or(self.message);
        if let Some(Content::Compressed(_)) = frame.begins
            && !self.inflater.as_mut().is_some_and(|inflater| inflater.begin_message())
        {
            self.message = Some(Content::Skipped(SkipReason::Compressed));
        }
        if frame.kind == FrameKind::Close {
            // The message before the violation remains incomplete.
            self.message = None;
            self.free_text();
        }
        if let (FrameKind::Data, Some(Content::Text), None) =
            (frame.kind, self.message, &self.oversize)
        {
            let room = self.cap.saturating_sub(self.text.len());
            if usize::try_from(frame.remaining()).map_or(true, |left| left > room) {
                let mut shortener = Box::new(Shortener::new(self.cap));
                shortener.push(&std::mem::take(&mut self.text));
                self.oversize = Some(shortener);
                out(Message::ParseError(ParseError::Oversize));
            }
        }
        self.state = MessageState::Payload(frame);
        self.end_frame(out);
    }

    /// Processes `piece`, the next part of the payload.
    fn read_payload(&mut self, piece: &[u8], out: &mut impl FnMut(Message<'_>)) {
        let MessageState::Payload(frame) = &mut self.state else {
            return;
        };
        match (frame.kind, self.message) {
            (FrameKind::Data, Some(Content::Text)) if self.oversize.is_some() => {
                for part in piece.chunks(UNMASKED_BYTES) {
                    let mut plain = Vec::new();
                    frame.unmask_into(&mut plain, part, UNMASKED_BYTES);
                    self.oversize.iter_mut().for_each(|shortener| shortener.push(&plain));
                }
            }
            (FrameKind::Data, Some(Content::Text)) => {
                let whole = frame.last && frame.remaining() == 0 && self.text.is_empty();
                if whole && !self.masks {
                    self.message = None;
                    self.state = MessageState::Header(FrameHeader::new());
                    return out(Message::Text(piece));
                }
                frame.unmask_into(&mut self.text, piece, self.cap);
            }
            (FrameKind::Data, Some(Content::Compressed(_))) => {
                let mut plain = Vec::with_capacity(piece.len());
                frame.unmask_into(&mut plain, piece, piece.len());
                self.inflate(Some(&plain), out);
            }
            (FrameKind::Close, _) => {
                // The text after the close code is not read.
                let missing = size_of::<u16>().saturating_sub(self.text.len());
                frame.unmask_into(&mut self.text, piece.get(..missing).unwrap_or(piece), self.cap);
            }
            (FrameKind::Data | FrameKind::Ping, _) => {}
        }
        self.end_frame(out);
    }

    /// Ends the current frame if all of its payload has arrived.
    fn end_frame(&mut self, out: &mut impl FnMut(Message<'_>)) {
        let MessageState::Payload(frame) = &self.state else {
            return;
        };
        if frame.remaining() > 0 {
            return;
        }
        match frame.kind {
            FrameKind::Close => {
                let code = self.text.first_chunk().filter(|_| !frame.is_code_lost);
                let code = code.map(|code| u16::from_be_bytes(*code));
                self.stop_parsing();
                return out(Message::Close(code));
            }
            FrameKind::Data if frame.last => self.end_message(out),
            FrameKind::Data | FrameKind::Ping => {}
        }
        self.state = MessageState::Header(FrameHeader::new());
    }

    /// Decompresses `part` of the current message. `None` is the end of the message.
    fn inflate(&mut self, part: Option<&[u8]>, out: &mut impl FnMut(Message<'_>)) {
        let (Some(Content::Compressed(skipped)), Some(inflater)) =
            (&mut self.message, &mut self.inflater)
        else {
            return;
        };
        let (text, oversize, cap) = (&mut self.text, &mut self.oversize, self.cap);
        let was_oversize = oversize.is_some();
        let mut keep = |plain: &[u8]| {
            if skipped.is_some() {
                return;
            }
            if oversize.is_none() && plain.len() > cap.saturating_sub(text.len()) {
                let mut shortener = Box::new(Shortener::new(cap));
                shortener.push(&std::mem::take(text));
                *oversize = Some(shortener);
            }
            match oversize {
                Some(shortener) => shortener.push(plain),
                None => append(text, plain, cap),
            }
        };
        let inflated = match part {
            Some(part) => inflater.push(part, &mut keep),
            None => inflater.end_message(&mut keep),
        };
        let error = match inflated {
            Ok(()) if self.oversize.is_some() && !was_oversize => ParseError::Oversize,
            Ok(()) => return,
            Err(error) => {
                self.message = Some(Content::Skipped(SkipReason::Compressed));
                self.free_text();
                error.into()
            }
        };
        out(Message::ParseError(error));
    }

    fn end_message(&mut self, out: &mut impl FnMut(Message<'_>)) {
        self.inflate(None, out);
        match (self.message.take(), self.oversize.take()) {
            (Some(Content::Text | Content::Compressed(None)), Some(shortener)) => {
                match shortener.finish() {
                    Some(text) => out(Message::Text(&text)),
                    None => out(Message::Skipped(SkipReason::Oversize)),
                }
            }
            (Some(Content::Text | Content::Compressed(None)), None) => {
                out(Message::Text(&self.text));
            }
            (Some(Content::Skipped(why) | Content::Compressed(Some(why))), _) => {
                out(Message::Skipped(why));
            }
            (None, _) => {}
        }
        self.text.clear();
        if self.text.capacity() > MAX_KEPT_BYTES {
            self.text = Vec::new();
        }
    }

    fn stop_parsing(&mut self) {
        self.state = MessageState::Stopped;
        self.message = None;
        self.free_text();
    }

    fn free_text(&mut self) {
        self.text = Vec::new();
        self.oversize = None;
    }
}

#[cfg(test)]
mod tests;
