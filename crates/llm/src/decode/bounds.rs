//! Limits the decompressed size of a body, because compressed bodies are untrusted.

use crate::budget::Expansion;

/// Decompressed size in bytes that is allowed for any body, regardless of its compressed size.
///
/// The size is enough for 16,000 tokens in a stream, at 250 bytes per token. Few responses are longer. Below this
/// size, a high compression ratio is not suspicious: a model that repeats itself reaches ratios in the thousands.
const UNCHECKED_BYTES: u64 = 4 << 20;

/// Number of decompressed bytes per compressed byte that are allowed in addition to [`UNCHECKED_BYTES`].
///
/// Streams that are flushed after each chunk reach a ratio of 20, and complete JSON bodies reach 30. If a model
/// repeats itself and the stream is not flushed, the ratio reaches some hundreds. Deflate cannot exceed 1,032. The
/// other codings have no inherent limit.
const MAX_RATIO: u64 = 250;

/// Maximum decompressed size of a body in bytes.
///
/// The largest legitimate bodies are embeddings responses. 2,048 vectors of 3,072 numbers, with one number per line,
/// take about 160 MB.
const MAX_DECOMPRESSED_BYTES: u64 = 256 << 20;

/// Maximum ratio of decompressed to compressed bytes of an ordinary body. [`MAX_RATIO`] describes the ratios of real
/// bodies.
const MAX_ORDINARY_RATIO: u64 = 32;

/// Number of decompressed bytes that count as ordinary at any ratio, because a short body may repeat itself.
const ORDINARY_BYTES: u64 = 16 << 10;

/// The limits of one body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) unchecked: u64,
    pub(super) ratio: u64,
    pub(super) max: u64,
}

impl Bounds {
    pub(super) const DEFAULT: Self =
        Self { unchecked: UNCHECKED_BYTES, ratio: MAX_RATIO, max: MAX_DECOMPRESSED_BYTES };

    /// Returns the maximum number of decompressed bytes for `taken` compressed bytes.
    pub(super) const fn allowed(&self, taken: u64) -> u64 {
        let earned = self.ratio.saturating_mul(taken).saturating_add(self.unchecked);
        if earned < self.max { earned } else { self.max }
    }
}

/// Returns the kind of expansion of a body that expands from `taken` compressed to `written` decompressed bytes.
pub(super) const fn expansion(taken: u64, written: u64) -> Expansion {
    if written <= MAX_ORDINARY_RATIO.saturating_mul(taken).saturating_add(ORDINARY_BYTES) {
        Expansion::Ordinary
    } else {
        Expansion::Excessive
    }
}
