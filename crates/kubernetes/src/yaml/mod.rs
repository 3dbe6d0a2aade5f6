//! Applies JSON Patches (RFC 6902) to the text of YAML documents. All bytes that a patch does not affect stay
//! the same, including comments, order, quotes and blank lines.
//!
//! Documents are read with the rules of Kubernetes (`sigs.k8s.io/yaml`), which are YAML 1.1 with parts of 1.2.
//! For example, `yes` is a boolean and `1e3` is a number. Strings are quoted if any YAML version would read
//! them as another type.
//!
//! Each edit changes only its own lines. The new text is then parsed and compared with the patched value. They
//! can differ because of aliases, merge keys or rare notations. In that case, the enclosing collection is
//! rewritten, then its parent, up to the whole document. The resulting value is therefore always correct. A
//! [`Loss`] reports each part of the text that the rewriting removed.

mod block;
mod edit;
mod events;
mod flow;
mod scalar;
mod style;
mod text;
mod tree;
mod value;
mod write;

use std::fmt;

use json_patch::Patch;
use serde_json::Value;

/// Maximum length of a YAML text, in bytes. The longest usual input is the set of all resource definitions of a
/// cluster, which has a few MiB.
pub const MAX_BYTES: usize = 16 << 20;

/// Maximum nesting depth of values. Kubernetes objects need about 20 levels. serde_json also has a limit of 128.
pub const MAX_DEPTH: usize = 128;

/// One document of a YAML stream, with its markers, directives, comments and blank lines.
#[derive(Clone, Debug)]
pub struct Document<'t> {
    text: &'t str,
    value: Value,
}

/// The result of applying a patch to a text.
#[derive(Clone, Debug, PartialEq)]
pub struct PatchedText {
    /// The patched text. Parsing it gives the patched value.
    pub text: String,
    /// Comments and other parts of the original text that are missing from the patched text, in their original order.
    pub losses: Vec<Loss>,
}

/// A part of the original text that is missing from the patched text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Line number in the original document, starting at 1.
    pub line: usize,
    pub kind: LossKind,
    /// The removed text, such as a comment. For a list or mapping that was written again as a whole: its JSON pointer.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossKind {
    /// A comment, including its `#`, inside a value that was removed, replaced or rewritten.
    Comment,
    /// An anchor, such as `&name`, of a value that was replaced or rewritten.
    Anchor,
    /// An alias, such as `*name`. The alias was replaced with its value, because the patch changes only one of the two
    /// places that shared the value.
    Alias,
    /// The notation of a scalar that was replaced. If a later patch restores the value, its quotes, number base or
    /// line breaks may differ.
    ScalarNotation,
    /// The order and notation of a list or mapping that was written again as a whole.
    CollectionNotation,
}

/// Describes the loss without its line number.
impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.text;
        match self.kind {
            LossKind::Comment => write!(f, "comment {text:?}, inside a value that changed"),
            LossKind::Anchor => write!(f, "anchor {text}, whose value was rewritten"),
            LossKind::Alias => {
                write!(
                    f,
                    "alias {text}, replaced by its value so that it can differ from the anchor"
                )
            }
            LossKind::ScalarNotation => {
                write!(f, "notation {text:?}; if the value is restored, its notation may differ")
            }
            LossKind::CollectionNotation => {
                write!(f, "order and quotes in {text:?}, which had to be rewritten")
            }
        }
    }
}

/// Reason why a text cannot be read, or why a patch cannot be applied. Line and column numbers start at 1.
#[derive(Debug, thiserror::Error)]
pub enum YamlError {
    #[error("{bytes} bytes of YAML are too long; the limit is {MAX_BYTES}; split the file")]
    TooLong { bytes: usize },
    #[error("line {line}:{column}: invalid YAML: {message}")]
    Syntax { line: usize, column: usize, message: String },
    #[error(
        "line {line}: more than {MAX_DEPTH} levels of nested values; close the brackets, or indent less"
    )]
    TooDeep { line: usize },
    #[error("line {line}: duplicate key {key:?} (first in line {first}); remove one")]
    DuplicateKey { line: usize, key: String, first: usize },
    #[error("line {line}: a key must be a scalar: {reason}")]
    InvalidKey { line: usize, reason: &'static str },
    #[error("line {line}: unsupported tag {tag}; Kubernetes supports only JSON types; remove it")]
    UnsupportedTag { line: usize, tag: String },
    #[error("line {line}: {text:?} is not a valid {tag}; remove the tag or correct the value")]
    TagMismatch { line: usize, text: String, tag: String },
    #[error("line {line}: JSON does not support the number {text}; quote it if it is a string")]
    NotJsonNumber { line: usize, text: String },
    #[error(
        "line {line}: << merges only mappings; use an alias of a mapping, or a list of such aliases"
    )]
    InvalidMerge { line: usize },
    #[error("line {line}: the alias refers to a value that contains it; write the value out")]
    AliasCycle { line: usize },
    #[error(
        "line {line}: the aliases up to here expand to more than {limit} bytes; write the values out"
    )]
    AliasExpansion { line: usize, limit: usize },
    #[error("the patch does not fit the document")]
    Patch(#[from] json_patch::PatchError),
    #[error("unsupported patch operation at {path:?}; only add, replace and remove are supported")]
    UnsupportedOperation { path: String },
    #[error("cannot write the change at {path:?} as YAML; the document is unchanged")]
    Unwritable { path: String },
}

/// Splits a text into its YAML documents. Together, the documents contain every byte of the text. A document begins at
/// its `---`, or after the `...` of the previous document. A document that contains only comments has the value null.
pub fn parse_documents(text: &str) -> Result<Vec<Document<'_>>, YamlError> {
    if text.len() > MAX_BYTES {
        return Err(YamlError::TooLong { bytes: text.len() });
    }
    let mut lines_before = 0;
    let documents = events::split_documents(text)?.into_iter().map(|text| {
        let (_, value) = read(text, lines_before)?;
        lines_before += text.matches('\n').count();
        Ok(Document { text, value })
    });
    documents.collect()
}

/// Parses one document. `lines_before` is added to the line numbers in errors.
fn read(text: &str, lines_before: usize) -> Result<(tree::Tree, Value), YamlError> {
    let tree = tree::parse(text, lines_before)?;
    let value = value::resolve(&tree)?;
    Ok((tree, value))
}

impl<'t> Document<'t> {
    pub fn text(&self) -> &'t str {
        self.text
    }

    /// Returns the value as Kubernetes reads it. An empty document has the value null.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Applies a patch of add, replace and remove operations to the text.
    pub fn apply(&self, patch: &Patch) -> Result<PatchedText, YamlError> {
        edit::apply(self.text, &self.value, patch)
    }
}

#[cfg(test)]
mod tests;
