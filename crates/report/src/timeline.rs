//! Computes the data of the plots: time series, and throughput against concurrency.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::interner::StringInterner;
use crate::money::Money;
use crate::row::{NumericField, Row};
use crate::saturation_point::{self, NoSaturationPoint, Point};
use crate::slices::TimeGrid;
use crate::statistics::{mean, percentile};
use crate::window::{self, RunExtent, values_by_slice};

/// Number of time slices in a plot. More slices do not fit on a page.
const SLICES: usize = 120;

/// Time series of one subject. Each list has one value per time slice. A value is `null` if it is undefined in the
/// slice.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Timeline {
    /// Width of a slice in seconds.
    pub slice: f64,
    /// Output tokens per second of all streams together.
    pub throughput: Vec<f64>,
    /// Mean number of requests in flight.
    pub concurrency: Vec<f64>,
    /// Median output rate of one stream, in tokens per second. Like all values below, it covers the requests that
    /// started in the slice.
    pub output_tps_p50: Vec<Option<f64>>,
    /// Median time to first token in seconds.
    pub ttft_p50: Vec<Option<f64>>,
    /// 95th percentile of the time to first token in seconds.
    pub ttft_p95: Vec<Option<f64>>,
    /// Median duration in seconds.
    pub duration_p50: Vec<Option<f64>>,
    /// Error rate, as a ratio from 0 to 1.
    pub error_rate: Vec<Option<f64>>,
    /// Cost in each currency of the requests that started in the slice.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cost: BTreeMap<String, Vec<f64>>,
}

impl Timeline {
    /// Returns the time series of `rows`. Returns `None` if the run has no duration.
    pub fn from_rows<'r>(
        rows: impl Iterator<Item = &'r Row> + Clone,
        extent: RunExtent,
        currencies: &StringInterner,
    ) -> Option<Self> {
        let grid = TimeGrid::new(extent.from, extent.to, SLICES)?;
        let seconds = grid.seconds();
        let tokens = window::tokens(rows.clone(), grid).into_iter();
        let [ttft_p50, ttft_p95] = percentiles(rows.clone(), grid, NumericField::Ttft, [0.5, 0.95]);
        let [output_tps_p50] = percentiles(rows.clone(), grid, NumericField::OutputTps, [0.5]);
        let [duration_p50] = percentiles(rows.clone(), grid, NumericField::Duration, [0.5]);
        Some(Self {
            slice: seconds,
            throughput: tokens.map(|tokens| tokens / seconds).collect(),
            concurrency: window::concurrency(rows.clone(), grid),
            output_tps_p50,
            ttft_p50,
            ttft_p95,
            duration_p50,
            cost: costs(rows.clone(), grid, currencies),
            error_rate: error_rates(rows, grid),
        })
    }
}

fn percentiles<'r, const N: usize>(
    rows: impl Iterator<Item = &'r Row>,
    grid: TimeGrid,
    number: NumericField,
    levels: [f64; N],
) -> [Vec<Option<f64>>; N] {
    let mut slices = values_by_slice(rows, grid, |row| row.value_if_ok(number));
    for slice in &mut slices {
        slice.sort_unstable_by(f64::total_cmp);
    }
    levels.map(|level| slices.iter().map(|slice| percentile(slice, level)).collect())
}

fn costs<'r>(
    rows: impl Iterator<Item = &'r Row>,
    grid: TimeGrid,
    currencies: &StringInterner,
) -> BTreeMap<String, Vec<f64>> {
    let mut costs: BTreeMap<u16, Vec<Money>> = BTreeMap::new();
    for row in rows {
        if let Some(amount) = row.value(NumericField::Cost) {
            let slices =
                costs.entry(row.currency).or_insert_with(|| vec![Money::default(); grid.count]);
            if let Some(sum) = slices.get_mut(grid.slice_index(row.start)) {
                *sum += Money::from_amount(amount);
            }
        }
    }
    let named = costs.into_iter().filter_map(|(id, slices)| {
        let name = currencies.resolve(u32::from(id))?.to_owned();
        Some((name, slices.into_iter().map(Money::to_amount).collect()))
    });
    named.collect()
}

fn error_rates<'r>(rows: impl Iterator<Item = &'r Row>, grid: TimeGrid) -> Vec<Option<f64>> {
    let failed = |row: &Row| row.outcome.is_failure().map(|failed| f64::from(u8::from(failed)));
    values_by_slice(rows, grid, failed).into_iter().map(|slice| mean(slice.into_iter())).collect()
}

/// Throughput against concurrency, and the point at which throughput stops rising.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Saturation {
    pub method: &'static str,
    /// Mean throughput in each concurrency bin.
    pub curve: Vec<Point>,
    /// Point beyond which more concurrency hardly increases throughput.
    #[serde(rename = "knee", skip_serializing_if = "Option::is_none")]
    pub saturation_point: Option<Point>,
    /// Why no saturation point was found.
    #[serde(rename = "no_knee", skip_serializing_if = "Option::is_none")]
    pub no_saturation_point: Option<NoSaturationPoint>,
    /// Throughput and concurrency of each time slice of the run.
    #[serde(skip)]
    pub points: Vec<Point>,
}

impl Saturation {
    /// Returns an empty curve, for a report without single requests.
    pub const fn unknown() -> Self {
        Self {
            method: saturation_point::METHOD,
            curve: Vec::new(),
            saturation_point: None,
            no_saturation_point: None,
            points: Vec::new(),
        }
    }

    pub fn from_rows<'r>(rows: impl Iterator<Item = &'r Row> + Clone, extent: RunExtent) -> Self {
        let points = extent.slices().map_or_else(Vec::new, |grid| {
            let tokens = window::tokens(rows.clone(), grid).into_iter();
            let concurrency = window::concurrency(rows, grid).into_iter();
            let points = concurrency.zip(tokens);
            let point =
                |(concurrency, tokens)| Point { concurrency, throughput: tokens / grid.seconds() };
            points.map(point).collect()
        });
        let curve = saturation_point::curve(&points);
        let found = saturation_point::find(&curve);
        Self {
            method: saturation_point::METHOD,
            curve,
            saturation_point: found.ok(),
            no_saturation_point: found.err(),
            points,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Outcome;

    #[test]
    fn timeline_matches_the_requests() {
        // One request per second for 120 s. Each takes 1 s and fails in the second half.
        let rows: Vec<Row> = (0..120_u64)
            .map(|second| {
                let outcome = if second < 60 { Outcome::Ok } else { Outcome::Error };
                let mut row = Row::new(second * 1_000_000_000, outcome);
                row.set(NumericField::Duration, Some(1.0));
                row.set(NumericField::Ttft, Some(0.25));
                row.set(NumericField::Generated, Some(10.0));
                row.set(NumericField::Cost, Some(0.25));
                row.currency = 0;
                row
            })
            .collect();
        let extent = RunExtent::from_rows(rows.iter()).unwrap();
        let mut currencies = StringInterner::new(1);
        currencies.intern("EUR");
        let timeline = Timeline::from_rows(rows.iter(), extent, &currencies).unwrap();
        assert!(timeline.cost["EUR"].iter().all(|cost| (cost - 0.25).abs() < 1e-9));
        assert!((timeline.slice - 1.0).abs() < 1e-9);
        assert_eq!(timeline.throughput.len(), SLICES);
        assert!(timeline.throughput.iter().all(|tps| (tps - 10.0).abs() < 1e-6));
        assert!(timeline.concurrency.iter().all(|flying| (flying - 1.0).abs() < 1e-6));
        assert_eq!(timeline.ttft_p95[3], Some(0.25));
        assert_eq!(timeline.ttft_p95[63], None, "failed requests do not count");
        assert_eq!((timeline.error_rate[3], timeline.error_rate[63]), (Some(0.0), Some(1.0)));
        let saturation = Saturation::from_rows(rows.iter(), extent);
        assert_eq!(saturation.saturation_point, None);
    }
}
