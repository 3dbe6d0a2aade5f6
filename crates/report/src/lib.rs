//! Evaluates request logs for `tokengauge report`: statistics, the steady state of a run, comparison of A and B, and
//! acceptance limits.
//!
//! The evaluation uses only the documented fields of the log. Each figure has the number of requests from which it is
//! computed. An undefined figure is left out.

pub mod acceptance;
mod bootstrap;
mod cells;
pub mod clickhouse;
pub mod compare;
pub mod csv;
mod csv_line;
pub mod dimension;
mod evaluate;
pub mod focus;
pub mod html;
mod interner;
mod key;
mod line;
mod money;
pub mod period;
pub mod read;
mod row;
mod saturation_point;
mod slices;
mod statistics;
mod steady;
mod table;
pub mod text;
mod time;
mod timeline;
pub mod trace;
pub mod window;

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;

pub use evaluate::{Error, evaluate, evaluate_streams};
pub use row::{Quality, Side};

use acceptance::{Acceptance, AcceptanceResult};
use compare::Comparison;
use dimension::{Dimension, Selector};
use read::{File, Input, Lines};
use table::{Statistics, Throughput};
use timeline::{Saturation, Timeline};
use window::{StartRange, Trim, Window};

/// Inputs and options of an evaluation.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub files: Vec<File>,
    /// Dimensions that define the groups.
    pub by: Vec<Dimension>,
    /// Period in which a request must start to be included.
    pub period: StartRange,
    /// Selectors, such as `model=x`. A request is included only if it matches all of them.
    pub only: Vec<Selector>,
    pub compare: Compare,
    pub warmup: Trim,
    pub ramp_down: Trim,
    pub settings: compare::Settings,
    /// Whether the report contains the cost by hour, for [`focus::render`].
    pub focus: bool,
    /// Whether the report contains the trace of the load. `by` must then be session and model.
    pub trace: bool,
    /// The acceptance limits, and the SHA-256 of their file.
    pub acceptance: Option<(Acceptance, String)>,
}

/// Requests that the report compares: none, two sets of requests, or two runs.
#[derive(Clone, Debug, Default)]
pub enum Compare {
    #[default]
    Nothing,
    /// Two sets of requests of one run.
    Within { a: Selector, b: Selector },
    /// Two runs. A is the baseline.
    Runs,
}

/// Result of an evaluation. Unknown values are left out, except in lists with one value per time slice.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Report {
    /// Version of tokengauge that created the report.
    pub tokengauge: &'static str,
    pub inputs: Vec<Input>,
    pub lines: Lines,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<Period>,
    /// All `config.hash` values in the log, which identify the proxy's configuration. `unknown` if the log contains no
    /// hash.
    pub configuration: Vec<String>,
    /// Seed of the random numbers for the bootstrap.
    pub seed: u64,
    /// Method that computes percentiles.
    pub percentiles: &'static str,
    pub runs: Vec<Run>,
    pub subjects: Vec<Subject>,
    /// Dimensions that define the groups.
    pub by: Vec<&'static str>,
    /// Groups, the largest first. With a dimension of time, in the order of time, and then the largest first.
    pub groups: Vec<Group>,
    /// Number of requests in the group `other`, which holds all groups after the 10,000th.
    pub in_other: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<AcceptanceResult>,
    /// What limits the answer, such as calls without a known cost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Cost by hour, if it was asked for.
    #[serde(skip)]
    pub focus: Option<focus::Table>,
    /// Trace of the load, if it was asked for.
    #[serde(skip)]
    pub trace: Option<trace::Trace>,
}

/// Period that the user selected. The report contains only requests that started in this period.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Period {
    /// Start of the period in RFC 3339, inclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// End of the period in RFC 3339, exclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// Requests that share one time axis: all files, or the files of one side in a comparison of two runs.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Run {
    /// `A` or `B` in a comparison of two runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side: Option<&'static str>,
    /// Time of the first request, in RFC 3339.
    pub from: String,
    /// End of the last request, in RFC 3339.
    pub to: String,
    pub requests: u64,
    /// Part of the run that the speed figures cover: rates, time to first token, time per output token, duration and
    /// throughput. Totals, such as requests, errors, tokens and cost, always cover the whole run.
    pub window: Window,
    pub saturation: Saturation,
}

/// Figures for one set of requests: all requests, side A or side B.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Subject {
    /// `all`, `A` or `B`.
    pub name: &'static str,
    /// Selector or files that define the side. Absent for all requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is: Option<String>,
    pub statistics: Statistics,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Throughput>,
    /// Timeline of the whole run. Absent if the run has a duration of zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
}

/// Requests with equal values in all grouping dimensions.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Group {
    /// Value of each dimension. A dimension without a value is left out.
    pub key: BTreeMap<&'static str, String>,
    pub statistics: Statistics,
}

/// Text for an absent value or an undefined figure.
const UNKNOWN: &str = "unknown";

/// Returns the JSON Schema of a [`Report`].
pub fn schema() -> Schema {
    // The schema of what is written: a field that may be left out is not required.
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<Report>()
}

impl Period {
    /// Returns the bounds that are set. Returns `None` if neither is.
    fn from_range(range: StartRange) -> Option<Self> {
        let bound = |at: u64, unset| (at != unset).then(|| time::format(at));
        let StartRange { from, until } = range;
        let period = Self {
            since: bound(from, StartRange::ALL.from),
            until: bound(until, StartRange::ALL.until),
        };
        (range != StartRange::ALL).then_some(period)
    }
}

/// Formats the period for a sentence, such as `since 2026-10-01T00:00:00.000Z`.
impl std::fmt::Display for Period {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { since, until } = self;
        let since = since.iter().map(|since| format!("since {since}"));
        let until = until.iter().map(|until| format!("until {until}"));
        f.write_str(&since.chain(until).collect::<Vec<_>>().join(" "))
    }
}

impl Report {
    /// Returns the sentence that states which period was selected.
    fn period_note(&self) -> Option<String> {
        let Lines { outside, .. } = self.lines;
        self.period.as_ref().map(|period| format!("Period: {period}; {outside} calls are outside"))
    }

    /// Returns whether all limits hold, or `None` without limits.
    pub fn accepted(&self) -> Option<bool> {
        self.acceptance.as_ref().map(|judgement| judgement.accepted)
    }

    /// Returns whether every file was read to its end.
    pub fn is_complete(&self) -> bool {
        self.inputs.iter().all(|input| input.broken.is_none())
    }

    /// Returns the requests to which limits on a single value apply: side B of a comparison, or all requests.
    fn candidate(&self) -> Option<&Subject> {
        let b = self.subjects.iter().find(|subject| subject.name == "B");
        b.or_else(|| self.subjects.first())
    }

    /// Returns the warnings of the report. Each sentence names one kind of input that was not evaluated completely.
    pub fn warnings(&self) -> Vec<String> {
        let Lines {
            read: _,
            calls: _,
            plain,
            filtered: _,
            outside: _,
            unreadable,
            too_long,
            beyond,
        } = self.lines;
        let skipped = [
            (unreadable, "skipped: not JSON, or not from a request log"),
            (too_long, "skipped: longer than 1 MiB"),
            (plain, "left out: plain HTTP, not a call of a known API"),
            (beyond, "left out: over the limit of 20,000,000 requests"),
        ];
        let lines = skipped.into_iter().filter(|(count, _)| *count > 0);
        let lines = lines.map(|(count, reason)| match count {
            1 => format!("1 line {reason}"),
            count => format!("{count} lines {reason}"),
        });
        let broken = self.inputs.iter().filter_map(|input| {
            let why = input.broken.as_ref()?;
            Some(format!("{}: reading stopped before the end of the file: {why}", input.path))
        });
        let duplicates = self.inputs.iter().filter_map(|input| {
            let of = input.duplicate_of.as_ref()?;
            Some(format!("{}: left out: the same content as {of}", input.path))
        });
        let other = (self.in_other > 0)
            .then(|| format!("{} requests are in the group `other`", self.in_other));
        let unpriced = self.focus.as_ref().filter(|table| table.without_cost > 0).map(|table| {
            format!("calls without a cost, which are not in the output: {}", table.without_cost)
        });
        let limited = self.focus.as_ref().filter(|table| table.is_limited).map(|_| {
            "too many hours, tenants and models: some have the name `other` in the output"
                .to_owned()
        });
        let unknown = self.trace.as_ref().filter(|trace| trace.without_lengths > 0).map(|trace| {
            format!(
                "calls without known tokens, which are not in the output: {}",
                trace.without_lengths
            )
        });
        let lines = lines.chain(broken).chain(duplicates).chain(other);
        lines
            .chain(unpriced)
            .chain(limited)
            .chain(unknown)
            .chain(self.notes.iter().cloned())
            .collect()
    }
}

#[cfg(test)]
mod tests;
