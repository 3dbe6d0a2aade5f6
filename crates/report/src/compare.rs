//! B against A, like with like: in bands of the prompt's and the answer's length that both sides have.
//!
//! Each band weighs on both sides what it weighs in both together (post-stratification). So a side that had more long
//! prompts is not slower for that. What has no match on the other side is left out, and counted.

use std::collections::BTreeMap;
use std::thread;

use schemars::JsonSchema;
use serde::Serialize;

use crate::bootstrap::{Estimates, Random, Sampler, Stratum, resample};
use crate::read::Log;
use crate::row::{Number, Quality, Row, Side};
use crate::statistics::percentile;

/// The fewest observations on either side for a band to count: the spread within fewer says nothing.
const FEWEST: usize = 5;

/// How it is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    pub seed: u64,
    pub resamples: usize,
    /// Between 0 and 1.
    pub confidence: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            // Efron and Tibshirani (1993) ask for 1,000 at the least for an interval of 95 %.
            resamples: 2_000,
            confidence: 0.95,
        }
    }
}

/// What can be compared, and limited.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Measure {
    OutputTps,
    Ttft,
    Itl,
    Duration,
    ErrorRate,
    /// Per request, in one currency.
    Cost(String),
    Quality(Quality),
    /// The share of a finish reason.
    Finish(String),
}

impl Measure {
    /// As in the report and in an acceptance file.
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

    /// Whether it is a share of requests, of which only the mean says something.
    pub const fn is_share(&self) -> bool {
        match self {
            Self::OutputTps | Self::Ttft | Self::Itl | Self::Duration | Self::Cost(_) => false,
            Self::ErrorRate | Self::Quality(_) | Self::Finish(_) => true,
        }
    }

    /// What a request says of it; a share is 0 or 1.
    fn of(&self, row: &Row, log: &Log) -> Option<f64> {
        let share = |holds: bool| f64::from(u8::from(holds));
        match self {
            Self::OutputTps => row.answered(Number::OutputTps),
            Self::Ttft => row.answered(Number::Ttft),
            Self::Itl => row.answered(Number::Itl),
            Self::Duration => row.answered(Number::Duration),
            Self::ErrorRate => row.outcome.failed().map(share),
            Self::Cost(currency) => {
                let same = log.currencies.text(u32::from(row.currency)) == Some(currency);
                row.number(Number::Cost).filter(|_| same)
            }
            Self::Quality(quality) => row.qualities.holds(*quality).map(share),
            Self::Finish(reason) => {
                let found = log.finishes.text(u32::from(row.finish))?;
                Some(share(found == reason))
            }
        }
    }

    /// The band that it is compared in. A failure, or a bad answer, shortens the answer: shares are compared by the
    /// prompt's length only.
    fn band(&self, row: &Row) -> (u16, u16) {
        let output = if self.is_share() { Row::ABSENT } else { row.output_band };
        (row.input_band, output)
    }
}

/// B against A.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Comparison {
    pub a: String,
    pub b: String,
    pub method: &'static str,
    /// Between 0 and 1.
    pub confidence: f64,
    pub resamples: u64,
    pub seed: u64,
    pub measures: Vec<Compared>,
}

const METHOD: &str = "stratified bootstrap (Efron, 1979), percentile intervals, within length bands that both sides have, \
                      weighted by the counts of both together";

/// One measure of B against A, over the bands that both have.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Compared {
    pub measure: String,
    /// Requests of A that were compared.
    pub n_a: u64,
    pub n_b: u64,
    /// Requests of A in bands of which the other side has fewer than five, left out.
    pub left_out_a: u64,
    pub left_out_b: u64,
    /// Bands that were compared.
    pub bands: Vec<Band>,
    pub statistics: Vec<Contrast>,
    #[serde(skip)]
    pub id: Measure,
}

/// A pair of length bands.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Band {
    /// `any` where the measure is not compared by it, `unknown` where the log does not tell it.
    pub input: String,
    pub output: String,
    pub n_a: u64,
    pub n_b: u64,
    /// What it weighs, of 1.
    pub weight: f64,
}

/// A statistic of both sides, and how far they lie apart.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct Contrast {
    pub statistic: Statistic,
    pub a: f64,
    pub b: f64,
    /// B − A.
    pub difference: Interval,
    /// B ÷ A − 1; absent where A is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<Interval>,
}

/// An estimate, and the interval that holds it with the confidence that the report states.
#[derive(Clone, Copy, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Interval {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// What is told of a measure.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    Mean,
    P5,
    P50,
    P95,
    P99,
}

impl Statistic {
    /// In the order of `Estimates`.
    pub const ALL: [Self; 5] = [Self::Mean, Self::P5, Self::P50, Self::P95, Self::P99];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::P5 => "p5",
            Self::P50 => "p50",
            Self::P95 => "p95",
            Self::P99 => "p99",
        }
    }
}

/// Compares `names` over the rows that `counts` lets through.
pub fn compare(
    log: &Log,
    names: [String; 2],
    counts: impl Fn(&Row) -> bool + Sync,
    settings: Settings,
) -> Comparison {
    let measures = measures(log);
    let counts = &counts;
    // Each measure has random numbers of its own, so the order in which they are worked on does not matter.
    let compared: Vec<Option<Compared>> = thread::scope(|scope| {
        let half = measures.len() / 2;
        let (first, second) = measures.split_at_checked(half).unwrap_or((&[], &measures));
        let work = move |measures: &[Measure], skipped: usize| -> Vec<Option<Compared>> {
            let numbered = measures.iter().zip(skipped as u64..);
            let compared = numbered.map(|(measure, number)| {
                measured(log, measure, counts, settings, Random::stream(settings.seed, number))
            });
            compared.collect()
        };
        let beside = scope.spawn(move || work(first, 0));
        let second = work(second, half);
        // It cannot have panicked: it calls nothing that does.
        let mut all = beside.join().unwrap_or_default();
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

/// All that the log says anything of.
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

fn measured(
    log: &Log,
    measure: &Measure,
    counts: impl Fn(&Row) -> bool,
    settings: Settings,
    random: Random,
) -> Option<Compared> {
    let mut observed = Observations::new();
    for row in log.rows.iter().filter(|row| counts(row)) {
        if let Some(value) = measure.of(row, log) {
            let [a, b] = observed.entry(measure.band(row)).or_default();
            match row.side {
                Side::Neither => {}
                Side::A => a.push(value),
                Side::B => b.push(value),
            }
        }
    }
    let (matched, alone): (Observations, Observations) = observed
        .into_iter()
        .partition(|(_, sides)| sides.iter().all(|values| values.len() >= FEWEST));
    let size = |bands: &Observations| {
        bands
            .values()
            .fold([0, 0], |[sum_a, sum_b], [a, b]| [sum_a + a.len() as u64, sum_b + b.len() as u64])
    };
    let ([n_a, n_b], [left_out_a, left_out_b]) = (size(&matched), size(&alone));
    let all = (n_a + n_b) as f64;
    let weight = |[a, b]: &[Vec<f64>; 2]| (a.len() + b.len()) as f64 / all;
    let bands =
        matched.iter().map(|(key, sides)| band(log, measure, *key, sides, weight(sides))).collect();
    let [a, b] = sides(matched, all);
    let (a, b) = (Sampler::new(&a)?, Sampler::new(&b)?);
    let again = resample(&a, &b, settings.resamples, random);
    Some(Compared {
        measure: measure.name(),
        n_a,
        n_b,
        left_out_a,
        left_out_b,
        bands,
        statistics: contrasts(measure, [a.estimates(), b.estimates()], &again, settings.confidence),
        id: measure.clone(),
    })
}

/// The strata of both sides.
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

fn band(
    log: &Log,
    measure: &Measure,
    key: (u16, u16),
    [a, b]: &[Vec<f64>; 2],
    weight: f64,
) -> Band {
    let name = |id: u16| log.bands.text(u32::from(id)).unwrap_or("unknown").to_owned();
    Band {
        input: name(key.0),
        output: if measure.is_share() { "any".to_owned() } else { name(key.1) },
        n_a: a.len() as u64,
        n_b: b.len() as u64,
        weight,
    }
}

fn contrasts(
    measure: &Measure,
    [a, b]: [Estimates; 2],
    again: &[(Estimates, Estimates)],
    confidence: f64,
) -> Vec<Contrast> {
    let told = if measure.is_share() { 1 } else { Statistic::ALL.len() };
    let places = Statistic::ALL.into_iter().enumerate().take(told);
    let contrast = |(place, statistic): (usize, Statistic)| {
        let at = |estimates: &Estimates| estimates.get(place).copied();
        let pairs = || again.iter().filter_map(|(a, b)| Some((at(a)?, at(b)?)));
        let (a, b) = (at(&a)?, at(&b)?);
        let change = |a: f64, b: f64| (a > 0.0).then(|| b / a - 1.0);
        Some(Contrast {
            statistic,
            a,
            b,
            difference: interval(b - a, pairs().map(|(a, b)| b - a).collect(), confidence)?,
            // Where some resamples have a 0 to divide by, the ends of the interval would be those of the others.
            change: change(a, b).and_then(|value| {
                let changes: Option<Vec<f64>> = pairs().map(|(a, b)| change(a, b)).collect();
                interval(value, changes?, confidence)
            }),
        })
    };
    places.filter_map(contrast).collect()
}

/// The middle `confidence` of what came out again and again.
fn interval(value: f64, mut again: Vec<f64>, confidence: f64) -> Option<Interval> {
    again.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - confidence) / 2.0;
    Some(Interval { value, low: percentile(&again, tail)?, high: percentile(&again, 1.0 - tail)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{File, Selection, Sides, read};

    /// A has short prompts and long ones, B long ones only, and of those more; within each band both are as fast.
    fn log(b_factor: f64) -> Log {
        let mut text = String::new();
        let mut add = |variant: &str, input: u32, tps: f64| {
            text += &format!(
                "{{\"time\":\"2026-01-01T00:00:00Z\",\"outcome\":\"ok\",\"points\":{{\"end\":1}},\"who\":{{\"variant\":\"{variant}\"}},\
                 \"call\":{{\"series\":{{\"stream\":true}},\"rates\":{{\"output\":{tps}}},\"usage\":{{\"input\":{input}}},\"output\":{{\"tokens\":50}}}}}}\n"
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
        let selection = Selection {
            sides: Sides::By { a: "variant=a".parse().unwrap(), b: "variant=b".parse().unwrap() },
            ..Selection::default()
        };
        read(&[File { path, side: Side::Neither }], &selection).unwrap()
    }

    fn few() -> Settings {
        Settings { resamples: 300, ..Settings::default() }
    }

    fn tps(log: &Log) -> Compared {
        let names = ["a", "b"].map(str::to_owned);
        let comparison = compare(log, names, |_| true, few());
        let mut measures = comparison.measures.into_iter();
        measures.find(|compared| compared.id == Measure::OutputTps).unwrap()
    }

    #[test]
    fn like_is_compared_with_like_and_the_rest_is_left_out() {
        let compared = tps(&log(1.0));
        let [band] = compared.bands.as_slice() else {
            panic!("{:?}", compared.bands);
        };
        assert_eq!(
            (band.input.as_str(), band.output.as_str(), band.n_a, band.n_b),
            ("512-2k", "<128", 40, 120)
        );
        // 40 short ones of A; 40 of B in a band of its own, and 4 in one of which it has too few.
        assert_eq!((compared.left_out_a, compared.left_out_b), (40, 44));
        let mean = compared.statistics[0];
        assert!((mean.a - 50.0).abs() < 1e-9 && (mean.b - 50.0).abs() < 1e-9);
        assert!(mean.difference.low < 0.0 && 0.0 < mean.difference.high, "{mean:?}");
    }

    #[test]
    fn a_difference_is_found_with_its_interval() {
        let compared = tps(&log(0.8));
        let change = compared.statistics[0].change.unwrap();
        assert!((change.value + 0.2).abs() < 1e-9);
        assert!(-0.22 < change.low && change.high < -0.18, "{change:?}");
        assert_eq!(compared.statistics.len(), 5);
    }

    #[test]
    fn what_no_request_tells_is_not_compared() {
        let names = ["a", "b"].map(str::to_owned);
        let comparison = compare(&log(1.0), names, |_| true, few());
        let told: Vec<_> =
            comparison.measures.iter().map(|compared| compared.measure.as_str()).collect();
        assert_eq!(told, ["output_tps", "duration", "error_rate"]);
        let errors = &comparison.measures[2];
        assert_eq!(errors.bands[0].output, "any");
        assert!(errors.statistics[0].change.is_none(), "0 ÷ 0");
    }
}
