//! Redraws a part of the terminal.

use std::io::{self, Write};

/// A part of the terminal that is redrawn in place.
#[derive(Debug, Default)]
pub struct Screen {
    /// Number of lines drawn last.
    lines: usize,
}

impl Screen {
    /// Replaces the previous drawing by `text`, in one write to avoid flicker.
    ///
    /// # Errors
    /// Returns an error if `out` is not writable.
    pub fn draw(&mut self, text: &str, out: &mut impl Write) -> io::Result<()> {
        let mut frame = String::with_capacity(text.len() + 16);
        if self.lines > 0 {
            // Moves the cursor to the first line; then everything below it is erased.
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
    fn replaces_the_previous_drawing() {
        let (mut screen, mut out) = (Screen::default(), Vec::new());
        screen.draw("one\ntwo\n", &mut out).unwrap();
        screen.draw("three\n", &mut out).unwrap();
        screen.draw("four\n", &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "\x1b[Jone\ntwo\n\x1b[2F\x1b[Jthree\n\x1b[1F\x1b[Jfour\n");
    }
}
