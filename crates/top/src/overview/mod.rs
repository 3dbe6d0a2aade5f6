//! Merges the documents of all processes into what the view shows.
//!
//! Counts and rates are sums. Percentiles come from merged histograms. A value that cannot be merged, such as a burn
//! rate, is the one of the worst process, which is named. Nothing is averaged.

mod conditions;
mod models;
mod now;
mod processes;
mod sessions;
mod slos;
mod streams;

use serde::Serialize;

pub use conditions::Condition;
pub use models::Model;
pub use now::{Now, Percentiles};
pub use processes::{Deviation, Measure, Process};
pub use sessions::Session;
pub use slos::Slo;
pub use streams::{Phase, Stream};

use crate::document::Snapshot;
use crate::text::Text;

/// One process, as it was last read.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The address of the admin port, as the view shows it.
    pub address: String,
    /// The last document.
    pub snapshot: Option<Snapshot>,
    /// Why the process cannot be read now. Its last document is then not merged.
    pub failure: Option<Failure>,
}

/// Why a process cannot be read, and since when.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failure {
    pub since_unix_ms: u64,
    pub reason: Text,
}

/// The merged document of all processes. `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct Overview {
    pub schema: u32,
    /// Time of the newest document. `None` if no process was read.
    pub at_unix_ms: Option<u64>,
    pub processes: Vec<Process>,
    /// Addresses beyond the limit of processes, which are not read.
    pub processes_left_out: usize,
    pub now: Now,
    pub conditions: Vec<Condition>,
    pub deviations: Vec<Deviation>,
    pub models: Vec<Model>,
    pub streams: Vec<Stream>,
    pub streams_left_out: u64,
    pub slos: Vec<Slo>,
    /// Whether a process can tell sessions apart. `None` if no process reports it.
    pub sessions_known: Option<bool>,
    pub sessions: Vec<Session>,
}

/// A process that is part of the merged figures.
struct Reachable<'a> {
    /// Name of the process, unique among all processes.
    name: &'a Text,
    snapshot: &'a Snapshot,
}

impl Overview {
    /// Merges the documents. The order of `sources` does not change the result.
    pub fn merge(sources: &[Source], processes_left_out: usize) -> Self {
        let mut ordered: Vec<&Source> = sources.iter().collect();
        ordered.sort_by(|a, b| a.address.cmp(&b.address));
        let names = processes::names(&ordered);
        let reachable: Vec<Reachable<'_>> = (ordered.iter().zip(&names))
            .filter(|(source, _)| source.failure.is_none())
            .filter_map(|(source, name)| {
                Some(Reachable { name, snapshot: source.snapshot.as_ref()? })
            })
            .collect();
        let processes: Vec<Process> = (ordered.iter().zip(&names))
            .map(|(source, name)| Process::from_source(source, name.clone()))
            .collect();
        let snapshots = || reachable.iter().map(|process| process.snapshot);
        Self {
            schema: 1,
            at_unix_ms: snapshots().map(|it| it.at_unix_ms).max(),
            deviations: processes::deviations(&processes),
            processes,
            processes_left_out,
            now: Now::merge(&reachable),
            conditions: conditions::merge(&reachable),
            models: models::merge(&reachable),
            streams: streams::merge(&reachable),
            streams_left_out: snapshots()
                .fold(0, |sum, it| it.streams_left_out.saturating_add(sum)),
            slos: slos::merge(&reachable),
            sessions_known: snapshots().filter_map(|it| it.settings.sessions_known).max(),
            sessions: sessions::merge(&reachable),
        }
    }

    /// Returns whether at least one process was read.
    pub const fn has_data(&self) -> bool {
        self.at_unix_ms.is_some()
    }

    pub fn unreachable(&self) -> usize {
        self.processes.iter().filter(|process| process.failure.is_some()).count()
    }
}

/// Adds the defined values. `None` if all are undefined.
fn sum(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.flatten().fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

/// Adds the defined counts. `None` if all are undefined.
fn count(values: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    values
        .flatten()
        .fold(None, |sum: Option<u64>, value| Some(sum.unwrap_or(0).saturating_add(value)))
}

#[cfg(test)]
mod tests;
