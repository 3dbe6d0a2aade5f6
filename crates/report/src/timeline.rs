//! A run over time, and its throughput against its concurrency: what the plots show.

use schemars::JsonSchema;
use serde::Serialize;

use crate::knee::{self, Point, Without};
use crate::row::{Number, Row};
use crate::slices::Grid;
use crate::statistics::{percentile, ratio};
use crate::window::{self, Extent};

/// Slices of a plot: about as many as a page has room for.
const SLICES: usize = 120;

/// One subject over the time of a run. All lists have a value for each slice; `null` where there is none.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Timeline {
    /// Seconds.
    pub slice: f64,
    /// Output tokens per second, of all streams together.
    pub throughput: Vec<f64>,
    /// Mean number of requests in flight.
    pub concurrency: Vec<f64>,
    /// Median of the requests that began in the slice, in tokens per second.
    pub output_tps_p50: Vec<Option<f64>>,
    /// Seconds.
    pub ttft_p50: Vec<Option<f64>>,
    /// Seconds.
    pub ttft_p95: Vec<Option<f64>>,
    /// Seconds.
    pub duration_p50: Vec<Option<f64>>,
    /// Of the requests that began in the slice.
    pub error_rate: Vec<Option<f64>>,
}

impl Timeline {
    /// `None` where the run took no time.
    pub fn of<'r, I>(rows: impl Fn() -> I, extent: Extent) -> Option<Self>
    where
        I: Iterator<Item = &'r Row>,
    {
        let grid = Grid::over(extent.from, extent.to, SLICES)?;
        let seconds = grid.seconds();
        let tokens = window::tokens(rows(), grid).into_iter();
        let [ttft_p50, ttft_p95] = percentiles(rows(), grid, Number::Ttft, [0.5, 0.95]);
        let [output_tps_p50] = percentiles(rows(), grid, Number::OutputTps, [0.5]);
        let [duration_p50] = percentiles(rows(), grid, Number::Duration, [0.5]);
        Some(Self {
            slice: seconds,
            throughput: tokens.map(|tokens| tokens / seconds).collect(),
            concurrency: window::concurrency(rows(), grid),
            output_tps_p50,
            ttft_p50,
            ttft_p95,
            duration_p50,
            error_rate: error_rates(rows(), grid),
        })
    }
}

fn percentiles<'r, const N: usize>(
    rows: impl Iterator<Item = &'r Row>,
    grid: Grid,
    number: Number,
    levels: [f64; N],
) -> [Vec<Option<f64>>; N] {
    let mut slices = vec![Vec::new(); grid.count];
    for row in rows {
        if let (Some(value), Some(slice)) =
            (row.answered(number), slices.get_mut(grid.slice(row.start)))
        {
            slice.push(value);
        }
    }
    for slice in &mut slices {
        slice.sort_unstable_by(f64::total_cmp);
    }
    levels.map(|level| slices.iter().map(|slice| percentile(slice, level)).collect())
}

fn error_rates<'r>(rows: impl Iterator<Item = &'r Row>, grid: Grid) -> Vec<Option<f64>> {
    let mut counts = vec![(0_u64, 0.0); grid.count];
    for row in rows {
        if let (Some(failed), Some((all, errors))) =
            (row.outcome.failed(), counts.get_mut(grid.slice(row.start)))
        {
            *all += 1;
            *errors += f64::from(u8::from(failed));
        }
    }
    counts.into_iter().map(|(all, errors)| ratio(errors, all)).collect()
}

/// Throughput against concurrency.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Saturation {
    pub method: &'static str,
    /// Means of the slices that have about the same concurrency.
    pub curve: Vec<Point>,
    /// From where on more concurrency brings less than it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knee: Option<Point>,
    /// Why there is no knee, where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_knee: Option<Without>,
    /// Each slice of the run.
    #[serde(skip)]
    pub points: Vec<Point>,
}

impl Saturation {
    pub fn of<'r, I>(rows: impl Fn() -> I, extent: Extent) -> Self
    where
        I: Iterator<Item = &'r Row>,
    {
        let points = extent.slices().map_or_else(Vec::new, |grid| {
            let tokens = window::tokens(rows(), grid).into_iter();
            let concurrency = window::concurrency(rows(), grid).into_iter();
            let points = concurrency.zip(tokens);
            let point =
                |(concurrency, tokens)| Point { concurrency, throughput: tokens / grid.seconds() };
            points.map(point).collect()
        });
        let curve = knee::curve(&points);
        let (knee, no_knee) = match knee::knee(&curve) {
            Ok(knee) => (Some(knee), None),
            Err(why) => (None, Some(why)),
        };
        Self { method: knee::METHOD, curve, knee, no_knee, points }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Outcome;

    #[test]
    fn a_run_over_time_is_what_its_requests_were() {
        // 120 s, a request each second that takes 1 s and fails in the second half.
        let rows: Vec<Row> = (0..120_u64)
            .map(|second| {
                let outcome = if second < 60 { Outcome::Ok } else { Outcome::Error };
                let mut row = Row::new(second * 1_000_000_000, outcome);
                row.set(Number::Duration, Some(1.0));
                row.set(Number::Ttft, Some(0.25));
                row.set(Number::Generated, Some(10.0));
                row
            })
            .collect();
        let extent = Extent::of(rows.iter()).unwrap();
        let timeline = Timeline::of(|| rows.iter(), extent).unwrap();
        assert!((timeline.slice - 1.0).abs() < 1e-9);
        assert_eq!(timeline.throughput.len(), SLICES);
        assert!(timeline.throughput.iter().all(|tps| (tps - 10.0).abs() < 1e-6));
        assert!(timeline.concurrency.iter().all(|flying| (flying - 1.0).abs() < 1e-6));
        assert_eq!(timeline.ttft_p95[3], Some(0.25));
        assert_eq!(timeline.ttft_p95[63], None, "a failure has no say in it");
        assert_eq!((timeline.error_rate[3], timeline.error_rate[63]), (Some(0.0), Some(1.0)));
        let saturation = Saturation::of(|| rows.iter(), extent);
        assert_eq!(saturation.knee, None);
    }
}
