//! Parses the headers of an AWS event stream message: the kind of the message and the name of its event.

use crate::frame::Frame;

/// Returns the frame for a message, or `None` if the headers violate the format. A missing header counts as empty. The
/// text of an exception is in the payload. The text of an `error` without payload is in a header.
pub fn frame<'a>(headers: &'a [u8], payload: &'a [u8]) -> Option<Frame<'a>> {
    let [mut message_type, mut event_type, mut exception_type]: [&[u8]; 3] = [b""; 3];
    let [mut error_code, mut error_message]: [&[u8]; 2] = [b""; 2];
    let mut rest = headers;
    while !rest.is_empty() {
        let (name, value, after) = split_header(rest)?;
        rest = after;
        match name {
            b":message-type" => message_type = value,
            b":event-type" => event_type = value,
            b":exception-type" => exception_type = value,
            b":error-code" => error_code = value,
            b":error-message" => error_message = value,
            _ => {}
        }
    }
    Some(match message_type {
        b"exception" => Frame::Exception { name: exception_type, data: payload },
        b"error" if payload.is_empty() => {
            Frame::Exception { name: error_code, data: error_message }
        }
        b"error" => Frame::Exception { name: error_code, data: payload },
        _ => Frame::Event { name: event_type, data: payload },
    })
}

/// Splits `bytes` after the first header. Returns the header's name and value, and the rest of `bytes`.
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
