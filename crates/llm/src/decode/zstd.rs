//! zstd (RFC 8878): a sequence of frames, including skippable frames.

use zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::DecodeError;
use super::Step;
use crate::memory::{MemoryBudget, MemoryPermit};

/// Base-2 logarithm of the largest accepted window: 8 MiB, the RFC 9659 limit for this content encoding. Browsers and
/// curl reject larger windows, so servers have no reason to send them. The library's limit is 128 MiB.
const WINDOW_LOG: u32 = 23;

pub(super) struct Zstd {
    context: DCtx<'static>,
    /// Size in bytes of a new context, before it allocates a window.
    bare: usize,
    written: usize,
    /// The decoder is before the first frame, or at the end of a frame with all output emitted.
    between: bool,
    /// The last step filled its output, so more output may be available without further input.
    has_more: bool,
    memory: MemoryPermit<&'static MemoryBudget>,
}

impl Zstd {
    pub(super) fn new(memory: &'static MemoryBudget) -> Option<Self> {
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
            Ok(_) => Some(DecodeError::TooLarge),
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

    /// Returns an estimate of the resident memory in bytes.
    ///
    /// The library allocates its buffers for the whole window at once: one for output and one for the incoming block.
    /// The operating system backs them with memory only up to the part that was written.
    fn touched(&self) -> usize {
        let buffers = self.written.saturating_mul(2);
        self.context.sizeof().min(self.bare.saturating_add(buffers))
    }
}

/// Returns an error code in the form in which the library returns it in place of a size.
fn error(code: ZSTD_ErrorCode) -> usize {
    0_usize.wrapping_sub(code as usize)
}
