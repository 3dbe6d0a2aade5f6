//! Fuzzes the decompressors.
//!
//! The plain bytes up to an error must be the same for every cut of the encoded bytes. Memory and output must stay
//! within the limits that `decode` documents.

use tokengauge_llm::budget::RequestBudget;
use tokengauge_llm::decode::{DecodeError, Decompressor};

use super::memory::{Meter, aside};
use super::script::{Script, however_cut};

/// Number of bytes to which any body may decompress, and number of further bytes for each compressed byte.
const FREE: u64 = 4 << 20;
const RATIO: u64 = 250;

/// Maximum memory of deflate in bytes, and the overhead of each decompressor.
const FLATE: usize = (48 << 10) + SLACK;
const SLACK: usize = 1 << 10;

/// Maximum memory of br in bytes: its largest window, the tables of a hostile body, and its own state. A block's header
/// alone can make it allocate the window.
const BROTLI: usize = (16 << 20) + (7 << 19) + (20 << 10) + SLACK;

pub fn gzip(input: &[u8]) {
    check(Script::new(input), "gzip", FLATE);
}

pub fn deflate(input: &[u8]) {
    check(Script::new(input), "deflate", FLATE);
}

pub fn br(input: &[u8]) {
    check(Script::new(input), "br", BROTLI);
}

/// Tests zstd. Its memory is allocated in C, so this meter does not count it; the tests of `decode` do.
pub fn zstd(input: &[u8]) {
    check(Script::new(input), "zstd", SLACK);
}

/// Tests several codings in sequence, some of which are identity codings or unknown.
pub fn codings(input: &[u8]) {
    let mut script = Script::new(input);
    let mut codings =
        || script.pick(&["gzip", "deflate", "br", "zstd", "", "identity", "x-gzip", "what"]);
    let header = [codings(), codings(), codings()].join(", ");
    check(script, &header, 3 * BROTLI);
}

/// Decompresses the body and checks that the decompressor holds at most `most` bytes.
fn check(mut script: Script<'_>, header: &str, most: usize) {
    if Decompressor::new(header, &RequestBudget::default()).ok().flatten().is_none() {
        return;
    }
    let cuts = script.cuts();
    let wire = script.rest();
    however_cut(wire, cuts, |pieces| {
        let mut reading = Reading::new(header);
        for piece in pieces {
            reading.push(piece, most);
        }
        reading.finish(header.contains("zstd"))
    });
}

/// Result of a body. Two results are equal if they differ only in ways that depend on how the body was cut.
#[derive(Debug)]
struct Inflated {
    plain: Vec<u8>,
    end: Result<(), DecodeError>,
    /// Whether zstd is involved. The zstd library enforces a frame's announced size only if the whole frame arrives at
    /// once.
    is_zstd: bool,
}

/// Compares results up to differences in piece boundaries.
///
/// With other pieces, an abandoned body may be decoded further, and a decompression bomb may be detected earlier.
impl PartialEq for Inflated {
    fn eq(&self, other: &Self) -> bool {
        let begins = self.plain.starts_with(&other.plain) || other.plain.starts_with(&self.plain);
        match (self.end, other.end) {
            (Ok(()), Ok(())) => self.plain == other.plain,
            (Err(_), Err(_))
            | (Err(DecodeError::TooLarge | DecodeError::OverBudget), _)
            | (_, Err(DecodeError::TooLarge | DecodeError::OverBudget)) => begins,
            (Ok(()), Err(DecodeError::Corrupt)) | (Err(DecodeError::Corrupt), Ok(())) => {
                begins && self.is_zstd
            }
        }
    }
}

struct Reading {
    inflater: Decompressor,
    meter: Meter,
    plain: Vec<u8>,
    taken: u64,
    fault: Option<DecodeError>,
}

impl Reading {
    fn new(header: &str) -> Self {
        let mut meter = Meter::default();
        let budget = RequestBudget::default();
        let inflater = meter.during(|| Decompressor::new(header, &budget));
        meter.assert_holds_at_most(SLACK, "before the first byte");
        Self {
            inflater: inflater.ok().flatten().expect("checked before"),
            meter,
            plain: Vec::new(),
            taken: 0,
            fault: None,
        }
    }

    fn push(&mut self, piece: &[u8], most: usize) {
        let Self { inflater, plain, .. } = self;
        let is_abandoned = inflater.is_abandoned();
        let before = plain.len();
        let pushed = self.meter.during(|| {
            inflater.push(piece, &mut |bytes| {
                assert!(!bytes.is_empty());
                aside(|| plain.extend_from_slice(bytes));
            })
        });
        self.taken += piece.len() as u64;
        let allowed = FREE + RATIO * self.taken;
        assert!(plain.len() as u64 <= allowed, "the output exceeds the bounds");
        if is_abandoned {
            assert!(
                pushed.is_ok() && plain.len() == before,
                "an abandoned body reports another error or output"
            );
        }
        assert_eq!(pushed.is_err(), !is_abandoned && self.inflater.is_abandoned());
        if self.inflater.is_abandoned() {
            self.meter.assert_holds_at_most(SLACK, "abandoned");
        } else {
            self.meter.assert_holds_at_most(most, "active");
        }
        self.fault = self.fault.or(pushed.err());
    }

    fn finish(self, is_zstd: bool) -> Inflated {
        let end = self.inflater.finish();
        assert!(self.fault.is_none() || end.is_ok(), "an error is reported twice");
        Inflated { plain: self.plain, end: self.fault.map_or(end, Err), is_zstd }
    }
}
