//! Loads the tokenizers that the configuration names. They are loaded here, so that all errors are reported together.

use std::path::Path;
use std::sync::Arc;

use crate::config::errors::ErrorCollector;
use crate::config::file;
use crate::config::spanned::{Map, Spanned};
use crate::config::value::FilePath;
use tokengauge_llm::count::{
    CustomTokenizer, SUPPORTS_TOKENIZER_JSON, TokenizerAssignment, TokenizerError, Tokenizers,
};

/// Maximum size of a tokenizer file in bytes. The largest published file has 33 MB (Gemma, 262,000 tokens).
const MAX_BYTES: u64 = 128 << 20;

/// Usual name of a tokenizer file, without `.json`. This name does not identify the model, but the name of the folder
/// does.
const COMMON_FILE_STEM: &str = "tokenizer";

/// Loads the tokenizers. Reuses the tokenizers in `loaded` whose file has not changed.
pub fn resolve(
    written: &Map<FilePath>,
    loaded: &Tokenizers,
    errors: &mut ErrorCollector,
) -> Tokenizers {
    let mut assigned: Vec<TokenizerAssignment> = Vec::new();
    for (models, Spanned { value: FilePath(file), node }) in written.iter() {
        if models.is_empty() {
            let message = "empty pattern; write a model name, with * for any text";
            errors.add(*node, message);
        }
        let candidates = assigned.iter().chain(loaded.assigned());
        match load(file, candidates) {
            Ok(tokenizer) => {
                let (models, file) = (models.clone(), file.clone());
                assigned.push(TokenizerAssignment { models, file, tokenizer });
            }
            Err(reason) => errors.add(*node, format!("{}: {reason}", file.display())),
        }
    }
    Tokenizers::new(assigned)
}

/// Loads `file`. Reuses the tokenizer of a candidate with the same path and content.
fn load<'a>(
    file: &Path,
    mut candidates: impl Iterator<Item = &'a TokenizerAssignment>,
) -> Result<Arc<CustomTokenizer>, String> {
    if !SUPPORTS_TOKENIZER_JSON {
        return Err(TokenizerError::NotBuilt.to_string());
    }
    let json = file::read_bytes(file, MAX_BYTES)?;
    let is_same = |other: &&TokenizerAssignment| other.file == file && other.tokenizer.is_of(&json);
    if let Some(same) = candidates.find(is_same) {
        return Ok(Arc::clone(&same.tokenizer));
    }
    let given =
        CustomTokenizer::read(&json, &telemetry_name(file)).map_err(|error| error.to_string())?;
    Ok(Arc::new(given))
}

/// Returns the name of the tokenizer in telemetry: the file name, or the folder name for a `tokenizer.json`.
fn telemetry_name(file: &Path) -> String {
    let folder = file.parent().and_then(Path::file_name);
    let name = match file.file_stem() {
        Some(stem) if stem == COMMON_FILE_STEM => folder.or(Some(stem)),
        stem => stem,
    };
    name.unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load::load_text;
    use crate::config::{Config, ConfigErrors, RunArgs};

    fn load(tokenizers: &str, known: &Tokenizers) -> Result<Config, ConfigErrors> {
        let text =
            format!("version: 1\nupstreams: {{a: {{url: http://a}}}}\ntokenizers: {tokenizers}\n");
        load_text(Some(&text), &RunArgs::default(), &|_| None, known)
    }

    fn messages(tokenizers: &str) -> Vec<String> {
        let errors = load(tokenizers, &Tokenizers::default()).unwrap_err();
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_a_tokenizer_after_its_file_or_folder() {
        for (file, expected) in [
            ("/models/llama-3.1.json", "llama-3.1"),
            ("/models/Llama-3.1-8B/tokenizer.json", "Llama-3.1-8B"),
            ("models/tokenizer.json", "models"),
            ("tokenizer.json", "tokenizer"),
            ("/tokenizer.json", "tokenizer"),
        ] {
            assert_eq!(telemetry_name(Path::new(file)), expected, "{file}");
        }
    }

    #[cfg(feature = "hf-tokenizers")]
    const FILE: &str = r#"{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}"#;

    #[cfg(feature = "hf-tokenizers")]
    #[test]
    fn reports_all_errors_with_key_path_and_reason() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str, content: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, content).unwrap();
            path.display().to_string()
        };
        let (right, words) = (path("right", FILE), path("words", "not JSON"));
        let kind = path("kind", r#"{"model": {"type": "Tekken"}}"#);
        let messages = messages(&format!(
            "{{a: {words}, b: {kind}, c: {right}, d: , e: /nowhere/f, \"\": {right}, f: [x]}}"
        ));
        let place = |text: &str| text.split_once(": ").unwrap().1.to_owned();
        let messages: Vec<String> = messages.iter().map(|line| place(line)).collect();
        let expected = [
            format!("tokenizers.a: {words}: this is not JSON ("),
            format!("tokenizers.b: {kind}: its model has the type \"Tekken\""),
            "tokenizers.e: /nowhere/f: cannot read the file: No such file".to_owned(),
            "tokenizers.: empty pattern; write a model name".to_owned(),
            "tokenizers.f: found a list; write a string".to_owned(),
        ];
        assert_eq!(messages.len(), expected.len(), "{messages:#?}");
        for (messages, expected) in messages.iter().zip(expected) {
            assert!(messages.starts_with(&expected), "{messages}");
        }
    }

    #[cfg(feature = "hf-tokenizers")]
    #[test]
    fn reloads_only_changed_files() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tokenizer.json");
        std::fs::write(&file, FILE).unwrap();
        let both = format!("{{\"*a\": {0}, \"b*\": {0}}}", file.display());
        let first = load(&both, &Tokenizers::default()).unwrap();
        let given = |config: &Config| {
            let given = config.tokenizers.assigned();
            given.map(|assigned| Arc::clone(&assigned.tokenizer)).collect::<Vec<_>>()
        };
        let [one, other] = <[_; 2]>::try_from(given(&first)).unwrap();
        assert!(Arc::ptr_eq(&one, &other), "one file, read once");

        let printed = &first.yaml;
        let args = RunArgs::default();
        let again = load_text(Some(printed), &args, &|_| None, &first.tokenizers).unwrap();
        assert_eq!(format!("{first:?}"), format!("{again:?}"), "{printed}");
        assert!(given(&again).iter().all(|again| Arc::ptr_eq(again, &one)));

        std::fs::write(&file, FILE.to_owned() + "\n").unwrap();
        let changed = load(&both, &first.tokenizers).unwrap();
        assert!(given(&changed).iter().all(|new| !Arc::ptr_eq(new, &one)));
    }

    #[cfg(not(feature = "hf-tokenizers"))]
    #[test]
    fn rejects_the_key_without_the_feature() {
        let messages = messages("{\"llama-*\": /nowhere/f}");
        assert_eq!(messages.len(), 1);
        let expected = "tokenizers.llama-*: /nowhere/f: this program was built without the feature hf-tokenizers";
        assert!(messages[0].contains(expected), "{messages:?}");
    }
}
