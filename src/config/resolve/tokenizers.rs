//! Tokenisers that the file names. They are read here, so that what is wrong with them is told along with all else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::deserialize::Field;
use crate::config::errors::ErrorCollector;
use crate::config::file;
use tokengauge_llm::count::{Assigned, Given, READS_TOKENIZERS, Tokenisers, Unusable};

/// The largest that is published (Gemma's, for 262,000 tokens) has 33 MB.
const LARGEST: u64 = 128 << 20;

/// The name of the file that models are published with; it tells nothing of the model.
const USUAL_NAME: &str = "tokenizer";

/// `known`: what was read before. A file that is still the same is not read again.
pub(super) fn resolve(
    written: Field<BTreeMap<String, Field<PathBuf>>>,
    known: &Tokenisers,
    errors: &mut ErrorCollector,
) -> Tokenisers {
    let mut assigned: Vec<Assigned> = Vec::new();
    for (models, file) in written.value().unwrap_or_default() {
        let Some(file) = file.spanned() else {
            continue;
        };
        if models.is_empty() {
            let message = "this is no pattern; write a model's name, with * for any text";
            errors.at(file.node, message);
        }
        let before = assigned.iter().chain(known.assigned());
        match read(&file.value, before) {
            Ok(given) => assigned.push(Assigned { models, file: file.value, given }),
            Err(why) => errors.at(file.node, format!("{}: {why}", file.value.display())),
        }
    }
    Tokenisers::new(assigned, known)
}

/// Reads `file`, unless it was read `before`.
fn read<'a>(
    file: &Path,
    mut before: impl Iterator<Item = &'a Assigned>,
) -> Result<Arc<Given>, String> {
    if !READS_TOKENIZERS {
        return Err(Unusable::NotBuilt.to_string());
    }
    let json = file::bytes_of(file, LARGEST)?;
    let is_it = |other: &&Assigned| other.file == file && other.given.is_of(&json);
    if let Some(known) = before.find(is_it) {
        return Ok(Arc::clone(&known.given));
    }
    let given = Given::read(&json, &name(file)).map_err(|why| why.to_string())?;
    Ok(Arc::new(given))
}

/// How it is called in telemetry: as the file, or as its folder where all files are called the same.
fn name(file: &Path) -> String {
    let folder = file.parent().and_then(Path::file_name);
    let stem = file.file_stem();
    let name = match stem {
        Some(stem) if stem == USUAL_NAME => folder.or(Some(stem)),
        stem => stem,
    };
    name.unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load::load_text;
    use crate::config::{Config, ConfigErrors, RunArgs};

    fn load(tokenizers: &str, known: &Tokenisers) -> Result<Config, ConfigErrors> {
        let text =
            format!("version: 1\nupstreams: {{a: {{url: http://a}}}}\ntokenizers: {tokenizers}\n");
        load_text(Some(&text), &RunArgs::default(), &|_| None, known)
    }

    fn told(tokenizers: &str) -> Vec<String> {
        let errors = load(tokenizers, &Tokenisers::default()).unwrap_err();
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_tokeniser_is_called_as_its_file_or_its_folder() {
        for (file, expected) in [
            ("/models/llama-3.1.json", "llama-3.1"),
            ("/models/Llama-3.1-8B/tokenizer.json", "Llama-3.1-8B"),
            ("models/tokenizer.json", "models"),
            ("tokenizer.json", "tokenizer"),
            ("/tokenizer.json", "tokenizer"),
        ] {
            assert_eq!(name(Path::new(file)), expected, "{file}");
        }
    }

    #[cfg(feature = "hf-tokenizers")]
    const FILE: &str = r#"{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}"#;

    #[cfg(feature = "hf-tokenizers")]
    #[test]
    fn everything_that_is_wrong_is_told_with_key_path_and_reason() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str, content: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, content).unwrap();
            path.display().to_string()
        };
        let (right, words) = (path("right", FILE), path("words", "not JSON"));
        let kind = path("kind", r#"{"model": {"type": "Tekken"}}"#);
        let told = told(&format!(
            "{{a: {words}, b: {kind}, c: {right}, d: , e: /nowhere/f, \"\": {right}, f: [x]}}"
        ));
        let place = |text: &str| text.split_once(": ").unwrap().1.to_owned();
        let told: Vec<String> = told.iter().map(|line| place(line)).collect();
        let expected = [
            format!("tokenizers.a: {words}: this is not JSON ("),
            format!("tokenizers.b: {kind}: its model is of the kind \"Tekken\""),
            "tokenizers.e: /nowhere/f: the file cannot be read: No such file".to_owned(),
            "tokenizers.: this is no pattern; write a model's name".to_owned(),
            "tokenizers.f: found a list; write a single text".to_owned(),
        ];
        assert_eq!(told.len(), expected.len(), "{told:#?}");
        for (told, expected) in told.iter().zip(expected) {
            assert!(told.starts_with(&expected), "{told}");
        }
    }

    #[cfg(feature = "hf-tokenizers")]
    #[test]
    fn what_was_read_is_printed_and_read_again_only_where_it_has_changed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tokenizer.json");
        std::fs::write(&file, FILE).unwrap();
        let both = format!("{{\"*a\": {0}, \"b*\": {0}}}", file.display());
        let first = load(&both, &Tokenisers::default()).unwrap();
        let given = |config: &Config| {
            let given = config.tokenizers.assigned();
            given.map(|assigned| Arc::clone(&assigned.given)).collect::<Vec<_>>()
        };
        let [one, other] = <[_; 2]>::try_from(given(&first)).unwrap();
        assert!(Arc::ptr_eq(&one, &other), "one file, read once");

        let printed = first.to_yaml();
        let args = RunArgs::default();
        let again = load_text(Some(&printed), &args, &|_| None, &first.tokenizers).unwrap();
        assert_eq!(format!("{first:?}"), format!("{again:?}"), "{printed}");
        assert!(given(&again).iter().all(|again| Arc::ptr_eq(again, &one)));

        std::fs::write(&file, FILE.to_owned() + "\n").unwrap();
        let changed = load(&both, &first.tokenizers).unwrap();
        assert!(given(&changed).iter().all(|new| !Arc::ptr_eq(new, &one)));
    }

    #[cfg(not(feature = "hf-tokenizers"))]
    #[test]
    fn without_the_feature_the_key_is_refused_and_it_is_said_how_to_get_it() {
        let told = told("{\"llama-*\": /nowhere/f}");
        assert_eq!(told.len(), 1);
        let expected = "tokenizers.llama-*: /nowhere/f: this program was built without the feature hf-tokenizers";
        assert!(told[0].contains(expected), "{told:?}");
    }
}
