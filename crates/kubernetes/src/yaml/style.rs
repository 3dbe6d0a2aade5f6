//! How a document is laid out, so that what is written into it looks as if its author had written it.

use std::collections::BTreeMap;

use super::text::own_line;
use super::tree::{Collection, Node, Tree};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    /// Spaces from a mapping to a mapping within it.
    pub(super) step: usize,
    /// Spaces from a key to the dashes of its list.
    pub(super) dash: usize,
    pub(super) newline: &'static str,
    /// The whole document is in flow style, as JSON is.
    pub(super) flow: bool,
    /// In flow style no blanks are between words.
    pub(super) tight: bool,
    /// Text of several lines may stand as a block.
    pub(super) literals: bool,
}

/// Of what is found most often; where nothing is found, as kubectl writes.
pub(super) fn of(text: &str, tree: &Tree) -> Style {
    let mut counts = Counts::default();
    let root = tree.root.as_ref().and_then(Node::collection);
    if let Some(root) = root {
        counts.collection(text, root);
    }
    let flow = root.is_some_and(|root| root.flow);
    Style {
        step: most(&counts.steps).unwrap_or(2),
        dash: most(&counts.dashes).unwrap_or(0),
        newline: if text.contains("\r\n") { "\r\n" } else { "\n" },
        flow,
        tight: counts.tight > 0 && counts.loose == 0,
        literals: true,
    }
}

#[derive(Default)]
struct Counts {
    steps: BTreeMap<usize, usize>,
    dashes: BTreeMap<usize, usize>,
    tight: usize,
    loose: usize,
}

impl Counts {
    fn collection(&mut self, text: &str, outer: &Collection) {
        for child in &outer.children {
            let Some(inner) = child.node.collection() else {
                continue;
            };
            self.pair(text, outer, inner);
            self.collection(text, inner);
        }
        for child in outer.children.iter().filter(|_| outer.flow && outer.mapping) {
            let tight = child.head == child.node.bytes.start;
            self.tight += usize::from(tight);
            self.loose += usize::from(!tight);
        }
    }

    fn pair(&mut self, text: &str, outer: &Collection, inner: &Collection) {
        let (Some(first), Some(second)) = (outer.children.first(), inner.children.first()) else {
            return;
        };
        let starts = own_line(text, second.start);
        if !outer.mapping || outer.flow != inner.flow || !starts {
            return;
        }
        let (outer_column, inner_column) = (column(text, first.start), column(text, second.start));
        let Some(difference) = inner_column.checked_sub(outer_column) else {
            return;
        };
        let counts = if inner.mapping || inner.flow { &mut self.steps } else { &mut self.dashes };
        *counts.entry(difference).or_default() += 1;
    }
}

/// The smaller of two that are found as often.
fn most(counts: &BTreeMap<usize, usize>) -> Option<usize> {
    let most = counts.values().max()?;
    let (found, _) = counts.iter().find(|(_, count)| *count == most)?;
    Some(*found)
}

/// In characters, as indentation is counted.
pub(super) fn column(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    line.chars().filter(|c| *c != '\u{feff}').count()
}
