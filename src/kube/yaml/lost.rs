//! What an edit has cost.

use std::fmt;

use super::tree::Tree;

/// Something that stood in the former text and does not stand in the new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Of the former text of the document, counted from 1.
    pub line: usize,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A comment, from its `#` on: it stood within what was removed, replaced or written anew.
    Comment(String),
    /// An anchor, with its `&`: the value that it named was replaced or written anew.
    Anchor(String),
    /// An alias, with its `*`: the value that it stood for was written out, because the patch changes that value in one
    /// of the places only.
    Alias(String),
    /// A list or mapping was written anew, with a notation of our own, because its notation leaves no other way. Its
    /// place as a JSON Pointer.
    Notation(String),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Comment(text) => write!(f, "the comment {text:?}: it stood in what was changed"),
            Self::Anchor(name) => write!(f, "the anchor {name}: its value was written anew"),
            Self::Alias(name) => write!(
                f,
                "the alias {name}: its value was written out, so that it can differ from the anchor's"
            ),
            Self::Notation(path) => {
                write!(
                    f,
                    "order and quotes within {path:?}: it could only be written anew"
                )
            }
        }
    }
}

/// What of `before` is missing in `after`. Edits add none of it and keep its order, so the first that fits is the same.
pub(super) fn between(before: (&str, &Tree), after: (&str, &Tree)) -> Vec<Lost> {
    let comments = missing(&comments(before), &comments(after));
    let anchors = missing(&anchors(before), &anchors(after));
    let aliases = missing(&aliases(before), &aliases(after));
    let mut lost: Vec<(usize, What)> = comments
        .into_iter()
        .map(|(at, text)| (at, What::Comment(text)))
        .chain(
            anchors
                .into_iter()
                .map(|(at, text)| (at, What::Anchor(text))),
        )
        .chain(
            aliases
                .into_iter()
                .map(|(at, text)| (at, What::Alias(text))),
        )
        .collect();
    lost.sort_by_key(|(at, _)| *at);
    let lost = lost.into_iter();
    lost.map(|(at, what)| Lost {
        line: before.1.line(at),
        what,
    })
    .collect()
}

type Word<'t> = (usize, &'t str);

fn comments<'t>((text, tree): (&'t str, &Tree)) -> Vec<Word<'t>> {
    words(text, tree.comments.iter())
}

fn anchors<'t>((text, tree): (&'t str, &Tree)) -> Vec<Word<'t>> {
    words(text, tree.anchors.iter())
}

fn aliases<'t>((text, tree): (&'t str, &Tree)) -> Vec<Word<'t>> {
    words(text, tree.aliases.iter().map(|alias| &alias.bytes))
}

fn words<'t, 'r>(
    text: &'t str,
    ranges: impl Iterator<Item = &'r std::ops::Range<usize>>,
) -> Vec<Word<'t>> {
    ranges
        .map(|range| (range.start, text.get(range.clone()).unwrap_or_default()))
        .collect()
}

fn missing(before: &[Word<'_>], after: &[Word<'_>]) -> Vec<(usize, String)> {
    let mut rest = after.iter().peekable();
    let mut missing = Vec::new();
    for (at, word) in before {
        if rest.next_if(|(_, kept)| kept == word).is_none() {
            missing.push((*at, (*word).to_owned()));
        }
    }
    missing
}
