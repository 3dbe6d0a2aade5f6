//! Encodes AWS event stream messages for tests.

/// Encodes a message with string headers.
pub(crate) fn message(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut written = Vec::new();
    for (name, value) in headers {
        written.push(u8::try_from(name.len()).unwrap());
        written.extend_from_slice(name.as_bytes());
        written.push(7);
        written.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
        written.extend_from_slice(value.as_bytes());
    }
    raw(&written, payload)
}

/// Encodes an event with a JSON payload.
pub(crate) fn event(event_type: &str, payload: &str) -> Vec<u8> {
    let headers = [
        (":event-type", event_type),
        (":content-type", "application/json"),
        (":message-type", "event"),
    ];
    message(&headers, payload.as_bytes())
}

/// Encodes an exception with a JSON payload.
pub(crate) fn exception(exception_type: &str, payload: &str) -> Vec<u8> {
    let headers = [
        (":exception-type", exception_type),
        (":content-type", "application/json"),
        (":message-type", "exception"),
    ];
    message(&headers, payload.as_bytes())
}

/// Encodes a message whose headers are already encoded.
pub(crate) fn raw(headers: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut message = prelude(headers.len() + payload.len() + 16, headers.len());
    message.extend_from_slice(headers);
    message.extend_from_slice(payload);
    message.extend_from_slice(&crc32fast::hash(&message).to_be_bytes());
    message
}

/// Encodes a prelude that announces these lengths.
pub(crate) fn prelude(total: usize, headers: usize) -> Vec<u8> {
    let mut prelude = Vec::new();
    prelude.extend_from_slice(&u32::try_from(total).unwrap().to_be_bytes());
    prelude.extend_from_slice(&u32::try_from(headers).unwrap().to_be_bytes());
    prelude.extend_from_slice(&crc32fast::hash(&prelude).to_be_bytes());
    prelude
}
