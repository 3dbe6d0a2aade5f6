//! Sums over the intervals of one or several processes: the last 60 s, and a series of 15 minutes.
//!
//! Both count back from the last interval of each process, so clocks that differ between processes do not matter.

use crate::document::{Errors, Group, Interval, Snapshot};
use crate::histogram::Histogram;

/// Length of the window for rates and percentiles, in seconds. The process uses the same length.
pub const WINDOW_SECONDS: f64 = 60.0;

/// Length of a point of the series, in seconds.
const POINT_SECONDS: f64 = 15.0;

/// Number of points: 15 minutes.
pub const POINTS: usize = 60;

/// Sums over intervals.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    pub finished: u64,
    pub errors: Errors,
    pub output_tokens: u64,
    pub ttft: Histogram,
    pub itl: Histogram,
    pub rate: Histogram,
    /// Cost in the currency of the process.
    pub cost: Option<f64>,
}

impl Sums {
    pub fn add(&mut self, interval: &Interval) {
        self.finished = self.finished.saturating_add(interval.finished);
        self.errors.client = self.errors.client.saturating_add(interval.errors.client);
        self.errors.upstream = self.errors.upstream.saturating_add(interval.errors.upstream);
        self.errors.proxy = self.errors.proxy.saturating_add(interval.errors.proxy);
        self.output_tokens = self.output_tokens.saturating_add(interval.output_tokens);
        self.ttft.merge(&interval.ttft);
        self.itl.merge(&interval.itl);
        self.rate.merge(&interval.rate);
        if let Some(cost) = interval.cost {
            *self.cost.get_or_insert(0.0) += cost;
        }
    }

    /// Returns the part of the finished requests for which `errors` counts a failure. `None` without requests.
    pub fn share(&self, errors: u64) -> Option<f64> {
        (self.finished > 0).then(|| errors as f64 / self.finished as f64)
    }

    pub const fn failed(&self) -> u64 {
        let Errors { client, upstream, proxy } = self.errors;
        client.saturating_add(upstream).saturating_add(proxy)
    }
}

/// Returns the part of the last 60 s in which the process ran, in seconds. Ends with the last complete interval.
pub fn covered_seconds(snapshot: &Snapshot) -> f64 {
    let Some(uptime) = snapshot.process.uptime_seconds else { return WINDOW_SECONDS };
    let started = snapshot.at_unix_ms as f64 / 1e3 - uptime;
    let end = snapshot.history.last_interval.saturating_add(1) as f64;
    (end * snapshot.settings.interval_seconds - started).clamp(1.0, WINDOW_SECONDS)
}

/// Returns the intervals of a group in the last 60 s.
pub fn recent<'a>(snapshot: &Snapshot, group: &'a Group) -> impl Iterator<Item = &'a Interval> {
    let aged = with_age(snapshot, group);
    aged.filter(|(age, _)| *age < WINDOW_SECONDS).map(|(_, interval)| interval)
}

/// Returns the intervals of a group, each with the age of its end in seconds.
fn with_age<'a>(
    snapshot: &Snapshot,
    group: &'a Group,
) -> impl Iterator<Item = (f64, &'a Interval)> {
    let last = snapshot.history.last_interval;
    let seconds = snapshot.settings.interval_seconds;
    let age = move |number: u64| (last - number) as f64 * seconds;
    group.intervals.range(..=last).map(move |(number, interval)| (age(*number), interval))
}

/// The last 15 minutes, the oldest point first. `None` before the start of all processes.
#[derive(Clone, Debug, Default)]
pub struct Series(Vec<Option<Point>>);

#[derive(Clone, Debug, Default)]
struct Point {
    sums: Sums,
    /// Requests in flight × seconds.
    in_flight_seconds: f64,
}

impl Series {
    /// Adds the history of a group of a process.
    pub fn add(&mut self, snapshot: &Snapshot, group: &Group) {
        self.0.resize(POINTS, None);
        let uptime = snapshot.process.uptime_seconds.unwrap_or(f64::INFINITY);
        for (age, point) in (0_u32..).zip(self.0.iter_mut().rev()) {
            if f64::from(age) * POINT_SECONDS < uptime {
                point.get_or_insert_default();
            }
        }
        for (age, interval) in with_age(snapshot, group) {
            if let Some(point) = self.0.iter_mut().rev().nth(position(age)) {
                let point = point.get_or_insert_default();
                point.sums.add(interval);
                let seconds = snapshot.settings.interval_seconds;
                point.in_flight_seconds += interval.in_flight as f64 * seconds;
            }
        }
    }

    pub fn requests_per_second(&self) -> Vec<Option<f64>> {
        self.values(|point| Some(point.sums.finished as f64 / POINT_SECONDS))
    }

    pub fn failed_share(&self) -> Vec<Option<f64>> {
        self.values(|point| point.sums.share(point.sums.failed()))
    }

    pub fn output_tokens_per_second(&self) -> Vec<Option<f64>> {
        self.values(|point| Some(point.sums.output_tokens as f64 / POINT_SECONDS))
    }

    pub fn stream_rate_p50(&self) -> Vec<Option<f64>> {
        self.values(|point| point.sums.rate.quantile(0.5))
    }

    pub fn ttft_p95(&self) -> Vec<Option<f64>> {
        self.values(|point| point.sums.ttft.quantile(0.95))
    }

    pub fn itl_p95(&self) -> Vec<Option<f64>> {
        self.values(|point| point.sums.itl.quantile(0.95))
    }

    pub fn in_flight(&self) -> Vec<Option<f64>> {
        self.values(|point| Some(point.in_flight_seconds / POINT_SECONDS))
    }

    pub fn cost(&self) -> Vec<Option<f64>> {
        self.values(|point| point.sums.cost)
    }

    fn values(&self, value: impl Fn(&Point) -> Option<f64>) -> Vec<Option<f64>> {
        self.0.iter().map(|point| point.as_ref().and_then(&value)).collect()
    }
}

/// Returns how many points before the last one an interval of this age belongs.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates, and an age is not negative"
)]
fn position(age: f64) -> usize {
    (age / POINT_SECONDS) as usize
}
