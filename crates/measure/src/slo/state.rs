//! The books, put away when the process ends and taken up again when it begins.
//!
//! All windows stand on the ledger's own time line: the process's monotonic clock, set forward at each start by what lay
//! before. So slots keep their numbers over a restart, and what was counted is neither squeezed nor spread. How much time
//! passed while no process ran is all that the wall clock is asked for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::slo::budget::Slot;

/// Everything that a ledger has to remember. Instants are nanoseconds on its time line, but for `wall`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SloState {
    /// When it was put away, in nanoseconds since the Unix epoch.
    pub(super) wall: u64,
    /// The same on the time line.
    pub(super) clock: u64,
    pub(super) accounts: Vec<Kept>,
}

impl SloState {
    /// To be raised whenever what stands in a state is read differently: other windows, other slots, other instants.
    pub const VERSION: u32 = 1;
}

/// One objective's history.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kept {
    /// Everything that makes the objective what it is; one that differs in anything starts afresh.
    pub(super) identity: String,
    pub(super) since: u64,
    pub(super) gaps: Vec<(u64, u64)>,
    /// The budget's window, then those of [`BURN_WINDOWS`](crate::slo::BURN_WINDOWS).
    pub(super) windows: Vec<Vec<Slot>>,
}

/// What came of a state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Restored {
    /// Objectives that go on where they were.
    pub objectives: usize,
    /// How long nothing was observed, by the wall clock.
    pub down: Duration,
    /// By how much the wall clock is behind the one that the state was put away by. No time has passed then.
    pub set_back: Option<Duration>,
}

/// A state that no ledger can have left behind.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("its slots, gaps or windows are not such as this program writes")]
pub struct CorruptState;
