//! Splits a WebSocket session of the Responses API into calls, one for each response.
//!
//! The messages of a response are those of a stream of server-sent events. They are therefore passed on as such a
//! stream, and a turn is observed like any other call.

use std::collections::VecDeque;

use tokengauge_llm::dialect::TurnMessage;
use tokengauge_types::event::{Direction, ExchangeId};

/// Maximum number of requests that wait for their response. Servers generate one response at a time, and clients wait
/// for it. Further requests are not observed.
const MAX_OPEN: usize = 16;

/// Maximum number of bytes of messages that are taken from one chunk. A compressed chunk can contain more.
const MAX_TAKEN_BYTES: usize = 4 << 20;

/// The turns of a session, and the messages that [`take`](Self::take) has not returned yet.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Number of turns that have begun and not ended, in the messages so far.
    unfinished: usize,
    steps: Vec<TurnStep>,
    bytes: Vec<u8>,
    /// Whether bytes were lost before the next message. The reader of the stream skips all bytes up to an empty line.
    is_after_gap: bool,
    /// Open turns, oldest first. The owner of the requests adds and removes them.
    pub(crate) open: VecDeque<OpenTurn>,
}

#[derive(Debug)]
pub(crate) struct OpenTurn {
    pub(crate) id: ExchangeId,
    /// Whether the response has begun.
    pub(crate) has_head: bool,
}

/// A change of a turn, and the number of bytes that belong to it.
#[derive(Debug)]
pub(crate) struct TurnStep {
    pub(crate) kind: TurnStepKind,
    pub(crate) len: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TurnStepKind {
    /// A turn begins. The bytes are its request.
    Request,
    /// Messages for the oldest turn, as server-sent events.
    Response { status: u16 },
    /// Lost bytes of the response of the oldest turn.
    Gap(u64),
    /// The oldest turn ends.
    End,
}

impl Turns {
    /// Applies a text message of the session.
    pub(crate) fn message(&mut self, direction: Direction, text: &[u8]) {
        match direction {
            Direction::Request => {
                if TurnMessage::from_client(text) == TurnMessage::Request {
                    self.begin(text);
                }
            }
            Direction::Response => self.server(TurnMessage::from_server(text), text),
        }
    }

    /// Records the loss of bytes of the session.
    pub(crate) fn gap(&mut self, direction: Direction, bytes: u64) {
        if direction == Direction::Response && self.unfinished > 0 {
            self.lose(bytes);
        }
    }

    /// Returns the steps since the last call, and their bytes in order.
    pub(crate) fn take(&mut self) -> (Vec<TurnStep>, Vec<u8>) {
        (std::mem::take(&mut self.steps), std::mem::take(&mut self.bytes))
    }

    fn begin(&mut self, request: &[u8]) {
        if self.unfinished < MAX_OPEN {
            self.unfinished += 1;
            let request = if self.has_room(request.len()) { request } else { b"" };
            self.bytes.extend_from_slice(request);
            self.push(TurnStepKind::Request, request.len());
        }
    }

    fn server(&mut self, kind: TurnMessage, text: &[u8]) {
        if self.unfinished == 0 {
            // The request was too large or was lost.
            if kind != TurnMessage::First {
                return;
            }
            self.begin(b"");
        }
        let status = match kind {
            TurnMessage::Last { status } => status.unwrap_or(200),
            TurnMessage::Request | TurnMessage::First | TurnMessage::Other => 200,
        };
        let start = self.bytes.len();
        if self.has_room(text.len()) {
            if std::mem::take(&mut self.is_after_gap) {
                self.bytes.extend_from_slice(b"\n\n");
            }
            for line in text.split(|byte| matches!(byte, b'\n' | b'\r')) {
                self.bytes.extend_from_slice(b"data: ");
                self.bytes.extend_from_slice(line);
                self.bytes.push(b'\n');
            }
            self.bytes.push(b'\n');
            self.push(TurnStepKind::Response { status }, self.bytes.len() - start);
        } else {
            self.lose(text.len() as u64);
        }
        if matches!(kind, TurnMessage::Last { .. }) {
            self.unfinished -= 1;
            self.push(TurnStepKind::End, 0);
        }
    }

    fn lose(&mut self, bytes: u64) {
        self.is_after_gap = true;
        self.push(TurnStepKind::Gap(bytes), 0);
    }

    const fn has_room(&self, len: usize) -> bool {
        self.bytes.len() + len <= MAX_TAKEN_BYTES
    }

    /// Adds a step. Joins it with the last one if possible, so that many small messages take one step.
    fn push(&mut self, kind: TurnStepKind, len: usize) {
        match (self.steps.last_mut(), kind) {
            (Some(last), TurnStepKind::Response { .. }) if last.kind == kind => last.len += len,
            (Some(TurnStep { kind: TurnStepKind::Gap(before), .. }), TurnStepKind::Gap(bytes)) => {
                *before = before.saturating_add(bytes);
            }
            _ => self.steps.push(TurnStep { kind, len }),
        }
    }
}
