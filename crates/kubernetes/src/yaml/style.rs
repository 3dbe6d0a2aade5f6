//! Detects the layout of a YAML document, so that new text has the same layout.

use std::collections::BTreeMap;

use super::text::{column, starts_line};
use super::tree::{Collection, Node, Tree};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    /// Indentation of a nested mapping, in spaces.
    pub(super) mapping_indent: usize,
    /// Indentation of a list below its key, in spaces.
    pub(super) list_indent: usize,
    pub(super) newline: &'static str,
    /// Whether the whole document is in flow style, like JSON.
    pub(super) is_flow: bool,
    /// Whether flow style is written without blanks.
    pub(super) is_compact: bool,
    /// Whether a string with several lines may be written as a literal block (`|`).
    pub(super) literals: bool,
}

/// Returns the most frequent layout in the document. If the document has no example of a property, uses kubectl's
/// layout.
pub(super) fn detect(text: &str, tree: &Tree) -> Style {
    let mut counts = Counts::default();
    let root = tree.root.as_ref().and_then(Node::collection);
    if let Some(root) = root {
        counts.add(text, root);
    }
    Style {
        mapping_indent: most_frequent(&counts.mapping_indents).unwrap_or(2),
        list_indent: most_frequent(&counts.list_indents).unwrap_or(0),
        newline: if text.contains("\r\n") { "\r\n" } else { "\n" },
        is_flow: root.is_some_and(|root| root.is_flow),
        is_compact: counts.compact_entries > 0 && counts.spaced_entries == 0,
        literals: true,
    }
}

#[derive(Default)]
struct Counts {
    mapping_indents: BTreeMap<usize, usize>,
    list_indents: BTreeMap<usize, usize>,
    compact_entries: usize,
    spaced_entries: usize,
}

impl Counts {
    fn add(&mut self, text: &str, outer: &Collection) {
        for child in &outer.children {
            if outer.is_flow && outer.is_mapping {
                let is_compact = child.value_start == child.node.range.start;
                self.compact_entries += usize::from(is_compact);
                self.spaced_entries += usize::from(!is_compact);
            }
            if let Some(inner) = child.node.collection() {
                self.add_indent(text, outer, inner);
                self.add(text, inner);
            }
        }
    }

    fn add_indent(&mut self, text: &str, outer: &Collection, inner: &Collection) {
        let (Some(first), Some(second)) = (outer.children.first(), inner.children.first()) else {
            return;
        };
        if !outer.is_mapping || outer.is_flow != inner.is_flow || !starts_line(text, second.start) {
            return;
        }
        let counts = if inner.is_mapping || inner.is_flow {
            &mut self.mapping_indents
        } else {
            &mut self.list_indents
        };
        let columns = (column(text, second.start), column(text, first.start));
        if let Some(indent) = columns.0.checked_sub(columns.1) {
            *counts.entry(indent).or_default() += 1;
        }
    }
}

/// Returns the most frequent value. If several values are equally frequent, returns the smallest of them.
fn most_frequent(counts: &BTreeMap<usize, usize>) -> Option<usize> {
    let most = counts.values().max()?;
    counts.iter().find(|(_, count)| *count == most).map(|(value, _)| *value)
}
