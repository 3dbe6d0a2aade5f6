//! Checks a run against acceptance limits, for use as a release gate.
//!
//! An **absolute** limit applies to a figure of B in a comparison, and otherwise to the figure of all requests. A limit
//! on the **change** or the **difference** between A and B applies to a confidence interval. Such a limit is held if
//! the whole interval is within the limit, and broken if the whole interval is outside. Otherwise the limit is
//! undecided. Any limit is also undecided if too few requests have a value. An undecided limit counts as broken unless
//! the acceptance file sets `undecided: held`, because a gate must pass only results that were shown to be good.

use schemars::JsonSchema;
use serde::Serialize;

use crate::compare::{Comparison, Interval, Measure, Statistic};
use crate::table::{Shares, Statistics};
use tokengauge_types::label_enum;

#[derive(Clone, Debug, PartialEq)]
pub struct Acceptance {
    /// Minimum number of requests on each side. A figure from fewer requests leaves its limit undecided.
    pub min_requests: u64,
    pub undecided: Undecided,
    pub limits: Vec<Limit>,
}

/// Whether an undecided limit counts as broken or as held.
#[derive(Clone, Copy, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Undecided {
    #[default]
    Broken,
    Held,
}

/// One limit of an acceptance file.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Key of the limit in the file, such as `ttft.p95.max`.
    pub key: String,
    pub measure: Measure,
    pub statistic: Statistic,
    pub on: LimitBasis,
    pub bound: Bound,
    pub value: f64,
}

/// The quantity that a limit applies to.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitBasis {
    Value,
    /// Relative change, B ÷ A − 1.
    Change,
    /// Absolute difference, B − A.
    Difference,
}

/// Whether a limit is a minimum or a maximum.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    Min,
    Max,
}

impl Bound {
    fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Self::Min => value >= limit,
            Self::Max => value <= limit,
        }
    }
}

/// Results of all limits, and whether the run is accepted.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct AcceptanceResult {
    pub accepted: bool,
    /// SHA-256 of the acceptance file.
    pub sha256: String,
    pub undecided: Undecided,
    pub fewest_requests: u64,
    pub verdicts: Vec<LimitResult>,
}

/// Result of one limit.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct LimitResult {
    /// Key of the limit in the file.
    pub limit: String,
    pub on: LimitBasis,
    pub bound: Bound,
    pub value: f64,
    /// Measured value. Absent if no request has a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<f64>,
    /// Confidence interval, for a limit on a change or a difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    pub verdict: Verdict,
    /// Reason for an undecided limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<&'static str>,
}

label_enum! {
    #[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Verdict {
        Held = "held",
        Broken = "broken",
        Undecided = "undecided",
    }
}

const NOT_DEFINED: &str = "no request has a value";
const TOO_FEW: &str = "too few requests";
const CONTAINS_LIMIT: &str = "the interval contains the limit";
const BASELINE_IS_ZERO: &str = "A is 0, so the relative change is undefined; limit the difference";

impl Acceptance {
    /// Returns whether any limit applies to a change or a difference, which needs two sides.
    pub fn needs_comparison(&self) -> bool {
        self.limits.iter().any(|limit| limit.on != LimitBasis::Value)
    }

    /// Checks every limit against the figures of `candidate`. A limit on a change or a difference uses `comparison`
    /// instead.
    pub fn judge(
        &self,
        candidate: &Statistics,
        comparison: Option<&Comparison>,
        sha256: String,
    ) -> AcceptanceResult {
        let check = |limit: &Limit| self.check(limit, limit.measure(candidate, comparison));
        let verdicts: Vec<LimitResult> = self.limits.iter().map(check).collect();
        let passes = |judged: &LimitResult| match judged.verdict {
            Verdict::Held => true,
            Verdict::Broken => false,
            Verdict::Undecided => self.undecided == Undecided::Held,
        };
        AcceptanceResult {
            accepted: verdicts.iter().all(passes),
            sha256,
            undecided: self.undecided,
            fewest_requests: self.min_requests,
            verdicts,
        }
    }

    fn check(&self, limit: &Limit, measured: Result<Measured, &'static str>) -> LimitResult {
        let holds = measured.and_then(|measured| self.holds(limit, measured));
        LimitResult {
            limit: limit.key.clone(),
            on: limit.on,
            bound: limit.bound,
            value: limit.value,
            found: measured.ok().map(|measured| measured.value),
            interval: measured.ok().and_then(|measured| measured.interval),
            verdict: match holds {
                Ok(true) => Verdict::Held,
                Ok(false) => Verdict::Broken,
                Err(_) => Verdict::Undecided,
            },
            why: holds.err(),
        }
    }

    /// Returns whether a limit holds. Returns the reason if the limit is undecided.
    fn holds(&self, limit: &Limit, measured: Measured) -> Result<bool, &'static str> {
        if measured.n < self.min_requests {
            return Err(TOO_FEW);
        }
        let interval = measured.interval.map(|interval| [interval.low, interval.high]);
        let ends = interval.unwrap_or([measured.value; 2]);
        match ends.map(|end| limit.bound.holds(end, limit.value)) {
            [low, high] if low == high => Ok(low),
            _ => Err(CONTAINS_LIMIT),
        }
    }
}

/// A measured value and the number of requests from which it is computed.
#[derive(Clone, Copy)]
struct Measured {
    n: u64,
    value: f64,
    interval: Option<Interval>,
}

impl Limit {
    /// Returns the measured value to which the limit applies. Returns the reason if the value is undefined.
    fn measure(
        &self,
        candidate: &Statistics,
        comparison: Option<&Comparison>,
    ) -> Result<Measured, &'static str> {
        if self.on == LimitBasis::Value {
            let found = figure(&self.measure, self.statistic, candidate);
            let (n, value) = found.ok_or(NOT_DEFINED)?;
            return Ok(Measured { n, value, interval: None });
        }
        let mut measures = comparison.iter().flat_map(|comparison| &comparison.measures);
        let compared = measures.find(|compared| compared.id == self.measure).ok_or(NOT_DEFINED)?;
        let mut statistics = compared.statistics.iter();
        let statistic = statistics.find(|compared| compared.statistic == self.statistic);
        let interval = statistic.and_then(|compared| match self.on {
            LimitBasis::Value | LimitBasis::Difference => Some(compared.difference),
            LimitBasis::Change => compared.change,
        });
        let interval = interval.ok_or(BASELINE_IS_ZERO)?;
        let n = compared.n_a.min(compared.n_b);
        Ok(Measured { n, value: interval.value, interval: Some(interval) })
    }
}

/// Returns a figure of `of`, and the number of requests from which the figure is computed.
fn figure(measure: &Measure, statistic: Statistic, of: &Statistics) -> Option<(u64, f64)> {
    let summary = match measure {
        Measure::OutputTps => of.output_tps,
        Measure::Ttft => of.ttft,
        Measure::Itl => of.itl,
        Measure::Duration => of.duration,
        Measure::ErrorRate => return Some((of.requests, of.error_rate?)),
        Measure::Cost(currency) => {
            let cost = of.cost.get(currency)?;
            return Some((cost.n, cost.mean?));
        }
        Measure::Quality(quality) => return share(of.quality.as_ref(), quality.as_str()),
        Measure::Finish(reason) => return share(of.finish.as_ref(), reason),
    }?;
    let value = match statistic {
        Statistic::Mean => summary.mean,
        Statistic::P5 => summary.p5,
        Statistic::P50 => summary.p50,
        Statistic::P95 => summary.p95,
        Statistic::P99 => summary.p99,
    };
    Some((summary.n, value))
}

/// Returns the ratio of requests with the result `name`. The ratio is 0 if only other results occurred.
fn share(shares: Option<&Shares>, name: &str) -> Option<(u64, f64)> {
    let shares = shares?;
    Some((shares.n, shares.shares.get(name).copied().unwrap_or(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{MeasureComparison, StatisticComparison};
    use crate::statistics::Summary;

    fn limit(on: LimitBasis, bound: Bound, value: f64) -> Limit {
        Limit {
            key: "ttft.p95".to_owned(),
            measure: Measure::Ttft,
            statistic: Statistic::P95,
            on,
            bound,
            value,
        }
    }

    fn candidate(n: u64) -> Statistics {
        Statistics {
            requests: n,
            ttft: Some(Summary { n, mean: 0.1, p5: 0.1, p50: 0.2, p95: 0.5, p99: 0.9 }),
            ..Statistics::default()
        }
    }

    fn comparison(low: f64, high: f64) -> Comparison {
        let interval = Interval { value: (low + high) / 2.0, low, high };
        let contrast = StatisticComparison {
            statistic: Statistic::P95,
            a: 1.0,
            b: 1.0,
            difference: interval,
            change: None,
        };
        let compared = MeasureComparison {
            measure: "ttft".to_owned(),
            n_a: 500,
            n_b: 500,
            left_out_a: 0,
            left_out_b: 0,
            buckets: Vec::new(),
            statistics: vec![contrast],
            id: Measure::Ttft,
        };
        Comparison {
            a: "a".to_owned(),
            b: "b".to_owned(),
            method: "",
            confidence: 0.95,
            resamples: 1,
            seed: 1,
            measures: vec![compared],
        }
    }

    fn verdict(limit: Limit, n: u64, comparison: Option<&Comparison>) -> (Verdict, bool) {
        let acceptance =
            Acceptance { min_requests: 100, undecided: Undecided::Broken, limits: vec![limit] };
        let judgement = acceptance.judge(&candidate(n), comparison, String::new());
        (judgement.verdicts[0].verdict, judgement.accepted)
    }

    #[test]
    fn absolute_limits_apply_to_the_figure() {
        let on = |bound, value, n| verdict(limit(LimitBasis::Value, bound, value), n, None);
        assert_eq!(on(Bound::Max, 0.5, 100), (Verdict::Held, true));
        assert_eq!(on(Bound::Max, 0.49, 100), (Verdict::Broken, false));
        assert_eq!(on(Bound::Min, 0.5, 100), (Verdict::Held, true));
        assert_eq!(on(Bound::Min, 0.6, 100), (Verdict::Broken, false));
        assert_eq!(on(Bound::Max, 0.5, 99), (Verdict::Undecided, false), "too few");
    }

    #[test]
    fn relative_limits_apply_to_both_ends_of_the_interval() {
        let on = |bound, value, low, high| {
            verdict(limit(LimitBasis::Difference, bound, value), 500, Some(&comparison(low, high)))
                .0
        };
        assert_eq!(on(Bound::Max, 0.1, -0.2, 0.1), Verdict::Held);
        assert_eq!(on(Bound::Max, 0.1, -0.2, 0.11), Verdict::Undecided);
        assert_eq!(on(Bound::Max, 0.1, 0.11, 0.2), Verdict::Broken);
        assert_eq!(on(Bound::Min, -0.1, -0.1, 0.2), Verdict::Held);
        assert_eq!(on(Bound::Min, -0.1, -0.11, 0.2), Verdict::Undecided);
        assert_eq!(on(Bound::Min, -0.1, -0.3, -0.2), Verdict::Broken);
        let change =
            verdict(limit(LimitBasis::Change, Bound::Max, 0.1), 500, Some(&comparison(0.0, 0.0)));
        assert_eq!(change.0, Verdict::Undecided);
        assert_eq!(
            verdict(limit(LimitBasis::Change, Bound::Max, 0.1), 500, None).0,
            Verdict::Undecided
        );
    }

    #[test]
    fn undecided_limits_count_as_configured() {
        let limits = vec![limit(LimitBasis::Value, Bound::Max, 0.5)];
        let acceptance = Acceptance { min_requests: 100, undecided: Undecided::Held, limits };
        assert!(acceptance.judge(&candidate(5), None, String::new()).accepted);
    }

    #[test]
    fn a_ratio_without_occurrences_is_zero_if_results_are_known() {
        let mut of = candidate(100);
        let empty = Measure::Quality(crate::row::Quality::Empty);
        assert_eq!(figure(&empty, Statistic::Mean, &of), None);
        of.quality = Some(Shares { n: 100, shares: [].into() });
        assert_eq!(figure(&empty, Statistic::Mean, &of), Some((100, 0.0)));
    }
}
