//! Parses the messages of a WebSocket. The two directions are parsed independently.

mod turns;

pub(crate) use turns::{OpenTurn, TurnStep, TurnStepKind, Turns};

use tokengauge_llm::budget::{MemoryPermit, RequestBudget};
use tokengauge_llm::decode::MessageInflater;
use tokengauge_llm::frame::{self, Message, ParseError, SkipReason, WebSocket};
use tokengauge_measure::record::{self, CloseFrame};
use tokengauge_types::event::Direction;

#[derive(Debug)]
pub(super) struct WebSocketSession {
    client: WebSocket,
    server: WebSocket,
    /// Memory of the incomplete messages of both directions.
    memory: MemoryPermit,
    facts: Facts,
}

#[derive(Debug, Default)]
struct Facts {
    record: record::WebSocket,
    parse_errors: Vec<(ParseError, u32)>,
}

impl WebSocketSession {
    /// Creates a session. `extensions` is the response header with the extensions on which the peers have agreed.
    pub(super) fn new(extensions: Option<&str>, budget: &RequestBudget) -> Self {
        let mut client = WebSocket::client(frame::MAX_FRAME_BYTES);
        let mut server = WebSocket::server(frame::MAX_FRAME_BYTES);
        if let Some([of_client, of_server]) =
            extensions.and_then(|extensions| MessageInflater::negotiated(extensions, budget))
        {
            client = client.with_inflater(of_client);
            server = server.with_inflater(of_server);
        }
        Self { client, server, memory: budget.hold(), facts: Facts::default() }
    }

    /// Parses bytes sent in `direction`, and calls `out` for each text message. Returns `false` if the memory budget
    /// has no room for an incomplete message. This message is then not parsed.
    pub(super) fn push(
        &mut self,
        direction: Direction,
        bytes: &[u8],
        out: &mut impl FnMut(&[u8]),
    ) -> bool {
        let (reader, facts) = self.side(direction);
        reader.push(bytes, &mut |message| facts.message(direction, message, out));
        if self.account() {
            return true;
        }
        let (reader, facts) = self.side(direction);
        reader.discard_message();
        facts.record.lost = true;
        ParseError::Budget.add_to(&mut facts.parse_errors);
        self.account();
        false
    }

    /// Records that `bytes` bytes of `direction` were lost.
    pub(super) fn gap(&mut self, direction: Direction, bytes: u64) {
        let (reader, facts) = self.side(direction);
        reader.gap(bytes, &mut |message| facts.message(direction, message, &mut |_| {}));
        facts.record.lost = true;
        self.account();
    }

    /// Records that the peer that sends in `direction` has closed its half of the connection.
    pub(super) fn closed(&mut self, direction: Direction) {
        let (reader, facts) = self.side(direction);
        reader.finish(&mut |message| facts.message(direction, message, &mut |_| {}));
        facts.record.left.get_or_insert(direction);
        self.account();
    }

    /// Ends both directions and returns the parse errors. If `closed` is false, the connection was interrupted, and an
    /// incomplete last message is not a parse error.
    pub(super) fn finish(&mut self, closed: bool) -> Vec<(ParseError, u32)> {
        let Self { client, server, facts, .. } = self;
        for (reader, direction) in [(client, Direction::Request), (server, Direction::Response)] {
            reader.finish(&mut |message| facts.message(direction, message, &mut |_| {}));
        }
        let mut errors = std::mem::take(&mut facts.parse_errors);
        errors.retain(|(error, _)| closed || *error != ParseError::Unterminated);
        errors
    }

    pub(super) const fn facts(&self) -> &record::WebSocket {
        &self.facts.record
    }

    fn account(&mut self) -> bool {
        self.memory.resize(self.client.held_bytes() + self.server.held_bytes())
    }

    const fn side(&mut self, direction: Direction) -> (&mut WebSocket, &mut Facts) {
        match direction {
            Direction::Request => (&mut self.client, &mut self.facts),
            Direction::Response => (&mut self.server, &mut self.facts),
        }
    }
}

impl Facts {
    fn message(&mut self, direction: Direction, message: Message<'_>, out: &mut impl FnMut(&[u8])) {
        let Self { record, parse_errors } = self;
        match message {
            Message::Text(text) => {
                record.count(direction);
                out(text);
            }
            Message::Skipped(why) => {
                record.count(direction);
                record.compressed |= why == SkipReason::Compressed;
            }
            Message::Close(code) => {
                let by = direction;
                record.closed.get_or_insert(CloseFrame { by, code });
            }
            Message::ParseError(error) => {
                record.lost |= error == ParseError::BadFrame;
                error.add_to(parse_errors);
            }
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod turn_tests;
