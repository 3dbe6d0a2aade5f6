//! The inflaters as one.

use super::DecodeError;
use super::brotli::Brotli;
use super::coding::Coding;
use super::flate::{Flate, Format};
use super::memory::Memory;
use super::zstd::Zstd;

/// An inflater for one of the codings.
pub(super) enum Codec {
    Flate(Flate),
    Brotli(Brotli),
    Zstd(Zstd),
}

/// How far one step came.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) read: usize,
    pub(super) written: usize,
    /// After what was written; no step may follow.
    pub(super) fault: Option<DecodeError>,
}

impl Codec {
    /// `None` where there is no memory left for it.
    pub(super) fn new(coding: Coding, memory: &'static Memory) -> Option<Self> {
        Some(match coding {
            Coding::Gzip => Self::Flate(Flate::new(Format::Gzip, memory)?),
            Coding::Deflate => Self::Flate(Flate::new(Format::Deflate, memory)?),
            Coding::Brotli => Self::Brotli(Brotli::new(memory)?),
            Coding::Zstd => Self::Zstd(Zstd::new(memory)?),
        })
    }

    /// Takes from `input` and writes to `output` as much as it can. There may be more to come where `output` is full.
    pub(super) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        match self {
            Self::Flate(flate) => flate.step(input, output),
            Self::Brotli(brotli) => brotli.step(input, output),
            Self::Zstd(zstd) => zstd.step(input, output),
        }
    }

    /// Whether what was taken so far is a body from its beginning to its end.
    pub(super) fn is_whole(&self) -> bool {
        match self {
            Self::Flate(flate) => flate.is_whole(),
            Self::Brotli(brotli) => brotli.is_whole(),
            Self::Zstd(zstd) => zstd.is_whole(),
        }
    }
}

impl Step {
    pub(super) fn fault(fault: DecodeError) -> Self {
        Self { fault: Some(fault), ..Self::default() }
    }
}
