//! Which tool call a content block is, in formats that number all blocks of a message alike.

/// The most tool calls that are told apart in one answer; more are counted with the last. Agents ask for a few dozen.
const MOST_CALLS: usize = 256;

/// The blocks that are tool calls, in the order in which they came.
#[derive(Debug, Default)]
pub struct Blocks {
    /// The index of each, until another block takes it over.
    calls: Vec<Option<u64>>,
}

impl Blocks {
    /// A block begins: whatever had its index before is over.
    pub fn begin(&mut self, index: u64) {
        for call in &mut self.calls {
            *call = call.filter(|known| *known != index);
        }
    }

    /// The number of the tool call, from 0, that the block with this index is.
    pub fn call(&mut self, index: u64) -> u32 {
        let known = self.calls.iter().position(|known| *known == Some(index));
        let number = known.unwrap_or_else(|| {
            if self.calls.len() < MOST_CALLS {
                self.calls.push(Some(index));
            }
            self.calls.len() - 1
        });
        u32::try_from(number).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_numbered_as_they_come() {
        let mut blocks = Blocks::default();
        blocks.begin(0);
        blocks.begin(1);
        assert_eq!((blocks.call(1), blocks.call(1)), (0, 0));
        assert_eq!((blocks.call(3), blocks.call(1), blocks.call(3)), (1, 0, 1));
        blocks.begin(1);
        assert_eq!((blocks.call(1), blocks.call(3)), (2, 1));
    }

    #[test]
    fn their_number_is_bounded() {
        let mut blocks = Blocks::default();
        for index in 0..1000 {
            blocks.call(index);
        }
        assert_eq!(blocks.calls.len(), MOST_CALLS);
        assert_eq!(blocks.call(5000), 255);
    }
}
