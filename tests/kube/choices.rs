//! Random choices for generated test cases.

/// Choices that are read from bytes. When no bytes are left, every choice is the first option, which is the simplest. A
/// failing case therefore shrinks to a simple case.
#[derive(Debug)]
pub struct Choices<'b> {
    bytes: std::slice::Iter<'b, u8>,
}

impl<'b> Choices<'b> {
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { bytes: bytes.iter() }
    }

    /// Returns a number below `count`, which is at most 256.
    pub fn below(&mut self, count: usize) -> usize {
        self.bytes.next().map_or(0, |byte| usize::from(*byte) % count)
    }

    /// Returns `true` in one of `times` cases.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) + 1 == times
    }

    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// Removes and returns one element.
    pub fn take<T>(&mut self, list: &mut Vec<T>) -> T {
        let at = self.below(list.len());
        list.remove(at)
    }
}
