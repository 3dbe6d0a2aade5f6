//! Detects the format of a body from its first bytes.
//!
//! Blanks and a byte order mark at the beginning are removed, because they have no meaning in any format. Gateways
//! send blanks to keep a connection alive while they wait for the response.

use super::JsonFraming;
use super::aws_event_stream::{PRELUDE_BYTES, Prelude};
use super::scan::{Scanner, Stop};

/// Maximum number of bytes that are buffered while the format is unknown. The longest necessary buffer is for the
/// start of an AWS message (the prelude).
const MAX_SNIFFED_BYTES: usize = PRELUDE_BYTES;

/// Maximum number of bytes of a JSON body that are buffered to look for a second JSON value. The first line of a stream
/// usually has a few hundred bytes, but can contain the prompt. A longer value counts as the whole body.
const MAX_SEARCHED_BYTES: usize = 1 << 16;

const BYTE_ORDER_MARK: &[u8] = "\u{FEFF}".as_bytes();

/// Character before each value in a JSON text sequence (RFC 7464).
pub const RECORD_SEPARATOR: u8 = 0x1E;

/// The field names of server-sent events.
const SSE_FIELDS: [&[u8]; 4] = [b"data", b"event", b"id", b"retry"];

/// Media subtypes for JSON lines, such as `ndjson` in `application/x-ndjson`, without the optional prefix `x-`.
const JSON_LINES_SUBTYPES: [&str; 8] = [
    "ndjson",
    "jsonl",
    "jsonlines",
    "json-lines",
    "json-seq",
    "json-stream",
    "stream+json",
    "ldjson",
];

/// How a body is divided into messages.
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
    /// Format that the content type declares. `Single` for JSON, and `None` for an unknown content type.
    declared: Option<Framing>,
    json: JsonFraming,
    buffered: Vec<u8>,
    /// Search for a second JSON value, which would make the body JSON lines. `None` if the body does not begin with a
    /// JSON object.
    search: Option<SecondValueSearch>,
}

/// Returns whether a byte may separate JSON lines: white space or a record separator.
pub fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == RECORD_SEPARATOR
}

impl Sniffer {
    pub fn new(content_type: Option<&str>, json: JsonFraming) -> Self {
        let declared = content_type.and_then(declared_framing);
        Self { declared, json, buffered: Vec::new(), search: None }
    }

    /// Returns the format that the content type declares. Used for a body without any bytes.
    pub fn declared_framing(&self) -> Framing {
        self.declared.unwrap_or(Framing::Single)
    }

    /// Returns the format of a body whose first bytes show no format. The content type decides.
    pub fn fallback_framing(&self, lead: &[u8]) -> Framing {
        match self.declared {
            Some(Framing::Sse) => Framing::Sse,
            Some(Framing::Aws) if lead.first().is_some_and(|byte| begins_message(*byte)) => {
                Framing::Aws
            }
            // This is most likely an error message in plain text.
            Some(Framing::Aws | Framing::Lines | Framing::Array | Framing::Single) | None => {
                Framing::Single
            }
        }
    }

    pub fn capacity(&self) -> usize {
        self.buffered.capacity()
    }

    /// Removes the buffered bytes and returns them.
    pub fn take_buffered(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffered)
    }

    /// Reads the next bytes. When the format is known, returns the format and the bytes after the buffered bytes.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> Option<(Framing, &'a [u8])> {
        let mut rest = bytes;
        while self.search.is_none() {
            if self.buffered.is_empty() {
                let start = rest.iter().position(|byte| !is_blank(*byte))?;
                rest = rest.get(start..)?;
                if let Some(framing) = self.detect_framing(rest) {
                    return Some((framing, rest));
                }
                if self.needs_search(rest) {
                    self.search = Some(SecondValueSearch::new());
                    break;
                }
            }
            let (byte, after) = rest.split_first()?;
            self.buffered.push(*byte);
            rest = after;
            if self.buffered == BYTE_ORDER_MARK {
                self.buffered.clear();
            } else if let Some(framing) = self.detect_framing(&self.buffered) {
                return Some((framing, rest));
            }
        }
        self.search_second_value(rest)
    }

    /// Returns the format that the first bytes after leading blanks determine. Returns `None` if more bytes are
    /// needed.
    fn detect_framing(&self, lead: &[u8]) -> Option<Framing> {
        let first = lead.first()?;
        match first {
            b'{' | b'[' => return self.json_framing(*first),
            b':' => return Some(Framing::Sse),
            byte if begins_message(*byte) => {
                let known = Prelude::read(lead.first_chunk()?).is_some();
                return Some(if known { Framing::Aws } else { self.fallback_framing(lead) });
            }
            _ => {}
        }
        if lead.starts_with(BYTE_ORDER_MARK) || BYTE_ORDER_MARK.starts_with(lead) {
            return None;
        }
        for field in SSE_FIELDS {
            if field.starts_with(lead) {
                return None;
            }
            let after = lead.strip_prefix(field).and_then(<[u8]>::first);
            if matches!(after, Some(b':' | b'\r' | b'\n')) {
                return Some(Framing::Sse);
            }
        }
        debug_assert!(lead.len() <= MAX_SNIFFED_BYTES || self.buffered.is_empty());
        Some(self.fallback_framing(lead))
    }

    /// Returns the format of a body that begins with `bracket`. Returns `None` if more bytes are needed.
    fn json_framing(&self, bracket: u8) -> Option<Framing> {
        match (self.json, self.declared) {
            (JsonFraming::Array, _) if bracket == b'[' => Some(Framing::Array),
            (_, Some(Framing::Lines)) => Some(Framing::Lines),
            (JsonFraming::Lines, Some(Framing::Single)) if bracket == b'{' => None,
            (JsonFraming::Lines, _) if bracket == b'{' => Some(Framing::Lines),
            _ => Some(Framing::Single),
        }
    }

    fn needs_search(&self, lead: &[u8]) -> bool {
        lead.first() == Some(&b'{') && self.json_framing(b'{').is_none()
    }

    /// Searches a body that begins with a JSON object for a second JSON value.
    fn search_second_value<'a>(&mut self, bytes: &'a [u8]) -> Option<(Framing, &'a [u8])> {
        let framing = self.search.as_mut()?.push(bytes);
        if framing.is_none() {
            self.buffered.extend_from_slice(bytes);
        }
        framing.map(|framing| (framing, bytes))
    }
}

/// Returns the format that a content type declares. Returns `Single` for JSON and `None` for unknown types.
fn declared_framing(content_type: &str) -> Option<Framing> {
    let essence = content_type.split(';').next().unwrap_or_default();
    let essence = essence.trim().to_ascii_lowercase();
    match essence.as_str() {
        "text/event-stream" => return Some(Framing::Sse),
        "application/vnd.amazon.eventstream" => return Some(Framing::Aws),
        _ => {}
    }
    let subtype = essence.split_once('/').map_or("", |(_, subtype)| subtype);
    let subtype = subtype.strip_prefix("x-").unwrap_or(subtype);
    if JSON_LINES_SUBTYPES.contains(&subtype) || subtype.ends_with("+json-seq") {
        Some(Framing::Lines)
    } else {
        (subtype == "json" || subtype.ends_with("+json")).then_some(Framing::Single)
    }
}

/// Returns whether a content type is one of tables, tensors, images or sound, which contain neither JSON nor text.
/// `application/octet-stream` is not, because some servers send JSON with it.
pub fn is_foreign_media_type(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let Some((kind, subtype)) = essence.split_once('/') else {
        return false;
    };
    let subtype = subtype.strip_prefix("x-").unwrap_or(subtype);
    let is_table = matches!(subtype, "csv" | "npy" | "npz" | "parquet" | "libsvm" | "pickle");
    is_table || subtype.ends_with("protobuf") || matches!(kind, "image" | "audio" | "video")
}

/// Returns whether an AWS message can begin with this byte, the highest byte of its length. Messages have at most
/// slightly more than 24 MiB, so this byte is 0 or 1.
fn begins_message(byte: u8) -> bool {
    byte <= 1
}

/// Search for a second value in a body that begins with a JSON object. A second value shows JSON lines.
#[derive(Debug)]
struct SecondValueSearch {
    scanner: Scanner<true>,
    /// Whether the first value is complete.
    closed: bool,
    /// Number of further bytes to examine.
    remaining: usize,
}

impl SecondValueSearch {
    fn new() -> Self {
        Self { scanner: Scanner::default(), closed: false, remaining: MAX_SEARCHED_BYTES }
    }

    fn push(&mut self, bytes: &[u8]) -> Option<Framing> {
        let mut rest = bytes.get(..self.remaining).unwrap_or(bytes);
        self.remaining -= rest.len();
        while !self.closed && !rest.is_empty() {
            let (passed, stop) = self.scanner.run(rest);
            self.closed = stop == Stop::End;
            rest = rest.get(passed..).unwrap_or_default();
        }
        let next = rest.iter().find(|byte| !is_blank(**byte));
        match next {
            Some(b'{') => Some(Framing::Lines),
            Some(_) => Some(Framing::Single),
            None if self.remaining == 0 => Some(Framing::Single),
            None => None,
        }
    }
}
