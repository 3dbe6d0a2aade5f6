//! WebSocket frames (RFC 6455) of one direction → messages, as a push parser.
//!
//! A text message that lies whole in one frame and one push, unmasked, is handed out without a copy; else it is put
//! together, and unmasked, in a buffer that is given back when it was large. A message whose content cannot be had
//! (binary, compressed, larger than the cap) is passed over and still counted. Frames say their length, so lost bytes
//! cost the message they stand in and no more; but what breaks the protocol leaves no place to start again from, and
//! nothing after it is read.

mod head;

use head::{Content, Frame, Head, Kind};

use super::ParseError;
use super::held::append;

/// The largest buffer that is kept from one message to the next. Text deltas take a few hundred bytes, and a session
/// has many of them; audio takes up to megabytes, and a session may then be silent for an hour.
const MOST_KEPT: usize = 16 * 1024;

/// Reads what one side of a WebSocket sends.
#[derive(Debug)]
pub struct WebSocket {
    cap: usize,
    /// Which side it is that sends: a client masks every frame, a server none.
    masks: bool,
    state: State,
    /// The message whose last frame has not come.
    message: Option<Content>,
    /// What has come of a text message, unmasked.
    text: Vec<u8>,
}

#[derive(Debug)]
enum State {
    /// In the head of a frame.
    Head(Head),
    /// In the payload of a frame.
    Payload(Frame),
    /// Closed or broken: nothing more is read.
    Over,
}

/// What one side said.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Message<'a> {
    /// A text message, whole. UTF-8 is not checked here.
    Text(&'a [u8]),
    /// A message whose content is not read.
    Skipped(SkipReason),
    /// The side closes, with its code where it gave one. It says nothing more.
    Close(Option<u16>),
    /// Something was odd.
    ParseError(ParseError),
}

/// Why the content of a message is not read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SkipReason {
    Binary,
    /// Changed by an extension that both sides agreed on: compressed, by the only one in use.
    Compressed,
    Oversize,
    /// Part of it was lost before the observer saw it.
    Lost,
}

impl WebSocket {
    /// Of a client. `cap`: the most bytes of a message that are read.
    pub const fn client(cap: usize) -> Self {
        Self::new(cap, true)
    }

    /// Of a server.
    pub const fn server(cap: usize) -> Self {
        Self::new(cap, false)
    }

    const fn new(cap: usize, masks: bool) -> Self {
        Self { cap, masks, state: State::Head(Head::new()), message: None, text: Vec::new() }
    }

    /// Takes the next bytes and calls `out` for everything that they complete.
    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(Message<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = match &mut self.state {
                State::Head(head) => {
                    let after = head.push(rest);
                    if head.is_whole() {
                        let frame = head.frame(self.masks);
                        self.begin(frame, out);
                    }
                    after
                }
                State::Payload(frame) => {
                    let (piece, after) = frame.split(rest);
                    self.payload(piece, out);
                    after
                }
                State::Over => return,
            };
        }
    }

    /// `bytes` were lost here. Where all of them belong to one payload, only its message is; else the place of the next
    /// frame is lost with them.
    pub fn gap(&mut self, bytes: u64, out: &mut impl FnMut(Message<'_>)) {
        let State::Payload(frame) = &mut self.state else {
            return self.give_up();
        };
        if !frame.skip(bytes) {
            return self.give_up();
        }
        if let (Kind::Data, Some(content)) = (frame.kind, &mut self.message) {
            *content = Content::Skipped(SkipReason::Lost);
            self.text = Vec::new();
        }
        self.end_frame(out);
    }

    /// The connection is over.
    pub fn finish(&mut self, out: &mut impl FnMut(Message<'_>)) {
        let within = match &self.state {
            State::Head(head) => !head.is_empty() || self.message.is_some(),
            State::Payload(_) => true,
            State::Over => false,
        };
        self.give_up();
        if within {
            out(Message::ParseError(ParseError::Unterminated));
        }
    }

    /// How many bytes are held.
    #[cfg(test)]
    fn capacity(&self) -> usize {
        self.text.capacity()
    }

    /// The head of a frame was read; `None`: it breaks the protocol.
    fn begin(&mut self, frame: Option<Frame>, out: &mut impl FnMut(Message<'_>)) {
        // A message's frames come in a row, but for control frames between them.
        let fits = |frame: &Frame| match frame.kind {
            Kind::Data => frame.begins.is_some() == self.message.is_none(),
            Kind::Close | Kind::Ping => true,
        };
        let Some(frame) = frame.filter(fits) else {
            self.give_up();
            return out(Message::ParseError(ParseError::BadFrame));
        };
        self.message = frame.begins.or(self.message);
        if let (Kind::Data, Some(Content::Text)) = (frame.kind, self.message) {
            let room = self.cap.saturating_sub(self.text.len());
            if usize::try_from(frame.left()).map_or(true, |left| left > room) {
                self.message = Some(Content::Skipped(SkipReason::Oversize));
                self.text = Vec::new();
                out(Message::ParseError(ParseError::Oversize));
            }
        }
        self.state = State::Payload(frame);
        self.end_frame(out);
    }

    /// The next `piece` of the payload.
    fn payload(&mut self, piece: &[u8], out: &mut impl FnMut(Message<'_>)) {
        let State::Payload(frame) = &mut self.state else {
            return;
        };
        match (frame.kind, self.message) {
            (Kind::Data, Some(Content::Text)) => {
                let whole = frame.last && frame.left() == 0 && self.text.is_empty();
                if whole && !self.masks {
                    self.message = None;
                    self.state = State::Head(Head::new());
                    return out(Message::Text(piece));
                }
                let start = self.text.len();
                append(&mut self.text, piece, self.cap);
                if self.masks {
                    frame.unmask(self.text.get_mut(start..).unwrap_or_default());
                }
            }
            (Kind::Close, _) => frame.note_code(piece),
            (Kind::Data | Kind::Ping, _) => {}
        }
        self.end_frame(out);
    }

    /// Ends the frame that is being read if all of it has come.
    fn end_frame(&mut self, out: &mut impl FnMut(Message<'_>)) {
        let State::Payload(frame) = &self.state else {
            return;
        };
        if frame.left() > 0 {
            return;
        }
        match frame.kind {
            Kind::Close => {
                let code = frame.code();
                self.give_up();
                return out(Message::Close(code));
            }
            Kind::Data if frame.last => self.end_message(out),
            Kind::Data | Kind::Ping => {}
        }
        self.state = State::Head(Head::new());
    }

    fn end_message(&mut self, out: &mut impl FnMut(Message<'_>)) {
        match self.message.take() {
            Some(Content::Text) => out(Message::Text(&self.text)),
            Some(Content::Skipped(why)) => out(Message::Skipped(why)),
            None => {}
        }
        self.text.clear();
        if self.text.capacity() > MOST_KEPT {
            self.text = Vec::new();
        }
    }

    fn give_up(&mut self) {
        self.state = State::Over;
        self.message = None;
        self.text = Vec::new();
    }
}

#[cfg(test)]
mod tests;
