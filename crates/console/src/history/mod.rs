//! The last 15 minutes of API calls, per group, in intervals of 5 s.
//!
//! Arithmetic only; time is passed in as `at`. [`Timeline`] converts it to interval numbers.

mod interval;
mod timeline;

pub use interval::{ChunkSample, FinishedCall, Gauges, RecordedInterval, add_stages};
pub use timeline::{ClockChange, INTERVAL, Timeline, WINDOW_INTERVALS};

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::document;
use tokengauge_measure::record::MetricLabels;
use tokengauge_measure::timing::LiveSample;
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::label::Label;

/// Maximum number of groups. Typical applications use fewer than ten. A group takes about 100 KiB if it is busy for the
/// whole window, and at most 0.8 MiB if its values range from the fastest to the slowest in every interval, so all
/// groups together take about 6 MiB and at most 51 MiB.
pub const MAX_GROUPS: usize = 64;

/// Maximum number of groups that are remembered as left out. Only their number is shown.
const MAX_LEFT_OUT: usize = 1_024;

/// Names that calls of a group share.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct GroupNames {
    pub provider: Label,
    pub model: Label,
    pub route: Label,
    pub tenant: Option<Label>,
    pub variant: Option<Label>,
}

impl GroupNames {
    /// Returns the group of a call. `hides_tenant` merges the groups of all tenants.
    pub fn from_labels(labels: &MetricLabels, hides_tenant: bool) -> Self {
        Self {
            provider: labels.provider.clone(),
            model: labels.model.clone(),
            route: labels.route.clone(),
            tenant: labels.tenant.clone().filter(|_| !hides_tenant),
            variant: labels.variant.clone(),
        }
    }
}

/// Handle of a group, with which recording a chunk needs no hashing of names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GroupId {
    slot: usize,
    /// Number of the group in the life of the process. A slot is used again after its group was idle for the window.
    number: u64,
}

/// The history of all groups.
#[derive(Debug, Default)]
pub struct History {
    ids: FxHashMap<GroupNames, GroupId>,
    slots: Vec<GroupHistory>,
    created: u64,
    /// The highest burn rate at the end of each interval that has one.
    burn_rates: BTreeMap<u64, f64>,
    /// Groups that found no slot, and the interval in which they were last seen.
    left_out: FxHashMap<GroupNames, u64>,
}

#[derive(Debug)]
struct GroupHistory {
    number: u64,
    names: GroupNames,
    /// The newest interval, which is usually the current one.
    newest: RecordedInterval,
    /// Former intervals with an event, oldest first.
    former: VecDeque<RecordedInterval>,
}

impl History {
    /// Returns the handle of a group. `None` if [`MAX_GROUPS`] other groups were active in the window.
    pub fn group(&mut self, names: &GroupNames, interval: u64) -> Option<GroupId> {
        if let Some(id) = self.ids.get(names) {
            return Some(*id);
        }
        let slot = if self.slots.len() < MAX_GROUPS {
            self.slots.len()
        } else if let Some(idle) = self.idle_slot(interval) {
            idle
        } else {
            if self.left_out.len() < MAX_LEFT_OUT || self.left_out.contains_key(names) {
                self.left_out.insert(names.clone(), interval);
            }
            return None;
        };
        let number = self.created;
        self.created += 1;
        let history = GroupHistory::new(number, names.clone(), interval);
        if let Some(former) = self.slots.get_mut(slot) {
            self.ids.remove(&former.names);
            *former = history;
        } else {
            self.slots.push(history);
        }
        self.left_out.remove(names);
        let id = GroupId { slot, number };
        self.ids.insert(names.clone(), id);
        Some(id)
    }

    /// Returns a slot whose group had no event in the window before `interval`.
    fn idle_slot(&self, interval: u64) -> Option<usize> {
        let is_idle = |group: &GroupHistory| group.newest.number() + WINDOW_INTERVALS < interval;
        self.slots.iter().position(is_idle)
    }

    /// Returns one interval of a group. `None` if the group has lost its slot, or if the interval is too old.
    #[inline]
    pub fn interval(&mut self, id: GroupId, number: u64) -> Option<&mut RecordedInterval> {
        let group = self.slots.get_mut(id.slot).filter(|group| group.number == id.number)?;
        group.interval(number)
    }

    /// Records the measurements of a chunk.
    #[inline]
    pub fn record_chunk(&mut self, id: GroupId, number: u64, chunk: &ChunkSample) {
        if let Some(interval) = self.interval(id, number) {
            interval.record_chunk(chunk);
        }
    }

    /// Records a measurement of a stream.
    pub fn record_sample(&mut self, id: GroupId, number: u64, sample: LiveSample) {
        match sample {
            LiveSample::Tokens { tokens, source, .. } => {
                if let Some(interval) = self.interval(id, number) {
                    interval.record_output(tokens.into(), source);
                }
            }
            LiveSample::InterToken { latency, tokens } => {
                if let Some(interval) = self.interval(id, number) {
                    interval.record_latency(latency, tokens);
                }
            }
            LiveSample::Standard { .. }
            | LiveSample::InterChunk { .. }
            | LiveSample::ChunkTokens { .. }
            | LiveSample::OutputChunk { .. }
            | LiveSample::Stalled(_)
            | LiveSample::Resumed(_) => {}
        }
    }

    /// Returns the complete intervals of the window that ends before `current`, and the state of the current interval
    /// in each group.
    pub fn read(&mut self, current: u64, timeline: &Timeline, at: MonotonicInstant) -> Reading {
        let last = current.saturating_sub(1);
        let first = current.saturating_sub(WINDOW_INTERVALS);
        self.left_out.retain(|_, seen| *seen >= first);
        let mut reading = Reading {
            history: document::History {
                first_interval: first,
                last_interval: last,
                groups_left_out: self.left_out.len() as u64,
                gap_before_unix_ms: timeline.gap_before(first),
                groups: Vec::new(),
                burn_rates: self
                    .burn_rates
                    .range(first..current)
                    .map(|(at, rate)| (*at, *rate))
                    .collect(),
            },
            current: Vec::new(),
            elapsed: timeline.elapsed_in_interval(at),
        };
        for group in &mut self.slots {
            group.drop_before(first);
            if group.newest.number() >= current {
                let open = vec![(group.newest.number(), group.newest.document())];
                reading.current.push(group.names.document(group.number, open));
            }
            let GroupHistory { newest, former, .. } = group;
            let complete = former.iter_mut().chain([newest]);
            let complete = complete.filter(|it| (first..current).contains(&it.number()));
            let mut intervals: Vec<_> = complete.map(|it| (it.number(), it.document())).collect();
            intervals.retain(|(_, it)| **it != document::Interval::default());
            if !intervals.is_empty() {
                reading.history.groups.push(group.names.document(group.number, intervals));
            }
        }
        reading.history.groups.sort_by_key(|group| group.id);
        reading
    }

    /// Sets the highest burn rate at the end of an interval.
    pub fn set_burn_rate(&mut self, interval: u64, rate: f64) {
        self.burn_rates.insert(interval, rate);
        self.burn_rates =
            self.burn_rates.split_off(&(interval + 1).saturating_sub(WINDOW_INTERVALS));
    }

    /// Forgets everything, because the clock was set back to the interval `current`.
    pub fn clear(&mut self, current: u64) {
        self.burn_rates.clear();
        for group in &mut self.slots {
            group.former.clear();
            group.newest = RecordedInterval::new(current);
        }
    }
}

/// The history as documents show it.
#[derive(Clone, Debug)]
pub struct Reading {
    pub history: document::History,
    /// The groups with the interval that is not complete.
    pub current: Vec<document::Group>,
    /// Elapsed seconds of the interval that is not complete.
    pub elapsed: f64,
}

impl GroupNames {
    fn document(&self, id: u64, intervals: Vec<(u64, Arc<document::Interval>)>) -> document::Group {
        let Self { provider, model, route, tenant, variant } = self;
        document::Group {
            id,
            provider: provider.shared(),
            model: model.shared(),
            route: route.shared(),
            tenant: tenant.as_ref().map(Label::shared),
            variant: variant.as_ref().map(Label::shared),
            intervals,
        }
    }
}

impl GroupHistory {
    fn new(number: u64, names: GroupNames, interval: u64) -> Self {
        let (newest, former) = (RecordedInterval::new(interval), VecDeque::new());
        Self { number, names, newest, former }
    }

    #[inline]
    fn interval(&mut self, number: u64) -> Option<&mut RecordedInterval> {
        if self.newest.number() != number {
            return self.other_interval(number);
        }
        self.newest.mark_changed();
        Some(&mut self.newest)
    }

    /// Begins a new interval, or returns the one that a late event belongs to.
    #[cold]
    fn other_interval(&mut self, number: u64) -> Option<&mut RecordedInterval> {
        let newest = self.newest.number();
        if number > newest {
            let former = std::mem::replace(&mut self.newest, RecordedInterval::new(number));
            self.former.push_back(former);
            self.drop_before(number.saturating_sub(WINDOW_INTERVALS));
            return Some(&mut self.newest);
        }
        if number + WINDOW_INTERVALS < newest {
            return None;
        }
        let place = match self.former.binary_search_by_key(&number, RecordedInterval::number) {
            Ok(place) => place,
            Err(place) => {
                self.former.insert(place, RecordedInterval::new(number));
                place
            }
        };
        let interval = self.former.get_mut(place)?;
        interval.mark_changed();
        Some(interval)
    }

    fn drop_before(&mut self, first: u64) {
        while self.former.front().is_some_and(|interval| interval.number() < first) {
            self.former.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
