//! Builds bodies from messages, for each framing. Random bytes would almost never have a valid checksum.
//!
//! Each line of the input is a message. A word before a `{` is its name. A `!` before the name makes the message an
//! exception, if the framing supports exceptions.

use std::ops::Range;

/// Framing that turns messages into a body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Framed {
    /// The messages unchanged.
    Raw,
    Sse,
    Elements,
    Aws,
}

/// Type byte of a header whose value is a string.
const STRING: u8 = 7;

/// Number of bytes of an AWS message in addition to its headers and payload: two lengths and two checksums.
const AROUND: usize = 16;

impl Framed {
    pub const ALL: [Self; 4] = [Self::Raw, Self::Sse, Self::Elements, Self::Aws];

    pub fn body(self, input: &[u8]) -> Vec<u8> {
        if self == Self::Raw {
            return input.to_vec();
        }
        let mut body = Vec::new();
        for line in input.split(|byte| *byte == b'\n') {
            let (name, data) = named(line);
            match self {
                Self::Raw => {}
                Self::Sse => {
                    if !name.is_empty() {
                        body.extend([b"event: ", name, b"\n"].concat());
                    }
                    body.extend([b"data: ", data, b"\n\n"].concat());
                }
                Self::Elements => {
                    let between: &[u8] = if body.is_empty() { b"[" } else { b",\r\n" };
                    body.extend([between, data].concat());
                }
                Self::Aws => body.extend(aws(name, data)),
            }
        }
        if self == Self::Elements {
            body.push(b']');
        }
        body
    }
}

fn named(line: &[u8]) -> (&[u8], &[u8]) {
    let blank = line.iter().position(|byte| *byte == b' ');
    let name = blank.map_or(&b""[..], |at| &line[..at]);
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"!_.-".contains(byte);
    if name.is_empty() || !name.iter().all(is_name) {
        return (b"", line);
    }
    (name, &line[name.len() + 1..])
}

fn aws(name: &[u8], payload: &[u8]) -> Vec<u8> {
    let (kind, key, name): (&[u8], &[u8], &[u8]) = match name.strip_prefix(b"!") {
        Some(name) => (b"exception", b":exception-type", name),
        None => (b"event", b":event-type", name),
    };
    let mut headers = Vec::new();
    for (name, value) in [(key, name), (b":message-type", kind)] {
        headers.push(u8::try_from(name.len()).expect("one of three"));
        headers.extend(name);
        headers.push(STRING);
        headers.extend(u16::try_from(value.len()).unwrap_or(0).to_be_bytes());
        headers.extend(value);
    }
    let length = |bytes: usize| u32::try_from(bytes).expect("inputs are short").to_be_bytes();
    let mut message = Vec::new();
    message.extend(length(headers.len() + payload.len() + AROUND));
    message.extend(length(headers.len()));
    message.extend(crc32fast::hash(&message).to_be_bytes());
    message.extend(headers);
    message.extend(payload);
    message.extend(crc32fast::hash(&message).to_be_bytes());
    message
}

/// Repeats the lines of `input`, with the round's number in place of each `#`.
///
/// Numbers and ids then differ in each round, so the readers must distinguish as many items as there are rounds.
pub fn flood(input: &[u8], rounds: Range<usize>, mut take: impl FnMut(&[u8])) {
    for round in rounds {
        let number = round.to_string();
        let mut body = Vec::with_capacity(input.len() + 64);
        for byte in input {
            match byte {
                b'#' => body.extend(number.as_bytes()),
                byte => body.push(*byte),
            }
        }
        body.push(b'\n');
        take(&body);
    }
}
