//! Edits YAML lists and mappings in flow style (`[…]` and `{…}`). JSON uses only this style.

use serde_json::Value;

use super::style::Style;
use super::text::{Splice, column, line_end, line_indent, skip_trivia, starts_line};
use super::tree::{Child, Collection, Node};
use super::write;

/// The notation of a collection.
#[derive(Clone, Copy)]
struct Layout<'s> {
    style: &'s Style,
    /// Whether the notation is JSON, in which all strings have double quotes.
    is_json: bool,
    /// Column of the entries if each entry is on its own line. `None` if the collection is on one line.
    lines: Option<usize>,
}

/// Adds an entry before the entry at `index`, or at the end of the collection.
pub(super) fn insert(
    text: &str,
    style: &Style,
    node: &Node,
    index: usize,
    (key, value): (Option<&str>, &Value),
) -> Option<Vec<Splice>> {
    let collection = bracketed(text, node)?;
    let layout = Layout::detect(text, style, collection);
    let Some(first) = collection.children.first() else {
        return Some(vec![insert_only(text, layout, node, key, value)]);
    };
    let separator = match layout.lines {
        Some(_) => format!("{}{}", style.newline, write::indent(column(text, first.start))),
        None if style.is_compact => String::new(),
        None => " ".to_owned(),
    };
    let entry = layout.entry(key, value);
    if let Some(next) = collection.children.get(index) {
        return Some(vec![(next.start..next.start, format!("{entry},{separator}"))]);
    }
    let last_end = collection.children.last().map(Child::end)?;
    let comma = skip_trivia(text, last_end, false);
    let has_comma = text.get(comma..)?.starts_with(',');
    let end = if has_comma { comma + 1 } else { last_end };
    let (before, after) = if has_comma { ("", ",") } else { (",", "") };
    let end_of_line = line_end(text, end);
    let bracket_is_below = skip_trivia(text, end, false) > end_of_line;
    if layout.lines.is_some() && bracket_is_below {
        // The line of the last entry may end with a comment, which must stay.
        let entry = format!("{separator}{entry}{after}");
        return Some(vec![(end..end, before.to_owned()), (end_of_line..end_of_line, entry)]);
    }
    Some(vec![(end..end, format!("{before}{separator}{entry}{after}"))])
}

/// Adds an entry to an empty collection.
fn insert_only(
    text: &str,
    layout: Layout<'_>,
    node: &Node,
    key: Option<&str>,
    value: &Value,
) -> Splice {
    let inside = node.content_start + 1..node.range.end - 1;
    let style = layout.style;
    if !style.is_flow || style.is_compact || !has_lines(text, node) {
        return (inside, layout.entry(key, value));
    }
    let outer_column = line_indent(text, node.content_start);
    let column = outer_column + style.mapping_indent;
    let entry = Layout { lines: Some(column), ..layout }.entry(key, value);
    let (indent, outer_indent) = (write::indent(column), write::indent(outer_column));
    let newline = style.newline;
    (inside, format!("{newline}{indent}{entry}{newline}{outer_indent}"))
}

pub(super) fn remove(text: &str, node: &Node, index: usize) -> Option<Vec<Splice>> {
    let children = &bracketed(text, node)?.children;
    let child = children.get(index)?;
    if let Some(next) = children.get(index + 1) {
        return Some(vec![(child.start..next.start, String::new())]);
    }
    let Some(previous) = index.checked_sub(1).and_then(|previous| children.get(previous)) else {
        return Some(vec![(node.content_start + 1..node.range.end - 1, String::new())]);
    };
    let splices = remove_last_line(text, previous.end(), child);
    Some(splices.unwrap_or_else(|| vec![(previous.end()..child.end(), String::new())]))
}

/// Removes the last entry of a collection and keeps the comment above it. Returns `None` if the entry is not on its
/// own line, or if no comment is above it.
fn remove_last_line(text: &str, previous_end: usize, child: &Child) -> Option<Vec<Splice>> {
    let comma = skip_trivia(text, previous_end, false);
    let line_feed = text.get(..child.start)?.rfind('\n')?;
    let has_comment = text.get(comma..line_feed)?.contains('#');
    if !has_comment || !text.get(comma..)?.starts_with(',') || !starts_line(text, child.start) {
        return None;
    }
    let from = line_end(text, line_feed.saturating_sub(1)).min(line_feed);
    let next = skip_trivia(text, child.end(), false);
    if text.get(next..)?.starts_with(',') {
        return Some(vec![(from..next + 1, String::new())]);
    }
    Some(vec![(comma..comma + 1, String::new()), (from..child.end(), String::new())])
}

pub(super) fn replace(
    text: &str,
    style: &Style,
    collection: &Collection,
    child: &Child,
    value: &Value,
) -> Vec<Splice> {
    let layout = Layout::detect(text, style, collection);
    let lines = layout.lines.filter(|_| has_lines(text, &child.node) || style.is_flow);
    let value = Layout { lines, ..layout }.value(value);
    let old = child.node.range.clone();
    if old.is_empty() {
        return vec![(child.value_start..child.value_start, format!(" {value}"))];
    }
    vec![(old, value)]
}

/// Writes the content of a document in flow style.
pub(super) fn document(text: &str, style: &Style, node: &Node, value: &Value) -> String {
    let lines = has_lines(text, node).then_some(style.mapping_indent);
    Layout { style, is_json: true, lines }.value(value)
}

/// Returns the list or mapping of a node if its text starts and ends with brackets.
fn bracketed<'n>(text: &str, node: &'n Node) -> Option<&'n Collection> {
    let content = text.get(node.content_start..node.range.end)?;
    let is_bracketed = [('[', ']'), ('{', '}')].iter().any(|(open, close)| {
        content.len() >= 2 && content.starts_with(*open) && content.ends_with(*close)
    });
    node.collection().filter(|_| is_bracketed)
}

/// Returns whether a node has several lines. For an empty collection, the lines of the whole document count.
fn has_lines(text: &str, node: &Node) -> bool {
    let is_empty = node.collection().is_some_and(|inner| inner.children.is_empty());
    text.get(node.range.clone()).unwrap_or_default().contains('\n')
        || (is_empty && text.trim().contains('\n'))
}

impl<'s> Layout<'s> {
    fn detect(text: &str, style: &'s Style, collection: &Collection) -> Self {
        let first = collection.children.first().map(|child| child.start);
        let is_quoted = |at: usize| text.get(at..).is_some_and(|rest| rest.starts_with('"'));
        Self {
            style,
            is_json: style.is_flow || first.is_some_and(is_quoted),
            lines: first.filter(|at| starts_line(text, *at)).map(|at| column(text, at)),
        }
    }

    fn entry(&self, key: Option<&str>, value: &Value) -> String {
        let value = self.value(value);
        let blank = if self.style.is_compact { "" } else { " " };
        match key {
            Some(key) => format!("{}:{blank}{value}", self.string(key)),
            None => value,
        }
    }

    fn value(&self, value: &Value) -> String {
        let lines = self.lines.map(|column| column + self.style.mapping_indent);
        let inner = Self { lines, ..*self };
        match value {
            Value::Object(entries) if !entries.is_empty() => {
                let entries = write::ordered(entries).into_iter();
                let entries = entries.map(|(key, value)| inner.entry(Some(key), value)).collect();
                self.bracket('{', entries, '}')
            }
            Value::Array(items) if !items.is_empty() => {
                self.bracket('[', items.iter().map(|item| inner.value(item)).collect(), ']')
            }
            Value::String(text) => self.string(text),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => write::inline(value),
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "callers collect the entries for it")]
    fn bracket(&self, open: char, entries: Vec<String>, close: char) -> String {
        let Some(column) = self.lines else {
            let comma = if self.style.is_compact { "," } else { ", " };
            return format!("{open}{}{close}", entries.join(comma));
        };
        let newline = self.style.newline;
        let inner = write::indent(column + self.style.mapping_indent);
        let outer = write::indent(column);
        let entries = entries.join(&format!(",{newline}{inner}"));
        format!("{open}{newline}{inner}{entries}{newline}{outer}{close}")
    }

    /// Writes a string. A string with `:` or `?` gets quotes, because older YAML parsers misread these characters in
    /// flow style.
    fn string(&self, text: &str) -> String {
        if self.is_json || text.contains([':', '?']) {
            return write::quoted(text);
        }
        write::inline(&Value::String(text.to_owned()))
    }
}
