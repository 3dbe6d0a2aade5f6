//! Counts tokens with custom tokenizers. The user supplies a tokenizer.json for a model without a built-in encoding.
//!
//! Loading a file requires the feature `hf-tokenizers`. Without this feature, the type [`CustomTokenizer`] has no
//! values, and loading a file returns an error.

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
    /// Loads a tokenizer. A tokenizer with 200,000 tokens takes half a second and up to 80 MB to load, and 40 MB
    /// afterwards.
    ///
    /// # Errors
    /// Returns an error if the tokenizers crate cannot read `json`.
    pub fn read(json: &[u8], name: &str) -> Result<Self, TokenizerError> {
        let tokenizer = Self::parse(json, name)?;
        let cuts = probe::cuts(&tokenizer);
        Ok(tokenizer.with_cuts(cuts))
    }
}
