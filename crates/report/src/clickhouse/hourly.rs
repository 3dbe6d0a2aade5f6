//! Builds the report from hourly figures.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::query::{MAX_HOURLY_ROWS, whole_hours};
use crate::money::Money;
use crate::read::{Input, Lines, MAX_GROUPS, sha256};
use crate::row::{Outcome, Quality};
use crate::statistics::{Summary, ratio};
use crate::table::{CostSum, Statistics, Throughput, Tokens, shares};
use crate::timeline::Saturation;
use crate::window::{RunExtent, Window};
use crate::{Group, Period, Report, Request, Run, Subject, evaluate, time};

/// The errors are those that `tests/clickhouse` checks.
const PERCENTILES: &str = "estimates from t-digests of hours and days, whose rank differs from the level by at most 1 % (p50), 0.5 % \
                           (p5, p95) and 0.2 % (p99), or by one request";

const NOTE: &str = "answered from hourly figures: percentiles are estimates, and there are no plots over time and no \
                    saturation point, which need single requests";

#[derive(Debug, thiserror::Error)]
pub enum HourlyError {
    #[error("the answer of ClickHouse is invalid")]
    Invalid(#[from] serde_json::Error),
    #[error("the answer of ClickHouse has an invalid number: \"{0}\"")]
    Number(String),
    #[error("no call matches")]
    Empty,
}

/// Number of values, their sum, and their percentiles.
type Speed = (u64, f64, [Option<f64>; 4]);

/// Figures of one group.
#[derive(Debug, Deserialize)]
struct Figures {
    key: Vec<String>,
    requests: u64,
    ok: u64,
    error: u64,
    cancelled: u64,
    timeout: u64,
    truncated: u64,
    rejected: u64,
    #[serde(flatten)]
    tokens: Tokens,
    output_tps_speed: Speed,
    ttft_speed: Speed,
    itl_speed: Speed,
    duration_speed: Speed,
    cost_n: BTreeMap<String, u64>,
    cost: BTreeMap<String, String>,
    cost_reported: BTreeMap<String, String>,
    cost_tokens: BTreeMap<String, f64>,
    finish: BTreeMap<String, u64>,
    quality_n: u64,
    quality: BTreeMap<String, u64>,
    configurations: Vec<String>,
    first_start: String,
    last_end: String,
}

/// Builds the report from the answer to [`hours`](super::hours). `name` is the name of the server.
///
/// # Errors
/// Fails if an answer is invalid, or if no call matches.
pub fn report(request: &Request, name: &str, answer: &[u8]) -> Result<Report, HourlyError> {
    let rows: Vec<Figures> =
        serde_json::Deserializer::from_slice(answer).into_iter().collect::<Result<_, _>>()?;
    let is_limited = rows.len() >= MAX_HOURLY_ROWS;
    let (totals, mut rows): (Vec<Figures>, Vec<Figures>) =
        rows.into_iter().partition(|row| row.key.is_empty());
    let all = totals.into_iter().next().filter(|all| all.requests > 0).ok_or(HourlyError::Empty)?;
    rows.truncate(MAX_GROUPS);
    let extent = RunExtent {
        from: number(&all.first_start)?,
        to: number(&all.last_end)?,
        requests: all.requests,
    };
    let window = Window::whole(extent);
    let statistics = all.statistics()?;
    let seconds = window.length;
    let tokens = statistics.tokens.generated;
    let throughput = (seconds > 0.0).then(|| Throughput {
        requests: all.requests as f64 / seconds,
        output_tokens: tokens.map(|tokens| tokens / seconds),
    });
    let named = |row: &Figures| {
        let dimensions = request.by.iter().map(crate::dimension::Dimension::as_str);
        let key = dimensions.zip(row.key.iter().cloned()).filter(|(_, value)| !value.is_empty());
        Ok(Group { key: key.collect(), statistics: row.statistics()? })
    };
    let mut groups: Vec<Group> = rows.iter().map(named).collect::<Result<_, HourlyError>>()?;
    evaluate::sort(&mut groups, request);
    let limited =
        is_limited.then(|| format!("only the {MAX_GROUPS} largest groups are in the report"));
    let acceptance = request.acceptance.as_ref();
    Ok(Report {
        tokengauge: env!("CARGO_PKG_VERSION"),
        inputs: vec![Input::stream(name, answer.len() as u64, sha256(answer))],
        lines: Lines { read: all.requests, calls: all.requests, ..Lines::default() },
        period: Period::from_range(whole_hours(request.period)),
        configuration: evaluate::known(all.configurations.clone()),
        seed: request.settings.seed,
        percentiles: PERCENTILES,
        runs: vec![Run {
            side: None,
            from: time::format(extent.from),
            to: time::format(extent.to),
            requests: all.requests,
            window,
            saturation: Saturation::unknown(),
        }],
        acceptance: acceptance
            .map(|(acceptance, sha256)| acceptance.judge(&statistics, None, sha256.clone())),
        subjects: vec![Subject { name: "all", is: None, statistics, throughput, timeline: None }],
        by: request.by.iter().map(crate::dimension::Dimension::as_str).collect(),
        groups,
        in_other: 0,
        comparison: None,
        focus: None,
        trace: None,
        notes: std::iter::once(NOTE.to_owned()).chain(limited).collect(),
    })
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, HourlyError> {
    text.parse().map_err(|_| HourlyError::Number(text.to_owned()))
}

impl Figures {
    fn outcomes(&self) -> [(Outcome, u64); Outcome::ALL.len()] {
        [
            (Outcome::Ok, self.ok),
            (Outcome::Error, self.error),
            (Outcome::Cancelled, self.cancelled),
            (Outcome::Timeout, self.timeout),
            (Outcome::Truncated, self.truncated),
            (Outcome::Rejected, self.rejected),
        ]
    }

    fn statistics(&self) -> Result<Statistics, HourlyError> {
        let outcomes = self.outcomes().into_iter();
        let errors = outcomes.clone().filter(|(outcome, _)| outcome.is_failure() == Some(true));
        let errors: u64 = errors.map(|(_, times)| times).sum();
        let seen = outcomes.filter(|(_, times)| *times > 0);
        let finish = self.finish.iter().map(|(name, times)| (name.clone(), *times));
        let quality = Quality::ALL.map(|quality| {
            let times = self.quality.get(quality.as_str()).copied();
            (quality.as_str().to_owned(), times.unwrap_or_default())
        });
        Ok(Statistics {
            requests: self.requests,
            // Only raw rows know the attempts of a request.
            operations: None,
            outcomes: seen.map(|(outcome, times)| (outcome.as_str(), times)).collect(),
            error_rate: ratio(errors as f64, self.requests - self.cancelled),
            output_tps: summary(self.output_tps_speed),
            ttft: summary(self.ttft_speed),
            itl: summary(self.itl_speed),
            duration: summary(self.duration_speed),
            tokens: self.tokens,
            cost: self.costs()?,
            finish: shares(self.finish.values().sum(), finish),
            quality: shares(self.quality_n, quality.into_iter()),
        })
    }

    fn costs(&self) -> Result<BTreeMap<String, crate::table::Cost>, HourlyError> {
        let known = self.cost_n.iter().filter(|(_, n)| **n > 0);
        let cost = |(currency, n): (&String, &u64)| {
            let units = |sums: &BTreeMap<String, String>| {
                number(sums.get(currency).map_or("0", String::as_str)).map(Money::from_units)
            };
            let sum = CostSum {
                n: *n,
                total: units(&self.cost)?,
                reported: units(&self.cost_reported)?,
                tokens: self.cost_tokens.get(currency).copied().unwrap_or_default(),
            };
            Ok((currency.clone(), sum.to_cost()))
        };
        known.map(cost).collect()
    }
}

fn summary((n, sum, percentiles): Speed) -> Option<Summary> {
    let [p5, p50, p95, p99] = percentiles;
    Some(Summary { n, mean: ratio(sum, n)?, p5: p5?, p50: p50?, p95: p95?, p99: p99? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::StartRange;

    /// Figures of one group, in the form of ClickHouse's answer.
    fn row(key: &str, requests: u64, cost: &str) -> String {
        format!(
            r#"{{"key":[{key}],"requests":{requests},"ok":{ok},"error":1,"cancelled":1,"timeout":0,"truncated":0,"rejected":0,
            "generated":50,"input":null,"input_estimated":20,"output":50,"output_estimated":null,"reasoning":null,"cached":null,
            "cache_written":null,"cache_written_1h":null,"output_tps_speed":[0,0,[null,null,null,null]],
            "ttft_speed":[2,3,[1,1.5,2,2]],"itl_speed":[0,0,[null,null,null,null]],"duration_speed":[2,8,[3,4,5,5]],
            "cost_n":{{"USD":2,"":0}},"cost":{{"USD":"{cost}","":"0"}},"cost_reported":{{"USD":"0","":"0"}},
            "cost_tokens":{{"USD":50,"":0}},"finish":{{"stop":3,"length":1}},"quality_n":4,"quality":{{"complete":3,"empty":1}},
            "configurations":[],"first_start":"3600000000000","last_end":"3610000000000"}}"#,
            ok = requests - 2
        )
        .replace('\n', " ")
    }

    fn request() -> Request {
        let period = StartRange { from: 3_700_000_000_000, until: u64::MAX };
        Request {
            by: vec!["day".parse().unwrap(), "tenant".parse().unwrap()],
            period,
            ..Request::default()
        }
    }

    #[test]
    fn builds_the_report() {
        let answer = [
            row("", 12, "300000000000000003"),
            row(r#""1970-01-01","b""#, 5, "1"),
            row(r#""1970-01-01","""#, 7, "2"),
        ];
        let report = report(&request(), "http://h", answer.join("\n").as_bytes()).unwrap();
        let statistics = &report.subjects[0].statistics;
        assert_eq!((statistics.requests, statistics.error_rate), (12, Some(1.0 / 11.0)));
        assert_eq!((statistics.ttft.unwrap().mean, statistics.ttft.unwrap().p95), (1.5, 2.0));
        assert_eq!((statistics.itl, statistics.tokens.input_estimated), (None, Some(20.0)));
        let cost = statistics.cost["USD"];
        assert_eq!((cost.n, cost.total, statistics.cost.len()), (2, 300_000.000_000_000_003, 1));
        assert_eq!(statistics.finish.as_ref().unwrap().shares.get("stop"), Some(&0.75));
        assert_eq!(report.groups[0].statistics.requests, 7, "the largest first");
        assert_eq!(report.groups[0].key.len(), 1, "an absent tenant is left out");
        let since = report.period.as_ref().unwrap().since.clone();
        assert_eq!(since.as_deref(), Some("1970-01-01T01:00:00.000Z"), "whole hours");
        assert_eq!(report.subjects[0].throughput.map(|it| it.requests), Some(1.2));
        let text = crate::text::render(&report);
        assert!(
            text.contains("answered from hourly figures") && text.contains("t-digests"),
            "{text}"
        );
    }

    #[test]
    fn refuses_an_answer_without_calls_or_with_other_content() {
        let empty = row("", 12, "0").replace(r#""requests":12"#, r#""requests":0"#);
        for (answer, problem) in [
            (empty.as_str(), "no call matches"),
            ("", "no call matches"),
            ("Code: 60. DB::Exception", "the answer of ClickHouse is invalid"),
            (&row("", 12, "x"), "invalid number: \"x\""),
        ] {
            let error = report(&request(), "http://h", answer.as_bytes());
            let error = error.unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
