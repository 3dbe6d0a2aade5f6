//! Realtime sessions: no empty text, and memory that does not grow with the session.

use tokengauge_llm::dialect::{Event, Realtime};

use super::dialects::Said;
use super::memory::{Meter, aside};
use super::messages::flood;
use super::script::Script;

/// What a session may hold: 64 responses and transcriptions at once, of each which 64 texts came in pieces.
const STATE: usize = 64 << 10;

/// How often a session's messages are repeated before those places must be taken.
const FILLING: usize = 150;

/// More of the messages would take long and say nothing new.
const LONGEST: usize = 1_500;

/// A line is a message: of the client where it begins with `>`, else of the server.
pub fn realtime(input: &[u8]) {
    let filling = if Script::new(input).flag() { FILLING } else { 1 };
    let messages = input.get(1..).unwrap_or_default();
    let messages = messages.get(..LONGEST).unwrap_or(messages);
    let (mut session, mut meter, mut said) = (Realtime::new(), Meter::default(), Said::default());
    let mut go_on = |rounds| {
        flood(messages, rounds, |messages| {
            for message in messages.split(|byte| *byte == b'\n') {
                let mut out = |event: Event<'_>| aside(|| said.note(&event));
                meter.during(|| match message.strip_prefix(b">") {
                    Some(message) => session.client(message, &mut out),
                    None => session.server(message, &mut out),
                });
            }
        });
        meter.held()
    };
    let filled = go_on(0..filling);
    let still = go_on(filling..2 * filling);
    assert!(filled <= STATE, "{filled} held");
    // What is short has not filled its places yet.
    assert!(filling < FILLING || still <= filled + LONGEST, "{filled} held, then {still}");
    said.finish();
}
