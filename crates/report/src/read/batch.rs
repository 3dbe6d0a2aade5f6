//! Parses a block of lines into rows, with an interner for its strings.

use memchr::memchr;

use super::{Lines, MAX_CONFIGS, MAX_GROUPS, MAX_VALUES, SEPARATOR, Selection, SideRule};
use crate::interner::StringInterner;
use crate::line::Line;
use crate::row::{Row, Side};
use tokengauge_types::label::LONGEST_NAME;

/// Rows of one block.
pub(super) struct Batch {
    pub(super) rows: Vec<Row>,
    pub(super) groups: StringInterner,
    pub(super) finishes: StringInterner,
    pub(super) currencies: StringInterner,
    pub(super) buckets: StringInterner,
    pub(super) configs: StringInterner,
    pub(super) lines: Lines,
}

impl Batch {
    pub(super) fn parse(block: &[u8], side: Side, selection: &Selection) -> Self {
        let mut batch = Self {
            rows: Vec::new(),
            groups: StringInterner::new(MAX_GROUPS),
            finishes: StringInterner::new(MAX_VALUES),
            currencies: StringInterner::new(MAX_VALUES),
            buckets: StringInterner::new(MAX_VALUES),
            configs: StringInterner::new(MAX_CONFIGS),
            lines: Lines::default(),
        };
        let mut key = String::new();
        let mut rest = block;
        while !rest.is_empty() {
            let end = memchr(b'\n', rest).unwrap_or(rest.len());
            let (line, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
            rest = after.get(1..).unwrap_or_default();
            if !line.trim_ascii().is_empty() {
                batch.add_line(line, side, selection, &mut key);
            }
        }
        batch
    }

    fn add_line(&mut self, text: &[u8], side: Side, selection: &Selection, key: &mut String) {
        self.lines.read += 1;
        let Some(line) = Line::parse(text) else {
            self.lines.unreadable += 1;
            return;
        };
        if line.call.is_none() {
            self.lines.plain += 1;
            return;
        }
        let Some(mut row) = line.row() else {
            self.lines.unreadable += 1;
            return;
        };
        if !selection.only.iter().all(|selector| selector.matches(&line)) {
            self.lines.filtered += 1;
            return;
        }
        self.lines.calls += 1;
        row.side = match &selection.sides {
            SideRule::None => Side::Neither,
            SideRule::ByFile => side,
            SideRule::By { a, .. } if a.matches(&line) => Side::A,
            SideRule::By { b, .. } if b.matches(&line) => Side::B,
            SideRule::By { .. } => Side::Neither,
        };
        self.intern_values(&mut row, &line);
        key.clear();
        group_key(key, &line, row.side, selection);
        row.group = self.groups.intern(key);
        self.rows.push(row);
    }

    fn intern_values(&mut self, row: &mut Row, line: &Line<'_>) {
        row.finish = intern(&mut self.finishes, line.finish_reason());
        row.input_bucket = intern(&mut self.buckets, line.input_bucket());
        row.output_bucket = intern(&mut self.buckets, line.output_bucket());
        let cost = line.call.as_ref().and_then(|call| call.cost.as_ref());
        row.currency = intern(&mut self.currencies, cost.map(|cost| &*cost.currency));
        if let Some(hash) = line.config.as_ref().and_then(|config| config.hash.as_deref()) {
            self.configs.intern(&bounded(hash));
        }
    }
}

/// Writes the values of a row's group. Absent values are empty.
fn group_key(key: &mut String, line: &Line<'_>, side: Side, selection: &Selection) {
    if let SideRule::ByFile = selection.sides {
        key.push_str(side.name().unwrap_or_default());
        if !selection.by.is_empty() {
            key.push(SEPARATOR);
        }
    }
    for (place, dimension) in selection.by.iter().enumerate() {
        if place > 0 {
            key.push(SEPARATOR);
        }
        if let Some(value) = dimension.value_of(line) {
            key.extend(sanitized(value));
        }
    }
}

fn intern(interner: &mut StringInterner, text: Option<&str>) -> u16 {
    let Some(text) = text else {
        return Row::ABSENT;
    };
    u16::try_from(interner.intern(&bounded(text))).unwrap_or(Row::ABSENT)
}

fn bounded(text: &str) -> String {
    sanitized(text).collect()
}

/// Removes control characters and limits the length to the maximum length of names in the proxy.
fn sanitized(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|c| !c.is_control()).take(LONGEST_NAME)
}
