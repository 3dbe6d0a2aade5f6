//! Fuzzes the framers.
//!
//! The frames must be the same for every cut of a body, memory must stay within the cap, and no state may remain for
//! the next body.

use tokengauge_llm::frame::{
    AwsEventStream, Frame, Framer, JsonFraming, JsonValues, MAX_FRAME_BYTES, Sse,
};

use super::memory::{Meter, aside};
use super::script::{Script, however_cut};

/// Bytes that a framer may hold above its cap: the state of a frame that is being shortened, without the frame.
pub const SLACK: usize = 1_024;

const CAPS: [usize; 4] = [MAX_FRAME_BYTES, 16, 100, 1_000];

/// Content types that determine the framing, and some that are wrong.
pub const CONTENT_TYPES: [Option<&str>; 8] = [
    None,
    Some("text/event-stream; charset=utf-8"),
    Some("application/json"),
    Some("application/x-ndjson"),
    Some("application/vnd.amazon.eventstream"),
    Some("text/plain"),
    Some("application/json-seq"),
    Some("TEXT/HTML"),
];

pub const JSON: [JsonFraming; 3] = [JsonFraming::Single, JsonFraming::Lines, JsonFraming::Array];

/// Tests server-sent events.
///
/// The data of the event and the current line are two buffers that grow by doubling. Their combined length is at most
/// the cap.
pub fn sse(input: &[u8]) {
    of_stream(input, |cap| Reading {
        holds: 2 * cap,
        ..Reading::new(Framer::Sse(Sse::new(cap)), cap)
    });
}

pub fn lines(input: &[u8]) {
    of_stream(input, |cap| Reading::new(Framer::JsonLines(JsonValues::lines(cap)), cap));
}

pub fn elements(input: &[u8]) {
    of_stream(input, |cap| Reading::new(Framer::JsonArray(JsonValues::array(cap)), cap));
}

pub fn aws(input: &[u8]) {
    of_stream(input, |cap| Reading::new(Framer::AwsEventStream(AwsEventStream::new(cap)), cap));
}

/// Tests any body, whose first bytes determine its framing.
pub fn sniffed(input: &[u8]) {
    let mut script = Script::new(input);
    let content_type = script.pick(&CONTENT_TYPES);
    let json = script.pick(&JSON);
    let body = Body::for_first_byte(script);
    body.frames(|| Reading::new(Framer::new(content_type, json), MAX_FRAME_BYTES));
}

fn of_stream(input: &[u8], reading: impl Fn(usize) -> Reading) {
    let mut script = Script::new(input);
    let cap = script.pick(&CAPS);
    let body = Body::for_first_byte(script);
    let reading = || reading(cap);
    let frames = body.frames(reading);
    let after_another = body.frames(|| {
        let mut reading = reading();
        reading.push(&[body.bytes]);
        reading.finish();
        reading.told.clear();
        reading
    });
    assert_eq!(after_another, frames, "differs after another body");
}

/// A body and the way in which it arrives.
struct Body<'a> {
    cuts: [usize; 2],
    /// Number of bytes before a loss, if any.
    lost_after: Option<usize>,
    bytes: &'a [u8],
}

impl<'a> Body<'a> {
    fn for_first_byte(mut script: Script<'a>) -> Self {
        let cuts = script.cuts();
        let lost_after = script.flag().then(|| usize::from(script.digit()));
        let bytes = script.rest();
        Self { cuts, lost_after, bytes }
    }

    fn frames(&self, reading: impl Fn() -> Reading) -> Vec<Told> {
        let first = self.lost_after.unwrap_or(0).min(self.bytes.len());
        let (before, after) = self.bytes.split_at(first);
        let frames = however_cut(after, self.cuts, |pieces| {
            let mut reading = reading();
            if self.lost_after.is_some() {
                reading.push(&[before]);
                reading.gap();
            }
            reading.push(pieces);
            reading.finish();
            reading.told
        });
        let most = self.bytes.len() + 2;
        assert!(frames.len() <= most, "{} frames", frames.len());
        frames
    }
}

/// A reported frame. Pieces of one body are joined, because their boundaries depend on how the body is cut.
#[derive(Debug, PartialEq)]
enum Told {
    Event(Vec<u8>, Vec<u8>),
    Exception(Vec<u8>, Vec<u8>),
    Stray(Vec<u8>),
    Piece(Vec<u8>),
    Whole,
    ParseError(&'static str),
}

/// A framer under test with a memory meter.
struct Reading {
    framer: Framer,
    cap: usize,
    /// Maximum bytes of unfinished data.
    holds: usize,
    meter: Meter,
    told: Vec<Told>,
}

impl Reading {
    fn new(framer: Framer, cap: usize) -> Self {
        Self { framer, cap, holds: cap, meter: Meter::default(), told: Vec::new() }
    }

    fn push(&mut self, pieces: &[&[u8]]) {
        for piece in pieces {
            let Self { framer, told, .. } = self;
            self.meter.during(|| framer.push(piece, &mut |frame| aside(|| note(told, frame))));
            self.within_bounds();
        }
    }

    fn gap(&mut self) {
        self.meter.during(|| self.framer.gap());
        self.meter.assert_holds_at_most(0, "after lost bytes");
    }

    fn finish(&mut self) {
        let Self { framer, told, .. } = self;
        self.meter.during(|| framer.finish(&mut |frame| aside(|| note(told, frame))));
        self.within_bounds();
        self.meter.assert_holds_at_most(0, "after the end");
    }

    fn within_bounds(&self) {
        self.meter.assert_holds_at_most(self.holds + SLACK, "in a frame");
        if let Some(Told::Event(name, data) | Told::Exception(name, data)) = self.told.last() {
            assert!(name.len() + data.len() <= self.cap);
        }
    }
}

fn note(told: &mut Vec<Told>, frame: Frame<'_>) {
    let next = match frame {
        Frame::Event { name, data } => Told::Event(name.to_vec(), data.to_vec()),
        Frame::Exception { name, data } => Told::Exception(name.to_vec(), data.to_vec()),
        Frame::BareJson(line) => Told::Stray(line.to_vec()),
        Frame::BodyChunk(piece) => {
            if let Some(Told::Piece(body)) = told.last_mut() {
                return body.extend_from_slice(piece);
            }
            Told::Piece(piece.to_vec())
        }
        Frame::BodyEnd => Told::Whole,
        Frame::ParseError(anomaly) => Told::ParseError(anomaly.as_str()),
    };
    told.push(next);
}
