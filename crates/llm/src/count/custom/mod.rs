//! Counts tokens with custom tokenizers: a user-supplied tokenizer.json for models without a built-in encoding.
//!
//! The feature `hf-tokenizers` provides the code that loads a file. Without the feature, the type [`CustomTokenizer`]
//! has no values, and loading a file returns an error.

#[cfg(not(feature = "hf-tokenizers"))]
mod absent;
mod cut;
#[cfg(feature = "hf-tokenizers")]
mod probe;
#[cfg(feature = "hf-tokenizers")]
mod read;

#[cfg(feature = "hf-tokenizers")]
#[cfg(test)]
mod tests;

#[cfg(not(feature = "hf-tokenizers"))]
pub use absent::CustomTokenizer;
#[cfg(feature = "hf-tokenizers")]
pub use read::CustomTokenizer;

use super::TokenizerError;
use cut::Cuts;
pub(super) use cut::LEAD;

#[cfg(feature = "hf-tokenizers")]
impl CustomTokenizer {
    /// Loads a tokenizer. With 200,000 tokens, loading takes half a second and up to 80 MB, and the tokenizer then
    /// takes 40 MB.
    ///
    /// # Errors
    /// Returns an error if the tokenizers crate cannot read `json`.
    pub fn read(json: &[u8], name: &str) -> Result<Self, TokenizerError> {
        let tokenizer = Self::parse(json, name)?;
        let cuts = probe::cuts(&tokenizer);
        Ok(tokenizer.with_cuts(cuts))
    }
}
