//! Limits the memory that all parsers of a process hold together, and the bytes that they decompress per second.
//!
//! The input is untrusted, and one thread parses the bodies of all requests. Without common limits, many small bodies
//! could together exhaust the memory or keep the thread busy. A parser that exceeds a limit discards its input and
//! reports [`ParseError::Budget`](crate::frame::ParseError::Budget).

mod inflation;
mod memory;

use std::sync::Arc;

use tokengauge_types::clock::MonotonicInstant;

pub(crate) use inflation::{Expansion, InflationBudget};
pub(crate) use memory::MemoryBudget;
pub use memory::MemoryPermit;

/// Default memory in bytes of all parsers that share a budget: 1,300 concurrent gzip streams, or 64 incomplete messages
/// of the maximum size.
const DEFAULT_MEMORY: usize = 64 << 20;

/// Maximum memory in bytes of one request. The largest decompressor takes 19.5 MiB. An incomplete event takes up to
/// twice the maximum size of a frame.
const MAX_BYTES_PER_REQUEST: usize = 24 << 20;

/// The limits of a process. Clones share them.
#[derive(Clone, Debug)]
pub struct Budget {
    memory: Arc<MemoryBudget>,
    captures: Arc<MemoryBudget>,
    inflation: Arc<InflationBudget>,
}

/// Limits for one request. The request's memory and decompressed bytes also count against the limits of the process.
#[derive(Clone, Debug)]
pub struct RequestBudget {
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) captures: Arc<MemoryBudget>,
    pub(crate) inflation: Arc<InflationBudget>,
}

impl Budget {
    /// Creates a budget of `memory` bytes that also limits the decompressed bytes per second. The caller reports the
    /// time with [`advance`](Self::advance).
    pub fn new(memory: usize) -> Self {
        Self::with(memory, InflationBudget::default())
    }

    fn with(memory: usize, inflation: InflationBudget) -> Self {
        let memory = MemoryBudget::new(memory);
        // Captured content is kept until the end of a request. It leaves room for the parsers of other requests.
        let captures = memory.child(memory.limit() / 2);
        Self { memory, captures, inflation: Arc::new(inflation) }
    }

    /// Returns the limits of a new request.
    pub fn request(&self) -> RequestBudget {
        RequestBudget {
            memory: self.memory.child(MAX_BYTES_PER_REQUEST.min(self.memory.limit() / 2)),
            captures: Arc::clone(&self.captures),
            inflation: Arc::clone(&self.inflation),
        }
    }

    /// Reports the time of the latest received bytes. A time before the latest reported time has no effect.
    pub fn advance(&self, to: MonotonicInstant) {
        self.inflation.advance(to);
    }

    /// Returns the bytes that all parsers hold.
    pub fn held_bytes(&self) -> usize {
        self.memory.used()
    }
}

impl Default for Budget {
    /// Creates a budget for parsers without a clock: the default memory, and no limit on the decompressed bytes per
    /// second.
    fn default() -> Self {
        Self::with(DEFAULT_MEMORY, InflationBudget::unlimited())
    }
}

impl RequestBudget {
    /// Returns a permit without memory. When the permit grows, it takes memory from the budget of this request.
    pub fn hold(&self) -> MemoryPermit {
        MemoryPermit::empty(Arc::clone(&self.memory))
    }
}

impl Default for RequestBudget {
    fn default() -> Self {
        Budget::default().request()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_captures_take_parts_of_one_budget() {
        let budget = Budget::new(1_000);
        let request = budget.request();
        let held = MemoryPermit::take(&request.memory, 500);
        assert!(held.is_some() && MemoryPermit::take(&request.memory, 1).is_none());
        let captured = MemoryPermit::take(&request.captures, 400);
        assert_eq!(budget.held_bytes(), 900);
        assert!(MemoryPermit::take(&budget.request().memory, 101).is_none());
        drop((held, captured));
        assert_eq!(budget.held_bytes(), 0);
    }
}
