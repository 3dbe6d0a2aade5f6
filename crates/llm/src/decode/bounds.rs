//! How much may come out of a body, and what it may hold.

use super::memory::Memory;

/// What any body may inflate to, however few bytes it came in: the 16,000 tokens of the longest common answers, at the
/// 250 bytes that one takes in a stream. Below it no ratio is suspicious; a model that repeats itself gets to thousands.
const FREE: u64 = 4 << 20;

/// How many bytes more each byte from the wire may become. Streams that are flushed per chunk reach 20, whole JSON
/// bodies 30, a model that repeats itself and is not flushed some hundreds; deflate cannot do more than 1032, the others
/// have no limit of their own.
const RATIO: u64 = 250;

/// What no body may pass. The largest honest ones are whole embeddings: 2,048 vectors of 3,072 numbers, printed one per
/// line, are some 160 MB.
const MOST: u64 = 256 << 20;

/// What all inflaters may hold together: 5,000 streams of gzip at once, or 600 of zstd that have put out 150 KB each.
/// A body that would need more is given up, so that a crowd of bombs, each within its own bounds, cannot exhaust the
/// process.
static MEMORY: Memory = Memory::new(256 << 20);

/// The bounds of one body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) free: u64,
    pub(super) ratio: u64,
    pub(super) most: u64,
    pub(super) memory: &'static Memory,
}

impl Bounds {
    pub(super) const DEFAULT: Self = Self { free: FREE, ratio: RATIO, most: MOST, memory: &MEMORY };

    /// What `taken` bytes from the wire may have inflated to.
    pub(super) const fn allowed(&self, taken: u64) -> u64 {
        let earned = self.ratio.saturating_mul(taken).saturating_add(self.free);
        if earned < self.most { earned } else { self.most }
    }
}
