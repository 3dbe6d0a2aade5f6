//! Removes the content encoding (such as gzip) of one body. If the output is incomplete, records the reason.

use super::Decompressor;
use crate::budget::RequestBudget;
use crate::frame::ParseError;

/// Removes the content encoding of one body. A body without content encoding stays unchanged.
#[derive(Debug)]
pub struct ContentDecoder {
    state: DecoderState,
    error: Option<ParseError>,
}

#[derive(Debug)]
enum DecoderState {
    Plain,
    Encoded(Box<Decompressor>),
    /// The encoding is unknown, so the body is not read.
    Unread,
}

impl ContentDecoder {
    /// Creates a decoder for the value of the `content-encoding` header. `None` means that the header is absent.
    pub fn new(content_encoding: Option<&str>, budget: &RequestBudget) -> Self {
        let decompressor = content_encoding.map(|coding| Decompressor::new(coding, budget));
        match decompressor.transpose().map(Option::flatten) {
            Ok(None) => Self::plain(),
            Ok(Some(decompressor)) => {
                Self { state: DecoderState::Encoded(Box::new(decompressor)), error: None }
            }
            Err(_) => Self { state: DecoderState::Unread, error: Some(ParseError::Encoding) },
        }
    }

    /// Creates a decoder that passes bytes on unchanged.
    pub const fn plain() -> Self {
        Self { state: DecoderState::Plain, error: None }
    }

    /// Decodes `bytes` and passes the output to `out`. Returns `false` if decoding fails. All later bytes are then
    /// ignored.
    #[must_use]
    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(&[u8])) -> bool {
        let decoded = match &mut self.state {
            DecoderState::Plain => {
                out(bytes);
                Ok(())
            }
            DecoderState::Encoded(decompressor) => decompressor.push(bytes, out),
            DecoderState::Unread => Ok(()),
        };
        if let Err(error) = decoded {
            self.error = Some(error.into());
        }
        decoded.is_ok()
    }

    /// Handles the loss of bytes. The rest of an encoded body cannot be decoded.
    pub fn gap(&mut self) {
        if let DecoderState::Encoded(decompressor) = &mut self.state {
            decompressor.abandon();
        }
    }

    /// Handles the end of a body that HTTP delivered completely. Records an error if the encoded data is incomplete.
    pub fn end(&mut self) {
        if self.is_short() {
            self.error = Some(ParseError::Encoding);
        }
    }

    /// Returns whether the body is ignored because its encoding is unknown.
    pub const fn is_unread(&self) -> bool {
        matches!(self.state, DecoderState::Unread)
    }

    /// Returns whether decoding ended early, because the body exceeded a limit or the shared budget was used up.
    pub const fn is_given_up(&self) -> bool {
        matches!(self.error, Some(ParseError::DecompressionLimit | ParseError::Budget))
    }

    /// Returns whether the encoded data is incomplete.
    pub fn is_short(&self) -> bool {
        matches!(&self.state, DecoderState::Encoded(decompressor) if decompressor.finish().is_err())
    }

    /// Returns why the body was not decoded completely. Returns `None` if no error occurred.
    pub const fn error(&self) -> Option<ParseError> {
        self.error
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    /// Returns the output of a push, and whether the push succeeded.
    fn decode(decoder: &mut ContentDecoder, bytes: &[u8]) -> (Vec<u8>, bool) {
        let mut plain = Vec::new();
        let decoded = decoder.push(bytes, &mut |bytes| plain.extend_from_slice(bytes));
        (plain, decoded)
    }

    #[test]
    fn decodes_by_the_header() {
        for header in [None, Some(""), Some("identity")] {
            let mut decoder = ContentDecoder::new(header, &RequestBudget::default());
            assert_eq!(decode(&mut decoder, b"text"), (b"text".to_vec(), true), "{header:?}");
        }
        let mut decoder = ContentDecoder::new(Some("gzip"), &RequestBudget::default());
        assert_eq!(decode(&mut decoder, &gzip("text")), (b"text".to_vec(), true));
        decoder.end();
        assert_eq!(decoder.error(), None);
    }

    #[test]
    fn unknown_encoding_is_an_error_from_the_start() {
        let mut decoder = ContentDecoder::new(Some("compress"), &RequestBudget::default());
        assert!(decoder.is_unread());
        assert_eq!(decode(&mut decoder, b"text"), (Vec::new(), true));
        assert_eq!(decoder.error(), Some(ParseError::Encoding));
    }

    #[test]
    fn corrupt_data_fails_once() {
        let mut decoder = ContentDecoder::new(Some("gzip"), &RequestBudget::default());
        assert_eq!(decode(&mut decoder, b"not gzip, but longer than a header"), (vec![], false));
        assert_eq!(decode(&mut decoder, b"more"), (vec![], true));
        assert_eq!(decoder.error(), Some(ParseError::Encoding));
    }

    #[test]
    fn truncated_data_is_an_error_only_if_the_body_was_delivered() {
        let encoded = gzip("text");
        let mut decoder = ContentDecoder::new(Some("gzip"), &RequestBudget::default());
        decode(&mut decoder, &encoded[..encoded.len() - 1]);
        assert!(decoder.is_short());
        assert_eq!(decoder.error(), None);
        decoder.end();
        assert_eq!(decoder.error(), Some(ParseError::Encoding));
    }

    #[test]
    fn gap_stops_only_encoded_bodies() {
        let mut decoder = ContentDecoder::new(Some("gzip"), &RequestBudget::default());
        decoder.gap();
        decoder.end();
        assert_eq!(decode(&mut decoder, &gzip("text")), (Vec::new(), true));
        assert_eq!(decoder.error(), None);
        let mut decoder = ContentDecoder::plain();
        decoder.gap();
        assert_eq!(decode(&mut decoder, b"text"), (b"text".to_vec(), true));
    }
}
