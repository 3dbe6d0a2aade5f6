//! Computes the figures of the report from the requests of the log.

use std::cmp::Reverse;

use crate::compare;
use crate::dimension::Dimension;
use crate::key::SEPARATOR;
use crate::read::{self, Lines, Log, ReadError, Streams};
use crate::row::{NumericField, Row, Side};
use crate::statistics;
use crate::table::{Throughput, tables};
use crate::timeline::{Saturation, Timeline};
use crate::trace::Trace;
use crate::window::{self, RunExtent};
use crate::{Compare, Group, Period, Report, Request, Run, Subject, UNKNOWN, time};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    ReadError(#[from] ReadError),
    #[error(
        "no call of a known API in {0} lines; check that the files are request logs of tokengauge"
    )]
    NoCalls(u64),
    #[error("no call {period}; the calls of the files started from {from} to {to}")]
    NothingInPeriod { period: Period, from: String, to: String },
    #[error("none of {calls} calls matches {selectors}; {existing}")]
    NoMatch { calls: u64, selectors: String, existing: String },
    #[error("side {side} has no requests: {is}")]
    NoSide { side: &'static str, is: String },
}

/// Reads the files and evaluates them.
///
/// # Errors
/// Fails if a file cannot be opened, if the files contain no API call, if no call matches the selectors, or if one side
/// of a comparison is empty.
pub fn evaluate(request: &Request) -> Result<Report, Error> {
    evaluate_streams(request, Streams::new())
}

/// Evaluates files and streams. A file whose path is a key of `streams` is not opened.
///
/// # Errors
/// Returns the same errors as [`evaluate`].
pub fn evaluate_streams(request: &Request, streams: Streams) -> Result<Report, Error> {
    let log = read::read(request, streams)?;
    if log.rows.is_empty() {
        let Lines { read, filtered, outside, .. } = log.lines;
        let period = Period::from_range(request.period);
        return Err(match (filtered, period, log.starts) {
            (0, Some(period), Some([from, to])) if outside > 0 => {
                Error::NothingInPeriod { period, from: time::format(from), to: time::format(to) }
            }
            (0, _, _) => Error::NoCalls(read),
            (calls, _, _) => Error::NoMatch {
                calls,
                selectors: selectors(request),
                existing: existing(&log, request),
            },
        });
    }
    let runs = Runs::from_log(&log, request)?;
    let subjects = subjects(&log, request, &runs)?;
    let sides: Vec<String> = subjects.iter().filter_map(|subject| subject.is.clone()).collect();
    let comparison = <[String; 2]>::try_from(sides)
        .ok()
        .map(|sides| compare::compare(&log, sides, |row| runs.is_in_window(row), request.settings));
    let mut report = Report {
        tokengauge: env!("CARGO_PKG_VERSION"),
        configuration: known(log.configs.iter().cloned().collect()),
        seed: request.settings.seed,
        percentiles: statistics::PERCENTILES,
        subjects,
        by: dimensions(request).collect(),
        groups: groups(&log, request, &runs),
        in_other: log.groups.overflow_count(),
        comparison,
        acceptance: None,
        notes: without_cost(&log).into_iter().collect(),
        trace: request.trace.then(|| Trace::from_log(&log)),
        focus: log.focus,
        period: Period::from_range(request.period),
        runs: runs.0.into_iter().map(|run| run.run).collect(),
        lines: log.lines,
        inputs: log.inputs,
    };
    if let Some((acceptance, sha256)) = &request.acceptance {
        let judged = report.candidate().map(|candidate| {
            acceptance.judge(&candidate.statistics, report.comparison.as_ref(), sha256.clone())
        });
        report.acceptance = judged;
    }
    Ok(report)
}

/// Returns a note on calls whose cost is unknown, if the cost of other calls is known.
fn without_cost(log: &Log) -> Option<String> {
    let is_known = |row: &Row| row.value(NumericField::Cost).is_some();
    let has_tokens = |row: &Row| {
        [NumericField::Input, NumericField::Output]
            .iter()
            .any(|field| row.value(*field).is_some_and(|tokens| tokens > 0.0))
    };
    let count = log.rows.iter().filter(|row| has_tokens(row) && !is_known(row)).count();
    (count > 0 && log.rows.iter().any(is_known)).then(|| {
        let calls = if count == 1 { "call with tokens has" } else { "calls with tokens have" };
        format!("{count} {calls} no known cost, so the totals are too low; see --by model")
    })
}

/// Returns the hashes, or `unknown` without any.
pub fn known(mut hashes: Vec<String>) -> Vec<String> {
    hashes.sort_unstable();
    if hashes.is_empty() { vec![UNKNOWN.to_owned()] } else { hashes }
}

fn selectors(request: &Request) -> String {
    let selectors: Vec<_> = request.only.iter().map(ToString::to_string).collect();
    selectors.join(" and ")
}

/// Lists at most ten values of each dimension in the selectors, for the message that no call matches.
fn existing(log: &Log, request: &Request) -> String {
    const MAX_LISTED_VALUES: usize = 10;
    let mut names: Vec<&str> = request.only.iter().map(|it| it.dimension.as_str()).collect();
    names.dedup();
    let list = |name: &str| match log.excluded.get(name) {
        None => format!("no call has a {name}"),
        Some(values) => {
            let listed: Vec<&str> =
                values.iter().take(MAX_LISTED_VALUES).map(String::as_str).collect();
            let more = if values.len() > MAX_LISTED_VALUES { ", …" } else { "" };
            format!("values of {name}: {}{more}", listed.join(", "))
        }
    };
    names.into_iter().map(list).collect::<Vec<_>>().join("; ")
}

/// Returns the dimensions whose values form a group key.
fn dimensions(request: &Request) -> impl Iterator<Item = &'static str> {
    let side = matches!(request.compare, Compare::Runs).then_some("side");
    side.into_iter().chain(request.by.iter().map(Dimension::as_str))
}

/// The evaluated runs: one run with all requests, or run A and run B.
struct Runs(Vec<SideRun>);

struct SideRun {
    /// Side of the run in a comparison of two runs. `None` if there is only one run.
    side: Option<Side>,
    extent: RunExtent,
    run: Run,
}

impl Runs {
    fn from_log(log: &Log, request: &Request) -> Result<Self, Error> {
        let sides = match request.compare {
            Compare::Runs => vec![Some(Side::A), Some(Side::B)],
            Compare::Nothing | Compare::Within { .. } => vec![None],
        };
        let run = |side: Option<Side>| {
            let rows = of_side(log, side);
            let extent = RunExtent::from_rows(rows.clone()).ok_or_else(|| Error::NoSide {
                side: side.and_then(Side::name).unwrap_or_default(),
                is: if request.only.is_empty() {
                    "its files contain no call of a known API".to_owned()
                } else {
                    format!("its files contain no call that matches {}", selectors(request))
                },
            })?;
            let run = Run {
                side: side.and_then(Side::name),
                from: time::format(extent.from),
                to: time::format(extent.to),
                requests: extent.requests,
                window: window::find(&rows, extent, request.warmup, request.ramp_down),
                saturation: Saturation::from_rows(rows, extent),
            };
            Ok(SideRun { side, extent, run })
        };
        Ok(Self(sides.into_iter().map(run).collect::<Result<_, Error>>()?))
    }

    /// Returns the run that contains the requests of `side`.
    fn containing(&self, side: Option<Side>) -> Option<&SideRun> {
        self.0.iter().find(|run| run.side.is_none() || run.side == side)
    }

    /// Returns whether the speed figures cover a request: it started in the window of its run.
    fn is_in_window(&self, row: &Row) -> bool {
        self.containing(Some(row.side)).is_some_and(|run| run.run.window.bounds.contains(row))
    }
}

fn of_side(log: &Log, side: Option<Side>) -> impl Iterator<Item = &Row> + Clone {
    log.rows.iter().filter(move |row| side.is_none_or(|side| side == row.side))
}

fn subjects(log: &Log, request: &Request, runs: &Runs) -> Result<Vec<Subject>, Error> {
    let sides = match &request.compare {
        Compare::Nothing => vec![(None, None)],
        Compare::Within { a, b } => vec![
            (None, None),
            (Some(Side::A), Some(a.to_string())),
            (Some(Side::B), Some(b.to_string())),
        ],
        Compare::Runs => {
            [Side::A, Side::B].map(|side| (Some(side), Some(files(request, side)))).into()
        }
    };
    sides.into_iter().map(|(side, is)| subject(log, runs, side, is)).collect()
}

fn files(request: &Request, side: Side) -> String {
    let files = request.files.iter().filter(|file| file.side == side);
    let paths: Vec<_> = files.map(|file| file.path.to_string_lossy()).collect();
    paths.join(", ")
}

fn subject(
    log: &Log,
    runs: &Runs,
    side: Option<Side>,
    is: Option<String>,
) -> Result<Subject, Error> {
    let name = side.and_then(Side::name).unwrap_or("all");
    let run = runs.containing(side).filter(|_| of_side(log, side).next().is_some());
    let Some(SideRun { extent, run, .. }) = run else {
        return Err(Error::NoSide { side: name, is: is.unwrap_or_default() });
    };
    let is_in_window = |row: &Row| runs.is_in_window(row);
    let belongs = |row: &Row| side.is_none_or(|side| side == row.side);
    let mut table = tables(log, 1, |row| belongs(row).then_some(0), is_in_window);
    let measured = of_side(log, side).filter(|row| is_in_window(row));
    Ok(Subject {
        name,
        is,
        throughput: Throughput::from_rows(measured, run.window.length),
        statistics: table.pop().unwrap_or_default(),
        // Subjects of one run share its time axis, so that their plots can be compared.
        timeline: Timeline::from_rows(of_side(log, side), *extent, &log.currencies),
    })
}

fn groups(log: &Log, request: &Request, runs: &Runs) -> Vec<Group> {
    let names: Vec<&str> = log.groups.iter().collect();
    let is_in_window = |row: &Row| runs.is_in_window(row);
    let tables = tables(log, names.len(), |row| Some(row.group), is_in_window);
    // A name without requests belongs to rows beyond the limit of rows.
    let seen = names.into_iter().zip(tables).filter(|(_, statistics)| statistics.requests > 0);
    let group = |(key, statistics): (&str, _)| {
        let values = key.split(SEPARATOR).map(str::to_owned);
        let named = dimensions(request).zip(values).filter(|(_, value)| !value.is_empty());
        Group { key: named.collect(), statistics }
    };
    let mut groups: Vec<Group> = seen.map(group).collect();
    sort(&mut groups, request);
    groups
}

/// Sorts by the dimensions of time, and then by the number of requests. Groups of equal size stay in their order.
pub fn sort(groups: &mut [Group], request: &Request) {
    let times: Vec<&str> =
        request.by.iter().filter(|it| it.is_time()).map(Dimension::as_str).collect();
    groups.sort_by_cached_key(|group| {
        let time: Vec<Option<String>> =
            times.iter().map(|name| group.key.get(name).cloned()).collect();
        (time, Reverse(group.statistics.requests))
    });
}
