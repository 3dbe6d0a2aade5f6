//! Decompresses gzip (RFC 1952) and deflate.
//!
//! HTTP defines the coding `deflate` as the zlib format (RFC 1950), but some servers send raw deflate data (RFC 1951).
//! The first two bytes of a body show its format.

use std::sync::Arc;

use flate2::{Decompress, FlushDecompress, Status};

use super::DecodeError;
use super::Step;
use crate::budget::{MemoryBudget, MemoryPermit};

/// Memory of one decompressor in bytes: zlib-rs allocates a window of 32 KiB, and 14 KiB for tables and state.
pub(super) const DECOMPRESSOR_BYTES: usize = 48 << 10;

/// Base-2 logarithm of the window size. Encoders cannot use a larger window.
const WINDOW_BITS: u8 = 15;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Format {
    Gzip,
    Deflate,
}

pub(super) struct Flate {
    format: Format,
    state: InflateState,
    _memory: MemoryPermit,
}

enum InflateState {
    /// At the start of the body, or between two members of a gzip body.
    Outside,
    /// The first byte of deflate data was read. The second byte shows whether the data has the zlib format.
    Begun(u8),
    Within(Decompress),
    Ended,
}

impl Flate {
    pub(super) fn new(format: Format, memory: &Arc<MemoryBudget>) -> Option<Self> {
        Some(Self {
            format,
            state: InflateState::Outside,
            _memory: MemoryPermit::take(memory, DECOMPRESSOR_BYTES)?,
        })
    }

    pub(super) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        match (&mut self.state, input.first()) {
            (InflateState::Within(inflate), _) => {
                let (step, ended) = run(inflate, input, output);
                if ended {
                    self.state = match self.format {
                        Format::Gzip => InflateState::Outside,
                        Format::Deflate => InflateState::Ended,
                    };
                }
                step
            }
            (InflateState::Outside | InflateState::Begun(_) | InflateState::Ended, None) => {
                Step::default()
            }
            (InflateState::Outside, Some(first)) => match self.format {
                Format::Gzip => {
                    self.state = InflateState::Within(Decompress::new_gzip(WINDOW_BITS));
                    self.step(input, output)
                }
                Format::Deflate => {
                    self.state = InflateState::Begun(*first);
                    Step { read: 1, ..Step::default() }
                }
            },
            (InflateState::Begun(first), Some(second)) => {
                let both = [*first, *second];
                self.state = InflateState::Within(Decompress::new(is_zlib(both)));
                Step { read: 1, ..self.step(&both, output) }
            }
            (InflateState::Ended, Some(_)) => Step::fault(DecodeError::Corrupt),
        }
    }

    pub(super) const fn is_whole(&self) -> bool {
        matches!(self.state, InflateState::Outside | InflateState::Ended)
    }
}

/// Decompresses `input`, and returns whether the data is complete. At the end of the data, the decoder verifies the
/// checksum.
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

/// Returns whether data that begins with these two bytes has the zlib format.
///
/// The zlib format has compression method 8, a window of at most 32 KiB, and a check that makes the two bytes a
/// multiple of 31. Raw deflate data cannot begin with such bytes. The first byte would start a stored block with a
/// padding bit of 1, but every encoder writes 0.
fn is_zlib(first: [u8; 2]) -> bool {
    let [method, _] = first;
    method & 0x0f == 8 && method >> 4 <= 7 && u16::from_be_bytes(first).is_multiple_of(31)
}
