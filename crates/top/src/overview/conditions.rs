//! What is wrong, in words.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::Reachable;
use crate::document::Severity;
use crate::text::Text;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Condition {
    pub severity: Severity,
    pub text: Text,
    /// The earliest start in any process.
    pub since_unix_ms: Option<u64>,
    pub runbook: Option<Text>,
    /// The processes in which the condition holds.
    pub processes: Vec<Text>,
}

/// Merges conditions with the same id. The text is the one of the process with the highest severity. The most severe
/// conditions come first, then those that hold in the most processes, then the oldest.
pub(super) fn merge(processes: &[Reachable<'_>]) -> Vec<Condition> {
    let mut merged: BTreeMap<&Text, Condition> = BTreeMap::new();
    for process in processes {
        for condition in &process.snapshot.conditions {
            let entry = merged.entry(&condition.id).or_insert_with(|| Condition {
                severity: condition.severity,
                text: condition.text.clone(),
                since_unix_ms: condition.since_unix_ms,
                runbook: condition.runbook.clone(),
                processes: Vec::new(),
            });
            if condition.severity < entry.severity {
                entry.severity = condition.severity;
                entry.text = condition.text.clone();
            }
            let starts = [entry.since_unix_ms, condition.since_unix_ms];
            entry.since_unix_ms = starts.into_iter().flatten().min();
            if entry.processes.last() != Some(process.name) {
                entry.processes.push(process.name.clone());
            }
        }
    }
    let mut merged: Vec<Condition> = merged.into_values().collect();
    merged.sort_by_key(|condition| {
        let Condition { severity, processes, since_unix_ms, .. } = condition;
        (*severity, Reverse(processes.len()), *since_unix_ms)
    });
    merged
}
