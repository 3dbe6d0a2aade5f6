//! Custom tokenizers: a user-supplied tokenizer.json for models without a built-in encoding.
//!
//! Loading a file needs the feature `hf-tokenizers`. Without the feature, the type [`CustomTokenizer`] has no values,
//! and loading returns an error.

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
