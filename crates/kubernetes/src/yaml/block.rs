//! Edits YAML lists and mappings in block style (one entry per line). Edits add and remove whole lines, and keep
//! comments next to their entries.

use serde_json::Value;

use super::style::Style;
use super::text::{
    Splice, column, line_end, line_start, next_line, skip_trivia, skip_whitespace, starts_line,
};
use super::tree::{Child, Collection, NodeKind};
use super::write::{self, EntryValue};

/// Adds an entry before the entry at `index`, or at the end of the collection.
pub(super) fn insert(
    text: &str,
    style: &Style,
    collection: &Collection,
    index: usize,
    (key, value): (Option<&str>, &Value),
) -> Option<Vec<Splice>> {
    let children = &collection.children;
    let column = column(text, children.first()?.start);
    let lines = write::entry(key, value, column, style);
    let Some(next) = children.get(index) else {
        let at = collection_end(text, children.last()?.end(), column);
        return Some(vec![insert_lines(text, at, &lines, style)]);
    };
    if !starts_line(text, next.start) {
        // The next entry is on the line of the list dash. The new entry now starts on this line.
        let lines = format!("{}{}", lines.trim_start_matches(' '), write::indent(column));
        return Some(vec![(next.start..next.start, lines)]);
    }
    let previous = index.checked_sub(1).and_then(|before| children.get(before));
    let at = leading_comments(text, next.start, previous.map_or(0, Child::end));
    Some(vec![insert_lines(text, at, &lines, style)])
}

/// Removes one entry. Returns `None` for the only entry, because block style has no empty collections.
pub(super) fn remove(text: &str, collection: &Collection, index: usize) -> Option<Vec<Splice>> {
    let children = &collection.children;
    let child = children.get(index).filter(|_| children.len() > 1)?;
    let after = next_line(text, child.end());
    let next = skip_whitespace(text, after);
    let range = if starts_line(text, child.start) {
        line_start(text, child.start)..after
    } else if text.get(next..)?.starts_with('#') {
        // If a comment follows `- name: x` on the next lines, the dash stays on its line without a value.
        let before = text.get(..child.start)?.trim_end_matches([' ', '\t']);
        before.len()..line_end(text, child.end())
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
    let column = column(text, collection.children.first()?.start);
    let EntryValue { head, below } = if collection.is_mapping {
        write::mapping_value(value, column, style)
    } else {
        write::item_value(value, column, style)
    };
    let below = match below.strip_suffix(style.newline) {
        Some(below) => format!("{}{below}", style.newline),
        None => below,
    };
    let old = &child.node;
    let is_block = matches!(&old.kind, NodeKind::Collection(old) if !old.is_flow);
    let first_line_end = line_end(text, child.value_start);
    if is_block && first_line_end < old.content_start {
        // A comment after the key is kept, unless a tag or an anchor precedes the comment.
        let has_properties = old.range.start < old.content_start;
        let head_end = if has_properties { first_line_end } else { child.value_start };
        let old_end = line_end(text, old.range.end);
        return Some(vec![(child.value_start..head_end, head), (first_line_end..old_end, below)]);
    }
    let old_end = if is_block { line_end(text, old.range.end) } else { child.end() };
    let last_line_end = line_end(text, old_end);
    Some(vec![(child.value_start..old_end, head), (last_line_end..last_line_end, below)])
}

/// Inserts whole lines at the start of a line or at the end of the text. Adds a missing line end first.
pub(super) fn insert_lines(text: &str, at: usize, lines: &str, style: &Style) -> Splice {
    let lacks_line_end = at == text.len() && !text.is_empty() && !text.ends_with('\n');
    let lines = match lines.strip_suffix(style.newline) {
        Some(lines) if lacks_line_end => format!("{}{lines}", style.newline),
        Some(_) | None => lines.to_owned(),
    };
    (at..at, lines)
}

/// Returns the position after the last line of a collection whose entries start in `column`. Comments below the last
/// entry are part of the collection if they are indented at least to `column`. If the text continues in the same
/// column, such comments belong to the next entry instead.
fn collection_end(text: &str, last_entry_end: usize, column: usize) -> usize {
    let mut end = next_line(text, last_entry_end);
    let next = skip_trivia(text, end, false);
    let shares_column = next < text.len() && self::column(text, next) == column;
    let min_column = if shares_column { column + 1 } else { column };
    while end < next {
        let comment = skip_whitespace(text, end);
        if comment >= next || self::column(text, comment) < min_column {
            break;
        }
        end = next_line(text, comment);
    }
    end
}

/// Returns the start of the comments directly above an entry. Only comments in the entry's column count. The search
/// does not go before `floor`.
fn leading_comments(text: &str, start: usize, floor: usize) -> usize {
    let column = column(text, start);
    let mut at = line_start(text, start);
    while at > floor {
        let line = line_start(text, at - 1);
        let content = skip_whitespace(text, line);
        let is_comment = text.get(content..at).is_some_and(|line| line.starts_with('#'));
        if line < floor || !is_comment || self::column(text, content) != column {
            break;
        }
        at = line;
    }
    at
}
