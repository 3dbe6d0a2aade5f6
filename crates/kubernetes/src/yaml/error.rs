//! Errors of reading a text or writing a patch into it.

use super::{MAX_BYTES, MAX_DEPTH};

/// Line and column numbers start at 1.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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
    #[error("the patch does not fit the document: {0}")]
    Patch(#[from] json_patch::PatchError),
    #[error("unsupported patch operation at {path:?}; only add, replace and remove are supported")]
    UnsupportedOperation { path: String },
    #[error("cannot write the change at {path:?} as YAML; the document is unchanged")]
    Unwritable { path: String },
}
