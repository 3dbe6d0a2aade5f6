//! Applies JSON Patches (RFC 6902) to the text of YAML documents. Every byte that a patch does not touch stays the
//! same, with comments, order, quotes and blank lines.
//!
//! Documents are read with the rules of Kubernetes (`sigs.k8s.io/yaml`): YAML 1.1 with parts of 1.2, so `yes` is a
//! boolean and `1e3` a number. Strings are quoted if any YAML version reads them as another type.
//!
//! Each edit changes only its own lines. The text is then read again and compared with the patched value. If they
//! differ (aliases, merge keys, rare notations), the enclosing collection is rewritten, then the one around it, up to
//! the whole document. The value is therefore always correct, and a [`Loss`] reports each part that the rewriting
//! removed.

mod block;
mod edit;
mod error;
mod events;
mod flow;
mod loss;
mod scalar;
mod style;
mod text;
mod tree;
mod value;
mod write;

use json_patch::Patch;
use serde_json::Value;

pub use error::Error;
pub use loss::{Loss, LossKind};

/// Maximum length of a text in bytes. etcd stores objects of at most 1.5 MiB, and all definitions of a cluster take a
/// few MiB.
pub const MAX_BYTES: usize = 16 << 20;

/// Deepest nesting of values, which is also serde_json's limit. Kubernetes types need about 20.
pub const MAX_DEPTH: usize = 128;

/// One document of a YAML stream, with its markers, directives, comments and blank lines.
#[derive(Clone, Debug)]
pub struct Document<'t> {
    text: &'t str,
    value: Value,
}

/// A text to which a patch was applied.
#[derive(Clone, Debug, PartialEq)]
pub struct PatchedText {
    /// The patched text, which reads as the patched value.
    pub text: String,
    /// Parts of the original text that are missing, in the order of the original text.
    pub losses: Vec<Loss>,
}

/// Splits a text into its documents, whose texts together are the whole text. A document begins at its `---`, or after
/// the `...` of the previous one. The value of a document with only comments is null.
pub fn parse_documents(text: &str) -> Result<Vec<Document<'_>>, Error> {
    if text.len() > MAX_BYTES {
        return Err(Error::TooLong { bytes: text.len() });
    }
    let mut lines_before = 0;
    let documents = events::split_documents(text)?.into_iter().map(|text| {
        let (_, value) = read(text, lines_before)?;
        lines_before += text.matches('\n').count();
        Ok(Document { text, value })
    });
    documents.collect()
}

/// Reads the text of one document. Line numbers in errors count `lines_before`.
fn read(text: &str, lines_before: usize) -> Result<(tree::Tree, Value), Error> {
    let tree = tree::parse(text, lines_before)?;
    let value = value::resolve(&tree)?;
    Ok((tree, value))
}

impl<'t> Document<'t> {
    pub fn text(&self) -> &'t str {
        self.text
    }

    /// Returns the value that Kubernetes reads, or null for an empty document.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Applies a patch of add, replace and remove operations to the text.
    pub fn apply(&self, patch: &Patch) -> Result<PatchedText, Error> {
        edit::apply(self.text, &self.value, patch)
    }
}

#[cfg(test)]
mod tests;
