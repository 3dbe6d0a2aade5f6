//! SLO state that is saved at shutdown and restored at startup.
//!
//! All windows use the timeline of the SLO tracker: the monotonic clock of the process plus an offset for all earlier
//! processes. Slots therefore keep their numbers across restarts, and events stay in their slots. The wall clock only
//! measures the time during which no process ran.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::slo::budget::Slot;

/// Saved state of an SLO tracker. Instants are nanoseconds on the tracker's timeline; `wall` is wall-clock time.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SloState {
    /// Time of saving, in nanoseconds since the Unix epoch.
    pub(super) wall: u64,
    /// Time of saving on the timeline.
    pub(super) clock: u64,
    #[serde(rename = "accounts")]
    pub(super) slos: Vec<SavedSlo>,
}

impl SloState {
    /// Version of the state format. Increase the version whenever the meaning of the state changes: other windows,
    /// other slots or other instants.
    pub const VERSION: u32 = 1;
}

/// Saved history of one SLO.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedSlo {
    /// Complete definition of the SLO as JSON. If the definition has changed, the SLO starts without history.
    pub(super) identity: String,
    pub(super) since: u64,
    pub(super) gaps: Vec<(u64, u64)>,
    /// The budget's window, then those of [`BURN_WINDOWS`](crate::slo::BURN_WINDOWS).
    pub(super) windows: Vec<Vec<Slot>>,
}

/// Result of restoring a state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Restored {
    /// Number of SLOs that continue.
    pub objectives: usize,
    /// Duration of the unobserved time, by the wall clock.
    pub down: Duration,
    /// How far the wall clock was set back since the state was saved; `None` if not. The downtime then counts as zero.
    pub set_back: Option<Duration>,
}

/// Error for an invalid state, which no tracker can have saved.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("its slots, gaps or windows are not such as this program writes")]
pub struct CorruptState;
