//! What an edit has cost.

use std::fmt;
use std::ops::Range;

use super::block::Splice;
use super::tree::Tree;

/// Something that stood in the former text and does not stand in the new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Of the former text of the document, counted from 1.
    pub line: usize,
    pub kind: LossKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LossKind {
    /// A comment, from its `#` on: it stood within what was removed, replaced or written anew.
    Comment(String),
    /// An anchor, with its `&`: the value that it named was replaced or written anew.
    Anchor(String),
    /// An alias, with its `*`: the value that it stood for was written out, because the patch changes that value in one
    /// of the places only.
    Alias(String),
    /// A value was replaced that is written otherwise than this module would: its quotes, its base, its lines do not
    /// come back with it.
    Word(String),
    /// A list or mapping was written anew, with a notation of our own, because its notation leaves no other way. Its
    /// place as a JSON Pointer.
    Notation(String),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.kind)
    }
}

impl fmt::Display for LossKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Comment(text) => write!(f, "the comment {text:?}: it stood in what was changed"),
            Self::Anchor(name) => write!(f, "the anchor {name}: its value was written anew"),
            Self::Alias(name) => write!(
                f,
                "the alias {name}: its value was written out, so that it can differ from the anchor's"
            ),
            Self::Word(word) => write!(
                f,
                "how {word:?} was written: if this value comes back, it comes in a notation of our own"
            ),
            Self::Notation(path) => {
                write!(f, "order and quotes within {path:?}: it could only be written anew")
            }
        }
    }
}

/// The lines of one kind of mark, where each stands now, and how it is told.
type Kind<'m> = (&'m mut Vec<usize>, &'m [Range<usize>], fn(String) -> LossKind);

/// What still stands of the former text, by the lines in which it stood there, in the order of the text.
pub(super) struct Marks {
    comments: Vec<usize>,
    anchors: Vec<usize>,
    aliases: Vec<usize>,
}

impl Marks {
    pub(super) fn of(tree: &Tree) -> Self {
        let line = |bytes: &Range<usize>| tree.line(bytes.start);
        Self {
            comments: tree.comments.iter().map(line).collect(),
            anchors: tree.anchors.iter().map(line).collect(),
            aliases: tree.aliases.iter().map(|alias| line(&alias.bytes)).collect(),
        }
    }

    /// Takes out what these changes of the text take away; what they write has no comments, anchors and aliases.
    pub(super) fn without(&mut self, text: &str, tree: &Tree, splices: &[Splice]) -> Vec<Loss> {
        let aliases: Vec<Range<usize>> =
            tree.aliases.iter().map(|alias| alias.bytes.clone()).collect();
        let kinds: [Kind<'_>; 3] = [
            (&mut self.comments, &tree.comments, LossKind::Comment),
            (&mut self.anchors, &tree.anchors, LossKind::Anchor),
            (&mut self.aliases, &aliases, LossKind::Alias),
        ];
        let mut lost = Vec::new();
        for (lines, ranges, what) in kinds {
            let mut kept = Vec::new();
            for (line, bytes) in lines.iter().zip(ranges) {
                if splices.iter().any(|(cut, _)| cut.start < bytes.end && bytes.start < cut.end) {
                    let word = text.get(bytes.clone()).unwrap_or_default();
                    lost.push(Loss { line: *line, kind: what(word.to_owned()) });
                } else {
                    kept.push(*line);
                }
            }
            *lines = kept;
        }
        lost
    }
}
