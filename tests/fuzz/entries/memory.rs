//! How much memory something holds, by what it asked the allocator for: nothing under test takes part in the counting.

/// Memory held by what runs within [`Meter::during`], from run to run.
#[derive(Debug, Default)]
pub struct Meter {
    held: i64,
}

impl Meter {
    /// Runs `run`; what it allocates and does not free is held.
    pub fn during<T>(&mut self, run: impl FnOnce() -> T) -> T {
        let mut result = None;
        let counted = allocation_counter::measure(|| result = Some(run()));
        self.held += counted.bytes_current;
        result.expect("it was run")
    }

    pub fn held(&self) -> usize {
        usize::try_from(self.held).unwrap_or(0)
    }

    pub fn assert_holds_at_most(&self, most: usize, what: &str) {
        let most = i64::try_from(most).expect("a bound fits");
        assert!(self.held <= most, "{what}: {} held of {most}", self.held);
    }
}

/// Runs what belongs to the checking and not to what is checked: it does not count.
pub fn aside(run: impl FnOnce()) {
    allocation_counter::opt_out(run);
}
