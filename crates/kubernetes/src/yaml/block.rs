//! Edits within collections in block style: whole lines come and go, and comments stay where a reader looks for them.

use std::ops::Range;

use serde_json::Value;

use super::style::{Style, column};
use super::text::{first, line_end, own_line, skip_trivia};
use super::tree::{Child, Collection, Kind};
use super::write::{self, Written};

/// Bytes, and what is written in their place.
pub(super) type Splice = (Range<usize>, String);

/// Adds a value before the one with this index, or at the end.
pub(super) fn insert(
    text: &str,
    style: &Style,
    collection: &Collection,
    index: usize,
    (key, value): (Option<&str>, &Value),
) -> Option<Vec<Splice>> {
    let children = &collection.children;
    let column = column(text, children.first()?.start);
    let indent = write::indent(column);
    let lines = match key {
        Some(key) => write::entry(key, value, column, style),
        None => write::item(value, column, style),
    };
    let Some(next) = children.get(index) else {
        let at = tail(text, end(children.last()?), column);
        return Some(vec![whole_lines(text, at, &format!("{indent}{lines}"), style)]);
    };
    if !own_line(text, next.start) {
        return Some(vec![(next.start..next.start, format!("{lines}{indent}"))]);
    }
    let floor = index.checked_sub(1).and_then(|before| children.get(before)).map_or(0, end);
    let at = above(text, next.start, floor);
    Some(vec![whole_lines(text, at, &format!("{indent}{lines}"), style)])
}

/// Removes one of several: of the last one an empty collection would be left, which is written otherwise.
pub(super) fn remove(text: &str, collection: &Collection, index: usize) -> Option<Vec<Splice>> {
    let children = &collection.children;
    let child = children.get(index).filter(|_| children.len() > 1)?;
    let after = after_line(text, end(child));
    let next = skip_spaces(text, after);
    let range = if own_line(text, child.start) {
        line_start(text, child.start)..after
    } else if text.get(next..)?.starts_with('#') {
        // `- name: x` with a comment below: the dash stays alone.
        blanks_before(text, child.start)..eol(text, end(child))
    } else {
        child.start..next
    };
    Some(vec![(range, String::new())])
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
    let column = column(text, collection.children.first()?.start);
    let Written { head, below } = if collection.mapping {
        write::behind_key(value, column, style)
    } else {
        write::behind_dash(value, column, style)
    };
    let below = match below.strip_suffix(style.newline) {
        Some(below) => format!("{}{below}", style.newline),
        None => below,
    };
    let old = &child.node;
    let block = matches!(&old.kind, Kind::Collection(old) if !old.flow);
    let first = eol(text, child.head);
    if block && first < old.content {
        // The comment behind the key stays, unless a tag or an anchor stands before it.
        let properties = old.bytes.start < old.content;
        let behind = if properties { first } else { child.head };
        let last = eol(text, old.bytes.end);
        return Some(vec![(child.head..behind, head), (first..last, below)]);
    }
    let to = if block { eol(text, old.bytes.end) } else { end(child) };
    let last = eol(text, to);
    Some(vec![(child.head..to, head), (last..last, below)])
}

/// The end of a child, which may not be written at all.
fn end(child: &Child) -> usize {
    child.node.bytes.end.max(child.head)
}

/// Where the line of `at` ends, before its line end, be it LF or CRLF.
pub(super) fn eol(text: &str, at: usize) -> usize {
    let end = line_end(text, at);
    match text.get(at..end) {
        Some(line) if line.ends_with('\r') => end - 1,
        Some(_) | None => end,
    }
}

/// Where the next line begins.
pub(super) fn after_line(text: &str, at: usize) -> usize {
    text.len().min(line_end(text, at) + 1)
}

fn line_start(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or_default();
    before.rfind('\n').map_or_else(|| first(text).min(at), |end| end + 1)
}

fn skip_spaces(text: &str, from: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    from + rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len()
}

fn blanks_before(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or_default();
    before.trim_end_matches([' ', '\t']).len()
}

/// Whole lines at the beginning of a line, or behind a last line without an end.
pub(super) fn whole_lines(text: &str, at: usize, lines: &str, style: &Style) -> Splice {
    let newline = style.newline;
    let unfinished = at == text.len() && !text.is_empty() && !text.ends_with('\n');
    let lines = match lines.strip_suffix(newline) {
        Some(lines) if unfinished => format!("{newline}{lines}"),
        Some(_) | None => lines.to_owned(),
    };
    (at..at, lines)
}

/// The lines of a collection in `column` end here: behind the comments below its last entry that stand as far to the
/// right. Where what follows stands in the same column (a list right below its key), a comment there belongs to that.
fn tail(text: &str, end: usize, column: usize) -> usize {
    let mut tail = after_line(text, end);
    let next = skip_trivia(text, tail, false);
    let shared = next < text.len() && self::column(text, next) == column;
    let least = if shared { column + 1 } else { column };
    let mut at = tail;
    while at < next {
        let begin = skip_spaces(text, at);
        if begin >= next || self::column(text, begin) < least {
            break;
        }
        tail = after_line(text, begin);
        at = tail;
    }
    tail
}

/// Where the comments begin that stand right above, in the same column; not before `floor`.
fn above(text: &str, start: usize, floor: usize) -> usize {
    let column = column(text, start);
    let mut at = line_start(text, start);
    while at > floor {
        let line = line_start(text, at - 1);
        let begin = skip_spaces(text, line);
        let comment = text.get(begin..at).is_some_and(|line| line.starts_with('#'));
        if line < floor || !comment || self::column(text, begin) != column {
            break;
        }
        at = line;
    }
    at
}
