//! Live view of the traffic, for the web console, `tokengauge top` and other readers of `/api/v1`.
//!
//! A [`Recorder`] gets every measurement and every finished request. It keeps 15 minutes of history and the notable
//! requests. [`Snapshot`](document::Snapshot) is the document that readers get; the module `snapshot` builds it once a
//! second while there are readers.

pub mod assets;
mod conditions;
pub mod document;
mod histogram;
pub mod history;
mod now;
mod rate_limits;
mod readings;
mod recorder;
pub mod requests;
mod seconds;
mod sessions;
mod slos;
mod snapshot;
mod ticks;

pub use history::{ChunkSample, GroupId};
pub use readings::Readings;
pub use recorder::{EndedRequest, Recorder, RecorderReading, Settings};
pub use snapshot::{ProcessFacts, SnapshotBuilder};
pub use ticks::ChunkTicks;
