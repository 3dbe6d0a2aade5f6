//! Decompresses the messages that one side of a WebSocket sends with `permessage-deflate` (RFC 7692).
//!
//! By default, a message can refer to the text of earlier messages (context takeover). All messages of a direction must
//! then be decompressed in order, and one decompressor is kept between them. The extension can also reset the
//! compression for each message. Then no memory is held between messages.

use std::fmt;

use flate2::{Decompress, FlushDecompress, Status};

use super::bounds::{Bounds, expansion};
use super::flate::DECOMPRESSOR_BYTES;
use super::{DecodeError, OUTPUT_BUFFER_BYTES};
use crate::budget::{MemoryPermit, RequestBudget};

/// The end of a message that the sender removes (RFC 7692, section 7.2.1).
const MESSAGE_END: [u8; 4] = [0, 0, 0xff, 0xff];

/// Decompresses the messages of one direction. After an error with context takeover, the later messages cannot be read.
pub struct MessageInflater {
    keeps_context: bool,
    budget: RequestBudget,
    state: InflaterState,
    /// Compressed and decompressed bytes of the current message.
    taken: u64,
    written: u64,
}

enum InflaterState {
    Fresh,
    Active(
        Decompress,
        #[expect(dead_code, reason = "held until the decompressor is freed")] MemoryPermit,
    ),
    /// The sender has ended its deflate stream with the current message. The next message begins a new one.
    Ended,
    /// Not usable until the end of the message, or of the connection with context takeover.
    Failed,
}

impl MessageInflater {
    /// Creates decompressors for the messages of the client and of the server. `extensions` is the value of the header
    /// `Sec-WebSocket-Extensions` in the response. Returns `None` if it does not contain `permessage-deflate`.
    pub fn negotiated(extensions: &str, budget: &RequestBudget) -> Option<[Self; 2]> {
        let mut offers = extensions.split(',').map(|offer| offer.split(';').map(str::trim));
        let parameters = offers.find_map(|mut offer| {
            let is_deflate = offer.next()?.eq_ignore_ascii_case("permessage-deflate");
            is_deflate.then_some(offer)
        })?;
        let resets = |name: &str| {
            let mut parameters = parameters.clone();
            parameters.any(|parameter| parameter.eq_ignore_ascii_case(name))
        };
        let resets = ["client_no_context_takeover", "server_no_context_takeover"].map(resets);
        Some(resets.map(|resets| Self::new(!resets, budget)))
    }

    fn new(keeps_context: bool, budget: &RequestBudget) -> Self {
        let budget = budget.clone();
        Self { keeps_context, budget, state: InflaterState::Fresh, taken: 0, written: 0 }
    }

    /// Begins a message. Returns whether it can be read.
    pub fn begin_message(&mut self) -> bool {
        (self.taken, self.written) = (0, 0);
        if !self.keeps_context || matches!(self.state, InflaterState::Ended) {
            self.state = InflaterState::Fresh;
        }
        !matches!(self.state, InflaterState::Failed)
    }

    /// Decompresses the next part of a message, and passes the output to `out`.
    ///
    /// # Errors
    /// Fails once per message if the data is corrupt, or if the message or all bodies together exceed a limit. Later
    /// parts of the message are ignored.
    pub fn push(&mut self, bytes: &[u8], out: &mut dyn FnMut(&[u8])) -> Result<(), DecodeError> {
        self.taken += bytes.len() as u64;
        let inflated = self.inflate(bytes, out);
        if inflated.is_err() {
            self.state = InflaterState::Failed;
        }
        inflated
    }

    /// Ends the message. Passes the last output to `out`.
    ///
    /// # Errors
    /// Like [`push`](Self::push).
    pub fn end_message(&mut self, out: &mut dyn FnMut(&[u8])) -> Result<(), DecodeError> {
        let ended = self.push(&MESSAGE_END, out);
        if !self.keeps_context {
            self.state = InflaterState::Fresh;
        }
        ended
    }

    /// Handles the loss of a part of the current message.
    pub fn lose(&mut self) {
        self.state = InflaterState::Failed;
    }

    fn inflate(&mut self, bytes: &[u8], out: &mut dyn FnMut(&[u8])) -> Result<(), DecodeError> {
        if matches!(self.state, InflaterState::Fresh) {
            let memory = MemoryPermit::take(&self.budget.memory, DECOMPRESSOR_BYTES);
            self.state = InflaterState::Active(
                Decompress::new(false),
                memory.ok_or(DecodeError::OverBudget)?,
            );
        }
        let InflaterState::Active(decompress, _) = &mut self.state else {
            return Ok(());
        };
        let mut scratch = [0; OUTPUT_BUFFER_BYTES];
        let mut left = bytes;
        let mut has_more = !left.is_empty();
        while has_more {
            let (before_in, before_out) = (decompress.total_in(), decompress.total_out());
            let status = decompress.decompress(left, &mut scratch, FlushDecompress::None);
            let read = usize::try_from(decompress.total_in() - before_in).unwrap_or(usize::MAX);
            let written = decompress.total_out() - before_out;
            self.written += written;
            if self.written > Bounds::DEFAULT.allowed(self.taken) {
                return Err(DecodeError::TooLarge);
            }
            if !self.budget.inflation.take(written, expansion(self.taken, self.written)) {
                return Err(DecodeError::OverBudget);
            }
            let written = usize::try_from(written).unwrap_or(usize::MAX);
            out(scratch.get(..written).unwrap_or_default());
            left = left.get(read..).unwrap_or_default();
            match status {
                Ok(Status::StreamEnd) => {
                    self.state = InflaterState::Ended;
                    return Ok(());
                }
                Ok(_) if read == 0 && written == 0 && !left.is_empty() => {
                    return Err(DecodeError::Corrupt);
                }
                Ok(_) => {}
                Err(_) => return Err(DecodeError::Corrupt),
            }
            has_more = !left.is_empty() || written == OUTPUT_BUFFER_BYTES;
        }
        Ok(())
    }
}

impl fmt::Debug for MessageInflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageInflater")
            .field("keeps_context", &self.keeps_context)
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use flate2::{Compress, Compression, FlushCompress};

    use super::*;

    /// Compresses messages as a sender does.
    fn compress(compress: &mut Compress, text: &[u8]) -> Vec<u8> {
        let mut compressed = Vec::with_capacity(text.len() + 64);
        compress.compress_vec(text, &mut compressed, FlushCompress::Sync).unwrap();
        if compressed.is_empty() {
            // zlib does not flush twice. RFC 7692, section 7.2.3.6.
            return vec![0];
        }
        assert!(compressed.ends_with(&MESSAGE_END));
        compressed.truncate(compressed.len() - MESSAGE_END.len());
        compressed
    }

    fn inflate(inflater: &mut MessageInflater, bytes: &[u8]) -> Result<String, DecodeError> {
        let mut plain = Vec::new();
        assert!(inflater.begin_message());
        for byte in bytes {
            inflater.push(&[*byte], &mut |bytes| plain.extend_from_slice(bytes))?;
        }
        inflater.end_message(&mut |bytes| plain.extend_from_slice(bytes))?;
        Ok(String::from_utf8(plain).unwrap())
    }

    fn negotiated(extensions: &str) -> Option<[bool; 2]> {
        let inflaters = MessageInflater::negotiated(extensions, &RequestBudget::default());
        inflaters.map(|both| both.map(|inflater| inflater.keeps_context))
    }

    #[test]
    fn reads_the_parameters_of_the_extension() {
        assert_eq!(negotiated("permessage-deflate"), Some([true, true]));
        let of_server =
            "x-other, Permessage-Deflate; server_no_context_takeover; client_max_window_bits=12";
        assert_eq!(negotiated(of_server), Some([true, false]));
        let of_both = "permessage-deflate;client_no_context_takeover ; server_no_context_takeover";
        assert_eq!(negotiated(of_both), Some([false, false]));
        for other in ["", "permessage-bzip2", "x-webkit-deflate-frame"] {
            assert_eq!(negotiated(other), None, "{other}");
        }
    }

    #[test]
    fn later_messages_refer_to_earlier_ones_only_with_context_takeover() {
        let text = r#"{"type":"response.output_text.delta","delta":"word"}"#;
        for keeps_context in [true, false] {
            let mut sender = Compress::new(Compression::default(), false);
            let mut inflater = MessageInflater::new(keeps_context, &RequestBudget::default());
            for round in 0..3 {
                if !keeps_context {
                    sender.reset();
                }
                let message = compress(&mut sender, text.as_bytes());
                assert!(round == 0 || !keeps_context || message.len() < 20);
                assert_eq!(inflate(&mut inflater, &message).unwrap(), text);
            }
            assert_eq!(inflate(&mut inflater, &compress(&mut sender, b"")).unwrap(), "");
        }
    }

    #[test]
    fn a_lost_part_makes_later_messages_unreadable_only_with_context_takeover() {
        for keeps_context in [true, false] {
            let mut sender = Compress::new(Compression::default(), false);
            let mut inflater = MessageInflater::new(keeps_context, &RequestBudget::default());
            inflater.push(&compress(&mut sender, b"first text"), &mut |_| {}).unwrap();
            inflater.lose();
            inflater.push(b"more", &mut |_| panic!("no output")).unwrap();
            assert_eq!(inflater.begin_message(), !keeps_context);
        }
    }

    #[test]
    fn messages_are_bounded_like_bodies() {
        let mut sender = Compress::new(Compression::best(), false);
        let bomb = compress(&mut sender, &vec![b'x'; 8 << 20]);
        let mut inflater = MessageInflater::new(false, &RequestBudget::default());
        let mut written = 0;
        let result = inflater.push(&bomb, &mut |bytes| written += bytes.len());
        assert_eq!(result, Err(DecodeError::TooLarge));
        assert!(written < 7 << 20, "{written}");
        let mut inflater = MessageInflater::new(true, &RequestBudget::default());
        assert_eq!(inflate(&mut inflater, b"\xff\xff\xff\xff"), Err(DecodeError::Corrupt));
    }

    #[test]
    fn a_sender_may_end_its_stream_with_each_message() {
        let mut inflater = MessageInflater::new(true, &RequestBudget::default());
        for text in ["one", "two"] {
            let mut sender = Compress::new(Compression::default(), false);
            let mut message = Vec::with_capacity(64);
            sender.compress_vec(text.as_bytes(), &mut message, FlushCompress::Finish).unwrap();
            // RFC 7692, section 7.2.3.4.
            message.push(0);
            let mut plain = Vec::new();
            assert!(inflater.begin_message());
            inflater.push(&message, &mut |bytes| plain.extend_from_slice(bytes)).unwrap();
            inflater.end_message(&mut |bytes| plain.extend_from_slice(bytes)).unwrap();
            assert_eq!(plain, text.as_bytes());
        }
    }
}
