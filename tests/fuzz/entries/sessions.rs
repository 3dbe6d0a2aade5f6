//! Fuzzes Realtime sessions. No text may be empty, and memory must not grow with the session.

use tokengauge_llm::dialect::{Event, Realtime};

use super::dialects::Said;
use super::memory::{Meter, aside};
use super::messages::flood;
use super::script::Script;

/// Maximum memory of a session in bytes, for 64 concurrent responses and transcriptions with 64 texts in pieces each.
const STATE: usize = 64 << 10;

/// Repetitions of a session's messages that fill those 64 entries.
const FILLING: usize = 150;

/// Maximum bytes of the messages. More bytes are slow and cover nothing new.
const LONGEST: usize = 1_500;

/// Tests a session. Each line is a message, from the client if it begins with `>` and otherwise from the server.
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
    // A short session has not filled its entries yet.
    assert!(filling < FILLING || still <= filled + LONGEST, "{filled} held, then {still}");
    said.finish();
}
