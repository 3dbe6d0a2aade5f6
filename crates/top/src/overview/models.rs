//! One row per provider and model.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Percentiles, Reachable};
use crate::text::Text;
use crate::window::{Series, Sums, covered_seconds, recent};

/// The figures of one model over the last 60 s.
#[derive(Clone, Debug, Serialize)]
pub struct Model {
    pub provider: Option<Text>,
    pub model: Option<Text>,
    pub requests_per_second: f64,
    /// Part of the finished requests that failed, whichever side caused the failure.
    pub failed_share: Option<f64>,
    pub output_tokens_per_second: f64,
    pub stream_output_tokens_per_second: Percentiles,
    pub time_to_first_token_seconds: Percentiles,
    pub inter_token_latency_seconds: Percentiles,
    /// Requests in flight, waiting for their first token, and stalled, at the end of the last interval.
    pub in_flight: u64,
    pub queue_depth: u64,
    pub stalled: u64,
    /// Output tokens per second of the last 15 minutes.
    #[serde(skip)]
    pub sparkline: Vec<Option<f64>>,
}

#[derive(Default)]
struct Merged {
    sums: Sums,
    requests_per_second: f64,
    output_tokens_per_second: f64,
    in_flight: u64,
    queue_depth: u64,
    stalled: u64,
    series: Series,
}

pub(super) fn merge(processes: &[Reachable<'_>]) -> Vec<Model> {
    let mut models: BTreeMap<(&Option<Text>, &Option<Text>), Merged> = BTreeMap::new();
    for process in processes {
        let snapshot = process.snapshot;
        let seconds = covered_seconds(snapshot);
        for group in &snapshot.history.groups {
            let merged = models.entry((&group.provider, &group.model)).or_default();
            merged.series.add(snapshot, group);
            if let Some(last) = group.intervals.get(&snapshot.history.last_interval) {
                merged.in_flight = merged.in_flight.saturating_add(last.in_flight);
                merged.queue_depth = merged.queue_depth.saturating_add(last.queue_depth);
                merged.stalled = merged.stalled.saturating_add(last.stalled);
            }
            for interval in recent(snapshot, group) {
                merged.sums.add(interval);
                merged.requests_per_second += interval.finished as f64 / seconds;
                merged.output_tokens_per_second += interval.output_tokens as f64 / seconds;
            }
        }
    }
    let mut rows: Vec<Model> = models.into_iter().map(|(key, merged)| row(key, &merged)).collect();
    rows.sort_by(|a, b| b.output_tokens_per_second.total_cmp(&a.output_tokens_per_second));
    rows
}

fn row((provider, model): (&Option<Text>, &Option<Text>), merged: &Merged) -> Model {
    let sums = &merged.sums;
    Model {
        provider: provider.clone(),
        model: model.clone(),
        requests_per_second: merged.requests_per_second,
        failed_share: sums.share(sums.failed()),
        output_tokens_per_second: merged.output_tokens_per_second,
        stream_output_tokens_per_second: Percentiles::of_rate(&sums.rate),
        time_to_first_token_seconds: Percentiles::of_latency(&sums.ttft),
        inter_token_latency_seconds: Percentiles::of_latency(&sums.itl),
        in_flight: merged.in_flight,
        queue_depth: merged.queue_depth,
        stalled: merged.stalled,
        sparkline: merged.series.output_tokens_per_second(),
    }
}
