//! Splits the body of a gRPC call into messages, in bounded memory.
//!
//! A message is a byte for the compression, four bytes for the length, and the data. A small message is collected in the
//! buffer of its call. A larger message also takes a part of a budget that all calls share. A message for which the
//! budget has no room is read and dropped, so that Envoy never waits for memory here.

use std::sync::Arc;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Length of the prefix of a message.
const PREFIX: usize = 5;

/// Maximum length in bytes of a message that needs no part of the budget: a body chunk of the size in which Envoy reads
/// from a connection, and its prefix.
const SMALL: usize = (16 << 10) + 1_024;

/// Maximum length in bytes of any message. Envoy buffers at most 1 MiB per stream by default, and its largest setting in
/// common use is 16 MiB.
const MAX: usize = 16 << 20;

/// Memory in bytes for messages longer than [`SMALL`], of all calls together.
const BUDGET: usize = 32 << 20;

/// Memory for large messages.
#[derive(Clone, Debug)]
pub struct MessageBudget(Arc<Semaphore>);

impl Default for MessageBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(BUDGET)))
    }
}

/// A message, or the length of a message that was dropped.
#[derive(Debug, Eq, PartialEq)]
pub enum Message {
    Received(Bytes),
    Dropped(usize),
}

/// The body is not a sequence of uncompressed messages. No later message can be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Malformed;

/// Collects the messages of one call.
#[derive(Debug)]
pub struct MessageReader {
    buffer: BytesMut,
    budget: MessageBudget,
    /// The part of the budget for the message that is being collected or was returned last.
    permit: Option<OwnedSemaphorePermit>,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The next bytes are a prefix.
    Prefix,
    Collecting(usize),
    Dropping {
        length: usize,
        left: usize,
    },
}

impl MessageReader {
    pub fn new(budget: MessageBudget) -> Self {
        Self { buffer: BytesMut::new(), budget, permit: None, state: State::Prefix }
    }

    /// Adds received data. [`next`](Self::next) then returns all complete messages.
    pub fn push(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
        self.drop_bytes();
    }

    /// Returns the next complete message.
    pub fn next(&mut self) -> Result<Option<Message>, Malformed> {
        loop {
            match self.state {
                State::Prefix => {
                    self.permit = None;
                    if self.buffer.len() < PREFIX {
                        return Ok(None);
                    }
                    let is_compressed = self.buffer.get_u8() != 0;
                    let length = self.buffer.get_u32() as usize;
                    if is_compressed {
                        return Err(Malformed);
                    }
                    self.begin(length);
                }
                State::Collecting(length) => {
                    if self.buffer.len() < length {
                        return Ok(None);
                    }
                    self.state = State::Prefix;
                    return Ok(Some(Message::Received(self.buffer.split_to(length).freeze())));
                }
                State::Dropping { length, left } => {
                    if left > 0 {
                        return Ok(None);
                    }
                    self.state = State::Prefix;
                    return Ok(Some(Message::Dropped(length)));
                }
            }
        }
    }

    fn begin(&mut self, length: usize) {
        let has_room = length <= SMALL || (length <= MAX && self.reserve(length));
        if has_room {
            self.state = State::Collecting(length);
        } else {
            self.state = State::Dropping { length, left: length };
            self.drop_bytes();
        }
    }

    fn reserve(&mut self, length: usize) -> bool {
        let permits = u32::try_from(length).unwrap_or(u32::MAX);
        self.permit = Arc::clone(&self.budget.0).try_acquire_many_owned(permits).ok();
        self.permit.is_some()
    }

    fn drop_bytes(&mut self) {
        if let State::Dropping { left, .. } = &mut self.state {
            let dropped = self.buffer.len().min(*left);
            self.buffer.advance(dropped);
            *left -= dropped;
        }
    }
}

/// Appends a message with this content to `out`.
pub fn write(content: &[u8], out: &mut BytesMut) {
    out.put_u8(0);
    out.put_u32(u32::try_from(content.len()).unwrap_or(u32::MAX));
    out.put_slice(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(contents: &[&[u8]]) -> BytesMut {
        let mut bytes = BytesMut::new();
        contents.iter().for_each(|content| write(content, &mut bytes));
        bytes
    }

    fn read(reader: &mut MessageReader, data: &[u8], piece: usize) -> Vec<Message> {
        let mut found = Vec::new();
        for piece in data.chunks(piece) {
            reader.push(piece);
            while let Some(message) = reader.next().unwrap() {
                found.push(message);
            }
        }
        found
    }

    #[test]
    fn messages_do_not_depend_on_the_size_of_the_pieces() {
        let large = vec![b'x'; SMALL + 1];
        let data = framed(&[b"one", b"", &large, b"four"]);
        let expected: Vec<_> = [&b"one"[..], b"", &large, b"four"]
            .iter()
            .map(|content| Message::Received(Bytes::copy_from_slice(content)))
            .collect();
        for piece in [1, 2, 5, 7, 1_000, data.len()] {
            let mut reader = MessageReader::new(MessageBudget::default());
            assert_eq!(read(&mut reader, &data, piece), expected, "{piece}");
        }
    }

    #[test]
    fn a_message_without_room_is_dropped_and_the_next_one_is_read() {
        let budget = MessageBudget::default();
        let large = vec![b'x'; MAX];
        let data = framed(&[&large]);
        let mut first = MessageReader::new(budget.clone());
        let mut second = MessageReader::new(budget.clone());
        first.push(&data[..100]);
        second.push(&data[..100]);
        assert_eq!((first.next(), second.next()), (Ok(None), Ok(None)));
        let mut third = MessageReader::new(budget);
        let data = framed(&[&large, b"small"]);
        let found = read(&mut third, &data, 60_000);
        let small = Message::Received(Bytes::from_static(b"small"));
        assert_eq!(found, [Message::Dropped(MAX), small]);
        assert!(third.buffer.capacity() < 200_000, "{}", third.buffer.capacity());
        drop(first);
        let found = read(&mut third, &data, 60_000);
        assert!(matches!(&found[0], Message::Received(all) if all.len() == MAX));
    }

    #[test]
    fn a_message_that_is_too_long_is_dropped() {
        let mut reader = MessageReader::new(MessageBudget::default());
        let data = framed(&[&vec![0; MAX + 1], b"next"]);
        let found = read(&mut reader, &data, 1 << 16);
        assert_eq!(found[0], Message::Dropped(MAX + 1));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_compressed_message_is_malformed() {
        let mut reader = MessageReader::new(MessageBudget::default());
        reader.push(&[1, 0, 0, 0, 1, 0]);
        assert_eq!(reader.next(), Err(Malformed));
    }
}
