//! A part of the screen that is filled from top to bottom, one line at a time.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::format::width;

/// The meaning of a text. Each has a colour, and an attribute for terminals without colours.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Tone {
    #[default]
    Plain,
    Title,
    Faint,
    Good,
    Warning,
    Bad,
    Selected,
}

impl Tone {
    fn style(self, has_colours: bool) -> Style {
        let (colour, modifier) = match self {
            Self::Plain => (None, Modifier::empty()),
            Self::Title => (None, Modifier::BOLD),
            Self::Faint => (None, Modifier::DIM),
            Self::Good => (Some(Color::Green), Modifier::empty()),
            Self::Warning => (Some(Color::Yellow), Modifier::empty()),
            Self::Bad => (Some(Color::Red), Modifier::BOLD),
            Self::Selected => (None, Modifier::REVERSED),
        };
        let style = Style::new().add_modifier(modifier);
        colour.filter(|_| has_colours).map_or(style, |colour| style.fg(colour))
    }
}

/// Text with a meaning.
pub type Piece = (String, Tone);

/// Returns text without a meaning of its own.
pub fn plain(text: impl Into<String>) -> Piece {
    (text.into(), Tone::Plain)
}

pub struct Canvas<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    has_colours: bool,
}

impl<'a> Canvas<'a> {
    pub fn new(buffer: &'a mut Buffer, area: Rect, has_colours: bool) -> Self {
        Self { buffer, area, has_colours }
    }

    pub fn width(&self) -> usize {
        usize::from(self.area.width)
    }

    /// Returns the number of lines that are left.
    pub fn height(&self) -> usize {
        usize::from(self.area.height)
    }

    /// Reserves `lines` lines at the bottom, which [`line`](Self::line) does not use. Returns them.
    pub fn split_bottom(&mut self, lines: u16) -> Canvas<'_> {
        let lines = lines.min(self.area.height);
        self.area.height -= lines;
        let area = Rect { y: self.area.bottom(), height: lines, ..self.area };
        Canvas { buffer: self.buffer, area, has_colours: self.has_colours }
    }

    /// Takes `lines` lines from the top, at most those that are left.
    pub fn split_top(&mut self, lines: usize) -> Canvas<'_> {
        let lines = u16::try_from(lines).unwrap_or(u16::MAX).min(self.area.height);
        let area = Rect { height: lines, ..self.area };
        self.area.y += lines;
        self.area.height -= lines;
        Canvas { buffer: self.buffer, area, has_colours: self.has_colours }
    }

    /// Writes a line. What does not fit into the width is cut off. Without a line left, nothing is written.
    pub fn line(&mut self, pieces: impl IntoIterator<Item = Piece>) {
        self.line_with_end(pieces, "");
    }

    /// Writes a line with a text at its right end, if this text fits.
    pub fn line_with_end(&mut self, pieces: impl IntoIterator<Item = Piece>, end: &str) {
        if self.area.height == 0 {
            return;
        }
        let spans = pieces.into_iter();
        let line: Line<'_> =
            spans.map(|(text, tone)| Span::styled(text, tone.style(self.has_colours))).collect();
        let used = line.spans.iter().map(|span| width(&span.content)).sum::<usize>();
        let Rect { x, y, width: columns, .. } = self.area;
        self.buffer.set_line(x, y, &line, columns);
        let start = self.width().saturating_sub(width(end));
        if !end.is_empty() && used < start {
            let start = x.saturating_add(u16::try_from(start).unwrap_or(u16::MAX));
            self.buffer.set_string(start, y, end, Tone::Faint.style(self.has_colours));
        }
        self.area.y += 1;
        self.area.height -= 1;
    }

    pub fn blank(&mut self) {
        self.line([]);
    }

    pub fn text(&mut self, text: impl Into<String>) {
        self.line([plain(text)]);
    }
}
