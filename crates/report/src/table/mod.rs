//! Computes the statistics of groups of requests: latency, throughput, errors, tokens and cost.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::interner::StringInterner;
use crate::money::Money;
use crate::read::Log;
use crate::row::{NumericField, Outcome, Quality, Row};
use crate::statistics::{Summary, ratio};

/// Statistics of a set of requests. A figure is left out if no request has a value for it.
///
/// Totals (requests, outcomes, tokens, cost, finish reasons and quality) cover all requests of the set. Speed figures
/// (`output_tps`, `ttft`, `itl` and `duration`) cover only requests that started in the window of their run.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Statistics {
    pub requests: u64,
    /// Requests that do not repeat another one: `attempts.resend_count` is 0 or unknown. Left out if the log has no
    /// such count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    /// Number of requests with each `outcome`.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// (error + timeout + truncated + rejected) ÷ (all − cancelled).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_rate: Option<f64>,
    /// Tokens per second of one stream, excluding prefill. Successful requests only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tps: Option<Summary>,
    /// Time to first token in seconds. Successful streams only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft: Option<Summary>,
    /// Time per output token in seconds. Successful requests only, each counted once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub itl: Option<Summary>,
    /// Duration in seconds. Successful requests only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Summary>,
    pub tokens: Tokens,
    /// Cost in each currency.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cost: BTreeMap<String, Cost>,
    /// Ratio of requests with each finish reason. The first choice determines the finish reason. Cancelled requests
    /// have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish: Option<Shares>,
    /// Ratio of requests with each choice result. `complete` requires all choices to be complete. Cancelled requests
    /// have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quality: Option<Shares>,
}

/// Token sums over all requests, including failed ones. A sum is `None` if no request has a value.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Tokens {
    /// Output tokens from which the rates are computed: the provider's count without hidden reasoning. Without a count
    /// from the provider, this is the count of tokengauge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generated: Option<f64>,
    /// Input tokens that the provider reported. The provider also reported all counts below, except estimates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<f64>,
    /// Estimated input tokens of requests without reported input: the size of the prompt's texts in bytes ÷ 4. Not
    /// part of `input`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_estimated: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<f64>,
    /// Output tokens that tokengauge counted for requests without reported output. Part of `generated`, and not of
    /// `output`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_estimated: Option<f64>,
    /// Reasoning tokens, which are part of `output`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<f64>,
    /// Input tokens read from the provider's cache, which are part of `input`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<f64>,
    /// Input tokens written to the provider's cache, which are part of `input`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_written: Option<f64>,
    /// Input tokens written to the provider's cache for an hour, which are part of `cache_written`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_written_1h: Option<f64>,
}

/// Cost in one currency.
#[derive(Clone, Copy, Debug, Default, JsonSchema, PartialEq, Serialize)]
pub struct Cost {
    /// Requests with a known cost.
    pub n: u64,
    pub total: f64,
    /// Part of `total` for requests whose tokens the provider reported. The rest is computed from estimated tokens.
    pub reported: f64,
    /// `reported` ÷ `total`. Absent if the total is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported_share: Option<f64>,
    /// Mean over the requests with a known cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// Cost per million tokens that these requests generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_million_tokens: Option<f64>,
}

/// Ratio of requests with each value, among the requests with a known value.
#[derive(Clone, Debug, Default, JsonSchema, PartialEq, Serialize)]
pub struct Shares {
    /// Number of requests with a known value.
    pub n: u64,
    pub shares: BTreeMap<String, f64>,
}

/// Running sum of the cost in one currency.
#[derive(Clone, Copy, Debug, Default)]
pub struct CostSum {
    pub n: u64,
    pub total: Money,
    pub reported: Money,
    /// Tokens that the requests with a cost generated.
    pub tokens: f64,
}

/// Running sums of a group.
#[derive(Debug, Default)]
struct Sums {
    requests: u64,
    with_attempts: u64,
    resent: u64,
    outcomes: [u64; Outcome::ALL.len()],
    tokens: Tokens,
    money: BTreeMap<u16, CostSum>,
    finishes: BTreeMap<u16, u64>,
    with_quality: u64,
    qualities: [u64; Quality::ALL.len()],
}

/// Returns the statistics of `count` groups. `group` returns the number of a request's group. A request without a
/// group is ignored. The speed figures cover only requests that are in the window of their run.
pub fn tables(
    log: &Log,
    count: usize,
    group: impl Fn(&Row) -> Option<u32>,
    is_in_window: impl Fn(&Row) -> bool,
) -> Vec<Statistics> {
    let mut sums: Vec<Sums> = (0..count).map(|_| Sums::default()).collect();
    for row in log.rows.iter() {
        let sum = group(row).and_then(|id| sums.get_mut(usize::try_from(id).ok()?));
        if let Some(sum) = sum {
            sum.add(row);
        }
    }
    let mut tables: Vec<Statistics> =
        sums.into_iter().map(|sum| sum.into_statistics(log)).collect();
    for (number, field) in SUMMARIES {
        for (id, summary) in summaries(log, *number, |row| group(row).filter(|_| is_in_window(row)))
        {
            if let Some(table) = usize::try_from(id).ok().and_then(|id| tables.get_mut(id)) {
                *field(table) = summary;
            }
        }
    }
    tables
}

type SummaryField = fn(&mut Statistics) -> &mut Option<Summary>;

const SUMMARIES: &[(NumericField, SummaryField)] = &[
    (NumericField::OutputTps, |table| &mut table.output_tps),
    (NumericField::Ttft, |table| &mut table.ttft),
    (NumericField::Itl, |table| &mut table.itl),
    (NumericField::Duration, |table| &mut table.duration),
];

/// Returns a summary of one number for each group. Sorts the values of all groups once, by group and then by value.
fn summaries(
    log: &Log,
    number: NumericField,
    group: impl Fn(&Row) -> Option<u32>,
) -> Vec<(u32, Option<Summary>)> {
    let mut values: Vec<(u32, f64)> =
        log.rows.iter().filter_map(|row| Some((group(row)?, row.value_if_ok(number)?))).collect();
    values.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let groups = values.chunk_by(|a, b| a.0 == b.0);
    let mut sorted = Vec::new();
    groups
        .filter_map(|group| {
            sorted.clear();
            sorted.extend(group.iter().map(|(_, value)| *value));
            Some((group.first()?.0, Summary::from_sorted(&sorted)))
        })
        .collect()
}

impl Sums {
    fn add(&mut self, row: &Row) {
        self.requests += 1;
        self.with_attempts += u64::from(row.is_resent.is_some());
        self.resent += u64::from(row.is_resent == Some(true));
        if let Some(times) = self.outcomes.get_mut(row.outcome as usize) {
            *times += 1;
        }
        let tokens = &mut self.tokens;
        let kind = |number, reported, estimated| {
            (if row.is_estimated(number) { estimated } else { reported }, number)
        };
        for (sum, number) in [
            (&mut tokens.generated, NumericField::Generated),
            kind(NumericField::Input, &mut tokens.input, &mut tokens.input_estimated),
            kind(NumericField::Output, &mut tokens.output, &mut tokens.output_estimated),
            (&mut tokens.reasoning, NumericField::Reasoning),
            (&mut tokens.cached, NumericField::Cached),
            (&mut tokens.cache_written, NumericField::CacheWritten),
            (&mut tokens.cache_written_1h, NumericField::CacheWrittenHour),
        ] {
            if let Some(number) = row.value(number) {
                *sum.get_or_insert_default() += number;
            }
        }
        if let Some(cost) = row.value(NumericField::Cost) {
            let money = self.money.entry(row.currency).or_default();
            let cost = Money::from_amount(cost);
            money.n += 1;
            money.total += cost;
            if !row.is_estimated(NumericField::Cost) {
                money.reported += cost;
            }
            money.tokens += row.value(NumericField::Generated).unwrap_or(0.0);
        }
        // The client ended a cancelled request, so its result says nothing about the quality of the model.
        if row.outcome == Outcome::Cancelled {
            return;
        }
        if row.finish != Row::ABSENT {
            *self.finishes.entry(row.finish).or_default() += 1;
        }
        self.with_quality += u64::from(row.qualities.contains(Quality::Complete).is_some());
        for (times, quality) in self.qualities.iter_mut().zip(Quality::ALL) {
            *times += u64::from(row.qualities.contains(quality) == Some(true));
        }
    }

    fn into_statistics(self, log: &Log) -> Statistics {
        let outcomes = Outcome::ALL.into_iter().zip(self.outcomes);
        let decided = outcomes.clone().filter(|(outcome, _)| outcome.is_failure().is_some());
        let failed = decided.clone().filter(|(outcome, _)| outcome.is_failure() == Some(true));
        let errors: u64 = failed.map(|(_, times)| times).sum();
        let seen = outcomes.filter(|(_, times)| *times > 0);
        let money = self.money.into_iter();
        let finishes = self.finishes.iter().map(|(id, times)| (name(&log.finishes, *id), *times));
        let qualities = Quality::ALL.map(|quality| quality.as_str().to_owned());
        Statistics {
            requests: self.requests,
            operations: (self.with_attempts > 0).then(|| self.requests - self.resent),
            outcomes: seen.map(|(outcome, times)| (outcome.as_str(), times)).collect(),
            error_rate: ratio(errors as f64, decided.map(|(_, times)| times).sum()),
            tokens: self.tokens,
            cost: money.map(|(id, sum)| (name(&log.currencies, id), sum.to_cost())).collect(),
            finish: shares(self.finishes.values().sum(), finishes),
            quality: shares(self.with_quality, qualities.into_iter().zip(self.qualities)),
            ..Statistics::default()
        }
    }
}

impl CostSum {
    pub fn to_cost(self) -> Cost {
        let (total, reported) = (self.total.to_amount(), self.reported.to_amount());
        Cost {
            n: self.n,
            total,
            reported,
            reported_share: (total > 0.0).then(|| reported / total),
            mean: ratio(total, self.n),
            per_million_tokens: (self.tokens > 0.0).then(|| total / self.tokens * 1e6),
        }
    }
}

fn name(interner: &StringInterner, id: u16) -> String {
    interner.resolve(u32::from(id)).unwrap_or("?").to_owned()
}

/// Returns each count divided by `n`, the number of requests with a value. Returns `None` if `n` is 0.
pub fn shares(n: u64, times: impl Iterator<Item = (String, u64)>) -> Option<Shares> {
    let shares = times.filter_map(|(name, times)| Some((name, ratio(times as f64, n)?)));
    (n > 0).then(|| Shares { n, shares: shares.collect() })
}

/// Mean rate of requests and of tokens over a window.
#[derive(Clone, Copy, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Throughput {
    /// Requests per second.
    pub requests: f64,
    /// Output tokens per second of all streams together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<f64>,
}

impl Throughput {
    /// Returns the mean rates of `rows` over `seconds`. Returns `None` if the time is 0.
    pub fn from_rows<'r>(rows: impl Iterator<Item = &'r Row>, seconds: f64) -> Option<Self> {
        let (mut requests, mut tokens) = (0_u64, None);
        for row in rows {
            requests += 1;
            if let Some(generated) = row.value(NumericField::Generated) {
                *tokens.get_or_insert(0.0) += generated;
            }
        }
        (seconds > 0.0).then(|| Self {
            requests: requests as f64 / seconds,
            output_tokens: tokens.map(|tokens: f64| tokens / seconds),
        })
    }
}

#[cfg(test)]
mod tests;
