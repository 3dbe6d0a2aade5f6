//! Tells a stream of events from a whole body by its first bytes.
//!
//! Leading blanks and a byte order mark are dropped: they mean nothing to either framing (gateways send blanks to keep
//! a connection alive while they wait for the answer).

/// The most bytes held back: the longest that can be undecided is `retry`, before its colon.
const HELD: usize = 8;

const MARK: &[u8] = "\u{FEFF}".as_bytes();

/// The fields of the event stream format.
const FIELDS: [&[u8]; 4] = [b"data", b"event", b"id", b"retry"];

#[derive(Debug)]
pub struct Sniffer {
    declared_stream: bool,
    held: Vec<u8>,
}

/// What the first bytes said, and those that come after the ones held.
#[derive(Debug)]
pub struct Found<'a> {
    pub stream: bool,
    pub rest: &'a [u8],
}

impl Sniffer {
    pub fn new(content_type: Option<&str>) -> Self {
        let essence = content_type.and_then(|value| value.split(';').next());
        Self {
            declared_stream: essence
                .is_some_and(|value| value.trim().eq_ignore_ascii_case("text/event-stream")),
            held: Vec::new(),
        }
    }

    pub fn declared_stream(&self) -> bool {
        self.declared_stream
    }

    /// Gives up what is held back.
    pub fn held(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> Option<Found<'a>> {
        let mut rest = bytes;
        loop {
            if self.held.is_empty() {
                rest = rest.trim_ascii_start();
                if let Some(stream) = self.decide(rest) {
                    return Some(Found { stream, rest });
                }
            }
            let (byte, after) = rest.split_first()?;
            self.held.push(*byte);
            rest = after;
            if self.held == MARK {
                self.held.clear();
            } else if let Some(stream) = self.decide(&self.held) {
                return Some(Found { stream, rest });
            }
        }
    }

    fn decide(&self, lead: &[u8]) -> Option<bool> {
        let first = lead.first()?;
        match first {
            b'{' | b'[' => return Some(false),
            b':' => return Some(true),
            _ => {}
        }
        if lead.starts_with(MARK) || MARK.starts_with(lead) {
            return None;
        }
        for field in FIELDS {
            if field.starts_with(lead) {
                return None;
            }
            let after = lead.strip_prefix(field).and_then(<[u8]>::first);
            if matches!(after, Some(b':' | b'\r' | b'\n')) {
                return Some(true);
            }
        }
        debug_assert!(lead.len() <= HELD || self.held.is_empty());
        Some(self.declared_stream)
    }
}
