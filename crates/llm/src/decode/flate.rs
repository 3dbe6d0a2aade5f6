//! gzip (RFC 1952) and deflate, which is zlib's format (RFC 1950) by the standard and bare deflate data (RFC 1951) by
//! some servers.

use flate2::{Decompress, FlushDecompress, Status};

use super::DecodeError;
use super::codec::Step;
use super::memory::{Loan, Memory};

/// zlib-rs keeps the window of 32 KiB, and 14 KiB of tables and state.
const MEMORY: usize = 48 << 10;

/// The largest window there is, as its power of two: whatever was used, it fits.
const WINDOW_BITS: u8 = 15;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Format {
    Gzip,
    Deflate,
}

pub(super) struct Flate {
    format: Format,
    state: State,
    _memory: Loan,
}

enum State {
    /// At the beginning, or between the members of a gzip body.
    Outside,
    /// The first byte of deflate data, which could be zlib's: the second one tells.
    Begun(u8),
    Within(Decompress),
    Ended,
}

impl Flate {
    pub(super) fn new(format: Format, memory: &'static Memory) -> Option<Self> {
        Some(Self { format, state: State::Outside, _memory: memory.lend(MEMORY)? })
    }

    pub(super) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        match (&mut self.state, input.first()) {
            (State::Within(inflate), _) => {
                let (step, ended) = run(inflate, input, output);
                if ended {
                    self.state = match self.format {
                        Format::Gzip => State::Outside,
                        Format::Deflate => State::Ended,
                    };
                }
                step
            }
            (State::Outside | State::Begun(_) | State::Ended, None) => Step::default(),
            (State::Outside, Some(first)) => match self.format {
                Format::Gzip => {
                    self.state = State::Within(Decompress::new_gzip(WINDOW_BITS));
                    self.step(input, output)
                }
                Format::Deflate => {
                    self.state = State::Begun(*first);
                    Step { read: 1, ..Step::default() }
                }
            },
            (State::Begun(first), Some(second)) => {
                let both = [*first, *second];
                self.state = State::Within(Decompress::new(is_zlib(both)));
                Step { read: 1, ..self.step(&both, output) }
            }
            (State::Ended, Some(_)) => Step::fault(DecodeError::Corrupt),
        }
    }

    pub(super) const fn is_whole(&self) -> bool {
        matches!(self.state, State::Outside | State::Ended)
    }
}

/// Inflates, and says whether the data has come to its end; checksums are checked there.
fn run(inflate: &mut Decompress, input: &[u8], output: &mut [u8]) -> (Step, bool) {
    let before = (inflate.total_in(), inflate.total_out());
    let status = inflate.decompress(input, output, FlushDecompress::None);
    let since = |total: u64, before: u64| usize::try_from(total - before).unwrap_or(usize::MAX);
    let step = Step {
        read: since(inflate.total_in(), before.0),
        written: since(inflate.total_out(), before.1),
        fault: status.is_err().then_some(DecodeError::Corrupt),
    };
    (step, matches!(status, Ok(Status::StreamEnd)))
}

/// Whether these are the first bytes of zlib's format: method 8, a window of 32 KiB at most, and a check that makes both
/// a multiple of 31. Bare deflate data cannot look so: its first byte would announce a stored block and then set a bit
/// of the padding, which every encoder leaves zero.
fn is_zlib(first: [u8; 2]) -> bool {
    let [method, _] = first;
    method & 0x0f == 8 && method >> 4 <= 7 && u16::from_be_bytes(first).is_multiple_of(31)
}
