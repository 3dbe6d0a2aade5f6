//! Encodes AWS event streams for fixtures.

/// Encodes each line `event-type {json}` as one message. A leading `!` makes the message an exception.
pub fn encoded(lines: &str) -> Vec<u8> {
    lines
        .lines()
        .filter_map(|line| line.split_once(' '))
        .flat_map(|(name, payload)| match name.strip_prefix('!') {
            Some(exception) => message("exception", ":exception-type", exception, payload),
            None => message("event", ":event-type", name, payload),
        })
        .collect()
}

fn message(kind: &str, name: &str, value: &str, payload: &str) -> Vec<u8> {
    let mut headers = Vec::new();
    for (name, value) in
        [(name, value), (":content-type", "application/json"), (":message-type", kind)]
    {
        headers.push(u8::try_from(name.len()).unwrap());
        headers.extend(name.as_bytes());
        headers.push(STRING);
        headers.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        headers.extend(value.as_bytes());
    }
    let length = |bytes: usize| u32::try_from(bytes).unwrap().to_be_bytes();
    let mut message = Vec::new();
    message.extend(length(headers.len() + payload.len() + AROUND));
    message.extend(length(headers.len()));
    message.extend(crc32fast::hash(&message).to_be_bytes());
    message.extend(headers);
    message.extend(payload.as_bytes());
    message.extend(crc32fast::hash(&message).to_be_bytes());
    message
}

/// Type byte of a header whose value is a string.
const STRING: u8 = 7;

/// Number of bytes of a message in addition to its headers and payload: two lengths and two checksums.
const AROUND: usize = 16;
