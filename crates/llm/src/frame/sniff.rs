//! Tells by its first bytes how a body is framed.
//!
//! Leading blanks and a byte order mark are dropped: they mean nothing to any framing (gateways send blanks to keep a
//! connection alive while they wait for the answer).

use super::JsonFraming;
use super::aws_event_stream::{PRELUDE, Prelude};
use super::scan::{Scanner, Stop};

/// The most bytes held back while the framing is not even guessed: as many as a message of AWS's needs to be known.
const HELD: usize = PRELUDE;

/// How much of a JSON body is held back to see whether a second value follows the first. The first line of a stream is
/// a few hundred bytes, a prompt's echo aside; a longer value is taken as the whole body.
const DOUBT: usize = 1 << 16;

const MARK: &[u8] = "\u{FEFF}".as_bytes();

/// Stands before each value of a JSON text sequence (RFC 7464).
pub const RECORD_SEPARATOR: u8 = 0x1E;

/// The fields of the event stream format.
const FIELDS: [&[u8]; 4] = [b"data", b"event", b"id", b"retry"];

/// The subtypes under which lines of JSON are sent, with and without `x-`.
const LINES: [&str; 8] = [
    "ndjson",
    "jsonl",
    "jsonlines",
    "json-lines",
    "json-seq",
    "json-stream",
    "stream+json",
    "ldjson",
];

/// How the messages of a body are told apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Framing {
    Sse,
    Lines,
    Array,
    Aws,
    Single,
}

#[derive(Debug)]
pub struct Sniffer {
    declared: Declared,
    json: JsonFraming,
    held: Vec<u8>,
    /// The body begins like one value, and may still turn out to be lines.
    doubt: Option<Doubt>,
}

/// What the content type says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Declared {
    Sse,
    Lines,
    Aws,
    JsonFraming,
    Other,
}

/// What the first bytes said, and those that come after the ones held.
#[derive(Debug)]
pub struct Found<'a> {
    pub framing: Framing,
    pub rest: &'a [u8],
}

/// What stands between the values of a stream of lines.
pub fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == RECORD_SEPARATOR
}

impl Sniffer {
    pub fn new(content_type: Option<&str>, json: JsonFraming) -> Self {
        Self {
            declared: content_type.map_or(Declared::Other, Declared::of),
            json,
            held: Vec::new(),
            doubt: None,
        }
    }

    /// What the body is where none of it can be seen.
    pub fn declared(&self) -> Framing {
        match self.declared {
            Declared::Sse => Framing::Sse,
            Declared::Lines => Framing::Lines,
            Declared::Aws => Framing::Aws,
            Declared::JsonFraming | Declared::Other => Framing::Single,
        }
    }

    /// What the body is whose first bytes leave it open.
    pub fn settle(&self, lead: &[u8]) -> Framing {
        match self.declared {
            Declared::Sse => Framing::Sse,
            Declared::Aws if lead.first().is_some_and(|byte| begins_message(*byte)) => Framing::Aws,
            // An error in plain text, most likely.
            Declared::Aws | Declared::Lines | Declared::JsonFraming | Declared::Other => {
                Framing::Single
            }
        }
    }

    /// Gives up what is held back.
    pub fn held(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> Option<Found<'a>> {
        let mut rest = bytes;
        while self.doubt.is_none() {
            if self.held.is_empty() {
                let start = rest.iter().position(|byte| !is_blank(*byte))?;
                rest = rest.get(start..)?;
                if let Some(framing) = self.decide(rest) {
                    return Some(Found { framing, rest });
                }
                if self.is_doubtful(rest) {
                    self.doubt = Some(Doubt::default());
                    break;
                }
            }
            let (byte, after) = rest.split_first()?;
            self.held.push(*byte);
            rest = after;
            if self.held == MARK {
                self.held.clear();
            } else if let Some(framing) = self.decide(&self.held) {
                return Some(Found { framing, rest });
            }
        }
        self.resolve(rest)
    }

    /// The framing that these first bytes, blanks aside, make certain; `None` where more are needed.
    fn decide(&self, lead: &[u8]) -> Option<Framing> {
        let first = lead.first()?;
        match first {
            b'{' | b'[' => return self.json(*first),
            b':' => return Some(Framing::Sse),
            byte if begins_message(*byte) => {
                let known = Prelude::read(lead.first_chunk()?).is_some();
                return Some(if known { Framing::Aws } else { self.settle(lead) });
            }
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
                return Some(Framing::Sse);
            }
        }
        debug_assert!(lead.len() <= HELD || self.held.is_empty());
        Some(self.settle(lead))
    }

    /// The framing of a body that begins with this bracket.
    fn json(&self, bracket: u8) -> Option<Framing> {
        match (self.json, self.declared) {
            (JsonFraming::Array, _) if bracket == b'[' => Some(Framing::Array),
            (JsonFraming::Single | JsonFraming::Lines | JsonFraming::Array, Declared::Lines) => {
                Some(Framing::Lines)
            }
            (JsonFraming::Lines, Declared::JsonFraming) if bracket == b'{' => None,
            (JsonFraming::Lines, _) if bracket == b'{' => Some(Framing::Lines),
            (JsonFraming::Single | JsonFraming::Lines | JsonFraming::Array, _) => {
                Some(Framing::Single)
            }
        }
    }

    fn is_doubtful(&self, lead: &[u8]) -> bool {
        lead.first() == Some(&b'{') && self.json(b'{').is_none()
    }

    /// Looks for a second value.
    fn resolve<'a>(&mut self, bytes: &'a [u8]) -> Option<Found<'a>> {
        let framing = self.doubt.as_mut()?.push(bytes);
        if framing.is_none() {
            self.held.extend_from_slice(bytes);
        }
        framing.map(|framing| Found { framing, rest: bytes })
    }
}

impl Declared {
    fn of(content_type: &str) -> Self {
        let essence = content_type.split(';').next().unwrap_or_default();
        let essence = essence.trim().to_ascii_lowercase();
        match essence.as_str() {
            "text/event-stream" => return Self::Sse,
            "application/vnd.amazon.eventstream" => return Self::Aws,
            _ => {}
        }
        let subtype = essence.split_once('/').map_or("", |(_, subtype)| subtype);
        let subtype = subtype.strip_prefix("x-").unwrap_or(subtype);
        if LINES.contains(&subtype) || subtype.ends_with("+json-seq") {
            Self::Lines
        } else if subtype == "json" || subtype.ends_with("+json") {
            Self::JsonFraming
        } else {
            Self::Other
        }
    }
}

/// Whether a message of AWS's can begin with this byte: the highest of a length that may be 24 MiB and some.
fn begins_message(byte: u8) -> bool {
    byte <= 1
}

/// A body that begins with a JSON object, of which it is asked whether another one follows.
#[derive(Debug)]
struct Doubt {
    scanner: Scanner,
    /// The first value is over.
    closed: bool,
    /// How many bytes more are waited for.
    left: usize,
}

impl Default for Doubt {
    fn default() -> Self {
        Self { scanner: Scanner::default(), closed: false, left: DOUBT }
    }
}

impl Doubt {
    fn push(&mut self, bytes: &[u8]) -> Option<Framing> {
        let mut rest = bytes.get(..self.left).unwrap_or(bytes);
        self.left -= rest.len();
        while !self.closed && !rest.is_empty() {
            let (passed, stop) = self.scanner.run(rest);
            self.closed = stop == Stop::End;
            rest = rest.get(passed..).unwrap_or_default();
        }
        let next = rest.iter().find(|byte| !is_blank(**byte));
        match next {
            Some(b'{') => Some(Framing::Lines),
            Some(_) => Some(Framing::Single),
            None if self.left == 0 => Some(Framing::Single),
            None => None,
        }
    }
}
