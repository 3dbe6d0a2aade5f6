//! Resolves the settings of `workload_drift`. A saved baseline is read here, so that all errors are reported together.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::deserialize::{Field, Spanned};
use crate::config::errors::ErrorCollector;
use crate::config::{file, raw};
use tokengauge_measure::drift::{Baseline, Config, SavedBaseline};

/// Maximum size of the baseline file in bytes. The largest possible baseline has 6 MB, with all routes, models and
/// lengths.
const MAX_BYTES: u64 = 8 << 20;

pub(super) fn resolve(written: &mut raw::WorkloadDrift, errors: &mut ErrorCollector) -> Config {
    written.baseline.or_insert("first".into());
    Config {
        baseline: baseline(&written.baseline, errors).unwrap_or(Baseline::First),
        exchanges: written.sample_size.or(Config::default().exchanges),
    }
}

/// Baselines that are not files.
pub(in crate::config) const KEYWORDS: [&str; 3] = ["off", "first", "yesterday"];

/// Reads the baseline. `first`, `yesterday` and `off` are keywords. A file with such a name must be written as
/// `./first`.
fn baseline(written: &Field<PathBuf>, errors: &mut ErrorCollector) -> Option<Baseline> {
    let Spanned { value: path, node } = written.as_ref()?;
    match path.to_str() {
        Some("off") => return Some(Baseline::Off),
        Some("first") => return Some(Baseline::First),
        Some("yesterday") => return Some(Baseline::Yesterday),
        Some(_) | None => {}
    }
    match load(path) {
        Ok(saved) => Some(Baseline::File { path: path.clone(), saved: Arc::new(saved) }),
        Err(reason) => {
            errors.add(*node, format!("{}: {reason}", path.display()));
            None
        }
    }
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
