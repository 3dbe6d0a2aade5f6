//! Decompresses zstd (RFC 8878): a sequence of frames, some of which may be skippable.

use std::sync::Arc;

use zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::DecodeError;
use super::Step;
use crate::budget::{MemoryBudget, MemoryPermit};

/// Base-2 logarithm of the largest accepted window: 8 MiB, the limit of RFC 9659 for a content encoding. Browsers and
/// curl reject larger windows, too. The library would accept 128 MiB.
const WINDOW_LOG: u32 = 23;

pub(super) struct Zstd {
    context: DCtx<'static>,
    /// Memory of a new decoder in bytes, before it allocates a window.
    bare: usize,
    written: usize,
    /// Whether the next byte starts a new frame. True at the start, and after a frame whose output was emitted
    /// completely.
    between: bool,
    /// Whether the last step filled its output buffer. The decoder may then have more output without new input.
    has_more: bool,
    memory: MemoryPermit,
}

impl Zstd {
    pub(super) fn new(memory: &Arc<MemoryBudget>) -> Option<Self> {
        let mut context = DCtx::try_create()?;
        context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG)).ok()?;
        let bare = context.sizeof();
        Some(Self {
            context,
            bare,
            written: 0,
            between: true,
            has_more: false,
            memory: MemoryPermit::take(memory, bare)?,
        })
    }

    pub(super) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        if input.is_empty() && !self.has_more {
            return Step::default();
        }
        let room = output.len();
        let mut plain = OutBuffer::around(output);
        let mut coded = InBuffer::around(input);
        let wanted = self.context.decompress_stream(&mut plain, &mut coded);
        let (read, written) = (coded.pos(), plain.pos());
        self.written = self.written.saturating_add(written);
        self.between = wanted == Ok(0);
        self.has_more = written == room && !self.between;
        let fault = match wanted {
            Ok(_) if self.memory.resize(self.touched()) => None,
            Ok(_) => Some(DecodeError::OverBudget),
            Err(code)
                if code == error(ZSTD_ErrorCode::ZSTD_error_frameParameter_windowTooLarge) =>
            {
                Some(DecodeError::TooLarge)
            }
            Err(_) => Some(DecodeError::Corrupt),
        };
        Step { read, written, fault }
    }

    pub(super) const fn is_whole(&self) -> bool {
        self.between
    }

    /// Returns an estimate of the memory in use, in bytes.
    ///
    /// The library allocates whole buffers at once: one for the output window and one for the incoming block. The
    /// operating system provides physical memory only for the parts that were written.
    fn touched(&self) -> usize {
        let buffers = self.written.saturating_mul(2);
        self.context.sizeof().min(self.bare.saturating_add(buffers))
    }
}

/// Returns an error code as the library does: as a negative size.
fn error(code: ZSTD_ErrorCode) -> usize {
    0_usize.wrapping_sub(code as usize)
}
