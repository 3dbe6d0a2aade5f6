//! Why a text cannot be read, or a patch not be written into it.

use super::{MAX_BYTES, MAX_DEPTH};

/// Lines are counted from 1, columns too.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{bytes} bytes of YAML, and {MAX_BYTES} are read at most; split the file")]
    TooLong { bytes: usize },
    #[error("line {line}:{column}: not valid YAML: {message}")]
    Syntax { line: usize, column: usize, message: String },
    #[error(
        "line {line}: more than {MAX_DEPTH} values stand in each other here; close the brackets, or indent less"
    )]
    TooDeep { line: usize },
    #[error(
        "line {line}: the key {key:?} stands here for the second time (first in line {first}); remove one"
    )]
    SecondKey { line: usize, key: String, first: usize },
    #[error("line {line}: a key must be a single value: {why}")]
    Key { line: usize, why: &'static str },
    #[error(
        "line {line}: the tag {tag} is not read: Kubernetes knows JSON's types only; remove it"
    )]
    Tag { line: usize, tag: String },
    #[error("line {line}: {text:?} is no {tag}; remove the tag or correct the value")]
    NotOfTag { line: usize, text: String, tag: String },
    #[error("line {line}: {text} is a number that JSON lacks; quote it if it is meant as text")]
    NoJsonNumber { line: usize, text: String },
    #[error(
        "line {line}: << merges mappings only; give it an alias of a mapping, or a list of such aliases"
    )]
    Merge { line: usize },
    #[error("line {line}: this alias stands within what it refers to; write the value out")]
    Cycle { line: usize },
    #[error(
        "line {line}: the aliases up to here stand for more than {most} bytes; write the values out"
    )]
    Aliases { line: usize, most: usize },
    #[error("the patch does not fit the document: {0}")]
    Patch(#[from] json_patch::PatchError),
    #[error(
        "a patch of text may add, replace and remove, and this one has another operation at {path:?}"
    )]
    Operation { path: String },
    #[error(
        "no YAML was found that reads as what the patch makes of {path:?}; the document stays as it was"
    )]
    Unwritable { path: String },
}

impl Error {
    /// The same with `lines` more lines before it: an error of one document, told for the whole text.
    pub(super) fn below(mut self, lines: usize) -> Self {
        match &mut self {
            Self::SecondKey { line, first, .. } => {
                *line += lines;
                *first += lines;
            }
            Self::Syntax { line, .. }
            | Self::TooDeep { line }
            | Self::Key { line, .. }
            | Self::Tag { line, .. }
            | Self::NotOfTag { line, .. }
            | Self::NoJsonNumber { line, .. }
            | Self::Merge { line }
            | Self::Cycle { line }
            | Self::Aliases { line, .. } => *line += lines,
            Self::TooLong { .. }
            | Self::Patch(_)
            | Self::Operation { .. }
            | Self::Unwritable { .. } => {}
        }
        self
    }
}
