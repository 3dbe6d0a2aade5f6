//! Reads a response's events from its frames, whatever the API.

use super::{Api, Event};
use crate::frame::Frame;

/// Reads the response of one call.
#[derive(Debug)]
pub struct Reader {
    status: u16,
}

impl Reader {
    pub fn new(_api: Api) -> Self {
        Self { status: 200 }
    }

    /// The response's status: the body of an error status is only an error.
    pub fn status(&mut self, status: u16) {
        self.status = status;
    }

    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        if let Frame::Odd(anomaly) = frame {
            out(Event::Odd(*anomaly));
        }
    }
}
