//! Content-encodings: coded bytes → plain bytes, on the observer's copy. The only user of the inflaters.
//!
//! An [`Decompressor`] takes the bytes as they came, cut anywhere, and hands out at once whatever can be inflated from
//! them: what a sender flushed is seen when it arrived, not when the next block begins. It undoes gzip, deflate (zlib or
//! raw, told by the bytes), br and zstd, also several in a row, with gzip's members and zstd's frames one after another.
//!
//! It is fed by strangers, so everything is bounded, with the reason beside each number: what comes out by size and
//! by ratio, zstd's window, and the memory of all inflaters together. A body that breaks a bound, or is
//! broken, is given up: what was handed out before still counts, nothing after it is looked at, its memory is given back.
//!
//! What one body holds, nothing before its first byte: gzip and deflate 48 KiB; br 20 KiB and as much as its blocks
//! announce, rounded up to a power of two, 16 MiB at most (hostile tables 3.5 MiB more); zstd 94 KiB and up to twice what it
//! put out, 8.5 MiB at most. Each of several codings in a row counts for itself. Beside that 4 KiB of stack while it works.
//!
//! Which inflater, and why: **flate2 over zlib-rs**, because a stream of chunks that are each flushed costs it 0.13 µs per
//! chunk where miniz_oxide takes 2.8 µs. **brotli-decompressor** is safe Rust, and its window grows with what the blocks announce.
//! **zstd's own C library**, because ruzstd keeps back the last window's worth until a frame ends, so that a stream would
//! be seen at its end.

mod bounds;
mod brotli;
mod codec;
mod coding;
mod flate;
mod memory;
mod zstd;

use std::fmt;

use bounds::Bounds;
use codec::Codec;
use coding::Coding;

/// The room for what is inflated at once. Most chunks of a stream are shorter.
const SCRATCH: usize = 4 << 10;

/// Undoes the content-encoding of one body.
pub struct Decompressor {
    /// In the order in which they are undone; empty once it gave up.
    stages: Vec<Stage>,
    bounds: Bounds,
    /// Bytes that went in.
    taken: u64,
}

/// A content-encoding that is not known, or too many in a row.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("this content-encoding is not understood")]
pub struct Unsupported;

/// Why a body was given up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DecodeError {
    /// The data is not what its coding allows, or ended too soon.
    Corrupt,
    /// It inflates to more, or needs more memory, than the bounds allow.
    TooLarge,
}

impl Decompressor {
    /// By the value of the `content-encoding` header; `None` where it names nothing that changes the bytes.
    pub fn new(content_encoding: &str) -> Result<Option<Self>, Unsupported> {
        Self::bounded(content_encoding, Bounds::DEFAULT)
    }

    fn bounded(content_encoding: &str, bounds: Bounds) -> Result<Option<Self>, Unsupported> {
        let stages: Vec<Stage> =
            coding::parse(content_encoding)?.into_iter().rev().map(Stage::new).collect();
        Ok((!stages.is_empty()).then_some(Self { stages, bounds, taken: 0 }))
    }

    /// Takes the next bytes and hands out what they inflate to, piece by piece. A fault is told once: after it nothing
    /// is taken any more. How much of the very piece that broke is still handed out depends on the coding.
    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(&[u8])) -> Result<(), DecodeError> {
        if self.is_abandoned() {
            return Ok(());
        }
        self.taken += bytes.len() as u64;
        let inflated = inflate(&mut self.stages, bytes, &self.bounds, self.taken, out);
        if inflated.is_err() {
            self.give_up();
        }
        inflated
    }

    /// Whether the body may end here; one that was given up may.
    pub fn finish(&self) -> Result<(), DecodeError> {
        if self.stages.iter().all(Stage::is_whole) { Ok(()) } else { Err(DecodeError::Corrupt) }
    }

    /// Bytes were lost: what follows cannot be inflated.
    pub fn give_up(&mut self) {
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

/// One of the codings of a body.
struct Stage {
    coding: Coding,
    /// Made with the first byte: many a head announces a body that never comes.
    codec: Option<Codec>,
    written: u64,
}

impl Stage {
    const fn new(coding: Coding) -> Self {
        Self { coding, codec: None, written: 0 }
    }

    fn is_whole(&self) -> bool {
        self.codec.as_ref().is_none_or(Codec::is_whole)
    }

    fn codec(&mut self, bounds: &Bounds) -> Result<&mut Codec, DecodeError> {
        match &mut self.codec {
            Some(codec) => Ok(codec),
            none => {
                let codec = Codec::new(self.coding, bounds.memory).ok_or(DecodeError::TooLarge)?;
                Ok(none.insert(codec))
            }
        }
    }
}

/// Sends `bytes` through the first of `stages`, and what comes out of it through the others. Each is measured against
/// what was `taken` from the wire, so that bombs in a row do not multiply.
fn inflate(
    stages: &mut [Stage],
    bytes: &[u8],
    bounds: &Bounds,
    taken: u64,
    out: &mut dyn FnMut(&[u8]),
) -> Result<(), DecodeError> {
    let Some((stage, others)) = stages.split_first_mut() else {
        if !bytes.is_empty() {
            out(bytes);
        }
        return Ok(());
    };
    let mut scratch = [0; SCRATCH];
    let mut left = bytes;
    let mut has_more = !bytes.is_empty();
    while has_more {
        let step = stage.codec(bounds)?.step(left, &mut scratch);
        stage.written += step.written as u64;
        if stage.written > bounds.allowed(taken) {
            return Err(DecodeError::TooLarge);
        }
        let plain = scratch.get(..step.written).unwrap_or_default();
        inflate(others, plain, bounds, taken, out)?;
        if let Some(fault) = step.fault {
            return Err(fault);
        }
        if step.read == 0 && step.written == 0 && !left.is_empty() {
            return Err(DecodeError::Corrupt);
        }
        left = left.get(step.read..).unwrap_or_default();
        has_more = !left.is_empty() || step.written == SCRATCH;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
