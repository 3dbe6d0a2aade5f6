//! Limits that a run must keep: the gate for a release.
//!
//! An **absolute** limit is judged on the figure itself: of B where something is compared, else of all. A limit on the
//! **change** or the **difference** is judged on the interval: it holds where all of the interval keeps it, is broken
//! where none of it does, and is undecided between. What is undecided, or rests on fewer requests than are asked for, counts as
//! broken unless the file says otherwise: a gate lets through what was shown to be good.

use schemars::JsonSchema;
use serde::Serialize;

use crate::compare::{Comparison, Interval, Measure, Statistic};
use crate::table::{Shares, Statistics};

/// What an acceptance file says.
#[derive(Clone, Debug, PartialEq)]
pub struct Acceptance {
    /// The fewest requests, on each side, that a figure may rest on.
    pub fewest: u64,
    pub undecided: Undecided,
    pub limits: Vec<Limit>,
}

/// What a limit counts as that can neither be said to hold nor to be broken.
#[derive(Clone, Copy, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Undecided {
    #[default]
    Broken,
    Held,
}

/// One limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Its place in the file: `ttft.p95.max`.
    pub key: String,
    pub measure: Measure,
    pub statistic: Statistic,
    pub on: On,
    pub bound: Bound,
    pub value: f64,
}

/// What is limited.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum On {
    Value,
    /// B ÷ A − 1.
    Change,
    /// B − A.
    Difference,
}

/// From which side.
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

/// What became of all limits.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Judgement {
    pub accepted: bool,
    /// SHA-256 of the file.
    pub sha256: String,
    pub undecided: Undecided,
    pub fewest_requests: u64,
    pub verdicts: Vec<Judged>,
}

/// What became of one limit.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Judged {
    /// Its place in the file.
    pub limit: String,
    pub on: On,
    pub bound: Bound,
    pub value: f64,
    /// What was found; absent where it is not defined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<f64>,
    /// The interval, where it was judged on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    pub verdict: Verdict,
    /// Why it is undecided, where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Held,
    Broken,
    Undecided,
}

impl Verdict {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Broken => "broken",
            Self::Undecided => "undecided",
        }
    }
}

const NOT_DEFINED: &str = "no request has it";
const TOO_FEW: &str = "it rests on too few requests";
const STRADDLES: &str = "the interval lies on both sides of the limit";
const FROM_ZERO: &str = "there is no change from 0; limit the difference";

impl Acceptance {
    /// Whether any limit needs two sides.
    pub fn compares(&self) -> bool {
        self.limits.iter().any(|limit| limit.on != On::Value)
    }

    /// Judges `candidate`, and `comparison` where there is one.
    pub fn judge(
        &self,
        candidate: &Statistics,
        comparison: Option<&Comparison>,
        sha256: String,
    ) -> Judgement {
        let verdicts: Vec<Judged> = self
            .limits
            .iter()
            .map(|limit| match limit.on {
                On::Value => self.absolute(limit, candidate),
                On::Change | On::Difference => self.relative(limit, comparison),
            })
            .collect();
        let passes = |judged: &Judged| match judged.verdict {
            Verdict::Held => true,
            Verdict::Broken => false,
            Verdict::Undecided => self.undecided == Undecided::Held,
        };
        Judgement {
            accepted: verdicts.iter().all(passes),
            sha256,
            undecided: self.undecided,
            fewest_requests: self.fewest,
            verdicts,
        }
    }

    fn absolute(&self, limit: &Limit, candidate: &Statistics) -> Judged {
        let Some((n, found)) = figure(&limit.measure, limit.statistic, candidate) else {
            return limit.undecided(None, None, NOT_DEFINED);
        };
        if n < self.fewest {
            return limit.undecided(Some(found), None, TOO_FEW);
        }
        let verdict =
            if limit.bound.holds(found, limit.value) { Verdict::Held } else { Verdict::Broken };
        limit.judged(Some(found), None, verdict)
    }

    fn relative(&self, limit: &Limit, comparison: Option<&Comparison>) -> Judged {
        let compared = comparison.and_then(|comparison| {
            comparison.measures.iter().find(|compared| compared.id == limit.measure)
        });
        let Some(compared) = compared else {
            return limit.undecided(None, None, NOT_DEFINED);
        };
        let contrast =
            compared.statistics.iter().find(|contrast| contrast.statistic == limit.statistic);
        let interval = contrast.and_then(|contrast| match limit.on {
            On::Value | On::Difference => Some(contrast.difference),
            On::Change => contrast.change,
        });
        let Some(interval) = interval else {
            return limit.undecided(None, None, FROM_ZERO);
        };
        if compared.n_a.min(compared.n_b) < self.fewest {
            return limit.undecided(Some(interval.value), Some(interval), TOO_FEW);
        }
        let ends = [interval.low, interval.high].map(|end| limit.bound.holds(end, limit.value));
        match ends {
            [true, true] => limit.judged(Some(interval.value), Some(interval), Verdict::Held),
            [false, false] => limit.judged(Some(interval.value), Some(interval), Verdict::Broken),
            [true, false] | [false, true] => {
                limit.undecided(Some(interval.value), Some(interval), STRADDLES)
            }
        }
    }
}

impl Limit {
    fn judged(&self, found: Option<f64>, interval: Option<Interval>, verdict: Verdict) -> Judged {
        Judged {
            limit: self.key.clone(),
            on: self.on,
            bound: self.bound,
            value: self.value,
            found,
            interval,
            verdict,
            why: None,
        }
    }

    fn undecided(
        &self,
        found: Option<f64>,
        interval: Option<Interval>,
        why: &'static str,
    ) -> Judged {
        Judged { why: Some(why), ..self.judged(found, interval, Verdict::Undecided) }
    }
}

/// A figure, and how many requests it rests on.
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

/// A share that no request had is 0, where anything is known of the others.
fn share(shares: Option<&Shares>, name: &str) -> Option<(u64, f64)> {
    let shares = shares?;
    Some((shares.n, shares.shares.get(name).copied().unwrap_or(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Compared, Contrast};
    use crate::statistics::Summary;

    fn limit(on: On, bound: Bound, value: f64) -> Limit {
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
        let contrast = Contrast {
            statistic: Statistic::P95,
            a: 1.0,
            b: 1.0,
            difference: interval,
            change: None,
        };
        let compared = Compared {
            measure: "ttft".to_owned(),
            n_a: 500,
            n_b: 500,
            left_out_a: 0,
            left_out_b: 0,
            bands: Vec::new(),
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
            Acceptance { fewest: 100, undecided: Undecided::Broken, limits: vec![limit] };
        let judgement = acceptance.judge(&candidate(n), comparison, String::new());
        (judgement.verdicts[0].verdict, judgement.accepted)
    }

    #[test]
    fn an_absolute_limit_is_judged_on_the_figure() {
        let on = |bound, value, n| verdict(limit(On::Value, bound, value), n, None);
        assert_eq!(on(Bound::Max, 0.5, 100), (Verdict::Held, true));
        assert_eq!(on(Bound::Max, 0.49, 100), (Verdict::Broken, false));
        assert_eq!(on(Bound::Min, 0.5, 100), (Verdict::Held, true));
        assert_eq!(on(Bound::Min, 0.6, 100), (Verdict::Broken, false));
        assert_eq!(on(Bound::Max, 0.5, 99), (Verdict::Undecided, false), "too few");
    }

    #[test]
    fn a_relative_limit_is_judged_on_both_ends_of_the_interval() {
        let on = |bound, value, low, high| {
            verdict(limit(On::Difference, bound, value), 500, Some(&comparison(low, high))).0
        };
        assert_eq!(on(Bound::Max, 0.1, -0.2, 0.1), Verdict::Held);
        assert_eq!(on(Bound::Max, 0.1, -0.2, 0.11), Verdict::Undecided);
        assert_eq!(on(Bound::Max, 0.1, 0.11, 0.2), Verdict::Broken);
        assert_eq!(on(Bound::Min, -0.1, -0.1, 0.2), Verdict::Held);
        assert_eq!(on(Bound::Min, -0.1, -0.11, 0.2), Verdict::Undecided);
        assert_eq!(on(Bound::Min, -0.1, -0.3, -0.2), Verdict::Broken);
        let change = verdict(limit(On::Change, Bound::Max, 0.1), 500, Some(&comparison(0.0, 0.0)));
        assert_eq!(change.0, Verdict::Undecided);
        assert_eq!(verdict(limit(On::Change, Bound::Max, 0.1), 500, None).0, Verdict::Undecided);
    }

    #[test]
    fn what_is_undecided_counts_as_the_file_says() {
        let limits = vec![limit(On::Value, Bound::Max, 0.5)];
        let acceptance = Acceptance { fewest: 100, undecided: Undecided::Held, limits };
        assert!(acceptance.judge(&candidate(5), None, String::new()).accepted);
    }

    #[test]
    fn a_share_that_did_not_occur_is_zero_and_one_of_which_nothing_is_known_is_not() {
        let mut of = candidate(100);
        let empty = Measure::Quality(crate::row::Quality::Empty);
        assert_eq!(figure(&empty, Statistic::Mean, &of), None);
        of.quality = Some(Shares { n: 100, shares: [].into() });
        assert_eq!(figure(&empty, Statistic::Mean, &of), Some((100, 0.0)));
    }
}
