//! A table that fits the screen: a narrow one has fewer columns instead of cut values.

use std::cmp::Ordering;

use super::Context;
use super::canvas::{Canvas, Piece, Tone};
use crate::format::{pad, width};
use crate::ui::Ui;

/// What rows are sorted by. Undefined values come last in either direction.
pub enum Key {
    Number(Option<f64>),
    Text(Option<String>),
}

impl Key {
    /// Compares in the usual order of a column: numbers from high to low, text from A to Z.
    fn compare(&self, other: &Self, is_reversed: bool) -> Ordering {
        let directed = |order: Ordering| if is_reversed { order.reverse() } else { order };
        match (self, other) {
            (Self::Number(Some(a)), Self::Number(Some(b))) => directed(b.total_cmp(a)),
            (Self::Text(Some(a)), Self::Text(Some(b))) => directed(a.cmp(b)),
            (a, b) => a.is_undefined().cmp(&b.is_undefined()),
        }
    }

    const fn is_undefined(&self) -> bool {
        matches!(self, Self::Number(None) | Self::Text(None))
    }
}

/// A column of rows of type `T`.
pub struct Column<T> {
    pub title: &'static str,
    pub width: Width,
    /// On a narrow screen, columns with the highest ranks are left out first.
    pub rank: u8,
    pub cell: fn(&T, &Context) -> Piece,
    pub key: fn(&T) -> Key,
}

#[derive(Clone, Copy)]
pub enum Width {
    /// Right-aligned, of this width.
    Number(usize),
    /// Left-aligned. Takes what other columns leave, at least the first and at most the second width.
    Text(usize, usize),
}

impl Width {
    const fn minimum(self) -> usize {
        match self {
            Self::Number(width) | Self::Text(width, _) => width + 1,
        }
    }
}

/// Draws the rows that match the filter, in the chosen order.
pub fn draw<T>(
    canvas: &mut Canvas<'_>,
    columns: &[Column<T>],
    rows: &[T],
    ui: &Ui,
    context: &Context,
) {
    let rows = arranged(columns, rows, ui, context);
    let shown = fitting(columns, canvas.width());
    let widths = widths(&shown, &rows, canvas.width(), context);
    let sorted = ui.sort.map(|index| index % columns.len().max(1));
    let head = shown.iter().zip(&widths).map(|((index, column), columns)| {
        let is_sorted = sorted == Some(*index);
        let arrow = match (is_sorted, ui.is_reversed) {
            (false, _) => "",
            (true, false) => "▼",
            (true, true) => "▲",
        };
        (cell(&format!("{}{arrow}", column.title), *columns, column.width), Tone::Title)
    });
    canvas.line(head.collect::<Vec<_>>());
    if rows.is_empty() {
        let text =
            if ui.filter.is_empty() { "nothing to show" } else { "no row matches the filter" };
        return canvas.line([(text.to_owned(), Tone::Faint)]);
    }
    let fitting_rows = canvas.height();
    // One line less, for the number of rows that do not fit.
    let all_fit = rows.len() <= fitting_rows;
    let visible = if all_fit { rows.len() } else { fitting_rows.saturating_sub(1) };
    let scroll = ui.scroll.min(rows.len() - visible);
    let end = rows.len().min(scroll + visible);
    for row in rows.iter().skip(scroll).take(visible) {
        let cells = shown.iter().zip(&widths).map(|((_, column), columns)| {
            let (text, tone) = (column.cell)(row, context);
            (cell(&text, *columns, column.width), tone)
        });
        canvas.line(cells.collect::<Vec<_>>());
    }
    if !all_fit {
        let text = format!("rows {} to {end} of {}; j and k scroll", scroll + 1, rows.len());
        canvas.line([(text, Tone::Faint)]);
    }
}

/// Returns the rows that match the filter, in the chosen order.
fn arranged<'a, T>(columns: &[Column<T>], rows: &'a [T], ui: &Ui, context: &Context) -> Vec<&'a T> {
    let filter = ui.filter.to_lowercase();
    let matches = |row: &&T| {
        let mut cells = columns.iter().map(|column| (column.cell)(row, context).0);
        filter.is_empty() || cells.any(|text| text.to_lowercase().contains(&filter))
    };
    let mut rows: Vec<&T> = rows.iter().filter(matches).collect();
    let sorted = ui.sort.and_then(|index| columns.get(index % columns.len().max(1)));
    match sorted {
        Some(column) => {
            rows.sort_by(|a, b| (column.key)(a).compare(&(column.key)(b), ui.is_reversed));
        }
        None if ui.is_reversed => rows.reverse(),
        None => {}
    }
    rows
}

/// Returns the columns that fit, with their indexes. The lowest ranks come first; the first column is always shown.
fn fitting<T>(columns: &[Column<T>], available: usize) -> Vec<(usize, &Column<T>)> {
    let mut ranked: Vec<(usize, &Column<T>)> = columns.iter().enumerate().collect();
    ranked.sort_by_key(|(index, column)| (column.rank, *index));
    let mut used = 0;
    ranked.retain(|(index, column)| {
        let needed = used + column.width.minimum();
        let fits = needed <= available || *index == 0;
        if fits {
            used = needed;
        }
        fits
    });
    ranked.sort_by_key(|(index, _)| *index);
    ranked
}

/// Returns the width of each column, one space included. Text columns share what numbers leave.
fn widths<T>(
    shown: &[(usize, &Column<T>)],
    rows: &[&T],
    available: usize,
    context: &Context,
) -> Vec<usize> {
    let minimum: usize = shown.iter().map(|(_, column)| column.width.minimum()).sum();
    let mut left = available.saturating_sub(minimum);
    let mut widths = Vec::with_capacity(shown.len());
    for (_, column) in shown {
        let extra = match column.width {
            Width::Number(_) => 0,
            Width::Text(from, to) => {
                let texts = rows.iter().map(|row| width(&(column.cell)(row, context).0));
                let longest = texts.max().unwrap_or(0).max(width(column.title) + 1);
                longest.clamp(from, to.max(from)).saturating_sub(from).min(left)
            }
        };
        left -= extra;
        widths.push(column.width.minimum() + extra);
    }
    widths
}

/// Returns the text of a cell with a space that separates it from the next one.
fn cell(text: &str, columns: usize, width: Width) -> String {
    let is_number = matches!(width, Width::Number(_));
    format!("{} ", pad(text, columns.saturating_sub(1), is_number))
}
