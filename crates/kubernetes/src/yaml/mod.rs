//! JSON Patches (RFC 6902) applied to the *text* of YAML documents: what a patch does not touch keeps every byte, its
//! comments, order, quotes and blank lines.
//!
//! A document is read as Kubernetes reads it: `sigs.k8s.io/yaml`, which is YAML 1.1 with a few words of 1.2 (so `yes`
//! is a boolean and `1e3` a number). What is written is quoted whenever any version of YAML would take it for something
//! else than a string.
//!
//! An edit is made where it belongs, the text is read again, and the result is held against the patch applied to the
//! value; where both differ (aliases, merge keys, unusual notations), the collection around the edit is written anew,
//! then the one around that, up to the whole document. So the value is right always; what such writing costs is told
//! as [`Loss`].

mod block;
mod edit;
mod error;
mod events;
mod flow;
mod lost;
mod scalar;
mod split;
mod style;
mod tag;
mod text;
mod tree;
mod value;
mod write;

use json_patch::Patch;
use serde_json::Value;

pub use error::Error;
pub use lost::{Loss, LossKind};

/// So much text is read at most: objects above 1.5 MiB do not fit into etcd, and a bundle of all of a cluster's
/// definitions has a few MiB.
pub const MAX_BYTES: usize = 16 << 20;

/// So deep may values stand in each other: serde_json reads no deeper either, and Kubernetes' own types need about 20.
pub const MAX_DEPTH: usize = 128;

/// One document of a YAML stream, with all that stands around it: markers, directives, comments, blank lines.
#[derive(Clone, Debug)]
pub struct Document<'t> {
    text: &'t str,
    value: Value,
}

/// The text after a patch.
#[derive(Clone, Debug, PartialEq)]
pub struct PatchedText {
    /// Reads as the value with the patch applied.
    pub text: String,
    /// What the former text said and this one does not, in the order of the former text.
    pub losses: Vec<Loss>,
}

/// The documents of a text; the texts of all of them, one after the other, are the text. A document begins at its `---`
/// (or behind the `...` of the one before); one in which nothing stands but comments has the value null.
pub fn parse_documents(text: &str) -> Result<Vec<Document<'_>>, Error> {
    if text.len() > MAX_BYTES {
        return Err(Error::TooLong { bytes: text.len() });
    }
    let mut documents = Vec::new();
    let mut line = 0;
    for text in split::pieces(text)? {
        let value = read(text).map_err(|error| error.below(line))?.1;
        line += text.matches('\n').count();
        documents.push(Document { text, value });
    }
    Ok(documents)
}

/// The one document of a text.
fn read(text: &str) -> Result<(tree::Tree, Value), Error> {
    let tree = tree::parse(text)?;
    let value = value::of(&tree)?;
    Ok((tree, value))
}

impl<'t> Document<'t> {
    pub fn text(&self) -> &'t str {
        self.text
    }

    /// As Kubernetes reads it; null where nothing stands.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The text that reads as this value with the patch applied. The patch may add, replace and remove.
    pub fn apply(&self, patch: &Patch) -> Result<PatchedText, Error> {
        edit::edited(self.text, &self.value, patch)
    }
}

#[cfg(test)]
mod tests;
