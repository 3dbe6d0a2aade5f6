//! Drift baseline saved as JSON. The `/drift` endpoint of the admin port writes the file, and the configuration key
//! `drift.baseline` names the file to load.

use serde::{Deserialize, Serialize};

use crate::drift::lengths::{Bucket, Lengths};
use crate::drift::{Direction, MIN_REQUESTS};
use crate::load::{MAX_MODEL_KEYS, ModelKey};
use tokengauge_types::event::ProxyPosition;
use tokengauge_types::label::{Label, MAX_NAME_BYTES};

/// Baseline lengths of each model key, in the format of the JSON file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SavedBaseline {
    version: u64,
    #[serde(alias = "flows")]
    models: Vec<SavedEntry>,
}

/// Reason why a file is not a valid baseline, with a hint for the operator. Messages never quote the file: if the path
/// is wrong, the file may contain secrets.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BaselineError {
    #[error(
        "not a saved baseline (line {line}, column {column}); save one with `curl http://127.0.0.1:4001/drift`"
    )]
    Malformed { line: usize, column: usize },
    #[error(
        "the version is {0}, but this program reads version {VERSION}; save the baseline again"
    )]
    Version(u64),
    #[error(
        "it has more than {MAX_MODEL_KEYS} models, the maximum of a baseline; save the baseline again"
    )]
    TooMany,
    #[error("model {0} is listed twice or has an invalid name; save the baseline again")]
    Model(usize),
    #[error(
        "no model has {MIN_REQUESTS} requests, the minimum for a comparison; save the baseline after more requests"
    )]
    TooFew,
}

const VERSION: u64 = 1;

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
struct SavedEntry {
    provider: String,
    model: String,
    route: String,
    #[serde(alias = "vantage")]
    position: ProxyPosition,
    /// Histogram of input lengths, as pairs: the lower bound of a bucket in tokens, and the number of requests in this
    /// bucket.
    input: Vec<(u64, u32)>,
    output: Vec<(u64, u32)>,
}

impl SavedBaseline {
    pub(super) fn from_models(
        mut models: Vec<(ModelKey, [Lengths; Direction::ALL.len()])>,
    ) -> Self {
        models.sort_by(|(a, _), (b, _)| a.by_name().cmp(&b.by_name()));
        let entry = |(model_key, lengths): (ModelKey, [Lengths; Direction::ALL.len()])| {
            let [input, output] = lengths.each_ref().map(pairs);
            SavedEntry {
                provider: model_key.provider.to_string(),
                model: model_key.model.to_string(),
                route: model_key.route.to_string(),
                position: model_key.position,
                input,
                output,
            }
        };
        Self { version: VERSION, models: models.into_iter().map(entry).collect() }
    }

    /// Parses a baseline file.
    ///
    /// # Errors
    /// Returns an error if the file is not a baseline, or if no model has [`MIN_REQUESTS`] requests.
    pub fn read(json: &[u8]) -> Result<Self, BaselineError> {
        let saved: Self = serde_json::from_slice(json).map_err(|error| {
            BaselineError::Malformed { line: error.line(), column: error.column() }
        })?;
        if saved.version != VERSION {
            return Err(BaselineError::Version(saved.version));
        }
        if saved.models.len() > MAX_MODEL_KEYS {
            return Err(BaselineError::TooMany);
        }
        let mut known = Vec::with_capacity(saved.models.len());
        for (index, entry) in saved.models.iter().enumerate() {
            let names = entry.names();
            let (_, labels) = names;
            let is_label = |text: &str| !text.is_empty() && text.len() <= MAX_NAME_BYTES;
            if known.contains(&names) || !labels.into_iter().all(is_label) {
                return Err(BaselineError::Model(index + 1));
            }
            known.push(names);
        }
        let all = saved.models.iter().flat_map(|entry| [&entry.input, &entry.output]);
        if all.map(|pairs| lengths(pairs).total()).max() < Some(MIN_REQUESTS) {
            return Err(BaselineError::TooFew);
        }
        Ok(saved)
    }

    pub fn to_json(&self) -> String {
        // Strings and numbers always serialise.
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn lengths(&self, model_key: &ModelKey, direction: Direction) -> Option<Lengths> {
        let labels = [&model_key.provider, &model_key.model, &model_key.route].map(Label::as_str);
        let mut models = self.models.iter();
        let saved = models.find(|entry| entry.names() == (model_key.position, labels))?;
        Some(lengths(match direction {
            Direction::Input => &saved.input,
            Direction::Output => &saved.output,
        }))
    }
}

impl SavedEntry {
    fn names(&self) -> (ProxyPosition, [&str; 3]) {
        (self.position, [&self.provider, &self.model, &self.route])
    }
}

fn lengths(pairs: &[(u64, u32)]) -> Lengths {
    let mut lengths = Lengths::default();
    for (length, times) in pairs {
        lengths.add(Bucket::from_length(*length), *times);
    }
    lengths
}

fn pairs(lengths: &Lengths) -> Vec<(u64, u32)> {
    let pair = |(bucket, times): (Bucket, u32)| (bucket.shortest(), times);
    lengths.iter().map(pair).collect()
}
