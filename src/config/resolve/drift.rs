//! What the workload is compared with. A saved baseline is read here, so that what is wrong with it is told along with
//! all else.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::within;
use crate::config::deserialize::{Field, Spanned};
use crate::config::errors::ErrorCollector;
use crate::config::file;
use crate::config::raw;
use tokengauge_measure::drift::{Baseline, Config, Saved};

/// The words for what is no file; a file of that name is `./first`.
pub(in crate::config) const OFF: &str = "off";
pub(in crate::config) const FIRST: &str = "first";
pub(in crate::config) const YESTERDAY: &str = "yesterday";

/// As many flows as there can be, with every length there can be, are 6 MB.
const LARGEST: u64 = 8 << 20;

pub(super) fn resolve(written: Field<raw::Drift>, errors: &mut ErrorCollector) -> Config {
    let written = written.value().unwrap_or_default();
    let usual = Config::default();
    Config {
        baseline: baseline(written.baseline, errors).unwrap_or(usual.baseline),
        exchanges: within(written.exchanges, Config::EXCHANGES, errors).unwrap_or(usual.exchanges),
    }
}

fn baseline(written: Field<PathBuf>, errors: &mut ErrorCollector) -> Option<Baseline> {
    let Spanned { value, node } = written.spanned()?;
    match value.to_str() {
        Some(OFF) => return Some(Baseline::Off),
        Some(FIRST) => return Some(Baseline::First),
        Some(YESTERDAY) => return Some(Baseline::Yesterday),
        Some(_) | None => {}
    }
    match read(&value) {
        Ok(saved) => Some(Baseline::File { path: value, saved: Arc::new(saved) }),
        Err(why) => {
            errors.at(node, format!("{}: {why}", value.display()));
            None
        }
    }
}

fn read(path: &Path) -> Result<Saved, String> {
    let json = file::bytes_of(path, LARGEST)?;
    Saved::read(&json).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load::load_text;
    use crate::config::{Config, ConfigErrors, RunArgs};
    use tokengauge_llm::count::Tokenisers;

    fn load(drift: &str) -> Result<Config, ConfigErrors> {
        let text = format!("version: 1\nupstreams: {{a: {{url: http://a}}}}\ndrift: {drift}\n");
        load_text(Some(&text), &RunArgs::default(), &|_| None, &Tokenisers::default())
    }

    fn told(drift: &str) -> String {
        load(drift).unwrap_err().to_string()
    }

    #[test]
    fn words_are_no_files() {
        for (word, baseline) in
            [("off", Baseline::Off), ("first", Baseline::First), ("yesterday", Baseline::Yesterday)]
        {
            let config = load(&format!("{{baseline: {word}, exchanges: 500}}")).unwrap();
            assert_eq!(config.drift.baseline, baseline);
            assert_eq!(config.drift.exchanges, 500);
            let printed = config.to_yaml();
            let again =
                load_text(Some(&printed), &RunArgs::default(), &|_| None, &Tokenisers::default());
            assert_eq!(again.unwrap().drift, config.drift, "{printed}");
        }
    }

    #[test]
    fn a_file_that_was_saved_is_read_and_printed_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("baseline.json");
        let saved = "{\"version\":1,\"flows\":[{\"provider\":\"p\",\"model\":\"m\",\"route\":\"r\",\
                     \"vantage\":\"gateway\",\"input\":[[10,200]],\"output\":[]}]}";
        std::fs::write(&path, saved).unwrap();
        let config = load(&format!("{{baseline: {}}}", path.display())).unwrap();
        let Baseline::File { saved: read, .. } = &config.drift.baseline else {
            panic!("{:?}", config.drift);
        };
        assert_eq!(read.to_json(), saved);
        assert!(config.to_yaml().contains(path.to_str().unwrap()));
    }

    #[test]
    fn what_is_no_baseline_is_told_with_line_key_and_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("corrupt");
        std::fs::write(&path, "{\"version\":1,\"flows\":[sk-planted").unwrap();
        let told_of_corrupt = told(&format!("{{baseline: {}}}", path.display()));
        assert!(
            told_of_corrupt.contains(":3:") && told_of_corrupt.contains("drift.baseline"),
            "{told_of_corrupt}"
        );
        assert!(
            told_of_corrupt.contains("corrupt: this is no saved baseline (line 1, column 23)"),
            "{told_of_corrupt}"
        );
        assert!(!told_of_corrupt.contains("planted"));
        assert!(told("{baseline: /nowhere/f}").contains("the file cannot be read"));
        assert!(told("{exchanges: 199}").contains("write a value from 200 to 10000"));
    }
}
