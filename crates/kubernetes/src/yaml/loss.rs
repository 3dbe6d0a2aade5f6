//! What a patched text no longer contains.

use std::fmt;
use std::ops::Range;

use super::text::Splice;
use super::tree::Tree;

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

/// The comments, anchors and aliases that are left of the original text, by their original lines.
pub(super) struct Remaining {
    comments: Vec<usize>,
    anchors: Vec<usize>,
    aliases: Vec<usize>,
}

impl Remaining {
    pub(super) fn of(tree: &Tree) -> Self {
        let line = |range: &Range<usize>| tree.line(range.start);
        Self {
            comments: tree.comments.iter().map(line).collect(),
            anchors: tree.anchors.iter().map(line).collect(),
            aliases: tree.aliases.iter().map(|alias| line(&alias.range)).collect(),
        }
    }

    /// Removes what the splices cut out of the current text, and returns it. The replacements contain no comments,
    /// anchors and aliases.
    pub(super) fn cut(&mut self, text: &str, tree: &Tree, splices: &[Splice]) -> Vec<Loss> {
        let is_cut = |range: &Range<usize>| {
            splices.iter().any(|(cut, _)| cut.start < range.end && range.start < cut.end)
        };
        let mut losses = Vec::new();
        let mut cut_kind = |lines: &mut Vec<usize>,
                            ranges: &mut dyn Iterator<Item = &Range<usize>>,
                            kind: fn(String) -> LossKind| {
            lines.retain(|line| match ranges.next() {
                Some(range) if is_cut(range) => {
                    let text = text.get(range.clone()).unwrap_or_default().to_owned();
                    losses.push(Loss { line: *line, kind: kind(text) });
                    false
                }
                Some(_) | None => true,
            });
        };
        cut_kind(&mut self.comments, &mut tree.comments.iter(), LossKind::Comment);
        cut_kind(&mut self.anchors, &mut tree.anchors.iter(), LossKind::Anchor);
        let aliases = &mut tree.aliases.iter().map(|alias| &alias.range);
        cut_kind(&mut self.aliases, aliases, LossKind::Alias);
        losses
    }
}
