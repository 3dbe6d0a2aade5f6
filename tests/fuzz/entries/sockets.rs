//! Fuzzes WebSocket frames. The messages must be the same for every cut, and memory must stay within the cap.

use tokengauge_llm::frame::{MAX_FRAME_BYTES, Message, WebSocket};

use super::frames::SLACK;
use super::memory::{Meter, aside};
use super::script::{Script, however_cut};

const CAPS: [usize; 4] = [MAX_FRAME_BYTES, 16, 100, 1_000];

/// Tests the bytes of one side. The script sets the number of lost bytes.
pub fn websocket(input: &[u8]) {
    let mut script = Script::new(input);
    let of_client = script.flag();
    let cap = script.pick(&CAPS);
    let cuts = script.cuts();
    let lost = script.flag().then(|| (usize::from(script.digit()), u64::from(script.digit())));
    let bytes = script.rest();
    let first = lost.map_or(0, |(after, _)| after).min(bytes.len());
    let (before, after) = bytes.split_at(first);
    let messages = however_cut(after, cuts, |pieces| {
        let mut reading = Reading::new(of_client, cap);
        if let Some((_, count)) = lost {
            reading.push(&[before]);
            reading.gap(count);
        }
        reading.push(pieces);
        reading.finish();
        reading.told
    });
    assert!(messages.len() <= bytes.len() + 2, "more messages than bytes");
    let closed = messages.iter().position(Told::is_close);
    assert!(closed.is_none_or(|at| at + 1 == messages.len()), "a message follows the close");
}

#[derive(Debug, PartialEq)]
enum Told {
    Text(Vec<u8>),
    Other(String),
    Close(Option<u16>),
}

impl Told {
    const fn is_close(&self) -> bool {
        matches!(self, Self::Close(_))
    }
}

/// A reader under test with a memory meter.
struct Reading {
    reader: WebSocket,
    cap: usize,
    meter: Meter,
    told: Vec<Told>,
}

impl Reading {
    fn new(client: bool, cap: usize) -> Self {
        Self {
            reader: if client { WebSocket::client(cap) } else { WebSocket::server(cap) },
            cap,
            meter: Meter::default(),
            told: Vec::new(),
        }
    }

    fn push(&mut self, pieces: &[&[u8]]) {
        for piece in pieces {
            let Self { reader, told, .. } = self;
            self.meter.during(|| reader.push(piece, &mut |message| aside(|| note(told, message))));
            self.within_bounds();
        }
    }

    fn gap(&mut self, bytes: u64) {
        let Self { reader, told, .. } = self;
        self.meter.during(|| reader.gap(bytes, &mut |message| aside(|| note(told, message))));
        self.within_bounds();
    }

    fn finish(&mut self) {
        let Self { reader, told, .. } = self;
        self.meter.during(|| reader.finish(&mut |message| aside(|| note(told, message))));
        self.meter.assert_holds_at_most(0, "after the end");
    }

    fn within_bounds(&self) {
        self.meter.assert_holds_at_most(self.cap + SLACK, "in a message");
        if let Some(Told::Text(text)) = self.told.last() {
            assert!(text.len() <= self.cap);
        }
    }
}

fn note(told: &mut Vec<Told>, message: Message<'_>) {
    told.push(match message {
        Message::Text(text) => Told::Text(text.to_vec()),
        Message::Close(code) => Told::Close(code),
        Message::Skipped(_) | Message::ParseError(_) => Told::Other(format!("{message:?}")),
    });
}
