//! Evaluates rows and builds the report.

use std::collections::BTreeMap;

use crate::compare::{self, Comparison};
use crate::dimension::Dimension;
use crate::read::{self, Log, ReadError, SEPARATOR, Selection, SideRule};
use crate::row::{Row, Side};
use crate::statistics;
use crate::table::{Statistics, Throughput, tables};
use crate::timeline::{Saturation, Timeline};
use crate::window::{self, RunExtent, Window};
use crate::{Compare, Group, Report, Request, Run, Subject, UNKNOWN, time};

/// Error of an evaluation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    ReadError(#[from] ReadError),
    #[error(
        "no call of a known API in {0} lines; check that the files are request logs of tokengauge"
    )]
    NoCalls(u64),
    #[error("side {side} has no requests: {is}")]
    NoSide { side: &'static str, is: String },
}

/// Reads the files and evaluates them.
///
/// # Errors
/// Fails if a file cannot be opened, if the files contain no API call, or if one side of a comparison is empty.
pub fn evaluate(request: &Request) -> Result<Report, Error> {
    let selection = Selection {
        by: request.by.clone(),
        only: request.only.clone(),
        sides: match &request.compare {
            Compare::Nothing => SideRule::None,
            Compare::Within { a, b } => SideRule::By { a: a.clone(), b: b.clone() },
            Compare::Runs => SideRule::ByFile,
        },
    };
    let log = read::read(&request.files, &selection)?;
    if log.rows.is_empty() {
        return Err(Error::NoCalls(log.lines.read));
    }
    let runs = Runs::of(&log, request)?;
    let subjects = subjects(&log, request, &runs)?;
    let comparison = compared(&log, request, &runs);
    let mut report = Report {
        tokengauge: env!("CARGO_PKG_VERSION"),
        configuration: if log.configs.is_empty() {
            vec![UNKNOWN.to_owned()]
        } else {
            log.configs.iter().cloned().collect()
        },
        seed: request.settings.seed,
        percentiles: statistics::PERCENTILES,
        subjects,
        by: dimensions(request).collect(),
        groups: groups(&log, request, &runs),
        in_other: log.groups.overflow_count(),
        comparison,
        acceptance: None,
        runs: runs.0.into_iter().map(|(_, run)| run).collect(),
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

/// Returns the dimensions of the values in a group key.
fn dimensions(request: &Request) -> impl Iterator<Item = &'static str> {
    let side = match request.compare {
        Compare::Runs => Some("side"),
        Compare::Nothing | Compare::Within { .. } => None,
    };
    side.into_iter().chain(request.by.iter().copied().map(Dimension::as_str))
}

/// One run, or the runs of A and B.
struct Runs(Vec<(Option<Side>, Run)>);

impl Runs {
    fn of(log: &Log, request: &Request) -> Result<Self, Error> {
        let sides = match request.compare {
            Compare::Runs => vec![Some(Side::A), Some(Side::B)],
            Compare::Nothing | Compare::Within { .. } => vec![None],
        };
        let run = |side: Option<Side>| {
            let rows = of_side(log, side);
            let extent = RunExtent::of(rows.clone()).ok_or_else(|| Error::NoSide {
                side: side.and_then(Side::name).unwrap_or_default(),
                is: "its files contain no call of a known API".to_owned(),
            })?;
            let run = Run {
                side: side.and_then(Side::name),
                from: time::format(extent.from),
                to: time::format(extent.to),
                requests: extent.requests,
                window: window::find(&rows, extent, request.warmup, request.ramp_down),
                saturation: Saturation::of(rows, extent),
            };
            Ok((side, run))
        };
        Ok(Self(sides.into_iter().map(run).collect::<Result<_, Error>>()?))
    }

    fn window(&self, row: &Row) -> Option<&Window> {
        let run = self.0.iter().find(|(side, _)| side.is_none_or(|side| side == row.side));
        run.map(|(_, run)| &run.window)
    }

    /// Returns whether a request is in the window of its run.
    fn counts(&self, row: &Row) -> bool {
        self.window(row).is_some_and(|window| window.bounds.contains(row))
    }
}

fn of_side(log: &Log, side: Option<Side>) -> impl Iterator<Item = &Row> + Clone {
    log.rows.iter().filter(move |row| side.is_none_or(|side| side == row.side))
}

fn subjects(log: &Log, request: &Request, runs: &Runs) -> Result<Vec<Subject>, Error> {
    let sides: Vec<(Option<Side>, Option<String>)> = match &request.compare {
        Compare::Nothing => vec![(None, None)],
        Compare::Within { a, b } => vec![
            (None, None),
            (Some(Side::A), Some(a.to_string())),
            (Some(Side::B), Some(b.to_string())),
        ],
        Compare::Runs => vec![
            (Some(Side::A), Some(files(request, Side::A))),
            (Some(Side::B), Some(files(request, Side::B))),
        ],
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
    let belongs = |row: &Row| side.is_none_or(|side| side == row.side) && runs.counts(row);
    let mut table = tables(log, 1, |row| belongs(row).then_some(0));
    let name = side.and_then(Side::name).unwrap_or("all");
    let Some(extent) = RunExtent::of(of_side(log, side)) else {
        let is = is.unwrap_or_default();
        return Err(Error::NoSide { side: name, is });
    };
    let window = of_side(log, side).next().and_then(|row| runs.window(row));
    let statistics = table.pop().unwrap_or_default();
    Ok(Subject {
        name,
        is,
        throughput: window.and_then(|window| Throughput::of(&statistics, window.length)),
        statistics,
        timeline: Timeline::of(of_side(log, side), run_of(log, runs, extent, side)),
    })
}

/// Returns the time range for a timeline. Subjects of one run share its time axis.
fn run_of(log: &Log, runs: &Runs, extent: RunExtent, side: Option<Side>) -> RunExtent {
    let shared = runs.0.iter().any(|(run, _)| run.is_none() && side.is_some());
    let full = shared.then(|| RunExtent::of(log.rows.iter())).flatten();
    full.unwrap_or(extent)
}

fn compared(log: &Log, request: &Request, runs: &Runs) -> Option<Comparison> {
    let names = match &request.compare {
        Compare::Nothing => return None,
        Compare::Within { a, b } => [a.to_string(), b.to_string()],
        Compare::Runs => [files(request, Side::A), files(request, Side::B)],
    };
    let counts: BTreeMap<Side, window::StartRange> = [Side::A, Side::B]
        .into_iter()
        .filter_map(|side| {
            let run = runs.0.iter().find(|(run, _)| run.is_none_or(|run| run == side))?;
            Some((side, run.1.window.bounds))
        })
        .collect();
    let counts = |row: &Row| counts.get(&row.side).is_some_and(|bounds| bounds.contains(row));
    Some(compare::compare(log, names, counts, request.settings))
}

fn groups(log: &Log, request: &Request, runs: &Runs) -> Vec<Group> {
    let names: Vec<&str> = log.groups.iter().collect();
    let tables = tables(log, names.len(), |row| runs.counts(row).then_some(row.group));
    let seen = names.into_iter().zip(tables);
    let mut groups: Vec<Group> = seen
        .filter(|(_, statistics)| statistics.requests > 0)
        .map(|(key, statistics)| group(key, request, statistics))
        .collect();
    // The sort is stable: groups of equal size stay in order of first appearance.
    groups.sort_by_key(|group| std::cmp::Reverse(group.statistics.requests));
    groups
}

fn group(key: &str, request: &Request, statistics: Statistics) -> Group {
    let values = key.split(SEPARATOR).map(str::to_owned);
    let named = dimensions(request).zip(values);
    Group { key: named.filter(|(_, value)| !value.is_empty()).collect(), statistics }
}
