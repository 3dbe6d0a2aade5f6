//! Decisions of a random case.

/// Decisions taken from bytes. When these are used up every decision is the first one, which is the plainest: so a case
/// that fails shrinks to a plain one.
#[derive(Debug)]
pub struct Choices<'b> {
    bytes: std::slice::Iter<'b, u8>,
}

impl<'b> Choices<'b> {
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { bytes: bytes.iter() }
    }

    /// A number below `count`, which is at most 256.
    pub fn below(&mut self, count: usize) -> usize {
        self.bytes.next().map_or(0, |byte| usize::from(*byte) % count)
    }

    /// True once in so many times.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) + 1 == times
    }

    pub fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// One of what is left, which is then taken.
    pub fn take<T>(&mut self, list: &mut Vec<T>) -> T {
        let at = self.below(list.len());
        list.remove(at)
    }
}
