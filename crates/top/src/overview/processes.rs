//! One row per process, and the processes that deviate from their peers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Failure, Source};
use crate::text::Text;
use crate::window::{Sums, recent};

/// One process. The figures are those of the last 60 s, and `None` while the process cannot be read.
#[derive(Clone, Debug, Serialize)]
pub struct Process {
    /// Name of the process. With the address if several processes have the same name.
    pub name: Text,
    pub address: String,
    pub version: Option<Text>,
    pub uptime_seconds: Option<f64>,
    pub failure: Option<Failure>,
    /// Whether the process has answered since the start of `top`.
    pub has_answered: bool,
    pub finished: u64,
    pub requests_per_second: Option<f64>,
    pub output_tokens_per_second: Option<f64>,
    pub failed_share: Option<f64>,
    pub time_to_first_token_p95_seconds: Option<f64>,
    pub stream_output_tokens_per_second_p50: Option<f64>,
    pub in_flight: Option<u64>,
    pub queue_depth: Option<u64>,
    pub stalled: Option<u64>,
    /// Number of streams with a first token, and of streams with a rate.
    #[serde(skip)]
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    ttft: u64,
    rate: u64,
}

impl Process {
    pub(super) fn from_source(source: &Source, name: Text) -> Self {
        let snapshot = source.snapshot.as_ref();
        let live = snapshot.filter(|_| source.failure.is_none());
        let mut sums = Sums::default();
        if let Some(live) = live {
            let intervals = live.history.groups.iter().flat_map(|group| recent(live, group));
            intervals.for_each(|interval| sums.add(interval));
        }
        let now = live.map(|live| &live.now);
        Self {
            name,
            address: source.address.clone(),
            version: snapshot.and_then(|it| it.process.version.clone()),
            uptime_seconds: live.and_then(|it| it.process.uptime_seconds),
            failure: source.failure.clone(),
            has_answered: snapshot.is_some(),
            finished: sums.finished,
            requests_per_second: now.and_then(|now| now.requests_per_second),
            output_tokens_per_second: now.and_then(|now| now.output_tokens_per_second),
            failed_share: sums.share(sums.failed()),
            time_to_first_token_p95_seconds: sums.ttft.quantile(0.95),
            stream_output_tokens_per_second_p50: sums.rate.quantile(0.5),
            in_flight: now.and_then(|now| now.in_flight),
            queue_depth: now.and_then(|now| now.queue_depth),
            stalled: now.and_then(|now| now.stalled),
            counts: Counts { ttft: sums.ttft.count(), rate: sums.rate.count() },
        }
    }
}

/// Returns a name for each source: the name of the process, or its address if the name is unknown. A name that occurs
/// twice gets the address.
pub(super) fn names(sources: &[&Source]) -> Vec<Text> {
    let name = |source: &Source| {
        let name = source.snapshot.as_ref().and_then(|it| it.process.name.clone());
        name.unwrap_or_else(|| Text::new(&source.address))
    };
    let mut uses: BTreeMap<Text, usize> = BTreeMap::new();
    for source in sources {
        *uses.entry(name(source)).or_default() += 1;
    }
    let unique = |source: &&Source| match name(source) {
        name if uses.get(&name).is_some_and(|uses| *uses > 1) => {
            Text::new(&format!("{name} ({})", source.address))
        }
        name => name,
    };
    sources.iter().map(unique).collect()
}

/// Minimum number of processes with enough requests. Two processes have no majority.
const MIN_PROCESSES: usize = 3;

/// Minimum number of requests of the last 60 s that a process needs for a comparison. A p95 of fewer requests is one of
/// their slowest two.
const MIN_REQUESTS: u64 = 20;

/// A latency deviates from twice the median of the peers, and a rate from half of it.
const FACTOR: f64 = 2.0;

/// Minimum distance of error shares. Without it, 1 % would deviate from 0.5 %.
const MIN_SHARE_DISTANCE: f64 = 0.05;

/// A process that differs from the median of its peers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Deviation {
    pub process: Text,
    pub measure: Measure,
    pub value: f64,
    /// The median of the other processes.
    pub median_of_others: f64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    TimeToFirstTokenP95Seconds,
    StreamOutputTokensPerSecondP50,
    FailedShare,
}

impl Measure {
    const ALL: [Self; 3] =
        [Self::TimeToFirstTokenP95Seconds, Self::StreamOutputTokensPerSecondP50, Self::FailedShare];

    /// Returns the value of a process, if it has enough requests.
    fn value(self, process: &Process) -> Option<f64> {
        let (value, count) = match self {
            Self::TimeToFirstTokenP95Seconds => {
                (process.time_to_first_token_p95_seconds, process.counts.ttft)
            }
            Self::StreamOutputTokensPerSecondP50 => {
                (process.stream_output_tokens_per_second_p50, process.counts.rate)
            }
            Self::FailedShare => (process.failed_share, process.finished),
        };
        value.filter(|_| count >= MIN_REQUESTS)
    }

    fn deviates(self, value: f64, median: f64) -> bool {
        match self {
            Self::TimeToFirstTokenP95Seconds => value >= median * FACTOR && value > median,
            Self::StreamOutputTokensPerSecondP50 => value * FACTOR <= median && value < median,
            Self::FailedShare => value >= median * FACTOR && value - median >= MIN_SHARE_DISTANCE,
        }
    }
}

pub(super) fn deviations(processes: &[Process]) -> Vec<Deviation> {
    let mut found = Vec::new();
    for measure in Measure::ALL {
        let measured: Vec<(&Process, f64)> = processes
            .iter()
            .filter_map(|process| Some((process, measure.value(process)?)))
            .collect();
        if measured.len() < MIN_PROCESSES {
            continue;
        }
        for (index, (process, value)) in measured.iter().enumerate() {
            let others = measured.iter().enumerate().filter(|(other, _)| *other != index);
            let Some(median) = median(others.map(|(_, (_, value))| *value).collect()) else {
                continue;
            };
            if measure.deviates(*value, median) {
                let process = process.name.clone();
                found.push(Deviation { process, measure, value: *value, median_of_others: median });
            }
        }
    }
    found
}

/// Returns the median. Of an even number of values, the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = values.get(middle).copied()?;
    match values.len() % 2 {
        1 => Some(upper),
        _ => values.get(middle.checked_sub(1)?).map(|lower| f64::midpoint(*lower, upper)),
    }
}
