//! Changes from one snapshot to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Condition, Group, History, Interval, Now, Process, RateLimit, RequestLists, Session, Settings,
    Slo, Snapshot, Stream, Text,
};

/// The event `delta` of `/api/v1/live`. A key that is present replaces the former value as a whole, except `history` and
/// `streams`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default)]
pub struct Delta {
    /// One more than the number of the former state. A client that misses a number connects again.
    pub sequence: u64,
    pub at_unix_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<Settings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<Now>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryDelta>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<StreamsDelta>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams_left_out: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestLists>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Vec<Arc<Session>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slos: Option<Vec<Slo>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engines: Option<Vec<serde_json::Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limits: Option<Vec<RateLimit>>,
}

/// Changes of the history. Intervals before `first_interval` are dropped, and then groups without an interval.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HistoryDelta {
    pub first_interval: u64,
    pub last_interval: u64,
    pub groups_left_out: u64,
    pub gap_before_unix_ms: Option<u64>,
    pub new_groups: Vec<NewGroup>,
    /// Burn rates of the intervals after the former `last_interval`.
    pub new_burn_rates: Vec<(u64, f64)>,
    /// Group, number and content of each interval that is new or has changed.
    pub intervals: Vec<(u64, u64, Arc<Interval>)>,
}

/// The names of a group that was not in the former state.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct NewGroup {
    pub id: u64,
    pub provider: Text,
    pub model: Text,
    pub route: Text,
    pub tenant: Option<Text>,
    pub variant: Option<Text>,
}

/// Changes of the requests in flight. The order of all streams is: stalled first, then by `request_number`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct StreamsDelta {
    /// Streams that are new or have changed.
    pub changed: Vec<Stream>,
    /// `request_number` of each stream that left the list.
    pub ended: Vec<u64>,
}

/// Returns `new` if it differs from `old`.
fn changed<T: Clone + PartialEq>(old: &T, new: &T) -> Option<T> {
    (old != new).then(|| new.clone())
}

impl Delta {
    /// Returns the changes from `old` to `new`.
    pub fn between(old: &Snapshot, new: &Snapshot) -> Self {
        Self {
            sequence: new.sequence,
            at_unix_ms: new.at_unix_ms,
            process: changed(&old.process, &new.process),
            settings: changed(&old.settings, &new.settings),
            now: changed(&old.now, &new.now),
            conditions: changed(&old.conditions, &new.conditions),
            history: HistoryDelta::between(&old.history, &new.history),
            streams: StreamsDelta::between(&old.streams, &new.streams),
            streams_left_out: changed(&old.streams_left_out, &new.streams_left_out),
            requests: changed(&old.requests, &new.requests),
            sessions: changed(&old.sessions, &new.sessions),
            slos: changed(&old.slos, &new.slos),
            engines: changed(&old.engines, &new.engines),
            rate_limits: changed(&old.rate_limits, &new.rate_limits),
        }
    }

    /// Applies the changes to the state before them.
    pub fn apply(self, state: &mut Snapshot) {
        fn replace<T>(old: &mut T, new: Option<T>) {
            if let Some(new) = new {
                *old = new;
            }
        }
        state.sequence = self.sequence;
        state.at_unix_ms = self.at_unix_ms;
        replace(&mut state.process, self.process);
        replace(&mut state.settings, self.settings);
        replace(&mut state.now, self.now);
        replace(&mut state.conditions, self.conditions);
        replace(&mut state.streams_left_out, self.streams_left_out);
        replace(&mut state.requests, self.requests);
        replace(&mut state.sessions, self.sessions);
        replace(&mut state.slos, self.slos);
        replace(&mut state.engines, self.engines);
        replace(&mut state.rate_limits, self.rate_limits);
        if let Some(history) = self.history {
            history.apply(&mut state.history);
        }
        if let Some(streams) = self.streams {
            streams.apply(&mut state.streams);
        }
    }
}

impl HistoryDelta {
    fn between(old: &History, new: &History) -> Option<Self> {
        let former: BTreeMap<u64, &Group> = old.groups.iter().map(|it| (it.id, it)).collect();
        let is_new = |group: &&Group| !former.contains_key(&group.id);
        let new_groups: Vec<_> = new.groups.iter().filter(is_new).map(NewGroup::of).collect();
        let mut intervals = Vec::new();
        for group in &new.groups {
            let mut known = former.get(&group.id).map_or(&[][..], |it| &it.intervals).iter();
            let mut next_known = known.next();
            for (number, interval) in &group.intervals {
                while next_known.is_some_and(|(it, _)| it < number) {
                    next_known = known.next();
                }
                let same = next_known.is_some_and(|(it, content)| {
                    it == number && (Arc::ptr_eq(content, interval) || content == interval)
                });
                if !same {
                    intervals.push((group.id, *number, Arc::clone(interval)));
                }
            }
        }
        let head = |it: &History| {
            (it.first_interval, it.last_interval, it.groups_left_out, it.gap_before_unix_ms)
        };
        let known = old.burn_rates.last().map(|(interval, _)| *interval);
        let is_unknown = |(interval, _): &&(u64, f64)| known.is_none_or(|known| *interval > known);
        let new_burn_rates: Vec<_> = new.burn_rates.iter().filter(is_unknown).copied().collect();
        let is_same = new_groups.is_empty() && intervals.is_empty() && head(old) == head(new);
        (!is_same).then_some(Self {
            first_interval: new.first_interval,
            last_interval: new.last_interval,
            groups_left_out: new.groups_left_out,
            gap_before_unix_ms: new.gap_before_unix_ms,
            new_groups,
            new_burn_rates,
            intervals,
        })
    }

    fn apply(self, history: &mut History) {
        history.first_interval = self.first_interval;
        history.last_interval = self.last_interval;
        history.groups_left_out = self.groups_left_out;
        history.gap_before_unix_ms = self.gap_before_unix_ms;
        let first = self.first_interval;
        history.burn_rates.extend(self.new_burn_rates);
        history.burn_rates.retain(|(number, _)| *number >= first);
        for group in &mut history.groups {
            group.intervals.retain(|(number, _)| *number >= first);
        }
        history.groups.extend(self.new_groups.into_iter().map(Group::from));
        for (id, number, interval) in self.intervals {
            let Some(group) = history.groups.iter_mut().find(|group| group.id == id) else {
                continue;
            };
            match group.intervals.binary_search_by_key(&number, |(number, _)| *number) {
                Ok(place) => {
                    if let Some(slot) = group.intervals.get_mut(place) {
                        slot.1 = interval;
                    }
                }
                Err(place) => group.intervals.insert(place, (number, interval)),
            }
        }
        history.groups.retain(|group| !group.intervals.is_empty());
        history.groups.sort_by_key(|group| group.id);
    }
}

impl NewGroup {
    fn of(group: &Group) -> Self {
        let Group { id, provider, model, route, tenant, variant, intervals: _ } = group.clone();
        Self { id, provider, model, route, tenant, variant }
    }
}

impl From<NewGroup> for Group {
    fn from(new: NewGroup) -> Self {
        let NewGroup { id, provider, model, route, tenant, variant } = new;
        Self { id, provider, model, route, tenant, variant, intervals: Vec::new() }
    }
}

impl StreamsDelta {
    fn between(old: &[Stream], new: &[Stream]) -> Option<Self> {
        let former: BTreeMap<u64, &Stream> = old.iter().map(|it| (it.request_number, it)).collect();
        let current: BTreeSet<u64> = new.iter().map(|it| it.request_number).collect();
        let differs = |it: &&Stream| former.get(&it.request_number).is_none_or(|old| old != it);
        let changed: Vec<_> = new.iter().filter(differs).cloned().collect();
        let ended: Vec<_> = former.into_keys().filter(|it| !current.contains(it)).collect();
        (!changed.is_empty() || !ended.is_empty()).then_some(Self { changed, ended })
    }

    fn apply(self, streams: &mut Vec<Stream>) {
        let gone: BTreeSet<u64> = self.ended.into_iter().collect();
        let changed = self.changed.into_iter().map(|it| (it.request_number, it));
        let mut changed: BTreeMap<u64, Stream> = changed.collect();
        streams.retain(|it| !gone.contains(&it.request_number));
        for stream in streams.iter_mut() {
            if let Some(new) = changed.remove(&stream.request_number) {
                *stream = new;
            }
        }
        streams.extend(changed.into_values());
        streams.sort_by_key(Stream::order);
    }
}

impl Stream {
    /// Returns the key by which streams are listed: stalled ones first, then oldest first.
    pub const fn order(&self) -> (bool, u64) {
        (!self.stalled, self.request_number)
    }
}
