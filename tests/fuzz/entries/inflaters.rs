//! Inflaters: the same plain bytes however the coded ones are cut, up to the fault, within the bounds that
//! `decode` states.

use tokengauge_llm::decode::{DecodeError, Decompressor};

use super::memory::{Meter, aside};
use super::script::{Script, however_cut};

/// What any body may inflate to, and how much more each byte from the wire may become.
const FREE: u64 = 4 << 20;
const RATIO: u64 = 250;

/// What deflate holds, and what stands around each inflater.
const FLATE: usize = (48 << 10) + SLACK;
const SLACK: usize = 1 << 10;

/// What br holds: its largest window, what hostile tables take, and its own state. A block's announcement suffices for
/// the window.
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

/// Zstd's memory comes from C and is not seen here; `decode` has tests of its own for it.
pub fn zstd(input: &[u8]) {
    check(Script::new(input), "zstd", SLACK);
}

/// Several codings in a row, among them some that are none or not known.
pub fn codings(input: &[u8]) {
    let mut script = Script::new(input);
    let mut codings =
        || script.pick(&["gzip", "deflate", "br", "zstd", "", "identity", "x-gzip", "what"]);
    let header = [codings(), codings(), codings()].join(", ");
    check(script, &header, 3 * BROTLI);
}

/// `most`: what may be held.
fn check(mut script: Script<'_>, header: &str, most: usize) {
    if Decompressor::new(header).ok().flatten().is_none() {
        return;
    }
    let cuts = script.cuts();
    let wire = script.rest();
    however_cut(wire, cuts, |pieces| {
        let mut reading = Reading::of(header);
        for piece in pieces {
            reading.push(piece, most);
        }
        reading.finish(header.contains("zstd"))
    });
}

/// How a body came out. Equal is what may differ by how the body was cut and no further.
#[derive(Debug)]
struct Inflated {
    plain: Vec<u8>,
    end: Result<(), DecodeError>,
    /// zstd's library holds a frame to the size that it announces only where all of it came at once.
    is_zstd: bool,
}

/// A body that is given up may have been read further, and a bomb shows earlier, where the pieces were other ones.
impl PartialEq for Inflated {
    fn eq(&self, other: &Self) -> bool {
        let begins = self.plain.starts_with(&other.plain) || other.plain.starts_with(&self.plain);
        match (self.end, other.end) {
            (Ok(()), Ok(())) => self.plain == other.plain,
            (Err(_), Err(_))
            | (Err(DecodeError::TooLarge), _)
            | (_, Err(DecodeError::TooLarge)) => begins,
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
    fn of(header: &str) -> Self {
        let mut meter = Meter::default();
        let inflater = meter.during(|| Decompressor::new(header));
        meter.assert_holds_at_most(SLACK, "before the first byte");
        Self {
            inflater: inflater.ok().flatten().expect("it was asked for before"),
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
        assert!(plain.len() as u64 <= allowed, "a bomb");
        if is_abandoned {
            assert!(pushed.is_ok() && plain.len() == before, "told again");
        }
        assert_eq!(pushed.is_err(), !is_abandoned && self.inflater.is_abandoned());
        if self.inflater.is_abandoned() {
            self.meter.assert_holds_at_most(SLACK, "given up");
        } else {
            self.meter.assert_holds_at_most(most, "at work");
        }
        self.fault = self.fault.or(pushed.err());
    }

    fn finish(self, is_zstd: bool) -> Inflated {
        let end = self.inflater.finish();
        assert!(self.fault.is_none() || end.is_ok(), "told again at the end");
        Inflated { plain: self.plain, end: self.fault.map_or(end, Err), is_zstd }
    }
}
