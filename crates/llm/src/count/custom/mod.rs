//! Custom tokenizers: a user-supplied tokenizer.json for models without a built-in encoding.
//!
//! Loading a file needs the feature `hf-tokenizers`. Without the feature, the type [`CustomTokenizer`] has no values,
//! and loading returns an error.

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
    /// Loads a tokenizer. For 200,000 tokens, it takes half a second, 40 MB of memory, and up to 80 MB while loading.
    ///
    /// # Errors
    /// Returns an error if the tokenizers crate cannot read `json`.
    pub fn read(json: &[u8], name: &str) -> Result<Self, TokenizerError> {
        let tokenizer = Self::parse(json, name)?;
        let cuts = probe::cuts(&tokenizer);
        Ok(tokenizer.with_cuts(cuts))
    }
}
