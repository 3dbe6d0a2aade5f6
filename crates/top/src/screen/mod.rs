//! Draws the views into a buffer: on a terminal, or as plain text.

mod canvas;
mod help;
mod models;
mod now;
mod processes;
mod sessions;
mod slos;
mod streams;
mod table;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use self::canvas::{Canvas, Piece, Tone, plain};
use crate::format::{clock, width};
use crate::overview::Overview;
use crate::ui::{Ui, View};

/// What all views need besides the figures.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The time, for lengths of states.
    pub now_unix_ms: u64,
    pub has_colours: bool,
    /// Whether rows name their process.
    pub has_several_processes: bool,
    /// Lines about the program that shows the view, such as addresses of the demo. The first one is always on the
    /// screen, and the help has all.
    pub notes: Vec<String>,
}

/// Draws the view that `ui` selects.
pub fn draw(buffer: &mut Buffer, area: Rect, overview: &Overview, ui: &Ui, context: &Context) {
    let mut canvas = Canvas::new(buffer, area, context.has_colours);
    header(&mut canvas, overview, ui, context);
    footer(&mut canvas, ui, context);
    if ui.has_help {
        return help::draw(&mut canvas, context);
    }
    body(&mut canvas, overview, ui, context);
}

/// Renders a view as plain text of `columns` columns, with as many lines as it needs.
pub fn plain_text(overview: &Overview, view: View, columns: u16, context: &Context) -> String {
    let lines = match view {
        View::Now => NOW_LINES,
        View::Models | View::Streams | View::Slos | View::Sessions => MAX_PLAIN_LINES,
    };
    let area = Rect::new(0, 0, columns, lines);
    let mut buffer = Buffer::empty(area);
    let mut canvas = Canvas::new(&mut buffer, area, false);
    let ui = Ui::new(view);
    canvas.line(title(overview, context));
    canvas.blank();
    body(&mut canvas, overview, &ui, context);
    text(&buffer)
}

/// Number of lines of the view Now as plain text: those of a large screen.
const NOW_LINES: u16 = 50;

/// Maximum number of lines of plain text. A buffer of this height takes a few megabytes.
const MAX_PLAIN_LINES: u16 = 500;

/// Returns the text of a buffer without trailing spaces and lines.
fn text(buffer: &Buffer) -> String {
    let columns = usize::from(buffer.area.width).max(1);
    let mut text = String::new();
    for row in buffer.content.chunks(columns) {
        let mut line = String::new();
        let mut hidden = 0;
        for cell in row {
            // The cell after a wide character is empty.
            if hidden == 0 {
                line.push_str(cell.symbol());
                hidden = width(cell.symbol());
            }
            hidden = hidden.saturating_sub(1);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    format!("{}\n", text.trim_end())
}

fn body(canvas: &mut Canvas<'_>, overview: &Overview, ui: &Ui, context: &Context) {
    match ui.view {
        View::Now => now::draw(canvas, overview, ui, context),
        View::Models => models::draw(canvas, overview, ui, context),
        View::Streams => streams::draw(canvas, overview, ui, context),
        View::Slos => slos::draw(canvas, overview, ui, context),
        View::Sessions => sessions::draw(canvas, overview, ui, context),
    }
}

fn header(canvas: &mut Canvas<'_>, overview: &Overview, ui: &Ui, context: &Context) {
    let state = if ui.is_paused { "PAUSED: p continues" } else { "" };
    canvas.line_with_end(title(overview, context), state);
    let tabs = View::ALL.iter().zip(1..).flat_map(|(view, digit)| {
        let tone = if *view == ui.view { Tone::Selected } else { Tone::Plain };
        [(format!(" {digit} {} ", view.title()), tone), plain(" ")]
    });
    canvas.line(tabs.collect::<Vec<_>>());
    canvas.blank();
}

fn title(overview: &Overview, context: &Context) -> Vec<Piece> {
    let processes = match overview.processes.as_slice() {
        [one] if one.name.as_str() == one.address => one.address.clone(),
        [one] => format!("{} · {}", one.name, one.address),
        all => format!("{} processes", all.len()),
    };
    let mut pieces = vec![("tokengauge top".to_owned(), Tone::Title), plain(" · ")];
    pieces.push(plain(format!("{} UTC · {processes}", clock(context.now_unix_ms))));
    let unreachable = overview.unreachable();
    if unreachable > 0 && overview.processes.len() > 1 {
        pieces.push((format!(", {unreachable} unreachable"), Tone::Bad));
    }
    if overview.processes_left_out > 0 {
        let text = format!(", {} more left out", overview.processes_left_out);
        pieces.push((text, Tone::Warning));
    }
    pieces
}

fn footer(canvas: &mut Canvas<'_>, ui: &Ui, context: &Context) {
    let note = context.notes.first();
    let mut bottom = canvas.split_bottom(if note.is_some() { 2 } else { 1 });
    if let Some(note) = note {
        bottom.line([(note.clone(), Tone::Faint)]);
    }
    if ui.is_editing {
        let text = format!("filter: {}_   Enter keeps it, Esc removes it", ui.filter);
        return bottom.text(text);
    }
    let mut keys =
        vec![("q quit  ? help  1-5 views  / filter  s sort  p pause".to_owned(), Tone::Faint)];
    if !ui.filter.is_empty() {
        keys.push((format!("   filter: {} (Esc removes it)", ui.filter), Tone::Warning));
    }
    bottom.line(keys);
}

#[cfg(test)]
mod tests;
