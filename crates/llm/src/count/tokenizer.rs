//! Selects the tokenizer for a model: a configured tokenizer.json or a built-in encoding.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::{CustomTokenizer, Encoding, encoding_for_model};
use tokengauge_types::label::{GlobPattern, Label};

/// A tokenizer, with which text is counted.
#[derive(Clone, Debug)]
pub enum Tokenizer {
    BuiltIn(Encoding),
    Custom(Arc<CustomTokenizer>),
}

impl Tokenizer {
    /// Returns the name of the encoding or of the configured tokenizer.
    pub fn name(&self) -> Label {
        match self {
            Self::BuiltIn(encoding) => Label::from_trusted(encoding.as_str()),
            Self::Custom(given) => given.name().clone(),
        }
    }
}

impl PartialEq for Tokenizer {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::BuiltIn(one), Self::BuiltIn(two)) => one == two,
            (Self::Custom(one), Self::Custom(two)) => Arc::ptr_eq(one, two),
            (Self::BuiltIn(_), Self::Custom(_)) | (Self::Custom(_), Self::BuiltIn(_)) => false,
        }
    }
}

/// A tokenizer.json, and the models that use it.
#[derive(Clone, Debug)]
pub struct TokenizerAssignment {
    /// Pattern for model names, such as `llama-*`. `*` matches any text.
    pub models: String,
    pub file: PathBuf,
    pub tokenizer: Arc<CustomTokenizer>,
}

/// All tokenizers. Clones share them.
#[derive(Clone, Default)]
pub struct Tokenizers {
    /// The configured tokenizers, the most specific pattern first.
    entries: Arc<[AssignmentEntry]>,
}

struct AssignmentEntry {
    pattern: GlobPattern,
    assigned: TokenizerAssignment,
}

impl Tokenizers {
    /// Creates a set of tokenizers. If two patterns are equally specific, the alphabetically first pattern applies.
    pub fn new(assigned: impl IntoIterator<Item = TokenizerAssignment>) -> Self {
        let entry = |assigned: TokenizerAssignment| AssignmentEntry {
            pattern: GlobPattern::new(&assigned.models),
            assigned,
        };
        let mut entries: Vec<AssignmentEntry> = assigned.into_iter().map(entry).collect();
        entries.sort_by(|one, two| {
            let narrower = two.pattern.specificity().cmp(&one.pattern.specificity());
            narrower.then_with(|| one.assigned.models.cmp(&two.assigned.models))
        });
        Self { entries: entries.into() }
    }

    /// Returns the model's own tokenizer, or `None` if it is unknown. A pattern matches the full name or the part after
    /// the last slash: `llama-*` also matches `meta-llama/Llama-3.1-8B`.
    pub fn for_model(&self, model: &str) -> Option<Tokenizer> {
        let (_, base) = model.rsplit_once('/').unwrap_or(("", model));
        let fits =
            |entry: &&AssignmentEntry| entry.pattern.matches(model) || entry.pattern.matches(base);
        match self.entries.iter().find(fits) {
            Some(entry) => Some(Tokenizer::Custom(Arc::clone(&entry.assigned.tokenizer))),
            None => encoding_for_model(model).map(Tokenizer::BuiltIn),
        }
    }

    /// Returns the configured tokenizers, the most specific pattern first.
    pub fn assigned(&self) -> impl Iterator<Item = &TokenizerAssignment> {
        self.entries.iter().map(|entry| &entry.assigned)
    }
}

/// Formats the configuration without the contents of the files.
impl fmt::Debug for Tokenizers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.assigned().map(|entry| (&entry.models, &entry.file));
        f.debug_map().entries(entries).finish()
    }
}

/// Reason why a tokenizer file cannot be used. The message also describes the fix.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TokenizerError {
    #[error(
        "this program was built without the feature hf-tokenizers, which reads such files; build it with its default \
         features, or remove the key"
    )]
    NotBuilt,
    #[error("this is not JSON ({0}); name the tokenizer.json that is published with the model")]
    NotJson(String),
    #[error(
        "this is JSON without a \"model\"; name the tokenizer.json that is published with the model (config.json, \
         tokenizer_config.json and tekken.json are other files)"
    )]
    NoModel,
    #[error(
        "its model has the type \"{0}\"; supported types are BPE, Unigram, WordPiece and WordLevel"
    )]
    Kind(String),
    #[error("the tokenizer.json is invalid ({0}); check that the file is complete")]
    Broken(String),
}

#[cfg(feature = "hf-tokenizers")]
#[cfg(test)]
mod tests {
    use super::*;

    /// A tokenizer.json whose vocabulary is one word.
    const FILE: &[u8] = br#"{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}"#;

    /// Returns a tokenizer for each pattern, with the pattern as its name.
    fn tokenizers(patterns: &[&str]) -> Tokenizers {
        let assigned = |pattern: &&str| TokenizerAssignment {
            models: (*pattern).to_owned(),
            file: PathBuf::from(pattern),
            tokenizer: Arc::new(CustomTokenizer::read(FILE, pattern).unwrap()),
        };
        Tokenizers::new(patterns.iter().map(assigned))
    }

    #[test]
    fn the_most_specific_pattern_applies_in_every_order() {
        let mut patterns = ["*", "llama-*", "*-8b", "org/*", "llama-3-8b", "b*x", "*bx"];
        for _ in 0..patterns.len() {
            patterns.rotate_left(1);
            let tokenizers = tokenizers(&patterns);
            for (model, expected) in [
                ("llama-2", "llama-*"),
                ("Llama-2", "llama-*"),
                ("meta-llama/Llama-2", "llama-*"),
                ("llama-3-8b", "llama-3-8b"),
                ("qwen-8b", "*-8b"),
                ("org/x", "org/*"),
                ("anything", "*"),
                ("", "*"),
                ("bx", "*bx"),
                ("gpt-4o", "*"),
            ] {
                let found = tokenizers.for_model(model).unwrap().name();
                assert_eq!(found.as_str(), expected, "{model}");
            }
        }
    }

    #[test]
    fn without_a_matching_pattern_the_built_in_encoding_applies() {
        let tokenizers = tokenizers(&["llama-*", "gpt-4*"]);
        assert_eq!(tokenizers.for_model("o3"), Some(Tokenizer::BuiltIn(Encoding::O200k)));
        assert_eq!(tokenizers.for_model("claude-sonnet-4-5"), None);
        let name = |model| tokenizers.for_model(model).map(|found| found.name().to_string());
        assert_eq!(name("gpt-4o").as_deref(), Some("gpt-4*"));
        assert_eq!(name("text-davinci-003").as_deref(), Some("p50k_base"));
    }

    #[test]
    fn equal_tokenizers_compare_as_equal() {
        let two = tokenizers(&["a", "b"]);
        assert_eq!(two.for_model("a"), two.for_model("a"));
        assert_ne!(two.for_model("a"), two.for_model("b"));
        assert_ne!(two.for_model("a"), two.for_model("gpt-4"));
        assert_ne!(two.for_model("gpt-4"), two.for_model("gpt-4o"));
    }
}
