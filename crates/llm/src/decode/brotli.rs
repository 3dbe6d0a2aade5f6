//! Decompresses `br` (RFC 7932).

use std::sync::Arc;

use brotli_decompressor::{
    Allocator, BrotliDecompressStream, BrotliResult, BrotliState, SliceWrapper, SliceWrapperMut,
};

use super::DecodeError;
use super::Step;
use crate::budget::{MemoryBudget, MemoryPermit};

/// Bytes of the memory budget that are reserved for the decoder's state and its small allocations.
/// [`MAX_SMALL_ALLOCATION`] limits a small allocation.
const STATE_BYTES: usize = 16 << 10;

/// Maximum size in bytes of an allocation that is part of [`STATE_BYTES`]. Such an allocation always succeeds, because
/// the decoder does not check it for failure.
const MAX_SMALL_ALLOCATION: usize = 4 << 10;

/// Error codes of the decoder for an allocation that failed because the budget was used up.
const ALLOCATION_ERRORS: std::ops::RangeInclusive<i32> = -30..=-21;

pub(super) struct Brotli {
    decoder: Box<BrotliState<BudgetAllocator, BudgetAllocator, BudgetAllocator>>,
    begun: bool,
    ended: bool,
    _memory: MemoryPermit,
}

impl Brotli {
    pub(super) fn new(memory: &Arc<MemoryBudget>) -> Option<Self> {
        let allocator = || BudgetAllocator(Arc::clone(memory));
        let permit = MemoryPermit::take(memory, STATE_BYTES)?;
        // An extension of the format allows windows above 16 MiB. Strict mode rejects them.
        let decoder = BrotliState::new_strict(allocator(), allocator(), allocator());
        Some(Self { decoder: Box::new(decoder), begun: false, ended: false, _memory: permit })
    }

    pub(super) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        if self.ended && !input.is_empty() {
            return Step::fault(DecodeError::Corrupt);
        }
        self.begun |= !input.is_empty();
        let (mut input_left, mut output_left) = (input.len(), output.len());
        let (mut read, mut written, mut total) = (0, 0, 0);
        let result = BrotliDecompressStream(
            &mut input_left,
            &mut read,
            input,
            &mut output_left,
            &mut written,
            output,
            &mut total,
            &mut self.decoder,
        );
        let fault = match result {
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => None,
            BrotliResult::ResultSuccess => {
                self.ended = true;
                None
            }
            BrotliResult::ResultFailure => Some(self.fault()),
        };
        Step { read, written, fault }
    }

    pub(super) const fn is_whole(&self) -> bool {
        self.ended || !self.begun
    }

    fn fault(&self) -> DecodeError {
        if ALLOCATION_ERRORS.contains(&(self.decoder.error_code as i32)) {
            DecodeError::OverBudget
        } else {
            DecodeError::Corrupt
        }
    }
}

/// Allocates the decoder's memory from the budget that all decompressors share.
struct BudgetAllocator(Arc<MemoryBudget>);

/// Memory of one allocation. Empty if the budget was used up.
struct Cells<T> {
    cells: Vec<T>,
    _permit: Option<MemoryPermit>,
}

impl<T: Clone + Default> Allocator<T> for BudgetAllocator {
    type AllocatedMemory = Cells<T>;

    fn alloc_cell(&mut self, len: usize) -> Cells<T> {
        let bytes = len.saturating_mul(size_of::<T>());
        let is_small = bytes <= MAX_SMALL_ALLOCATION;
        let permit = MemoryPermit::take(&self.0, if is_small { 0 } else { bytes });
        let len = if is_small || permit.is_some() { len } else { 0 };
        Cells { cells: vec![T::default(); len], _permit: permit }
    }

    fn free_cell(&mut self, _cells: Cells<T>) {}
}

impl<T> Default for Cells<T> {
    fn default() -> Self {
        Self { cells: Vec::new(), _permit: None }
    }
}

impl<T> SliceWrapper<T> for Cells<T> {
    fn slice(&self) -> &[T] {
        &self.cells
    }
}

impl<T> SliceWrapperMut<T> for Cells<T> {
    fn slice_mut(&mut self) -> &mut [T] {
        &mut self.cells
    }
}
