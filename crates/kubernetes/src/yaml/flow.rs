//! Edits within `[…]` and `{…}`, which JSON is made of.

use serde_json::Value;

use super::block::{Splice, eol};
use super::style::{Style, column};
use super::text::{own_line, skip_trivia};
use super::tree::{Child, Collection, Node};
use super::write;

/// How a value is written within a collection in flow style.
#[derive(Clone, Copy)]
struct Layout<'s> {
    style: &'s Style,
    /// Text always stands between double quotes.
    json: bool,
    /// Each entry on a line of its own, in this column.
    lines: Option<usize>,
}

/// Adds a value before the one with this index, or at the end.
pub(super) fn insert(
    text: &str,
    style: &Style,
    node: &Node,
    index: usize,
    (key, value): (Option<&str>, &Value),
) -> Option<Vec<Splice>> {
    let collection = closed(text, node)?;
    let layout = layout(text, style, collection);
    let Some(first) = collection.children.first() else {
        let layout = Layout {
            lines: (style.flow && !style.tight && lines_of(text, node))
                .then(|| line_indent(text, node.content) + style.step),
            ..layout
        };
        let entry = layout.entry(key, value);
        let inner = match layout.lines {
            Some(column) => {
                let outer = write::indent(column.saturating_sub(style.step));
                let indent = write::indent(column);
                format!("{0}{indent}{entry}{0}{outer}", style.newline)
            }
            None => entry,
        };
        return Some(vec![(node.content + 1..node.bytes.end - 1, inner)]);
    };
    let separator = match layout.lines {
        Some(_) => format!("{}{}", style.newline, write::indent(column(text, first.start))),
        None if style.tight => String::new(),
        None => " ".to_owned(),
    };
    let entry = layout.entry(key, value);
    if let Some(next) = collection.children.get(index) {
        return Some(vec![(next.start..next.start, format!("{entry},{separator}"))]);
    }
    let end = collection.children.last().map(end)?;
    let next = skip_trivia(text, end, false);
    let comma = text.get(next..)?.starts_with(',');
    let end = if comma { next + 1 } else { end };
    let after = eol(text, end);
    let closes_below = skip_trivia(text, end, false) > after;
    Some(if layout.lines.is_some() && closes_below {
        let (before, behind) = if comma { ("", ",") } else { (",", "") };
        vec![(end..end, before.to_owned()), (after..after, format!("{separator}{entry}{behind}"))]
    } else if comma {
        vec![(end..end, format!("{separator}{entry},"))]
    } else {
        vec![(end..end, format!(",{separator}{entry}"))]
    })
}

pub(super) fn remove(text: &str, node: &Node, index: usize) -> Option<Vec<Splice>> {
    let collection = closed(text, node)?;
    let child = collection.children.get(index)?;
    let range = match (
        index.checked_sub(1).and_then(|before| collection.children.get(before)),
        collection.children.get(index + 1),
    ) {
        (None, None) => node.content + 1..node.bytes.end - 1,
        (_, Some(next)) => child.start..next.start,
        (Some(before), None) => {
            let apart = apart(text, end(before), child);
            return Some(apart.unwrap_or_else(|| vec![(end(before)..end(child), String::new())]));
        }
    };
    Some(vec![(range, String::new())])
}

/// Removes a last entry that stands on lines of its own, and the comma before it: a comment behind that comma stays.
fn apart(text: &str, before: usize, child: &Child) -> Option<Vec<Splice>> {
    let comma = skip_trivia(text, before, false);
    let above = text.get(..child.start)?.rfind('\n')?;
    let comments = text.get(comma..above)?.contains('#');
    if !comments || !text.get(comma..)?.starts_with(',') || !own_line(text, child.start) {
        return None;
    }
    let from = eol(text, above.saturating_sub(1)).min(above);
    let next = skip_trivia(text, end(child), false);
    if text.get(next..)?.starts_with(',') {
        return Some(vec![(from..next + 1, String::new())]);
    }
    Some(vec![(comma..comma + 1, String::new()), (from..end(child), String::new())])
}

pub(super) fn replace(
    text: &str,
    style: &Style,
    collection: &Collection,
    child: &Child,
    value: &Value,
) -> Option<Vec<Splice>> {
    if child.unusual {
        return None;
    }
    let layout = layout(text, style, collection);
    let lines = layout.lines.filter(|_| lines_of(text, &child.node) || style.flow);
    let value = Layout { lines, ..layout }.value(value);
    let old = child.node.bytes.clone();
    Some(if old.is_empty() {
        vec![(child.head..child.head, format!(" {value}"))]
    } else {
        vec![(old, value)]
    })
}

/// A whole document.
pub(super) fn root(text: &str, style: &Style, node: &Node, value: &Value) -> String {
    let layout = Layout { style, json: true, lines: lines_of(text, node).then_some(style.step) };
    layout.value(value)
}

/// The collection, if the node is written with both its brackets.
fn closed<'n>(text: &str, node: &'n Node) -> Option<&'n Collection> {
    let written = text.get(node.content..node.bytes.end)?;
    let brackets = [('[', ']'), ('{', '}')];
    let closed = brackets.iter().any(|(open, close)| {
        written.len() >= 2 && written.starts_with(*open) && written.ends_with(*close)
    });
    node.collection().filter(|_| closed)
}

fn end(child: &Child) -> usize {
    child.node.bytes.end.max(child.head)
}

fn lines_of(text: &str, node: &Node) -> bool {
    let written = text.get(node.bytes.clone()).unwrap_or_default();
    written.contains('\n')
        || (node.collection().is_some_and(|inner| inner.children.is_empty())
            && text.trim().contains('\n'))
}

fn line_indent(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    line.chars().take_while(|c| *c == ' ').count()
}

fn layout<'s>(text: &str, style: &'s Style, collection: &Collection) -> Layout<'s> {
    let first = collection.children.first();
    let is_quoted = |at: usize| text.get(at..).is_some_and(|rest| rest.starts_with('"'));
    let quoted = first.is_some_and(|child| is_quoted(child.start));
    Layout {
        style,
        json: style.flow || quoted,
        lines: first
            .filter(|child| own_line(text, child.start))
            .map(|child| column(text, child.start)),
    }
}

impl Layout<'_> {
    fn entry(&self, key: Option<&str>, value: &Value) -> String {
        let value = self.value(value);
        match key {
            Some(key) if self.style.tight => format!("{}:{value}", self.text(key)),
            Some(key) => format!("{}: {value}", self.text(key)),
            None => value,
        }
    }

    fn value(&self, value: &Value) -> String {
        let inner = Self { lines: self.lines.map(|column| column + self.style.step), ..*self };
        match value {
            Value::Object(entries) if !entries.is_empty() => {
                let entry = |(key, value): (&String, &Value)| inner.entry(Some(key), value);
                let entries: Vec<_> = write::ordered(entries).into_iter().map(entry).collect();
                self.within(('{', '}'), &entries)
            }
            Value::Array(items) if !items.is_empty() => {
                let items: Vec<_> = items.iter().map(|item| inner.value(item)).collect();
                self.within(('[', ']'), &items)
            }
            Value::String(value) => self.text(value),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => write::inline(value),
        }
    }

    fn within(&self, (open, close): (char, char), entries: &[String]) -> String {
        let newline = self.style.newline;
        match self.lines {
            Some(column) => {
                let inner = write::indent(column + self.style.step);
                let outer = write::indent(column);
                let entries = entries.join(&format!(",{newline}{inner}"));
                format!("{open}{newline}{inner}{entries}{newline}{outer}{close}")
            }
            None => {
                let comma = if self.style.tight { "," } else { ", " };
                format!("{open}{}{close}", entries.join(comma))
            }
        }
    }

    /// Older readers stumble over colons in words within flow style.
    fn text(&self, text: &str) -> String {
        let plain = !self.json && !text.contains([':', '?']);
        match write::inline(&Value::String(text.to_owned())) {
            word if plain => word,
            _ => write::quoted(text),
        }
    }
}
