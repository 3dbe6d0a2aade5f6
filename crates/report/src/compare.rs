//! Compares two sets of requests, A and B, such as the requests to two model versions.
//!
//! A request is compared only with requests of similar prompt and response length (a bucket). Requests in a bucket
//! that only one side has are left out and counted. Each bucket has the same weight on both sides: its ratio of all
//! compared requests (post-stratification). A side with more long prompts is therefore not slower for that reason
//! alone.

use std::collections::BTreeMap;
use std::thread;

use schemars::JsonSchema;
use serde::Serialize;

use crate::bootstrap::{Estimates, Random, Sampler, Stratum, resample};
use crate::read::Log;
use crate::row::{NumericField, Outcome, Quality, Row, Side};
use crate::statistics::percentile;
use tokengauge_types::label_enum;

/// Minimum number of values on each side of a length bucket. With fewer values, the spread is not meaningful.
const MIN_OBSERVATIONS: usize = 5;

/// Settings of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    pub seed: u64,
    pub resamples: usize,
    /// Confidence level of the intervals, such as 0.95. Greater than 0 and less than 1.
    pub confidence: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            // Efron and Tibshirani (1993) require at least 1,000 resamples for an interval of 95 %.
            resamples: 2_000,
            confidence: 0.95,
        }
    }
}

/// Figures that the report compares between A and B. An acceptance file can also limit them.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Measure {
    OutputTps,
    Ttft,
    Itl,
    Duration,
    ErrorRate,
    /// Cost per request in one currency.
    Cost(String),
    Quality(Quality),
    /// Ratio of requests with this finish reason.
    Finish(String),
}

impl Measure {
    /// Returns the name in reports and acceptance files.
    pub fn name(&self) -> String {
        match self {
            Self::OutputTps => "output_tps".to_owned(),
            Self::Ttft => "ttft".to_owned(),
            Self::Itl => "itl".to_owned(),
            Self::Duration => "duration".to_owned(),
            Self::ErrorRate => "error_rate".to_owned(),
            Self::Cost(currency) => format!("cost.{currency}"),
            Self::Quality(quality) => format!("quality.{}", quality.as_str()),
            Self::Finish(reason) => format!("finish.{reason}"),
        }
    }

    /// Returns whether the measure is a ratio of requests, such as the error rate. A ratio has no percentiles.
    pub const fn is_share(&self) -> bool {
        match self {
            Self::OutputTps | Self::Ttft | Self::Itl | Self::Duration | Self::Cost(_) => false,
            Self::ErrorRate | Self::Quality(_) | Self::Finish(_) => true,
        }
    }

    /// Returns whether the measure is a speed figure, which excludes warm-up and ramp-down.
    pub const fn is_speed(&self) -> bool {
        match self {
            Self::OutputTps | Self::Ttft | Self::Itl | Self::Duration => true,
            Self::ErrorRate | Self::Cost(_) | Self::Quality(_) | Self::Finish(_) => false,
        }
    }

    /// Returns the value of one request. For a ratio, the value is 0 or 1, so that the mean of all requests is the
    /// ratio.
    fn value(&self, row: &Row, log: &Log) -> Option<f64> {
        let share = |holds: bool| f64::from(u8::from(holds));
        match self {
            Self::OutputTps => row.value_if_ok(NumericField::OutputTps),
            Self::Ttft => row.value_if_ok(NumericField::Ttft),
            Self::Itl => row.value_if_ok(NumericField::Itl),
            Self::Duration => row.value_if_ok(NumericField::Duration),
            Self::ErrorRate => row.outcome.is_failure().map(share),
            Self::Cost(currency) => {
                let same = log.currencies.resolve(u32::from(row.currency)) == Some(currency);
                row.value(NumericField::Cost).filter(|_| same)
            }
            Self::Quality(_) | Self::Finish(_) if row.outcome == Outcome::Cancelled => None,
            Self::Quality(quality) => row.qualities.contains(*quality).map(share),
            Self::Finish(reason) => {
                let found = log.finishes.resolve(u32::from(row.finish))?;
                Some(share(found == reason))
            }
        }
    }

    /// Returns the prompt length bucket and the response length bucket of the request. A ratio ignores the response
    /// length, because a failed or bad response is itself shorter.
    fn bucket(&self, row: &Row) -> (u16, u16) {
        let output = if self.is_share() { Row::ABSENT } else { row.output_bucket };
        (row.input_bucket, output)
    }
}

/// Comparison of B with A.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Comparison {
    pub a: String,
    pub b: String,
    pub method: &'static str,
    /// Confidence level of the intervals, between 0 and 1.
    pub confidence: f64,
    pub resamples: u64,
    pub seed: u64,
    pub measures: Vec<MeasureComparison>,
}

const METHOD: &str = "stratified bootstrap (Efron, 1979), percentile intervals, within length buckets that both sides have, \
                      weighted by the counts of both together";

/// Comparison of one measure over the buckets that both sides have.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct MeasureComparison {
    pub measure: String,
    /// Number of compared requests of A.
    pub n_a: u64,
    pub n_b: u64,
    /// Number of requests of A that were left out because B has fewer than five requests in the same bucket.
    pub left_out_a: u64,
    pub left_out_b: u64,
    /// The buckets that both sides have.
    #[serde(rename = "bands")]
    pub buckets: Vec<BucketPair>,
    pub statistics: Vec<StatisticComparison>,
    #[serde(skip)]
    pub id: Measure,
}

/// A bucket of prompt length and response length, with the number of requests on each side.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct BucketPair {
    /// Name of the length bucket. `any` if the measure ignores this length, `unknown` if the log has no length.
    pub input: String,
    pub output: String,
    pub n_a: u64,
    pub n_b: u64,
    /// Weight of the bucket. All weights add up to 1.
    pub weight: f64,
}

/// A statistic of both sides, with its difference and relative change.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct StatisticComparison {
    pub statistic: Statistic,
    pub a: f64,
    pub b: f64,
    /// B − A.
    pub difference: Interval,
    /// B ÷ A − 1. Absent if A is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<Interval>,
}

/// An estimate and its confidence interval.
#[derive(Clone, Copy, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Interval {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

label_enum! {
    // The variants have the order of `Estimates`.
    /// Statistics of a measure.
    #[derive(Clone, Copy, Debug, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Statistic {
        Mean = "mean",
        P5 = "p5",
        P50 = "p50",
        P95 = "p95",
        P99 = "p99",
    }
}

/// Compares the sides A and B, which have these `names`. The speed figures
/// cover only rows for which `is_in_window` returns true.
pub fn compare(
    log: &Log,
    names: [String; 2],
    is_in_window: impl Fn(&Row) -> bool + Sync,
    settings: Settings,
) -> Comparison {
    let measures = measures(log);
    let is_in_window = &is_in_window;
    // Each measure has its own random numbers, so the order of evaluation does not affect the result.
    let compared: Vec<Option<MeasureComparison>> = thread::scope(|scope| {
        let half = measures.len() / 2;
        let (first, second) = measures.split_at_checked(half).unwrap_or((&[], &measures));
        let work = move |measures: &[Measure], skipped: usize| -> Vec<Option<MeasureComparison>> {
            let random = (skipped as u64..).map(|number| Random::stream(settings.seed, number));
            let measures = measures.iter().zip(random);
            let compare = |(of, random)| compare_measure(log, of, is_in_window, settings, random);
            measures.map(compare).collect()
        };
        let other_half = scope.spawn(move || work(first, 0));
        let second = work(second, half);
        // The thread cannot panic: it calls no function that does.
        let mut all = other_half.join().unwrap_or_default();
        all.extend(second);
        all
    });
    let [a, b] = names;
    Comparison {
        a,
        b,
        method: METHOD,
        confidence: settings.confidence,
        resamples: settings.resamples as u64,
        seed: settings.seed,
        measures: compared.into_iter().flatten().collect(),
    }
}

/// Returns all measures for which the log has values.
fn measures(log: &Log) -> Vec<Measure> {
    let mut measures = vec![
        Measure::OutputTps,
        Measure::Ttft,
        Measure::Itl,
        Measure::Duration,
        Measure::ErrorRate,
    ];
    measures.extend(Quality::ALL.map(Measure::Quality));
    measures.extend(log.currencies.iter().map(|currency| Measure::Cost(currency.to_owned())));
    measures.extend(log.finishes.iter().map(|reason| Measure::Finish(reason.to_owned())));
    measures
}

type Observations = BTreeMap<(u16, u16), [Vec<f64>; 2]>;

fn compare_measure(
    log: &Log,
    measure: &Measure,
    is_in_window: impl Fn(&Row) -> bool,
    settings: Settings,
    random: Random,
) -> Option<MeasureComparison> {
    let mut observed = Observations::new();
    for row in log.rows.iter().filter(|row| !measure.is_speed() || is_in_window(row)) {
        if let Some(value) = measure.value(row, log) {
            let [a, b] = observed.entry(measure.bucket(row)).or_default();
            match row.side {
                Side::Neither => {}
                Side::A => a.push(value),
                Side::B => b.push(value),
            }
        }
    }
    let (matched, alone): (Observations, Observations) = observed
        .into_iter()
        .partition(|(_, sides)| sides.iter().all(|values| values.len() >= MIN_OBSERVATIONS));
    let size = |buckets: &Observations| {
        let add = |[sum_a, sum_b]: [u64; 2], [a, b]: &[Vec<f64>; 2]| {
            [sum_a + a.len() as u64, sum_b + b.len() as u64]
        };
        buckets.values().fold([0, 0], add)
    };
    let ([n_a, n_b], [left_out_a, left_out_b]) = (size(&matched), size(&alone));
    let all = (n_a + n_b) as f64;
    let weight = |[a, b]: &[Vec<f64>; 2]| (a.len() + b.len()) as f64 / all;
    let buckets = matched
        .iter()
        .map(|(key, sides)| bucket_pair(log, measure, *key, sides, weight(sides)))
        .collect();
    let [a, b] = sides(matched, all);
    let (a, b) = (Sampler::new(&a)?, Sampler::new(&b)?);
    let resampled = resample(&a, &b, settings.resamples, random);
    let estimates = [a.estimates(), b.estimates()];
    Some(MeasureComparison {
        measure: measure.name(),
        n_a,
        n_b,
        left_out_a,
        left_out_b,
        buckets,
        statistics: compare_statistics(measure, estimates, &resampled, settings.confidence),
        id: measure.clone(),
    })
}

/// Returns the strata of both sides.
fn sides(matched: Observations, all: f64) -> [Vec<Stratum>; 2] {
    let mut strata = [Vec::new(), Vec::new()];
    let [into_a, into_b] = &mut strata;
    for [a, b] in matched.into_values() {
        let weight = (a.len() + b.len()) as f64 / all;
        into_a.push(Stratum { values: a, weight });
        into_b.push(Stratum { values: b, weight });
    }
    strata
}

fn bucket_pair(
    log: &Log,
    measure: &Measure,
    key: (u16, u16),
    [a, b]: &[Vec<f64>; 2],
    weight: f64,
) -> BucketPair {
    let name = |id: u16| log.buckets.resolve(u32::from(id)).unwrap_or("unknown").to_owned();
    BucketPair {
        input: name(key.0),
        output: if measure.is_share() { "any".to_owned() } else { name(key.1) },
        n_a: a.len() as u64,
        n_b: b.len() as u64,
        weight,
    }
}

fn compare_statistics(
    measure: &Measure,
    [a, b]: [Estimates; 2],
    resampled: &[(Estimates, Estimates)],
    confidence: f64,
) -> Vec<StatisticComparison> {
    let count = if measure.is_share() { 1 } else { Statistic::ALL.len() };
    let places = Statistic::ALL.into_iter().enumerate().take(count);
    let contrast = |(place, statistic): (usize, Statistic)| {
        let at = |estimates: &Estimates| estimates.get(place).copied();
        let pairs = || resampled.iter().filter_map(|(a, b)| Some((at(a)?, at(b)?)));
        let (a, b) = (at(&a)?, at(&b)?);
        let change = |a: f64, b: f64| (a > 0.0).then(|| b / a - 1.0);
        Some(StatisticComparison {
            statistic,
            a,
            b,
            difference: interval(b - a, pairs().map(|(a, b)| b - a).collect(), confidence)?,
            // The relative change is undefined if A is 0 in a resample. An interval over the other resamples would be
            // wrong.
            change: change(a, b).and_then(|value| {
                let changes: Option<Vec<f64>> = pairs().map(|(a, b)| change(a, b)).collect();
                interval(value, changes?, confidence)
            }),
        })
    };
    places.filter_map(contrast).collect()
}

/// Returns the confidence interval around `value`: the middle part of the resampled values, such as 95 % of them.
fn interval(value: f64, mut resampled: Vec<f64>, confidence: f64) -> Option<Interval> {
    resampled.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - confidence) / 2.0;
    Some(Interval {
        value,
        low: percentile(&resampled, tail)?,
        high: percentile(&resampled, 1.0 - tail)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{File, Streams, read};
    use crate::{Compare, Request};

    /// Returns a log in which A has short and long prompts. B has more prompts, which are all long. Within a bucket, B
    /// is `b_factor` times as fast as A.
    fn log(b_factor: f64) -> Log {
        let mut text = String::new();
        let mut add = |variant: &str, input: u32, tps: f64| {
            text += &format!(
                "{{\"time\":\"2026-01-01T00:00:00Z\",\"outcome\":\"ok\",\"times\":{{\"end\":1}},\"identity\":{{\"variant\":\"{variant}\"}},\
                 \"call\":{{\"labels\":{{\"stream\":true}},\"rates\":{{\"output\":{tps}}},\"usage\":{{\"input\":{input}}},\"output\":{{\"tokens\":50}}}}}}\n"
            );
        };
        for n in 0..40 {
            let noise = f64::from(n % 5) - 2.0;
            add("a", 10, 100.0 + noise);
            add("a", 1_000, 50.0 + noise);
            for input in [1_000, 1_001, 1_002] {
                add("b", input, b_factor * (50.0 + noise));
            }
            add("b", 3_000, 1.0);
        }
        for _ in 0..4 {
            add("b", 10, 1.0);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, text).unwrap();
        let compare =
            Compare::Within { a: "variant=a".parse().unwrap(), b: "variant=b".parse().unwrap() };
        let files = vec![File { path, side: Side::Neither }];
        read(&Request { files, compare, ..Request::default() }, Streams::new()).unwrap()
    }

    fn few() -> Settings {
        Settings { resamples: 300, ..Settings::default() }
    }

    fn tps(log: &Log) -> MeasureComparison {
        let names = ["a", "b"].map(str::to_owned);
        let comparison = compare(log, names, |_| true, few());
        let mut measures = comparison.measures.into_iter();
        measures.find(|compared| compared.id == Measure::OutputTps).unwrap()
    }

    #[test]
    fn compares_matching_buckets_and_leaves_out_the_rest() {
        let compared = tps(&log(1.0));
        let [bucket] = compared.buckets.as_slice() else {
            panic!("{:?}", compared.buckets);
        };
        assert_eq!(
            (bucket.input.as_str(), bucket.output.as_str(), bucket.n_a, bucket.n_b),
            ("512-2k", "<128", 40, 120)
        );
        // A has 40 short prompts without a counterpart. B has 40 requests in a bucket without requests of A, and 4
        // requests in a bucket with too few requests.
        assert_eq!((compared.left_out_a, compared.left_out_b), (40, 44));
        let mean = compared.statistics[0];
        assert!((mean.a - 50.0).abs() < 1e-9 && (mean.b - 50.0).abs() < 1e-9);
        assert!(mean.difference.low < 0.0 && 0.0 < mean.difference.high, "{mean:?}");
    }

    #[test]
    fn finds_a_difference_and_its_interval() {
        let compared = tps(&log(0.8));
        let change = compared.statistics[0].change.unwrap();
        assert!((change.value + 0.2).abs() < 1e-9);
        assert!(-0.22 < change.low && change.high < -0.18, "{change:?}");
        assert_eq!(compared.statistics.len(), 5);
    }

    #[test]
    fn does_not_compare_measures_without_values() {
        let names = ["a", "b"].map(str::to_owned);
        let comparison = compare(&log(1.0), names, |_| true, few());
        let names: Vec<_> =
            comparison.measures.iter().map(|compared| compared.measure.as_str()).collect();
        assert_eq!(names, ["output_tps", "duration", "error_rate"]);
        let errors = &comparison.measures[2];
        assert_eq!(errors.buckets[0].output, "any");
        assert!(errors.statistics[0].change.is_none(), "0 ÷ 0");
    }
}
