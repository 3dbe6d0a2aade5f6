//! Conversations of agents.

use std::collections::BTreeMap;

use serde::Serialize;

use super::now::costs;
use super::{Reachable, count};
use crate::document::{self, Cost};
use crate::text::Text;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Session {
    pub id: Text,
    pub agent: Option<Text>,
    pub tenant: Option<Text>,
    pub calls: u64,
    pub input_tokens: Option<u64>,
    pub cached_input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    /// One sum per currency.
    pub cost: Vec<Cost>,
    pub first_unix_ms: Option<u64>,
    pub last_unix_ms: Option<u64>,
}

impl Session {
    fn merge(sessions: &[&document::Session]) -> Self {
        let each = || sessions.iter().copied();
        Self {
            id: each().map(|it| it.id.clone()).next().unwrap_or_default(),
            agent: each().find_map(|it| it.agent.clone()),
            tenant: each().find_map(|it| it.tenant.clone()),
            calls: each().fold(0, |sum, it| sum.saturating_add(it.calls)),
            input_tokens: count(each().map(|it| it.input_tokens)),
            cached_input_tokens: count(each().map(|it| it.cached_input_tokens)),
            output_tokens: count(each().map(|it| it.output_tokens)),
            cost: costs(each().filter_map(|it| it.cost.clone())),
            first_unix_ms: each().filter_map(|it| it.first_unix_ms).min(),
            last_unix_ms: each().filter_map(|it| it.last_unix_ms).max(),
        }
    }

    /// Returns the part of the input tokens that came from the provider's cache.
    pub fn cached_share(&self) -> Option<f64> {
        let input = self.input_tokens.filter(|tokens| *tokens > 0)?;
        self.cached_input_tokens.map(|cached| cached as f64 / input as f64)
    }

    pub fn duration_seconds(&self) -> Option<f64> {
        let (first, last) = self.first_unix_ms.zip(self.last_unix_ms)?;
        Some(last.saturating_sub(first) as f64 / 1e3)
    }
}

/// Merges sessions with the same id and tenant, because the calls of a session can go to several processes. The latest
/// session comes first.
pub(super) fn merge(processes: &[Reachable<'_>]) -> Vec<Session> {
    let mut merged: BTreeMap<(&Text, &Option<Text>), Vec<&document::Session>> = BTreeMap::new();
    for process in processes {
        for session in &process.snapshot.sessions {
            merged.entry((&session.id, &session.tenant)).or_default().push(session);
        }
    }
    let mut sessions: Vec<Session> = merged.values().map(|it| Session::merge(it)).collect();
    sessions.sort_by_key(|session| std::cmp::Reverse(session.last_unix_ms));
    sessions
}
