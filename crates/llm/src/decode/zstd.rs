//! zstd (RFC 8878): frames one after another, skippable ones among them.

use zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::DecodeError;
use super::codec::Step;
use super::memory::{Loan, Memory};

/// The largest window that is inflated, as its power of two: 8 MiB, what RFC 9659 allows in this content-encoding.
/// Browsers and curl refuse more, so a server that sends it serves nobody; the library's own limit is 128 MiB.
const WINDOW_LOG: u32 = 23;

pub(super) struct Zstd {
    context: DCtx<'static>,
    /// Of the context when it is made, before it has a window.
    bare: usize,
    written: usize,
    /// At the end of a frame, with everything handed out; or before the first.
    between: bool,
    /// The last step filled its output, so that there may be more without further input.
    has_more: bool,
    memory: Loan,
}

impl Zstd {
    pub(super) fn new(memory: &'static Memory) -> Option<Self> {
        let mut context = DCtx::try_create()?;
        context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG)).ok()?;
        let bare = context.sizeof();
        Some(Self {
            context,
            bare,
            written: 0,
            between: true,
            has_more: false,
            memory: memory.lend(bare)?,
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
            Ok(_) if self.memory.grow_to(self.touched()) => None,
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

    /// What it holds: its buffers are allocated for the whole window at once, but the system has memory behind them
    /// only as far as they were written to, the one for what came out and the one for the block that came in.
    fn touched(&self) -> usize {
        let buffers = self.written.saturating_mul(2);
        self.context.sizeof().min(self.bare.saturating_add(buffers))
    }
}

/// An error as the library returns it, in place of a size.
fn error(code: ZSTD_ErrorCode) -> usize {
    0_usize.wrapping_sub(code as usize)
}
