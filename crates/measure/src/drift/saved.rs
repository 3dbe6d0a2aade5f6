//! Saved baseline as JSON. The admin port's `/drift` writes it, and the key `drift.baseline` reads it.

use serde::{Deserialize, Serialize};

use crate::drift::lengths::{Bucket, Lengths};
use crate::drift::{Direction, FEWEST};
use crate::load::{MOST_FLOWS, ModelKey};
use tokengauge_types::event::ProxyPosition;
use tokengauge_types::label::{LONGEST_NAME, Label};

/// Lengths of each model key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SavedBaseline(Vec<(ModelKey, [Lengths; Direction::ALL.len()])>);

/// Reason why a file is not a valid baseline, with a hint. The message quotes nothing from the file, because the file
/// may be a different one that contains secrets.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BaselineError {
    #[error(
        "this is no saved baseline (line {line}, column {column}); save one with `curl http://127.0.0.1:4001/drift`"
    )]
    Malformed { line: usize, column: usize },
    #[error("its version is {0}, and this program reads version {VERSION}; save it anew")]
    Version(u64),
    #[error("it holds more than {MOST_FLOWS} flows, which no baseline does; save it anew")]
    TooMany,
    #[error("its flow {0} is there twice, or has a name that no flow has; save it anew")]
    Flow(usize),
    #[error(
        "none of its flows has {FEWEST} exchanges, and nothing can be told from fewer; save it when there are more"
    )]
    TooFew,
}

/// Version of the format.
const VERSION: u64 = 1;

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u64,
    flows: Vec<Entry>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    provider: String,
    model: String,
    route: String,
    vantage: ProxyPosition,
    /// Pairs of a length in tokens and the number of exchanges with that length or one slightly above it.
    input: Vec<(u64, u32)>,
    output: Vec<(u64, u32)>,
}

impl SavedBaseline {
    pub(super) fn of(flows: Vec<(ModelKey, [Lengths; Direction::ALL.len()])>) -> Self {
        let mut flows = flows;
        flows.sort_by(|(a, _), (b, _)| a.by_name().cmp(&b.by_name()));
        Self(flows)
    }

    /// Parses a saved baseline.
    ///
    /// # Errors
    /// Returns an error if the input is not a baseline or has too few exchanges to compare with.
    pub fn read(json: &[u8]) -> Result<Self, BaselineError> {
        let file: File = serde_json::from_slice(json).map_err(|error| {
            BaselineError::Malformed { line: error.line(), column: error.column() }
        })?;
        if file.version != VERSION {
            return Err(BaselineError::Version(file.version));
        }
        if file.flows.len() > MOST_FLOWS {
            return Err(BaselineError::TooMany);
        }
        let mut flows: Vec<(ModelKey, _)> = Vec::with_capacity(file.flows.len());
        for (index, entry) in file.flows.into_iter().enumerate() {
            let flow = entry.flow().ok_or(BaselineError::Flow(index + 1))?;
            if flows.iter().any(|(other, _)| *other == flow) {
                return Err(BaselineError::Flow(index + 1));
            }
            flows.push((flow, [lengths(&entry.input), lengths(&entry.output)]));
        }
        let all = flows.iter().flat_map(|(_, lengths)| lengths);
        if all.map(Lengths::total).max() < Some(FEWEST) {
            return Err(BaselineError::TooFew);
        }
        Ok(Self::of(flows))
    }

    pub fn to_json(&self) -> String {
        let entry = |(flow, lengths): &(ModelKey, [Lengths; Direction::ALL.len()])| {
            let [input, output] = lengths.each_ref().map(pairs);
            Entry {
                provider: flow.provider.to_string(),
                model: flow.model.to_string(),
                route: flow.route.to_string(),
                vantage: flow.vantage,
                input,
                output,
            }
        };
        let file = File { version: VERSION, flows: self.0.iter().map(entry).collect() };
        // Strings and numbers always serialise.
        serde_json::to_string(&file).unwrap_or_default()
    }

    pub(super) fn lengths(&self, flow: &ModelKey, direction: Direction) -> Option<Lengths> {
        let (_, [input, output]) = self.0.iter().find(|(saved, _)| saved == flow)?;
        Some(match direction {
            Direction::Input => input.clone(),
            Direction::Output => output.clone(),
        })
    }
}

impl Entry {
    fn flow(&self) -> Option<ModelKey> {
        let label = |text: &str| {
            let fits = !text.is_empty() && text.len() <= LONGEST_NAME;
            fits.then(|| Label::known(text))
        };
        Some(ModelKey {
            provider: label(&self.provider)?,
            model: label(&self.model)?,
            route: label(&self.route)?,
            vantage: self.vantage,
        })
    }
}

fn lengths(pairs: &[(u64, u32)]) -> Lengths {
    let mut lengths = Lengths::default();
    for (length, times) in pairs {
        lengths.add(Bucket::of(*length), *times);
    }
    lengths
}

fn pairs(lengths: &Lengths) -> Vec<(u64, u32)> {
    let pair = |(bucket, times): (Bucket, u32)| (bucket.shortest(), times);
    lengths.iter().map(pair).collect()
}
