//! Values of a document and their positions.

use super::Meaning;

/// A value, or a piece of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Object,
    Array,
    /// The object or list at this path ends.
    End,
    /// A piece of a string, unescaped, never empty.
    Text(&'a str),
    /// The string at this path ends.
    TextEnd,
    Number(&'a str),
    Bool(bool),
    Null,
}

/// Receives the values of a document.
pub trait ValueSink<F>: FnMut(Meaning<F>, Position<'_>, Value<'_>) {}

impl<F, Sink: FnMut(Meaning<F>, Position<'_>, Value<'_>)> ValueSink<F> for Sink {}

/// The position of a value in the lists that contain it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Position<'a> {
    /// Lists around the root.
    pub(super) roots: &'a [u32],
    /// Lists on the path of the value, outermost first.
    pub(super) lists: &'a [u32],
}

impl<'a> Position<'a> {
    /// The first `roots` positions are in lists around the root.
    pub fn new(positions: &'a [u32], roots: usize) -> Self {
        let (roots, lists) = positions.split_at_checked(roots).unwrap_or_default();
        Self { roots, lists }
    }

    /// Returns the position in the list that is the `number`-th `*` of the path, from 0.
    pub fn list(self, number: usize) -> u32 {
        self.lists.get(number).copied().unwrap_or(0)
    }

    /// Returns how many lists the path has.
    pub const fn lists(self) -> usize {
        self.lists.len()
    }

    /// Returns the position in the innermost list of the path.
    pub fn last(self) -> u32 {
        self.lists.last().copied().unwrap_or(0)
    }

    /// Returns whether the value is in a list around the root.
    pub const fn is_in_root_list(self) -> bool {
        !self.roots.is_empty()
    }

    /// Returns the position in the list that the root is an element of.
    pub fn root(self) -> u32 {
        self.roots.first().copied().unwrap_or(0)
    }
}

/// How a document ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    Complete,
    /// The bytes ended before the document did.
    Cut,
    /// The document is not JSON.
    Malformed,
}
