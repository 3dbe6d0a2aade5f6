//! Test helpers that read a response or a request split at every position. They assert that the result is the same.

use super::{Api, DetectedApi, Event, Part, RequestFacts, RequestReader, ResponseReader, Usage};
use crate::budget::RequestBudget;
use crate::frame::{Frame, Framer};
use tokengauge_types::label::Name;

pub const STREAM: Option<&str> = Some("text/event-stream");
pub const JSON: Option<&str> = Some("application/json");

/// A response without its body, and the request that it answers.
#[derive(Clone, Copy, Debug)]
pub struct TestResponse<'a> {
    pub api: Api,
    pub model: Option<&'a str>,
    pub status: u16,
    pub content_type: Option<&'a str>,
    /// Body of the request.
    pub request: Option<&'a str>,
}

impl<'a> TestResponse<'a> {
    pub const fn new(api: Api, content_type: Option<&'a str>) -> Self {
        Self { api, model: None, status: 200, content_type, request: None }
    }

    pub const fn to(self, request: &'a str) -> Self {
        let request = Some(request);
        Self { request, ..self }
    }

    pub const fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub const fn model(self, model: &'a str) -> Self {
        let model = Some(model);
        Self { model, ..self }
    }

    /// Returns the events for a body that arrives in these pieces, one event per line. Consecutive pieces of one text
    /// are joined.
    pub fn cut(self, pieces: &[&[u8]]) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let mut open: Option<(u32, Part, String)> = None;
        let mut framer = Framer::new(self.content_type, self.api.json());
        let mut asked = asked(self.api, self.request.unwrap_or_default());
        asked.model = self.model.and_then(Name::new).or(asked.model);
        let mut reader =
            ResponseReader::new(self.api, &asked, self.status, &RequestBudget::default());
        let mut event = |event: Event<'_>| {
            // Other tests cover these events: those of content capture and of empty responses.
            if let Event::Call { .. } | Event::Answered = event {
                return;
            }
            if let Event::Text { choice, part, text } = event {
                assert!(!text.is_empty());
                match &mut open {
                    Some((known, of, joined)) if (*known, *of) == (choice, part) => {
                        joined.push_str(text)
                    }
                    _ => {
                        lines.extend(open.replace((choice, part, text.to_owned())).map(show));
                    }
                }
                return;
            }
            lines.extend(open.take().map(show));
            lines.push(format!("{event:?}"));
        };
        let mut frame = |frame: Frame<'_>| reader.read(&frame, &mut event);
        for piece in pieces {
            framer.push(piece, &mut frame);
        }
        framer.finish(&mut frame);
        lines.extend(open.map(show));
        lines
    }

    /// Returns the events. Asserts that they are the same for the whole body, for single bytes and for every split in
    /// two.
    pub fn read(self, body: &[u8]) -> Vec<String> {
        let whole = self.cut(&[body]);
        let bytes: Vec<&[u8]> = body.chunks(1).collect();
        assert_eq!(self.cut(&bytes), whole, "byte by byte");
        for at in 0..=body.len() {
            let (first, second) = body.split_at(at);
            assert_eq!(self.cut(&[first, second]), whole, "cut at {at}");
        }
        whole
    }
}

fn show((choice, part, text): (u32, Part, String)) -> String {
    format!("{choice} {part:?} {text:?}")
}

/// Returns a stream of server-sent events without names.
pub fn events(messages: &[&str]) -> String {
    messages.iter().map(|message| format!("data: {message}\n\n")).collect()
}

/// Returns the line of a usage event. The counts are input, output, cache read, cache write and reasoning.
pub fn usage(counts: [Option<u64>; 5]) -> String {
    let [input, output, cache_read, cache_write, reasoning] = counts;
    let usage = Usage { input, output, cache_read, cache_write, reasoning, ..Usage::default() };
    format!("{:?}", Event::Usage(&usage))
}

pub fn failed(kind: Option<&str>) -> String {
    format!("{:?}", Event::Failed { kind })
}

pub fn stopped(choice: u32, reason: &str) -> String {
    format!("{:?}", Event::Stopped { choice, reason })
}

pub fn started(id: Option<&str>, model: Option<&str>) -> String {
    format!("{:?}", Event::Started { id, model })
}

/// Returns the facts of a request. Asserts that splitting the body at any position gives the same facts.
pub fn asked(api: Api, body: &str) -> RequestFacts {
    let found = DetectedApi { api, model: None, stream: None, body_decides: true };
    let read = |pieces: &[&[u8]]| {
        let mut reader = RequestReader::new(&found);
        pieces.iter().for_each(|piece| reader.push(piece));
        reader.finish()
    };
    let body = body.as_bytes();
    let whole = read(&[body]);
    assert_eq!(read(&body.chunks(1).collect::<Vec<_>>()), whole);
    for at in 0..=body.len() {
        let (first, second) = body.split_at(at);
        assert_eq!(read(&[first, second]), whole, "cut at {at}");
    }
    whole
}
