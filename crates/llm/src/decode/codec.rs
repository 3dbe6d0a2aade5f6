//! Gives the decompressors of all codings one interface.

use std::sync::Arc;

use super::Step;
use super::brotli::Brotli;
use super::coding::Coding;
use super::flate::{Flate, Format};
use super::zstd::Zstd;
use crate::budget::MemoryBudget;

/// A decompressor for one coding.
pub(super) enum Codec {
    Flate(Flate),
    Brotli(Brotli),
    Zstd(Zstd),
}

impl Codec {
    /// Creates a decompressor. Returns `None` if the memory budget is used up.
    pub(super) fn new(coding: Coding, memory: &Arc<MemoryBudget>) -> Option<Self> {
        Some(match coding {
            Coding::Gzip => Self::Flate(Flate::new(Format::Gzip, memory)?),
            Coding::Deflate => Self::Flate(Flate::new(Format::Deflate, memory)?),
            Coding::Brotli => Self::Brotli(Brotli::new(memory)?),
            Coding::Zstd => Self::Zstd(Zstd::new(memory)?),
        })
    }

    /// Decompresses `input` into `output`. If `output` is full afterwards, more output may follow without new input.
    pub(super) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        match self {
            Self::Flate(flate) => flate.step(input, output),
            Self::Brotli(brotli) => brotli.step(input, output),
            Self::Zstd(zstd) => zstd.step(input, output),
        }
    }

    /// Returns whether the input so far is a complete body.
    pub(super) fn is_whole(&self) -> bool {
        match self {
            Self::Flate(flate) => flate.is_whole(),
            Self::Brotli(brotli) => brotli.is_whole(),
            Self::Zstd(zstd) => zstd.is_whole(),
        }
    }
}
