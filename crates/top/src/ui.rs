//! What the user has chosen: view, sorting, filter and position. Keys change it.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The views, in the order of their keys.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum View {
    #[default]
    Now,
    Models,
    Streams,
    Slos,
    Sessions,
}

impl View {
    pub const ALL: [Self; 5] = [Self::Now, Self::Models, Self::Streams, Self::Slos, Self::Sessions];

    pub const fn title(self) -> &'static str {
        match self {
            Self::Now => "Now",
            Self::Models => "Models",
            Self::Streams => "Streams",
            Self::Slos => "SLOs",
            Self::Sessions => "Sessions",
        }
    }

    fn offset(self, by: usize) -> Self {
        let position = Self::ALL.iter().position(|view| *view == self).unwrap_or(0);
        Self::ALL.iter().copied().cycle().nth(position + by).unwrap_or_default()
    }
}

/// Maximum length of the filter in characters: longer than any name on the screen.
const MAX_FILTER: usize = 64;

/// Number of rows for the keys page up and page down.
const PAGE: usize = 10;

#[derive(Clone, Debug, Default)]
pub struct Ui {
    pub view: View,
    pub filter: String,
    /// Whether keys are text of the filter.
    pub is_editing: bool,
    pub has_help: bool,
    pub is_paused: bool,
    /// Number of rows above the first one on the screen.
    pub scroll: usize,
    /// Column of the table's order. `None` is the order of the view.
    pub sort: Option<usize>,
    pub is_reversed: bool,
}

/// What follows from a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    Continue,
    Quit,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "most keys have no meaning")]
impl Ui {
    /// Creates the state of a view.
    pub fn new(view: View) -> Self {
        Self { view, ..Self::default() }
    }

    pub fn press(&mut self, key: KeyEvent) -> Action {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            return Action::Quit;
        }
        if self.is_editing {
            self.edit(key.code);
            return Action::Continue;
        }
        if self.has_help {
            self.has_help = false;
            let closes = matches!(key.code, KeyCode::Char('q' | '?') | KeyCode::Esc);
            if closes {
                return Action::Continue;
            }
        }
        match key.code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('?' | 'h') => self.has_help = true,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('/') => self.is_editing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('s') => self.sort = Some(self.sort.map_or(0, |column| column + 1)),
            KeyCode::Char('S') => self.sort = self.sort.and_then(|column| column.checked_sub(1)),
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            code => self.navigate(code),
        }
        Action::Continue
    }

    fn edit(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_editing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.is_editing = false;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if !c.is_control() && self.filter.chars().count() < MAX_FILTER => {
                self.filter.push(c);
                self.scroll = 0;
            }
            _ => {}
        }
    }

    fn navigate(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(digit @ '1'..='5') => {
                let position = digit.to_digit(10).unwrap_or(1) as usize;
                self.show(View::Now.offset(position - 1));
            }
            KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => self.show(self.view.offset(1)),
            KeyCode::BackTab | KeyCode::Left => self.show(self.view.offset(View::ALL.len() - 1)),
            KeyCode::Down | KeyCode::Char('j') => self.scroll += 1,
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll += PAGE,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(PAGE),
            KeyCode::Home | KeyCode::Char('g') => self.scroll = 0,
            KeyCode::End | KeyCode::Char('G') => self.scroll = usize::MAX / 2,
            _ => {}
        }
    }

    fn show(&mut self, view: View) {
        let (filter, is_paused) = (std::mem::take(&mut self.filter), self.is_paused);
        *self = Self { view, filter, is_paused, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(ui: &mut Ui, keys: &[KeyCode]) -> Action {
        let pressed = keys.iter().map(|code| ui.press(KeyEvent::new(*code, KeyModifiers::NONE)));
        pressed.last().unwrap()
    }

    fn text(text: &str) -> Vec<KeyCode> {
        text.chars().map(KeyCode::Char).collect()
    }

    #[test]
    fn digits_and_tabs_change_the_view() {
        let mut ui = Ui::default();
        press(&mut ui, &text("4"));
        assert_eq!(ui.view, View::Slos);
        press(&mut ui, &[KeyCode::Tab, KeyCode::Tab]);
        assert_eq!(ui.view, View::Now);
        press(&mut ui, &[KeyCode::BackTab]);
        assert_eq!(ui.view, View::Sessions);
    }

    #[test]
    fn a_filter_is_edited_and_cleared() {
        let mut ui = Ui::default();
        press(&mut ui, &text("/gpq"));
        press(&mut ui, &[KeyCode::Backspace]);
        assert_eq!((ui.filter.as_str(), ui.is_editing), ("gp", true), "q is text");
        press(&mut ui, &[KeyCode::Enter, KeyCode::Char('2')]);
        assert_eq!((ui.filter.as_str(), ui.view), ("gp", View::Models), "stays for other views");
        press(&mut ui, &[KeyCode::Esc]);
        assert!(ui.filter.is_empty());
        press(&mut ui, &text(&format!("/{}", "x".repeat(500))));
        assert_eq!(ui.filter.len(), MAX_FILTER);
    }

    #[test]
    fn quits_by_q_and_control_c_at_any_time() {
        let mut ui = Ui::default();
        assert_eq!(press(&mut ui, &text("?q")), Action::Continue, "closes the help");
        assert_eq!(press(&mut ui, &text("q")), Action::Quit);
        press(&mut ui, &text("/"));
        assert_eq!(
            ui.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)),
            Action::Quit
        );
    }

    #[test]
    fn sorts_by_the_next_and_the_previous_column() {
        let mut ui = Ui::default();
        press(&mut ui, &text("ss"));
        assert_eq!(ui.sort, Some(1));
        press(&mut ui, &text("SS"));
        assert_eq!(ui.sort, None);
        press(&mut ui, &text("rjjk"));
        assert_eq!((ui.is_reversed, ui.scroll), (true, 1));
    }
}
