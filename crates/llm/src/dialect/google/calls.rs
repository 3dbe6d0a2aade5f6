//! Numbers the tool calls of each candidate, which the format does not.

use crate::dialect::Part;

/// The most candidates whose calls are numbered separately. Google allows 8.
const MOST_CANDIDATES: usize = 128;

/// How many calls each candidate has.
#[derive(Debug, Default)]
pub struct CandidateCalls(Vec<u32>);

impl CandidateCalls {
    /// Begins a call and returns the part of its arguments.
    pub fn begin(&mut self, choice: u32) -> Part {
        if let Some(calls) = self.of(choice) {
            *calls = calls.saturating_add(1);
        }
        self.current(choice)
    }

    /// Returns the part of the arguments of the latest call.
    pub fn current(&mut self, choice: u32) -> Part {
        Part::Tool(self.number(choice))
    }

    /// Returns the number of the latest call.
    pub fn number(&mut self, choice: u32) -> u32 {
        self.of(choice).map_or(0, |calls| calls.saturating_sub(1))
    }

    fn of(&mut self, choice: u32) -> Option<&mut u32> {
        let choice = usize::try_from(choice).ok().filter(|choice| *choice < MOST_CANDIDATES)?;
        if self.0.len() <= choice {
            self.0.resize(choice + 1, 0);
        }
        self.0.get_mut(choice)
    }
}
