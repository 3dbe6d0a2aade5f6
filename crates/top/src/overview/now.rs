//! The figures of all processes together, over the last 60 s.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Reachable, count, sum};
use crate::document::{self, Cost};
use crate::histogram::Histogram;
use crate::text::Text;
use crate::window::{Series, Sums, recent};

#[derive(Clone, Debug, Default, Serialize)]
pub struct Now {
    pub requests_per_second: Option<f64>,
    pub client_error_share: Option<f64>,
    pub upstream_error_share: Option<f64>,
    pub proxy_error_share: Option<f64>,
    pub output_tokens_per_second: Option<f64>,
    pub stream_output_tokens_per_second: Percentiles,
    pub time_to_first_token_seconds: Percentiles,
    pub inter_token_latency_seconds: Percentiles,
    pub in_flight: Option<u64>,
    pub queue_depth: Option<u64>,
    pub stalled: Option<u64>,
    /// The highest burn rate of all processes.
    pub worst_burn_rate: Option<WorstBurnRate>,
    /// One sum per currency.
    pub cost_per_hour: Vec<Cost>,
    #[serde(skip)]
    pub sparklines: Sparklines,
}

/// Percentiles of one distribution. Only those that the view shows are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p10: Option<f64>,
    pub p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p95: Option<f64>,
}

impl Percentiles {
    /// Returns percentiles of a latency.
    pub fn of_latency(histogram: &Histogram) -> Self {
        Self { p10: None, p50: histogram.quantile(0.5), p95: histogram.quantile(0.95) }
    }

    /// Returns percentiles of a rate, where low values are bad.
    pub fn of_rate(histogram: &Histogram) -> Self {
        Self { p10: histogram.quantile(0.1), p50: histogram.quantile(0.5), p95: None }
    }

    const fn from_document(percentiles: &document::Percentiles) -> Self {
        let document::Percentiles { p10, p50, p95 } = *percentiles;
        Self { p10, p50, p95 }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct WorstBurnRate {
    pub process: Text,
    pub slo: Text,
    pub window: Text,
    pub burn_rate: f64,
    pub window_seconds: Option<f64>,
    pub covered_seconds: Option<f64>,
}

/// Values of the last 15 minutes, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct Sparklines {
    pub requests: Vec<Option<f64>>,
    pub failed: Vec<Option<f64>>,
    pub output: Vec<Option<f64>>,
    pub stream_rate: Vec<Option<f64>>,
    pub ttft: Vec<Option<f64>>,
    pub itl: Vec<Option<f64>>,
    pub in_flight: Vec<Option<f64>>,
    pub cost: Vec<Option<f64>>,
}

impl Sparklines {
    fn from_series(series: &Series) -> Self {
        Self {
            requests: series.requests_per_second(),
            failed: series.failed_share(),
            output: series.output_tokens_per_second(),
            stream_rate: series.stream_rate_p50(),
            ttft: series.ttft_p95(),
            itl: series.itl_p95(),
            in_flight: series.in_flight(),
            cost: series.cost(),
        }
    }
}

impl Now {
    pub(super) fn merge(processes: &[Reachable<'_>]) -> Self {
        let mut series = Series::default();
        let mut sums = Sums::default();
        for process in processes {
            for group in &process.snapshot.history.groups {
                series.add(process.snapshot, group);
                recent(process.snapshot, group).for_each(|interval| sums.add(interval));
            }
        }
        let each = || processes.iter().map(|process| &process.snapshot.now);
        let mut merged = Self {
            requests_per_second: sum(each().map(|now| now.requests_per_second)),
            client_error_share: sums.share(sums.errors.client),
            upstream_error_share: sums.share(sums.errors.upstream),
            proxy_error_share: sums.share(sums.errors.proxy),
            output_tokens_per_second: sum(each().map(|now| now.output_tokens_per_second)),
            stream_output_tokens_per_second: Percentiles::of_rate(&sums.rate),
            time_to_first_token_seconds: Percentiles::of_latency(&sums.ttft),
            inter_token_latency_seconds: Percentiles::of_latency(&sums.itl),
            in_flight: count(each().map(|now| now.in_flight)),
            queue_depth: count(each().map(|now| now.queue_depth)),
            stalled: count(each().map(|now| now.stalled)),
            worst_burn_rate: worst_burn_rate(processes),
            cost_per_hour: costs(each().filter_map(|now| {
                let cost = now.cost_per_hour.as_ref()?;
                Some(Cost { amount: cost.amount?, currency: cost.currency.clone() })
            })),
            sparklines: Sparklines::from_series(&series),
        };
        if let [process] = processes {
            merged.use_values_of(&process.snapshot.now);
        }
        merged
    }

    /// Replaces the merged values by those of the only process, which are more precise than buckets.
    fn use_values_of(&mut self, now: &document::Now) {
        let share = now.error_share.unwrap_or_default();
        self.client_error_share = share.client;
        self.upstream_error_share = share.upstream;
        self.proxy_error_share = share.proxy;
        let percentiles = |value: &Option<document::Percentiles>| {
            value.as_ref().map(Percentiles::from_document).unwrap_or_default()
        };
        self.stream_output_tokens_per_second = percentiles(&now.stream_output_tokens_per_second);
        self.time_to_first_token_seconds = percentiles(&now.time_to_first_token_seconds);
        self.inter_token_latency_seconds = percentiles(&now.inter_token_latency_seconds);
    }
}

fn worst_burn_rate(processes: &[Reachable<'_>]) -> Option<WorstBurnRate> {
    let rates = processes.iter().filter_map(|process| {
        let worst = process.snapshot.now.worst_burn_rate.as_ref()?;
        Some(WorstBurnRate {
            process: process.name.clone(),
            slo: worst.slo.clone(),
            window: worst.window.clone(),
            burn_rate: worst.burn_rate?,
            window_seconds: worst.window_seconds,
            covered_seconds: worst.covered_seconds,
        })
    });
    rates.max_by(|a, b| a.burn_rate.total_cmp(&b.burn_rate))
}

/// Adds costs of the same currency.
pub(super) fn costs(costs: impl Iterator<Item = Cost>) -> Vec<Cost> {
    let mut sums: BTreeMap<Text, f64> = BTreeMap::new();
    for cost in costs {
        *sums.entry(cost.currency).or_default() += cost.amount;
    }
    sums.into_iter().map(|(currency, amount)| Cost { amount, currency }).collect()
}
