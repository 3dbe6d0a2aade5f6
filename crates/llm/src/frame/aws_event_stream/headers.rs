//! Parses the headers of an AWS event stream message, which determine its kind and type.

use crate::frame::Frame;

/// The headers that determine the kind and type of a message. A missing header is an empty string.
#[derive(Debug, Default)]
pub struct Headers<'a> {
    message_type: &'a [u8],
    event_type: &'a [u8],
    exception_type: &'a [u8],
    error_code: &'a [u8],
    error_message: &'a [u8],
}

impl<'a> Headers<'a> {
    /// Parses the headers. Returns `None` if they violate the format.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut headers = Self::default();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (name, value, after) = split_header(rest)?;
            rest = after;
            match name {
                b":message-type" => headers.message_type = value,
                b":event-type" => headers.event_type = value,
                b":exception-type" => headers.exception_type = value,
                b":error-code" => headers.error_code = value,
                b":error-message" => headers.error_message = value,
                _ => {}
            }
        }
        Some(headers)
    }

    /// Returns the frame for the message. The text of an error is in a header, and the text of an exception is in the
    /// payload.
    pub fn frame(&self, payload: &'a [u8]) -> Frame<'a> {
        match self.message_type {
            b"exception" => Frame::Exception { name: self.exception_type, data: payload },
            b"error" if payload.is_empty() => {
                Frame::Exception { name: self.error_code, data: self.error_message }
            }
            b"error" => Frame::Exception { name: self.error_code, data: payload },
            _ => Frame::Event { name: self.event_type, data: payload },
        }
    }
}

/// Splits off the first header. Returns its name, its value and the rest.
fn split_header(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    let (kind, rest) = rest.split_first()?;
    let (length, rest) = match kind {
        // True or false.
        0 | 1 => (0, rest),
        // Integers of 8, 16 and 32 bits.
        2 => (1, rest),
        3 => (2, rest),
        4 => (4, rest),
        // An integer of 64 bits or a timestamp.
        5 | 8 => (8, rest),
        // Bytes or a string.
        6 | 7 => {
            let (length, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_be_bytes(*length)), rest)
        }
        // A UUID.
        9 => (16, rest),
        _ => return None,
    };
    let (value, rest) = rest.split_at_checked(length)?;
    Some((name, value, rest))
}
