//! Removes content encodings such as gzip from the observer's copy of a body. Only this module uses the decompression
//! libraries.
//!
//! A [`Decompressor`] accepts compressed bytes split at any position, and emits all output as soon as the input allows.
//! If the sender flushes after each chunk of a stream, the chunk is visible when it arrives, not when the next block
//! begins. The decompressor supports gzip, deflate (zlib or raw, detected from the bytes), br and zstd, and several
//! codings in a row. A body can contain several gzip members or zstd frames in sequence.
//!
//! The input is untrusted. The output size, the compression ratio and the zstd window are therefore limited, and the
//! [budget](crate::budget) limits the memory and the output of all decompressors together. Each constant documents the
//! reason for its value. A body that is corrupt or exceeds a limit is abandoned: the output so far still counts,
//! further input is ignored, and the memory is freed.
//!
//! A decompressor allocates memory when the first byte of a body arrives:
//!
//! - gzip and deflate: 48 KiB.
//! - br: 20 KiB plus the size that the blocks announce, rounded up to a power of two, at most 16 MiB. Hostile tables
//!   take 3.5 MiB more.
//! - zstd: 94 KiB plus up to twice the output so far, at most 8.5 MiB.
//!
//! If several codings are applied, each one takes this memory. Each also uses 4 KiB of stack while it runs.
//!
//! Choice of libraries:
//!
//! - **flate2 over zlib-rs**: for a stream of flushed chunks, it takes 0.13 µs per chunk, and miniz_oxide takes 2.8 µs.
//! - **brotli-decompressor**: it is safe Rust, and its window grows with the size that the blocks announce.
//! - **zstd's C library**: ruzstd withholds up to one window of output until a frame ends. A stream would be visible
//!   only at its end.

mod bounds;
mod brotli;
mod codec;
mod coding;
mod content_decoder;
mod flate;
mod message_inflater;
mod zstd;

use std::fmt;
use std::sync::Arc;

use crate::budget::{MemoryBudget, RequestBudget};
use crate::frame::ParseError;
use bounds::{Bounds, expansion};
use codec::Codec;
use coding::Coding;
pub use content_decoder::ContentDecoder;
pub use message_inflater::MessageInflater;

/// Size in bytes of the output buffer of one decompression step. Most chunks of a stream fit.
const OUTPUT_BUFFER_BYTES: usize = 4 << 10;

/// Removes the content encoding of one body.
pub struct Decompressor {
    /// Decompressors, in the order of decoding. Empty if the rest of the body is ignored.
    stages: Vec<CodingDecoder>,
    limits: Limits,
    /// Number of compressed bytes received.
    taken: u64,
}

/// The limits of one body: its own limits, and the budget that all bodies share.
struct Limits {
    bounds: Bounds,
    budget: RequestBudget,
}

/// The result of one decompression step.
#[derive(Debug, Default)]
struct Step {
    read: usize,
    written: usize,
    /// Error in the data after the output of this step. Decompression ends with this step.
    fault: Option<DecodeError>,
}

impl Step {
    fn fault(fault: DecodeError) -> Self {
        Self { fault: Some(fault), ..Self::default() }
    }
}

/// Error for an unknown content encoding, or for too many encodings of one body.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("this content-encoding is not understood")]
pub struct Unsupported;

/// Why a body was abandoned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DecodeError {
    /// The data violates its format or ends too early.
    Corrupt,
    /// The output or the window (the decoder's history buffer) exceeds the limit of one body.
    TooLarge,
    /// The decompressed bytes or the memory exceed the budget that all bodies share.
    OverBudget,
}

impl From<DecodeError> for ParseError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Corrupt => Self::Encoding,
            DecodeError::TooLarge => Self::DecompressionLimit,
            DecodeError::OverBudget => Self::Budget,
        }
    }
}

impl Decompressor {
    /// Creates a decompressor for the value of a `content-encoding` header. Returns `None` if the encoding changes no
    /// bytes, as for `identity`.
    pub fn new(
        content_encoding: &str,
        budget: &RequestBudget,
    ) -> Result<Option<Self>, Unsupported> {
        let limits = Limits { bounds: Bounds::DEFAULT, budget: budget.clone() };
        Self::with_limits(content_encoding, limits)
    }

    fn with_limits(content_encoding: &str, limits: Limits) -> Result<Option<Self>, Unsupported> {
        let stages: Vec<CodingDecoder> =
            coding::parse(content_encoding)?.into_iter().rev().map(CodingDecoder::new).collect();
        Ok((!stages.is_empty()).then_some(Self { stages, limits, taken: 0 }))
    }

    /// Decompresses the next bytes and passes the output to `out`, piece by piece.
    ///
    /// After an error, all later input is ignored. The amount of output before the error depends on the coding.
    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(&[u8])) -> Result<(), DecodeError> {
        if self.is_abandoned() {
            return Ok(());
        }
        self.taken += bytes.len() as u64;
        let inflated = inflate(&mut self.stages, bytes, &self.limits, self.taken, out);
        if inflated.is_err() {
            self.abandon();
        }
        inflated
    }

    /// Returns an error if the compressed data ended too early. Returns `Ok` if decompression had already stopped.
    pub fn finish(&self) -> Result<(), DecodeError> {
        if self.stages.iter().all(CodingDecoder::is_whole) {
            Ok(())
        } else {
            Err(DecodeError::Corrupt)
        }
    }

    /// Stops decompression after a loss of bytes, because later data depends on the lost bytes.
    pub fn abandon(&mut self) {
        self.stages = Vec::new();
    }

    pub fn is_abandoned(&self) -> bool {
        self.stages.is_empty()
    }
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressor")
            .field("taken", &self.taken)
            .field("stages", &self.stages.len())
            .finish_non_exhaustive()
    }
}

/// Decompressor of one coding.
struct CodingDecoder {
    coding: Coding,
    /// Decompressor. Created when the first byte arrives, because many responses name an encoding but have no body.
    codec: Option<Codec>,
    written: u64,
}

impl CodingDecoder {
    const fn new(coding: Coding) -> Self {
        Self { coding, codec: None, written: 0 }
    }

    fn is_whole(&self) -> bool {
        self.codec.as_ref().is_none_or(Codec::is_whole)
    }

    fn codec(&mut self, memory: &Arc<MemoryBudget>) -> Result<&mut Codec, DecodeError> {
        match &mut self.codec {
            Some(codec) => Ok(codec),
            none => {
                let codec = Codec::new(self.coding, memory).ok_or(DecodeError::OverBudget)?;
                Ok(none.insert(codec))
            }
        }
    }
}

/// Decompresses `bytes` with the first of `stages`, and passes the output through the other stages. The limits of
/// every stage depend on `taken`, the number of bytes from the network. Several encodings of one body therefore cannot
/// multiply the allowed size.
fn inflate(
    stages: &mut [CodingDecoder],
    bytes: &[u8],
    limits: &Limits,
    taken: u64,
    out: &mut dyn FnMut(&[u8]),
) -> Result<(), DecodeError> {
    let Some((stage, others)) = stages.split_first_mut() else {
        if !bytes.is_empty() {
            out(bytes);
        }
        return Ok(());
    };
    let mut scratch = [0; OUTPUT_BUFFER_BYTES];
    let mut left = bytes;
    let mut has_more = !bytes.is_empty();
    while has_more {
        let step = stage.codec(&limits.budget.memory)?.step(left, &mut scratch);
        let written = step.written as u64;
        stage.written += written;
        if stage.written > limits.bounds.allowed(taken) {
            return Err(DecodeError::TooLarge);
        }
        if !limits.budget.inflation.take(written, expansion(taken, stage.written)) {
            return Err(DecodeError::OverBudget);
        }
        let plain = scratch.get(..step.written).unwrap_or_default();
        inflate(others, plain, limits, taken, out)?;
        if let Some(fault) = step.fault {
            return Err(fault);
        }
        if step.read == 0 && step.written == 0 && !left.is_empty() {
            return Err(DecodeError::Corrupt);
        }
        left = left.get(step.read..).unwrap_or_default();
        has_more = !left.is_empty() || step.written == OUTPUT_BUFFER_BYTES;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
