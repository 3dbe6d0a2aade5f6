//! The document of `GET /api/v1/snapshot` and the events of `GET /api/v1/live`: only the fields that the view shows.
//!
//! A process of another version may send fewer or more fields. An absent or `null` field is undefined, which the view
//! shows as `–`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::histogram::Histogram;
use crate::text::Text;

/// The state of one process.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Number of the last event. The next delta has the next number.
    pub sequence: u64,
    pub at_unix_ms: u64,
    #[serde(deserialize_with = "or_default")]
    pub process: ProcessInfo,
    #[serde(deserialize_with = "or_default")]
    pub settings: Settings,
    #[serde(deserialize_with = "or_default")]
    pub now: Now,
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
    #[serde(deserialize_with = "or_default")]
    pub history: History,
    #[serde(deserialize_with = "or_default")]
    pub streams: Vec<Stream>,
    pub streams_left_out: u64,
    #[serde(deserialize_with = "or_default")]
    pub sessions: Vec<Session>,
    #[serde(deserialize_with = "or_default")]
    pub slos: Vec<Slo>,
}

/// Reads `null` as the default value.
fn or_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ProcessInfo {
    pub name: Option<Text>,
    pub version: Option<Text>,
    pub started_unix_ms: Option<u64>,
    pub uptime_seconds: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct Settings {
    pub interval_seconds: f64,
    /// Whether a process can tell sessions apart.
    pub sessions_known: Option<bool>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { interval_seconds: 5.0, sessions_known: None }
    }
}

/// Figures of the last 60 s.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Now {
    pub requests_per_second: Option<f64>,
    pub error_share: Option<ErrorShare>,
    pub output_tokens_per_second: Option<f64>,
    pub stream_output_tokens_per_second: Option<Percentiles>,
    pub time_to_first_token_seconds: Option<Percentiles>,
    pub inter_token_latency_seconds: Option<Percentiles>,
    pub in_flight: Option<u64>,
    pub queue_depth: Option<u64>,
    pub stalled: Option<u64>,
    pub worst_burn_rate: Option<WorstBurnRate>,
    pub cost_per_hour: Option<CostPerHour>,
}

/// Ratios of the finished requests that failed, by the side that caused the failure.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ErrorShare {
    pub client: Option<f64>,
    pub upstream: Option<f64>,
    pub proxy: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Percentiles {
    pub p10: Option<f64>,
    pub p50: Option<f64>,
    pub p95: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WorstBurnRate {
    pub slo: Text,
    pub window: Text,
    pub burn_rate: Option<f64>,
    pub window_seconds: Option<f64>,
    pub covered_seconds: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CostPerHour {
    pub amount: Option<f64>,
    pub currency: Text,
}

/// Something that is wrong.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    pub id: Text,
    pub severity: Severity,
    pub text: Text,
    pub since_unix_ms: Option<u64>,
    pub runbook: Option<Text>,
}

/// How bad a condition is, the worst first. A severity of a newer version is read as `Warning`.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, serde::Serialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Critical,
    #[default]
    #[serde(other)]
    Warning,
}

/// The last 15 minutes in intervals.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct History {
    pub first_interval: u64,
    /// The last complete interval.
    pub last_interval: u64,
    pub groups_left_out: u64,
    #[serde(deserialize_with = "or_default")]
    pub groups: Vec<Group>,
}

/// Requests with the same provider, model, route, tenant and variant.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Group {
    pub id: u64,
    pub provider: Option<Text>,
    pub model: Option<Text>,
    #[serde(deserialize_with = "intervals")]
    pub intervals: BTreeMap<u64, Interval>,
}

fn intervals<'de, D>(deserializer: D) -> Result<BTreeMap<u64, Interval>, D::Error>
where
    D: Deserializer<'de>,
{
    let list: Vec<(u64, Interval)> = or_default(deserializer)?;
    Ok(list.into_iter().collect())
}

/// Events of a group within one interval.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Interval {
    pub finished: u64,
    #[serde(deserialize_with = "or_default")]
    pub errors: Errors,
    pub output_tokens: u64,
    pub ttft: Histogram,
    pub itl: Histogram,
    pub rate: Histogram,
    pub in_flight: u64,
    pub queue_depth: u64,
    pub stalled: u64,
    pub cost: Option<f64>,
}

/// Failed requests by the side that caused the failure.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub struct Errors {
    pub client: u64,
    pub upstream: u64,
    pub proxy: u64,
}

/// A request in flight.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Stream {
    pub request_number: u64,
    pub provider: Option<Text>,
    pub model: Option<Text>,
    pub route: Option<Text>,
    pub tenant: Option<Text>,
    pub session: Option<Text>,
    pub phase: Option<Text>,
    pub age_seconds: Option<f64>,
    pub time_to_first_token_seconds: Option<f64>,
    pub tokens: Option<u64>,
    pub output_tokens_per_second: Option<f64>,
    pub idle_seconds: Option<f64>,
    pub stalled: Option<bool>,
    pub waiting_for: Option<Text>,
    #[serde(deserialize_with = "or_default")]
    pub stages: Stages,
}

/// Seconds in each stage so far.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, serde::Serialize)]
#[serde(default)]
pub struct Stages {
    pub admission: f64,
    pub connect: f64,
    pub upload: f64,
    pub headers: f64,
    pub first_token: f64,
    pub reasoning: f64,
    pub decode: f64,
    pub tail: f64,
}

/// The calls of one conversation.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Session {
    pub id: Text,
    pub agent: Option<Text>,
    pub tenant: Option<Text>,
    pub calls: u64,
    pub input_tokens: Option<u64>,
    pub cached_input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub cost: Option<Cost>,
    pub first_unix_ms: Option<u64>,
    pub last_unix_ms: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, serde::Serialize)]
#[serde(default)]
pub struct Cost {
    pub amount: f64,
    pub currency: Text,
}

/// A service level objective.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Slo {
    pub name: Text,
    pub sli: Option<Text>,
    pub threshold: Option<Threshold>,
    pub target: Option<f64>,
    pub window_seconds: Option<f64>,
    pub good: u64,
    pub bad: u64,
    pub excluded: u64,
    pub error_budget_remaining: Option<f64>,
    #[serde(deserialize_with = "or_default")]
    pub burn_rate: BTreeMap<Text, Option<f64>>,
    pub window_covered_seconds: Option<f64>,
    pub time_to_exhaustion_seconds: Option<f64>,
    #[serde(deserialize_with = "or_default")]
    pub consumed_by: Vec<Consumer>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Threshold {
    pub value: Option<f64>,
    pub unit: Text,
}

/// A cause of bad events.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Consumer {
    pub model: Option<Text>,
    pub error_type: Option<Text>,
    pub bad: u64,
}

/// An event `delta`. A field that is present replaces the former value.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Delta {
    pub sequence: u64,
    pub at_unix_ms: u64,
    process: Option<ProcessInfo>,
    settings: Option<Settings>,
    now: Option<Now>,
    conditions: Option<Vec<Condition>>,
    history: Option<HistoryDelta>,
    streams: Option<StreamsDelta>,
    streams_left_out: Option<u64>,
    sessions: Option<Vec<Session>>,
    slos: Option<Vec<Slo>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct HistoryDelta {
    first_interval: Option<u64>,
    last_interval: Option<u64>,
    groups_left_out: Option<u64>,
    new_groups: Vec<Group>,
    intervals: Vec<(u64, u64, Interval)>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct StreamsDelta {
    changed: Vec<Stream>,
    ended: Vec<u64>,
}

/// Maximum number of groups and of streams that are kept. A process sends at most 64 groups and 5,000 streams, unless
/// its settings are higher.
const MAX_GROUPS: usize = 1_024;
const MAX_STREAMS: usize = 20_000;

/// A delta that does not follow the previous event.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("event {received} follows event {previous}; events were lost")]
pub struct LostEvents {
    previous: u64,
    received: u64,
}

impl Snapshot {
    /// Applies a delta.
    ///
    /// # Errors
    /// Returns an error if the delta does not follow the previous event. The document must then be read again.
    pub fn apply(&mut self, delta: Delta) -> Result<(), LostEvents> {
        if delta.sequence != self.sequence.saturating_add(1) {
            return Err(LostEvents { previous: self.sequence, received: delta.sequence });
        }
        self.sequence = delta.sequence;
        self.at_unix_ms = delta.at_unix_ms;
        replace(&mut self.process, delta.process);
        replace(&mut self.settings, delta.settings);
        replace(&mut self.now, delta.now);
        replace(&mut self.conditions, delta.conditions);
        replace(&mut self.streams_left_out, delta.streams_left_out);
        replace(&mut self.sessions, delta.sessions);
        replace(&mut self.slos, delta.slos);
        if let Some(history) = delta.history {
            self.history.apply(history);
        }
        if let Some(streams) = delta.streams {
            self.apply_streams(streams);
        }
        Ok(())
    }

    fn apply_streams(&mut self, delta: StreamsDelta) {
        let positions = self.streams.iter().enumerate();
        let positions: BTreeMap<u64, usize> =
            positions.map(|(index, stream)| (stream.request_number, index)).collect();
        for stream in delta.changed {
            let index = positions.get(&stream.request_number).copied();
            set_or_push(&mut self.streams, index, stream, MAX_STREAMS);
        }
        let ended: std::collections::BTreeSet<u64> = delta.ended.into_iter().collect();
        self.streams.retain(|stream| !ended.contains(&stream.request_number));
    }
}

fn replace<T>(value: &mut T, new: Option<T>) {
    if let Some(new) = new {
        *value = new;
    }
}

/// Replaces the item at `index`, or adds an item if there are fewer than `limit`.
fn set_or_push<T>(items: &mut Vec<T>, index: Option<usize>, new: T, limit: usize) {
    if let Some(previous) = index.and_then(|index| items.get_mut(index)) {
        *previous = new;
    } else if items.len() < limit {
        items.push(new);
    }
}

impl History {
    fn apply(&mut self, delta: HistoryDelta) {
        replace(&mut self.first_interval, delta.first_interval);
        replace(&mut self.last_interval, delta.last_interval);
        replace(&mut self.groups_left_out, delta.groups_left_out);
        let known: BTreeMap<u64, usize> =
            self.groups.iter().enumerate().map(|(index, group)| (group.id, index)).collect();
        for group in delta.new_groups {
            let index = known.get(&group.id).copied();
            set_or_push(&mut self.groups, index, group, MAX_GROUPS);
        }
        let positions = self.groups.iter().enumerate();
        let positions: BTreeMap<u64, usize> =
            positions.map(|(index, group)| (group.id, index)).collect();
        for (id, number, interval) in delta.intervals {
            let index = positions.get(&id).copied();
            if let Some(group) = index.and_then(|index| self.groups.get_mut(index)) {
                group.intervals.insert(number, interval);
            }
        }
        for group in &mut self.groups {
            // Intervals before the first and after the last one, so that their number stays bounded.
            group.intervals = group.intervals.split_off(&self.first_interval);
            drop(group.intervals.split_off(&self.last_interval.saturating_add(1)));
        }
        // Such a group comes again in `new_groups`.
        self.groups.retain(|group| !group.intervals.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot() -> Snapshot {
        serde_json::from_value(json!({
            "schema": 1, "sequence": 7, "at_unix_ms": 1000, "later": {"x": 1},
            "process": {"name": "pod-1"}, "conditions": null,
            "history": {"first_interval": 10, "last_interval": 12, "groups": [
                {"id": 1, "model": "a", "intervals": [[10, {"finished": 1}], [11, {"finished": 2}]]}]},
            "streams": [{"request_number": 1, "tokens": 3}, {"request_number": 2, "tokens": null}],
        }))
        .unwrap()
    }

    #[test]
    fn tolerates_absent_null_and_additional_fields() {
        let empty: Snapshot = serde_json::from_str("{}").unwrap();
        assert!(empty.now.requests_per_second.is_none() && empty.process.name.is_none());
        let snapshot = snapshot();
        assert!(snapshot.conditions.is_empty());
        assert_eq!(snapshot.history.groups.len(), 1);
        let severity = |text: &str| serde_json::from_str::<Severity>(text).unwrap();
        assert_eq!(
            [severity("\"critical\""), severity("\"grave\"")],
            [Severity::Critical, Severity::Warning]
        );
    }

    #[test]
    fn applies_a_delta() {
        let mut snapshot = snapshot();
        let delta = json!({"sequence": 8, "at_unix_ms": 2000, "now": {"in_flight": 4},
            "history": {"first_interval": 11, "last_interval": 13, "new_groups": [{"id": 2, "model": "b"}],
                "intervals": [[1, 11, {"finished": 5}], [2, 13, {"finished": 1}], [9, 13, {}], [1, 99, {}]]},
            "streams": {"changed": [{"request_number": 2, "tokens": 9}, {"request_number": 3}], "ended": [1]}});
        snapshot.apply(serde_json::from_value(delta).unwrap()).unwrap();
        assert_eq!(snapshot.now.in_flight, Some(4));
        assert_eq!(snapshot.process.name, Some(Text::new("pod-1")), "absent fields stay");
        let finished: Vec<Vec<(u64, u64)>> = (snapshot.history.groups.iter())
            .map(|group| group.intervals.iter().map(|(n, it)| (*n, it.finished)).collect())
            .collect();
        assert_eq!(finished, [vec![(11, 5)], vec![(13, 1)]]);
        let streams: Vec<_> =
            snapshot.streams.iter().map(|it| (it.request_number, it.tokens)).collect();
        assert_eq!(streams, [(2, Some(9)), (3, None)]);
    }

    #[test]
    fn detects_lost_events() {
        let mut snapshot = snapshot();
        let delta = Delta { sequence: 9, ..Delta::default() };
        let error = snapshot.apply(delta).unwrap_err();
        assert_eq!(error.to_string(), "event 9 follows event 7; events were lost");
    }
}
