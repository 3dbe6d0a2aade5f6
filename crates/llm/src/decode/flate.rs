//! gzip (RFC 1952) and deflate. By the standard, deflate is the zlib format (RFC 1950). Some servers send bare deflate
//! data (RFC 1951) instead.

use flate2::{Decompress, FlushDecompress, Status};

use super::DecodeError;
use super::Step;
use crate::memory::{MemoryBudget, MemoryPermit};

/// MemoryBudget of one decompressor in bytes: zlib-rs allocates a window of 32 KiB and 14 KiB of tables and state.
const MEMORY: usize = 48 << 10;

/// Base-2 logarithm of the largest window. It fits every window size that an encoder can use.
const WINDOW_BITS: u8 = 15;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Format {
    Gzip,
    Deflate,
}

pub(super) struct Flate {
    format: Format,
    state: State,
    _memory: MemoryPermit<&'static MemoryBudget>,
}

enum State {
    /// At the beginning, or between the members of a gzip body.
    Outside,
    /// The first byte of deflate data was read. The second byte decides whether the data is in zlib format.
    Begun(u8),
    Within(Decompress),
    Ended,
}

impl Flate {
    pub(super) fn new(format: Format, memory: &'static MemoryBudget) -> Option<Self> {
        Some(Self { format, state: State::Outside, _memory: MemoryPermit::take(memory, MEMORY)? })
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

/// Decompresses and reports whether the data is complete. The decoder checks checksums at the end of the data.
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

/// Reports whether these are the first bytes of the zlib format.
///
/// The zlib format has method 8, a window of at most 32 KiB, and a check that makes both bytes a multiple of 31. Bare
/// deflate data cannot begin this way. Its first byte would announce a stored block and set a padding bit. Every
/// encoder leaves that padding bit zero.
fn is_zlib(first: [u8; 2]) -> bool {
    let [method, _] = first;
    method & 0x0f == 8 && method >> 4 <= 7 && u16::from_be_bytes(first).is_multiple_of(31)
}
