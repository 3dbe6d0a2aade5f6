//! Builds snapshots from the readings of a process.

use crate::conditions::ConditionTracker;
use crate::document::{self, Process, Snapshot, Stream, Text};
use crate::history::{INTERVAL, MAX_GROUPS, WINDOW_INTERVALS};
use crate::now::{as_f64, now};
use crate::rate_limits::rate_limits;
use crate::readings::Readings;
use crate::recorder::{self, RecorderReading};
use crate::requests::PER_LIST;

/// Version of the format.
const SCHEMA: u32 = 1;

/// Maximum number of streams in a document. Two megabytes of JSON, which a console updates every second.
pub const MAX_STREAMS: usize = 5_000;

/// Facts about the process that do not change.
#[derive(Clone, Debug, Default)]
pub struct ProcessFacts {
    pub name: Text,
    pub version: Text,
    pub started_unix_ms: u64,
}

/// Builds the snapshots of a process, in order.
#[derive(Debug, Default)]
pub struct SnapshotBuilder {
    process: ProcessFacts,
    sequence: u64,
    conditions: ConditionTracker,
}

impl SnapshotBuilder {
    pub fn new(process: ProcessFacts) -> Self {
        Self { process, ..Self::default() }
    }

    /// Returns the next snapshot.
    pub fn next(&mut self, readings: Readings) -> Snapshot {
        self.sequence += 1;
        let conditions = self.conditions.update(&readings);
        let Readings { recorded, load, slos, slo_objects, engines, mut streams } = readings;
        let now = now(&recorded, &load, &slos);
        streams.sort_by_key(Stream::order);
        let streams_left_out = streams.len().saturating_sub(MAX_STREAMS);
        streams.truncate(MAX_STREAMS);
        let RecorderReading {
            at_unix_ms,
            history,
            requests,
            sessions,
            consumed,
            excluded,
            settings,
            ..
        } = recorded;
        let objects = slo_objects.into_iter().zip(consumed).zip(excluded);
        let slo = |((objective, consumed_by), excluded_by)| document::Slo {
            objective,
            consumed_by,
            excluded_by,
        };
        Snapshot {
            schema: SCHEMA,
            sequence: self.sequence,
            at_unix_ms,
            process: self.process.document(at_unix_ms),
            settings: settings_document(&settings),
            now,
            conditions,
            history: history.history,
            streams,
            streams_left_out: streams_left_out as u64,
            requests,
            sessions,
            slos: objects.map(slo).collect(),
            engines,
            rate_limits: rate_limits(&load, at_unix_ms),
        }
    }
}

impl ProcessFacts {
    fn document(&self, at_unix_ms: u64) -> Process {
        Process {
            name: Text::clone(&self.name),
            version: Text::clone(&self.version),
            started_unix_ms: self.started_unix_ms,
            uptime_seconds: as_f64(at_unix_ms.saturating_sub(self.started_unix_ms)) / 1_000.0,
        }
    }
}

impl Default for document::Settings {
    fn default() -> Self {
        settings_document(&recorder::Settings::default())
    }
}

fn settings_document(settings: &recorder::Settings) -> document::Settings {
    document::Settings {
        window_seconds: WINDOW_INTERVALS * INTERVAL.as_secs(),
        interval_seconds: INTERVAL.as_secs(),
        max_groups: MAX_GROUPS as u64,
        max_streams: MAX_STREAMS as u64,
        requests_per_list: PER_LIST as u64,
        trace_url: settings.trace_url.clone(),
        names_hidden: settings.hide_names,
        sessions_known: settings.has_sessions,
    }
}
