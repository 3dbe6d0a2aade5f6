//! Parts of the original text that a patched text no longer contains.

use std::fmt;

/// A part of the original text that is missing from the patched text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Line of the original document, from 1.
    pub line: usize,
    pub kind: LossKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LossKind {
    /// A comment, with its `#`, inside a removed, replaced or rewritten value.
    Comment(String),
    /// An anchor, with its `&`, of a replaced or rewritten value.
    Anchor(String),
    /// An alias, with its `*`. It was replaced by its value because the patch changes only one of the two places.
    Alias(String),
    /// The notation of a replaced scalar. If a later patch restores the value, its quotes, base or lines may differ.
    ScalarNotation(String),
    /// The order and notation of a list or mapping that had to be rewritten. Holds its JSON pointer.
    CollectionNotation(String),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.kind)
    }
}

impl fmt::Display for LossKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Comment(text) => write!(f, "comment {text:?}, inside a value that changed"),
            Self::Anchor(name) => write!(f, "anchor {name}, whose value was rewritten"),
            Self::Alias(name) => {
                write!(
                    f,
                    "alias {name}, replaced by its value so that it can differ from the anchor"
                )
            }
            Self::ScalarNotation(text) => {
                write!(f, "notation {text:?}; if the value is restored, its notation may differ")
            }
            Self::CollectionNotation(path) => {
                write!(f, "order and quotes in {path:?}, which had to be rewritten")
            }
        }
    }
}
