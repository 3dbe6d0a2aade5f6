//! The evaluation of request logs: tables, the steady state of a run, A against B, and limits to be kept.
//!
//! It knows a log by its documented fields only, and nothing of the proxy that wrote it: what judges a run must not share
//! its measuring. Undefined stays undefined here too: it is left out, and how many requests a figure rests on stands beside it.

pub mod accept;
mod bands;
mod bootstrap;
mod cells;
pub mod compare;
pub mod dimension;
mod evaluate;
pub mod html;
mod knee;
mod line;
pub mod read;
mod row;
mod slices;
mod statistics;
mod steady;
mod table;
pub mod text;
mod texts;
mod time;
mod timeline;
pub mod window;

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, schema_for};
use serde::Serialize;

pub use evaluate::{Error, evaluate};
pub use row::{Quality, Side};

use accept::{Acceptance, Judgement};
use compare::Comparison;
use dimension::{Dimension, Selector};
use read::{File, Input, Lines};
use table::{Statistics, Throughput};
use timeline::{Saturation, Timeline};
use window::{Cut, Window};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    pub files: Vec<File>,
    pub by: Vec<Dimension>,
    pub only: Vec<Selector>,
    pub compare: Compare,
    pub warmup: Cut,
    pub ramp_down: Cut,
    pub settings: compare::Settings,
    /// With the SHA-256 of its file.
    pub acceptance: Option<(Acceptance, String)>,
}

/// What is compared with what.
#[derive(Clone, Debug, Default)]
pub enum Compare {
    #[default]
    Nothing,
    /// Two kinds of requests of one run.
    Within { a: Selector, b: Selector },
    /// Two runs: the baseline's files are A.
    Runs,
}

/// All that is told. What is not known is left out, but in lists that have a place for each slice of time.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Report {
    /// The version of tokengauge that evaluated.
    pub tokengauge: &'static str,
    pub inputs: Vec<Input>,
    pub lines: Lines,
    /// `config.hash` of the lines; `unknown` where none has one.
    pub configuration: Vec<String>,
    /// Of all random numbers.
    pub seed: u64,
    /// How percentiles are computed.
    pub percentiles: &'static str,
    pub runs: Vec<Run>,
    pub subjects: Vec<Subject>,
    /// What the groups are made by.
    pub by: Vec<&'static str>,
    /// Most requests first.
    pub groups: Vec<Group>,
    /// Requests of groups beyond the 10,000th, which are in the group `other`.
    pub in_other: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<Judgement>,
}

/// One set of files, on one axis of time.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Run {
    /// `A` or `B` where two runs are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side: Option<&'static str>,
    /// When the first request came.
    pub from: String,
    /// When the last one ended.
    pub to: String,
    pub requests: u64,
    /// What is evaluated of it. All figures but the timelines and the saturation are of requests that began within.
    pub window: Window,
    pub saturation: Saturation,
}

/// All requests of one side.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Subject {
    /// `all`, `A` or `B`.
    pub name: &'static str,
    /// What makes it that side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is: Option<String>,
    pub statistics: Statistics,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Throughput>,
    /// Over the whole run; absent where it took no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
}

/// Requests that share all values of the dimensions that they are grouped by.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Group {
    /// Values that are absent are left out.
    pub key: BTreeMap<&'static str, String>,
    pub statistics: Statistics,
}

/// What stands for a value that is absent, or a figure that is not defined.
const UNKNOWN: &str = "unknown";

/// The JSON Schema of a [`Report`].
pub fn schema() -> Schema {
    schema_for!(Report)
}

impl Report {
    /// Whether all limits are kept; `None` where there are none.
    pub fn accepted(&self) -> Option<bool> {
        self.acceptance.as_ref().map(|judgement| judgement.accepted)
    }

    /// The subject that absolute limits are judged on.
    fn candidate(&self) -> Option<&Subject> {
        let b = self.subjects.iter().find(|subject| subject.name == "B");
        b.or_else(|| self.subjects.first())
    }

    /// What of the input was not used, in words; one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let Lines { read: _, calls: _, plain, filtered: _, unreadable, too_long, beyond } =
            self.lines;
        let told = [
            (unreadable, "no JSON, or no line of a request log: skipped"),
            (too_long, "longer than 1 MiB: skipped"),
            (plain, "plain HTTP and no call of a known API: left out"),
            (beyond, "beyond the most requests that are held: left out"),
        ];
        let lines = told.into_iter().filter(|(count, _)| *count > 0);
        let lines = lines.map(|(count, what)| match count {
            1 => format!("1 line is {what}"),
            count => format!("{count} lines are {what}"),
        });
        let broken = self.inputs.iter().filter_map(|input| {
            let why = input.broken.as_ref()?;
            Some(format!("{} was not read to its end: {why}", input.path))
        });
        let other = (self.in_other > 0)
            .then(|| format!("{} requests are in the group `other`", self.in_other));
        lines.chain(broken).chain(other).collect()
    }
}
