//! Rates, shares and percentiles of the last 60 s.

use std::collections::BTreeMap;

use crate::document::{
    self, BurnRate, CostRate, ErrorCounts, ErrorShare, Now, RatePercentiles, Text, TimePercentiles,
};
use crate::histogram::Histogram;
use crate::history::{INTERVAL, Reading};
use crate::recorder::RecorderReading;
use tokengauge_measure::load;
use tokengauge_measure::slo::{self, BURN_WINDOWS};

/// Number of complete intervals that the rates cover, besides the one that is not complete.
pub const RECENT_INTERVALS: u64 = 12;

/// The sum of some intervals of some groups.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    pub finished: u64,
    pub errors: ErrorCounts,
    pub rate_limited: u64,
    pub credentials_rejected: u64,
    pub queue_depth: u64,
    pub output_tokens: u64,
    pub cost: f64,
    pub estimated_cost: f64,
    pub ttft: Histogram,
    pub latency: Histogram,
    pub rate: Histogram,
}

impl Sums {
    pub fn add(&mut self, interval: &document::Interval) {
        self.finished += interval.finished;
        self.errors.client += interval.errors.client;
        self.errors.upstream += interval.errors.upstream;
        self.errors.proxy += interval.errors.proxy;
        self.rate_limited += interval.rate_limited;
        self.credentials_rejected += interval.credentials_rejected;
        self.queue_depth += interval.queue_depth;
        self.output_tokens += interval.output_tokens;
        self.cost += interval.cost;
        self.estimated_cost += interval.estimated_cost;
        let histograms = [
            (&mut self.ttft, &interval.ttft),
            (&mut self.latency, &interval.itl),
            (&mut self.rate, &interval.rate),
        ];
        for (sum, more) in histograms {
            if let Some(more) = more {
                sum.merge(more);
            }
        }
    }

    /// Returns the sum of the last [`RECENT_INTERVALS`] complete intervals and of the current one, in the groups that
    /// `selects` selects.
    pub fn recent(reading: &Reading, selects: impl Fn(&document::Group) -> bool) -> Self {
        let mut sums = Self::default();
        let first = (reading.history.last_interval + 1).saturating_sub(RECENT_INTERVALS);
        for group in reading.history.groups.iter().chain(&reading.current).filter(|it| selects(it))
        {
            let recent = group.intervals.iter().rev().take_while(|(number, _)| *number >= first);
            recent.for_each(|(_, interval)| sums.add(interval));
        }
        sums
    }
}

/// Computes the values of the last 60 s.
pub fn now(recorded: &RecorderReading, load: &load::Reading, slos: &[slo::Reading]) -> Now {
    let sums = Sums::recent(&recorded.history, |_| true);
    #[expect(clippy::cast_precision_loss, reason = "12 intervals")]
    let whole = INTERVAL.as_secs_f64() * RECENT_INTERVALS as f64 + recorded.history.elapsed;
    let seconds = whole.min(recorded.covered.as_secs_f64());
    let per_second = |count: u64| (seconds >= 1.0).then(|| as_f64(count) / seconds);
    let routes = load.routes.iter();
    Now {
        requests_per_second: per_second(sums.finished),
        error_share: error_share(&sums),
        output_tokens_per_second: per_second(sums.output_tokens),
        stream_output_tokens_per_second: rates(&sums.rate),
        time_to_first_token_seconds: times(&sums.ttft),
        inter_token_latency_seconds: times(&sums.latency),
        in_flight: routes.clone().flat_map(|route| route.active).sum(),
        queue_depth: routes.clone().map(load::RouteReading::queue_depth).sum(),
        stalled: routes
            .flat_map(|route| route.stalled_streams)
            .map(|streams| streams.stalled)
            .sum(),
        worst_burn_rate: worst_burn_rate(slos),
        cost_per_hour: cost_per_hour(&sums, recorded.currency.as_ref(), seconds),
    }
}

fn error_share(sums: &Sums) -> Option<ErrorShare> {
    let share = |errors: u64| as_f64(errors) / as_f64(sums.finished);
    let ErrorCounts { client, upstream, proxy } = sums.errors;
    (sums.finished > 0).then(|| ErrorShare {
        client: share(client),
        upstream: share(upstream),
        proxy: share(proxy),
    })
}

fn rates(histogram: &Histogram) -> Option<RatePercentiles> {
    let data = histogram.data()?;
    Some(RatePercentiles {
        p10: data.percentile(0.1)?,
        p50: data.percentile(0.5)?,
        count: data.count,
    })
}

fn times(histogram: &Histogram) -> Option<TimePercentiles> {
    let data = histogram.data()?;
    Some(TimePercentiles {
        p50: data.percentile(0.5)?,
        p95: data.percentile(0.95)?,
        count: data.count,
    })
}

fn worst_burn_rate(slos: &[slo::Reading]) -> Option<BurnRate> {
    let of = |reading: &slo::Reading| {
        let rates = BURN_WINDOWS.iter().zip(reading.burn);
        let rate = |((window, _), rate): (&(&'static str, _), Option<f64>)| {
            Some(BurnRate {
                slo: reading.objective.name.shared(),
                window: Text::from(*window),
                burn_rate: rate?,
                window_seconds: reading.objective.window.as_secs(),
                covered_seconds: reading.covered.as_secs(),
            })
        };
        rates.filter_map(rate).collect::<Vec<_>>()
    };
    let all = slos.iter().flat_map(of);
    all.reduce(|worst, next| if next.burn_rate > worst.burn_rate { next } else { worst })
}

fn cost_per_hour(sums: &Sums, currency: Option<&Text>, seconds: f64) -> Option<CostRate> {
    let currency = currency.filter(|_| seconds >= 1.0)?;
    Some(CostRate {
        amount: sums.cost * 3_600.0 / seconds,
        currency: Text::clone(currency),
        estimated_share: if sums.cost > 0.0 { sums.estimated_cost / sums.cost } else { 0.0 },
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
pub fn as_f64(count: u64) -> f64 {
    count as f64
}

impl Reading {
    /// Returns the start of the latest intervals without interruption for which `is_bad` is true, in Unix milliseconds.
    /// Intervals for which `is_bad` is `None` do not interrupt.
    pub fn bad_since(
        &self,
        selects: impl Fn(&document::Group) -> bool,
        is_bad: impl Fn(&Sums) -> Option<bool>,
    ) -> Option<u64> {
        let mut since = None;
        for (number, sums) in self.by_interval(selects).iter().rev() {
            match is_bad(sums) {
                Some(true) => since = Some(*number),
                Some(false) => break,
                None => {}
            }
        }
        let interval_ms = INTERVAL.as_secs() * 1_000;
        since.map(|number| number * interval_ms)
    }

    /// Returns the mean number of waiting requests at the ends of the intervals before the last
    /// `RECENT_INTERVALS`. `None` if the history covers no such interval.
    pub fn queue_depth_before_recent(
        &self,
        selects: impl Fn(&document::Group) -> bool,
    ) -> Option<f64> {
        let end = (self.history.last_interval + 1).saturating_sub(RECENT_INTERVALS);
        let gap = self.history.gap_before_unix_ms.map_or(0, |ms| ms / 5_000 + 1);
        let start = self.history.first_interval.max(gap);
        let all = self.by_interval(selects);
        let depths: u64 = all.range(start..end.max(start)).map(|(_, sums)| sums.queue_depth).sum();
        let intervals = end.checked_sub(start).filter(|intervals| *intervals > 0)?;
        Some(as_f64(depths) / as_f64(intervals))
    }

    fn by_interval(&self, selects: impl Fn(&document::Group) -> bool) -> BTreeMap<u64, Sums> {
        let mut all = BTreeMap::<u64, Sums>::new();
        for group in self.history.groups.iter().filter(|group| selects(group)) {
            for (number, interval) in &group.intervals {
                all.entry(*number).or_default().add(interval);
            }
        }
        all
    }
}
