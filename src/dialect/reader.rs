//! Reads a response's events from its frames, whatever the API.

use super::openai;
use super::{Api, Event};
use crate::frame::Frame;

/// The first status whose body is an error and nothing else.
const FIRST_ERROR: u16 = 400;

/// Reads the response of one call.
#[derive(Debug)]
pub struct Reader {
    api: Api,
    /// The status says that the answer is an error.
    failed: bool,
    /// Each made when the first frame of its kind comes.
    stream: Option<Box<openai::Stream>>,
    body: Option<Box<openai::Body>>,
}

impl Reader {
    pub fn new(api: Api) -> Self {
        Self {
            api,
            failed: false,
            stream: None,
            body: None,
        }
    }

    /// The response's status: the body of an error status is only an error.
    pub fn status(&mut self, status: u16) {
        self.failed = status >= FIRST_ERROR;
    }

    /// Takes the next frame and calls `out` for everything that it says.
    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        let (api, failed) = (self.api, self.failed);
        match frame {
            Frame::Event { name, data } => {
                let stream = || Box::new(openai::Stream::new(api, failed));
                self.stream.get_or_insert_with(stream).read(name, data, out);
            }
            Frame::Piece(bytes) => {
                let body = || Box::new(openai::Body::new(api, failed));
                self.body.get_or_insert_with(body).piece(bytes, out);
            }
            Frame::Whole => {
                if let Some(body) = self.body.take() {
                    body.end(out);
                }
            }
            Frame::Odd(anomaly) => out(Event::Odd(*anomaly)),
        }
    }
}
