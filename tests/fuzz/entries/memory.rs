//! Measures the memory that code holds, by counting requests to the allocator. The measured code needs no changes.

/// Memory held by code that runs within [`Meter::during`], accumulated over its runs.
#[derive(Debug, Default)]
pub struct Meter {
    held: i64,
}

impl Meter {
    /// Runs `run` and counts the memory that it allocates and does not free.
    pub fn during<T>(&mut self, run: impl FnOnce() -> T) -> T {
        let mut result = None;
        let counted = allocation_counter::measure(|| result = Some(run()));
        self.held += counted.bytes_current;
        result.expect("the closure ran")
    }

    pub fn held(&self) -> usize {
        usize::try_from(self.held).unwrap_or(0)
    }

    pub fn assert_holds_at_most(&self, most: usize, what: &str) {
        let most = i64::try_from(most).expect("a bound fits");
        assert!(self.held <= most, "{what}: {} held of {most}", self.held);
    }
}

/// Runs code of the test itself, without counting its memory.
pub fn aside(run: impl FnOnce()) {
    allocation_counter::opt_out(run);
}
