//! Drawing over what was drawn before.

use std::io::{self, Write};

/// A part of the terminal that is drawn anew each time.
#[derive(Debug, Default)]
pub struct Screen {
    /// Lines that stand there now.
    lines: usize,
}

impl Screen {
    /// Replaces what was drawn before by `text`, in one write so that it does not flicker.
    ///
    /// # Errors
    /// Where `out` cannot be written to.
    pub fn draw(&mut self, text: &str, out: &mut impl Write) -> io::Result<()> {
        let mut frame = String::with_capacity(text.len() + 16);
        if self.lines > 0 {
            // Cursor up to the first line, its first column; erase from there to the end.
            frame.push_str(&format!("\x1b[{}F", self.lines));
        }
        frame.push_str("\x1b[J");
        frame.push_str(text);
        self.lines = text.lines().count();
        out.write_all(frame.as_bytes())?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_drawing_covers_the_first() {
        let (mut screen, mut out) = (Screen::default(), Vec::new());
        screen.draw("one\ntwo\n", &mut out).unwrap();
        screen.draw("three\n", &mut out).unwrap();
        screen.draw("four\n", &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "\x1b[Jone\ntwo\n\x1b[2F\x1b[Jthree\n\x1b[1F\x1b[Jfour\n");
    }
}
