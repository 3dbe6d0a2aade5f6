//! Numbers the calls of tools that each candidate makes: the format does not.

use crate::dialect::Part;

/// The most candidates whose calls are numbered apart; Google gives 8 at most.
const MOST_CANDIDATES: usize = 128;

/// How many calls each candidate has begun.
#[derive(Debug, Default)]
pub struct Calls(Vec<u32>);

impl Calls {
    /// The part that the next call's text belongs to.
    pub fn begin(&mut self, choice: u32) -> Part {
        if let Some(begun) = self.of(choice) {
            *begun = begun.saturating_add(1);
        }
        self.current(choice)
    }

    /// The part that more text of the latest call belongs to.
    pub fn current(&mut self, choice: u32) -> Part {
        let begun = self.of(choice).map_or(0, |begun| *begun);
        Part::Tool(begun.saturating_sub(1))
    }

    fn of(&mut self, choice: u32) -> Option<&mut u32> {
        let choice = usize::try_from(choice).ok().filter(|choice| *choice < MOST_CANDIDATES)?;
        if self.0.len() <= choice {
            self.0.resize(choice + 1, 0);
        }
        self.0.get_mut(choice)
    }
}
