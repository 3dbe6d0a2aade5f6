//! Tokenizers that the user gives: a tokenizer.json for models whose encoding this program does not carry.
//!
//! Reading one needs the feature `hf-tokenizers`; without it the type [`CustomTokenizer`] has no value, and reading says so.

#[cfg(not(feature = "hf-tokenizers"))]
mod absent;
mod cut;
mod follower;
#[cfg(feature = "hf-tokenizers")]
mod probe;
#[cfg(feature = "hf-tokenizers")]
mod read;

#[cfg(feature = "hf-tokenizers")]
#[cfg(test)]
mod tests;

#[cfg(not(feature = "hf-tokenizers"))]
pub use absent::CustomTokenizer;
pub use follower::Follower;
#[cfg(feature = "hf-tokenizers")]
pub use read::CustomTokenizer;

use super::TokenizerError;
use cut::{Cuts, LEAD};
