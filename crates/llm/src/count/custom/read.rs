//! Loads a tokenizer.json and counts tokens with it.

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::panic::catch_unwind;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_json::value::RawValue;
use tokenizers::models::bpe::BPE;
use tokenizers::models::unigram::Unigram;
use tokenizers::{AddedToken, ModelWrapper, NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

use super::{Cuts, LEAD, TokenizerError};
use tokengauge_types::label::Label;

/// A loaded tokenizer.json.
pub struct CustomTokenizer {
    name: Label,
    tokenizer: Tokenizer,
    cuts: Cuts,
    /// Number of tokens of [`LEAD`].
    lead: u64,
    /// Hash of the file's content, which shows whether the file has changed.
    fingerprint: u64,
}

impl CustomTokenizer {
    /// Parses a tokenizer.json. The safe cut positions are determined later.
    pub(super) fn parse(json: &[u8], name: &str) -> Result<Self, TokenizerError> {
        let file: File<'_> =
            serde_json::from_slice(json).map_err(|error| match error.classify() {
                Category::Data => TokenizerError::NoModel,
                Category::Io | Category::Syntax | Category::Eof => {
                    TokenizerError::NotJson(error.to_string())
                }
            })?;
        // The tokenizers crate panics if a merge forms a token that is not in the vocabulary.
        let read = catch_unwind(|| file.tokenizer());
        let tokenizer = read.map_err(|_panic| {
            TokenizerError::Broken("its merges do not match its vocabulary".into())
        })??;
        let mut given = Self {
            name: Label::from_trusted(name),
            tokenizer,
            cuts: Cuts::default(),
            lead: 0,
            fingerprint: fingerprint(json),
        };
        given.lead = given.count(LEAD).unwrap_or_default();
        Ok(given)
    }

    pub(super) fn with_cuts(self, cuts: Cuts) -> Self {
        Self { cuts, ..self }
    }

    /// Returns whether the tokenizer was loaded from this content.
    pub fn is_of(&self, json: &[u8]) -> bool {
        self.fingerprint == fingerprint(json)
    }

    pub const fn name(&self) -> &Label {
        &self.name
    }

    /// Returns the number of tokens in `text`, without the special tokens before and after a prompt. Returns `None` if
    /// a character has no token and the vocabulary has no token for unknown characters.
    pub fn count(&self, text: &str) -> Option<u64> {
        let encoding = self.tokenizer.encode_fast(text, false).ok()?;
        Some(encoding.len() as u64)
    }

    pub(in super::super) const fn cuts(&self) -> Cuts {
        self.cuts
    }

    pub(in super::super) const fn lead(&self) -> u64 {
        self.lead
    }

    /// Returns the added tokens that also match the blanks next to them.
    pub(super) fn greedy(&self) -> impl Iterator<Item = String> {
        let added = self.tokenizer.get_added_tokens_decoder().into_values();
        let greedy = added.filter(|token| token.lstrip || token.rstrip);
        greedy.map(|token| token.content)
    }

    /// Returns all tokens as they are written in the file.
    pub(super) fn tokens(&self) -> impl Iterator<Item = String> {
        let vocabulary = self.tokenizer.get_vocab(true);
        vocabulary.into_keys()
    }
}

impl fmt::Debug for CustomTokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = f.debug_struct("CustomTokenizer");
        told.field("name", &self.name).field("cuts", &self.cuts);
        told.finish_non_exhaustive()
    }
}

/// Parts of a tokenizer.json that are needed to count tokens. Parts for training, for decoding and for whole prompts
/// (such as truncation) are left out.
#[derive(Deserialize)]
struct File<'a> {
    version: Option<String>,
    #[serde(borrow)]
    model: &'a RawValue,
    #[serde(borrow)]
    normalizer: Option<&'a RawValue>,
    #[serde(borrow)]
    pre_tokenizer: Option<&'a RawValue>,
    #[serde(borrow)]
    added_tokens: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ModelKind {
    /// Absent in early versions of the format.
    #[serde(rename = "type")]
    kind: Option<String>,
}

impl File<'_> {
    /// Builds the tokenizer part by part. Parsing the whole file in one step would need memory for three copies of the
    /// model.
    fn tokenizer(&self) -> Result<Tokenizer, TokenizerError> {
        if let Some(version) = self.version.as_deref().filter(|version| *version != "1.0") {
            return Err(TokenizerError::Broken(format!("its version is {version}")));
        }
        let broken = |error: tokenizers::Error| TokenizerError::Broken(error.to_string());
        let mut tokenizer = Tokenizer::new(self.model()?);
        let normalizer: Option<NormalizerWrapper> = part("normalizer", self.normalizer)?;
        tokenizer.with_normalizer(normalizer).map_err(broken)?;
        let pre_tokenizer: Option<PreTokenizerWrapper> = part("pre_tokenizer", self.pre_tokenizer)?;
        tokenizer.with_pre_tokenizer(pre_tokenizer);
        let added: Option<Vec<AddedToken>> = part("added_tokens", self.added_tokens)?;
        let added = added.unwrap_or_default();
        tokenizer.add_tokens(added).map_err(broken)?;
        Ok(tokenizer)
    }

    /// Reads the model and disables its caches. A cache would keep the first words of each thread forever.
    fn model(&self) -> Result<ModelWrapper, TokenizerError> {
        let model = Some(self.model);
        let Ok(ModelKind { kind }) = serde_json::from_str(self.model.get()) else {
            return Err(TokenizerError::NoModel);
        };
        match kind.as_deref() {
            None => part("model", model)?,
            Some("BPE") => part("model", model)?.map(|mut bpe: BPE| {
                bpe.dropout = None;
                bpe.resize_cache(0);
                bpe.into()
            }),
            Some("Unigram") => part("model", model)?.map(|mut unigram: Unigram| {
                unigram.resize_cache(0);
                unigram.into()
            }),
            Some("WordPiece") => part("model", model)?.map(ModelWrapper::WordPiece),
            Some("WordLevel") => part("model", model)?.map(ModelWrapper::WordLevel),
            Some(other) => return Err(TokenizerError::Kind(other.to_owned())),
        }
        .ok_or(TokenizerError::NoModel)
    }
}

/// Parses one part of the file. `null` counts as absent.
fn part<T: DeserializeOwned>(
    name: &str,
    json: Option<&RawValue>,
) -> Result<Option<T>, TokenizerError> {
    let text = json.map_or("null", RawValue::get);
    serde_json::from_str(text).map_err(|error| TokenizerError::Broken(format!("{name}: {error}")))
}

fn fingerprint(json: &[u8]) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(json)
}
