//! Where the JSON scanner is in a document.

use super::path::Matches;
use crate::frame::scan::Scanner;

/// An open object or list.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    pub kind: LevelKind,
    pub matches: Matches,
    /// Number of path steps from the root. Wrappers, and lists around the root, do not count.
    pub depth: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LevelKind {
    Object,
    List,
    /// A list in place of one object. Its first element is read as the object.
    ListOfOne,
    /// A list that the document lacks, around its only element.
    Implied,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ParserState {
    /// Before a value. If `first` is set, `]` may follow and end an empty list.
    Value {
        first: bool,
    },
    /// Before a key. If `first` is set, `}` may follow and end an empty object.
    Key {
        first: bool,
    },
    InKey,
    Colon,
    InText,
    /// Inside an object or list that is passed on as text, or inside a value that is skipped because no row reads it.
    InRaw(Scanner<false>),
    InScalar,
    AfterValue,
    Done,
    Malformed,
}
