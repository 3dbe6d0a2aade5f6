//! Parses a block of log lines into rows. The strings of the lines are stored separately and have ids.

use memchr::memchr;

use super::{Log, merge_ranges};
use crate::dimension::Selector;
use crate::interner::StringInterner;
use crate::key::{SEPARATOR, bounded, sanitized};
use crate::line::Line;
use crate::row::{Row, Side};
use crate::{Compare, Request};

/// Parses the lines of `block`. Returns the rows, and a log with the strings to which the ids in the rows refer. The
/// field `rows` of this log is empty.
pub(super) fn parse(block: &[u8], side: Side, request: &Request) -> (Log, Vec<Row>) {
    let (mut log, mut rows) = (Log::new(request), Vec::new());
    let mut key = String::new();
    let mut rest = block;
    while !rest.is_empty() {
        let end = memchr(b'\n', rest).unwrap_or(rest.len());
        let (line, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
        rest = after.get(1..).unwrap_or_default();
        if !line.trim_ascii().is_empty() {
            rows.extend(log.parse_line(line, side, request, &mut key));
        }
    }
    (log, rows)
}

impl Log {
    /// Counts a line and parses it. Returns the row if the line is an API call that matches the selectors. `key` is a
    /// reusable buffer.
    fn parse_line(
        &mut self,
        text: &[u8],
        side: Side,
        request: &Request,
        key: &mut String,
    ) -> Option<Row> {
        self.lines.read += 1;
        let Some(line) = Line::parse(text) else {
            self.lines.unreadable += 1;
            return None;
        };
        if line.call.is_none() {
            self.lines.plain += 1;
            return None;
        }
        let Some(mut row) = line.row() else {
            self.lines.unreadable += 1;
            return None;
        };
        self.starts = merge_ranges(self.starts, Some([row.start; 2]));
        if !request.period.contains(&row) {
            self.lines.outside += 1;
            return None;
        }
        if !request.only.iter().all(|selector| selector.matches(&line)) {
            self.lines.filtered += 1;
            for Selector { dimension, .. } in &request.only {
                if let Some(value) = dimension.value_of(&line) {
                    self.add_excluded(dimension.as_str(), &bounded(value));
                }
            }
            return None;
        }
        self.lines.calls += 1;
        if let Some(focus) = &mut self.focus {
            focus.add(&line, &row);
        }
        row.side = match &request.compare {
            Compare::Runs => side,
            Compare::Within { a, .. } if a.matches(&line) => Side::A,
            Compare::Within { b, .. } if b.matches(&line) => Side::B,
            Compare::Within { .. } | Compare::Nothing => Side::Neither,
        };
        row.finish = intern(&mut self.finishes, line.finish_reason());
        row.input_bucket = intern(&mut self.buckets, line.input_bucket());
        row.output_bucket = intern(&mut self.buckets, line.output_bucket());
        let cost = line.call.as_ref().and_then(|call| call.cost.as_ref());
        row.currency = intern(&mut self.currencies, cost.map(|cost| &*cost.currency));
        if let Some(hash) = line.config.as_ref().and_then(|config| config.hash.as_deref()) {
            self.add_config(&bounded(hash));
        }
        key.clear();
        group_key(key, &line, row.side, request);
        row.group = self.groups.intern(key);
        Some(row)
    }
}

/// Writes the key of the group to which a request belongs: one value per dimension. An absent value is an empty
/// string.
fn group_key(key: &mut String, line: &Line<'_>, side: Side, request: &Request) {
    let side = side.name().filter(|_| matches!(request.compare, Compare::Runs));
    let dimensions = request.by.iter().map(|dimension| dimension.value_of(line));
    for (place, value) in side.into_iter().map(Some).chain(dimensions).enumerate() {
        if place > 0 {
            key.push(SEPARATOR);
        }
        key.extend(value.into_iter().flat_map(sanitized));
    }
}

fn intern(interner: &mut StringInterner, text: Option<&str>) -> u16 {
    let Some(text) = text else { return Row::ABSENT };
    u16::try_from(interner.intern(&bounded(text))).unwrap_or(Row::ABSENT)
}
