//! Defines the values that the JSON scanner delivers, and their positions.

/// A value, or a piece of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Object,
    Array,
    /// The end of the object or list at this path.
    End,
    /// A piece of a string, without escapes and never empty.
    Text(&'a str),
    /// The length in bytes of a piece of a string, never 0: instead of [`Self::Text`], if all fields read only the length.
    TextLength(usize),
    /// The end of a string, with its beginning: [`MAX_NAME_BYTES`](tokengauge_types::label::MAX_NAME_BYTES) bytes of a
    /// string, or [`MAX_OBJECT_BYTES`](super::MAX_OBJECT_BYTES) bytes of an object that is passed on as text.
    TextEnd(&'a str),
    Number(&'a str),
    Bool(bool),
    Null,
}

impl<'a> Value<'a> {
    /// Returns the text of a [`Self::TextEnd`], or `None` if the text is empty.
    pub fn string(self) -> Option<&'a str> {
        match self {
            Self::TextEnd(word) => Some(word).filter(|word| !word.is_empty()),
            _ => None,
        }
    }

    /// Returns a number, or the text of a [`Self::TextEnd`] that is not empty.
    pub fn word(self) -> Option<&'a str> {
        if let Self::Number(number) = self { Some(number) } else { self.string() }
    }
}

/// A function that receives the values of a document.
pub trait ValueSink<F>: FnMut(F, Found<'_>) {}

impl<F, Sink: FnMut(F, Found<'_>)> ValueSink<F> for Sink {}

/// A value and its position.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    pub position: Position<'a>,
    pub value: Value<'a>,
    /// Whether no row reads the members of an object or list.
    pub is_skipped: bool,
    /// Whether an object that contains the value, or the value itself, repeats a key of the object around it.
    pub is_repeated: bool,
}

/// The indices of a value in the lists that contain it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Position<'a> {
    /// Indices in the lists around the root.
    pub(super) roots: &'a [u32],
    /// Indices in the lists on the path of the value, outermost first.
    pub(super) lists: &'a [u32],
}

impl<'a> Position<'a> {
    /// Creates a position. The first `roots` indices belong to lists around the root.
    pub fn new(positions: &'a [u32], roots: usize) -> Self {
        let (roots, lists) = positions.split_at_checked(roots).unwrap_or_default();
        Self { roots, lists }
    }

    /// Returns the index in the list of the path's `*` with this number. Numbers start at 0.
    pub fn list(self, number: usize) -> u32 {
        self.lists.get(number).copied().unwrap_or(0)
    }

    /// Returns the number of lists on the path.
    pub const fn lists(self) -> usize {
        self.lists.len()
    }

    /// Returns the index in the innermost list on the path.
    pub fn last(self) -> u32 {
        self.lists.last().copied().unwrap_or(0)
    }

    /// Returns whether a list surrounds the root.
    pub const fn is_in_root_list(self) -> bool {
        !self.roots.is_empty()
    }

    /// Returns the index of the root in the list around the root.
    pub fn root(self) -> u32 {
        self.roots.first().copied().unwrap_or(0)
    }
}

/// How a document ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    Complete,
    /// The input ended before the end of the document.
    Cut,
    /// The document is not JSON.
    Malformed,
}
