//! Settings of `workload_drift`. A saved baseline is read here, so that all errors are reported together.

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::errors::{ErrorCollector, NodeId};
use crate::config::file;
use tokengauge_measure::drift::{Baseline, DriftConfig, SavedBaseline};
use tokengauge_types::bounded::Int;
use tokengauge_types::serde_as_str;

/// Maximum size of the baseline file in bytes. The largest possible baseline has 6 MB, with all routes, models and
/// lengths.
const MAX_BYTES: u64 = 8 << 20;

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkloadDrift {
    /// [Baseline](../explanation/drift.md#baseline) of lengths: `first`, `yesterday`, a file saved from `/drift` of the
    /// admin port (write `./first` for a file of that name), or `off`.
    pub baseline: BaselineChoice,
    /// Latest requests that are compared, and size of the baseline `first`.
    pub sample_size: Int<200, 10_000, { DriftConfig::DEFAULT_EXCHANGES as u64 }>,
}

/// A keyword or a path. A file with the name of a keyword must be written as `./first`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum BaselineChoice {
    Off,
    #[default]
    First,
    Yesterday,
    File(PathBuf),
}

impl FromStr for BaselineChoice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "off" => Self::Off,
            "first" => Self::First,
            "yesterday" => Self::Yesterday,
            path => Self::File(path.into()),
        })
    }
}

impl fmt::Display for BaselineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::First => f.write_str("first"),
            Self::Yesterday => f.write_str("yesterday"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

serde_as_str!(BaselineChoice, { "type": "string", "format": "word or path" });

/// Without `reads_files`, a saved baseline is not loaded.
pub fn resolve(
    written: &WorkloadDrift,
    reads_files: bool,
    errors: &mut ErrorCollector,
) -> DriftConfig {
    let baseline = match &written.baseline {
        BaselineChoice::File(_) if !reads_files => Baseline::First,
        BaselineChoice::Off => Baseline::Off,
        BaselineChoice::First => Baseline::First,
        BaselineChoice::Yesterday => Baseline::Yesterday,
        BaselineChoice::File(path) => match load(path) {
            Ok(saved) => Baseline::File { path: path.clone(), saved: Arc::new(saved) },
            Err(reason) => {
                let message = format!("{}: {reason}", path.display());
                errors.add_key(NodeId::ROOT, "workload_drift.baseline", message);
                Baseline::First
            }
        },
    };
    DriftConfig { baseline, exchanges: written.sample_size.get() }
}

fn load(path: &Path) -> Result<SavedBaseline, String> {
    let json = file::read_bytes(path, MAX_BYTES)?;
    SavedBaseline::read(&json).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load::load_text;
    use crate::config::{Config, ConfigErrors, RunArgs};
    use tokengauge_llm::count::Tokenizers;

    fn load(drift: &str) -> Result<Config, ConfigErrors> {
        let text =
            format!("version: 1\nupstreams: {{a: {{url: http://a}}}}\nworkload_drift: {drift}\n");
        load_text(Some(&text), &RunArgs::default(), &|_| None, &Tokenizers::default())
    }

    fn error(drift: &str) -> String {
        load(drift).unwrap_err().to_string()
    }

    #[test]
    fn keywords_are_not_paths() {
        for (word, baseline) in
            [("off", Baseline::Off), ("first", Baseline::First), ("yesterday", Baseline::Yesterday)]
        {
            let config = load(&format!("{{baseline: {word}, sample_size: 500}}")).unwrap();
            assert_eq!(config.workload_drift.baseline, baseline);
            assert_eq!(config.workload_drift.exchanges, 500);
            let printed = config.yaml.clone();
            let again =
                load_text(Some(&printed), &RunArgs::default(), &|_| None, &Tokenizers::default());
            assert_eq!(again.unwrap().workload_drift, config.workload_drift, "{printed}");
        }
    }

    #[test]
    fn loads_a_saved_baseline_and_prints_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("baseline.json");
        let saved = "{\"version\":1,\"models\":[{\"provider\":\"p\",\"model\":\"m\",\"route\":\"r\",\
                     \"position\":\"gateway\",\"input\":[[10,200]],\"output\":[]}]}";
        std::fs::write(&path, saved).unwrap();
        let config = load(&format!("{{baseline: {}}}", path.display())).unwrap();
        let Baseline::File { saved: read, .. } = &config.workload_drift.baseline else {
            panic!("{:?}", config.workload_drift);
        };
        assert_eq!(read.to_json(), saved);
        assert!(config.yaml.contains(path.to_str().unwrap()));
    }

    #[test]
    fn reports_an_invalid_baseline_with_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("corrupt");
        std::fs::write(&path, "{\"version\":1,\"models\":[sk-planted").unwrap();
        let corrupt = error(&format!("{{baseline: {}}}", path.display()));
        assert!(
            corrupt.contains(":3:") && corrupt.contains("workload_drift.baseline"),
            "{corrupt}"
        );
        assert!(corrupt.contains("corrupt: not a saved baseline (line 1, column 24)"), "{corrupt}");
        assert!(!corrupt.contains("planted"));
        assert!(error("{baseline: /nowhere/f}").contains("cannot read the file"));
        assert!(error("{sample_size: 199}").contains("write a value from 200 to 10000"));
    }
}
