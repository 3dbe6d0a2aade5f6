//! Limits on the decompressed size of a body and on the memory of its decompressors.

use crate::memory::MemoryBudget;

/// Decompressed size in bytes that any body may reach, whatever its compressed size.
///
/// It covers the 16,000 tokens of the longest common responses, at 250 bytes per token in a stream. Below this size no
/// ratio is suspicious: a model that repeats itself reaches ratios in the thousands.
const FREE: u64 = 4 << 20;

/// Additional decompressed bytes allowed per compressed byte.
///
/// Streams that are flushed per chunk reach 20, and complete JSON bodies reach 30. A model that repeats itself reaches
/// some hundreds if the stream is not flushed. Deflate cannot exceed 1032. The other codings have no inherent limit.
const RATIO: u64 = 250;

/// Maximum decompressed size of a body in bytes.
///
/// The largest legitimate bodies are complete embeddings responses. 2,048 vectors of 3,072 numbers, printed one number
/// per line, take about 160 MB.
const MOST: u64 = 256 << 20;

/// MemoryBudget limit of all decompressors together: 5,000 concurrent gzip streams, or 600 zstd streams with 150 KB of
/// output.
///
/// A body that needs more is abandoned. Many decompression bombs, each within its own bounds, therefore cannot exhaust
/// the process memory.
static MEMORY: MemoryBudget = MemoryBudget::new(256 << 20);

/// The limits of one body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) free: u64,
    pub(super) ratio: u64,
    pub(super) most: u64,
    pub(super) memory: &'static MemoryBudget,
}

impl Bounds {
    pub(super) const DEFAULT: Self = Self { free: FREE, ratio: RATIO, most: MOST, memory: &MEMORY };

    /// Returns the number of decompressed bytes that `taken` compressed bytes may produce.
    pub(super) const fn allowed(&self, taken: u64) -> u64 {
        let earned = self.ratio.saturating_mul(taken).saturating_add(self.free);
        if earned < self.most { earned } else { self.most }
    }
}
