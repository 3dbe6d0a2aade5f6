//! A block of lines → rows, with numbers of its own for the texts in them.

use memchr::memchr;

use super::{Lines, MOST_CONFIGS, MOST_GROUPS, MOST_WORDS, SEPARATOR, Selection, Sides};
use crate::line::Line;
use crate::row::{Row, Side};
use crate::texts::Texts;
use tokengauge_types::label::LONGEST_NAME;

/// The rows of one block.
pub(super) struct Batch {
    pub(super) rows: Vec<Row>,
    pub(super) groups: Texts,
    pub(super) finishes: Texts,
    pub(super) currencies: Texts,
    pub(super) bands: Texts,
    pub(super) configs: Texts,
    pub(super) lines: Lines,
}

impl Batch {
    pub(super) fn parse(block: &[u8], side: Side, selection: &Selection) -> Self {
        let mut batch = Self {
            rows: Vec::new(),
            groups: Texts::new(MOST_GROUPS),
            finishes: Texts::new(MOST_WORDS),
            currencies: Texts::new(MOST_WORDS),
            bands: Texts::new(MOST_WORDS),
            configs: Texts::new(MOST_CONFIGS),
            lines: Lines::default(),
        };
        let mut key = String::new();
        let mut rest = block;
        while !rest.is_empty() {
            let end = memchr(b'\n', rest).unwrap_or(rest.len());
            let (line, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
            rest = after.get(1..).unwrap_or_default();
            if !line.trim_ascii().is_empty() {
                batch.line(line, side, selection, &mut key);
            }
        }
        batch
    }

    fn line(&mut self, text: &[u8], side: Side, selection: &Selection, key: &mut String) {
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
        if !selection.only.iter().all(|selector| selector.holds(&line)) {
            self.lines.filtered += 1;
            return;
        }
        self.lines.calls += 1;
        row.side = match &selection.sides {
            Sides::None => Side::Neither,
            Sides::ByFile => side,
            Sides::By { a, .. } if a.holds(&line) => Side::A,
            Sides::By { b, .. } if b.holds(&line) => Side::B,
            Sides::By { .. } => Side::Neither,
        };
        self.texts(&mut row, &line);
        key.clear();
        group(key, &line, row.side, selection);
        row.group = self.groups.id(key);
        self.rows.push(row);
    }

    fn texts(&mut self, row: &mut Row, line: &Line<'_>) {
        row.finish = word(&mut self.finishes, line.finish());
        row.input_band = word(&mut self.bands, line.input_band());
        row.output_band = word(&mut self.bands, line.output_band());
        let cost = line.call.as_ref().and_then(|call| call.cost.as_ref());
        row.currency = word(&mut self.currencies, cost.map(|cost| &*cost.currency));
        if let Some(hash) = line.config.as_ref().and_then(|config| config.hash.as_deref()) {
            self.configs.id(&shortened(hash));
        }
    }
}

/// The values of a row's group, of which those that are absent are empty.
fn group(key: &mut String, line: &Line<'_>, side: Side, selection: &Selection) {
    if let Sides::ByFile = selection.sides {
        key.push_str(match side {
            Side::Neither => "",
            Side::A => "A",
            Side::B => "B",
        });
        if !selection.by.is_empty() {
            key.push(SEPARATOR);
        }
    }
    for (place, dimension) in selection.by.iter().enumerate() {
        if place > 0 {
            key.push(SEPARATOR);
        }
        if let Some(value) = dimension.of(line) {
            key.extend(kept(value));
        }
    }
}

fn word(words: &mut Texts, text: Option<&str>) -> u16 {
    let Some(text) = text else {
        return Row::ABSENT;
    };
    u16::try_from(words.id(&shortened(text))).unwrap_or(Row::ABSENT)
}

fn shortened(text: &str) -> String {
    kept(text).collect()
}

/// What is kept of a text from a file: no control characters, and no more than of a name that crosses the proxy.
fn kept(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|c| !c.is_control()).take(LONGEST_NAME)
}
