//! Divides a time range into slices of equal width, and distributes amounts such as tokens over the slices.

use crate::statistics::truncate;

/// A time range that is divided into slices of equal width.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TimeGrid {
    /// Start of the first slice, in nanoseconds since 1970.
    pub from: u64,
    /// Width of a slice in nanoseconds, greater than 0.
    pub width: u64,
    pub count: usize,
}

impl TimeGrid {
    /// Divides the time from `from` to `to` into `count` slices. The last slice may end after `to`. Returns `None` if
    /// the time range is empty.
    pub fn new(from: u64, to: u64, count: usize) -> Option<Self> {
        let span = to.checked_sub(from).filter(|span| *span > 0)?;
        let width = span.div_ceil(count.max(1) as u64);
        Some(Self { from, width, count })
    }

    pub const fn slice_start(&self, index: usize) -> u64 {
        self.from.saturating_add(self.width.saturating_mul(index as u64))
    }

    /// Returns the index of the slice that contains the time `at`. A time outside the range belongs to the first or
    /// the last slice.
    pub fn slice_index(&self, at: u64) -> usize {
        truncate(self.position(at)).min(self.count.saturating_sub(1))
    }

    /// Returns the time from the start of the range to `at`, in units of the slice width.
    fn position(&self, at: u64) -> f64 {
        at.saturating_sub(self.from) as f64 / self.width as f64
    }

    /// Returns the width of a slice in seconds.
    pub fn seconds(&self) -> f64 {
        self.width as f64 / 1e9
    }
}

/// Sums of amounts per time slice, such as tokens. An amount can cover many slices, but adding it takes constant time.
/// `within` contains the parts in its first and last slice. `changes` contains only the start and the end of the full
/// slices between them.
#[derive(Debug)]
pub struct SliceTotals {
    grid: TimeGrid,
    within: Vec<f64>,
    changes: Vec<f64>,
}

impl SliceTotals {
    pub fn new(grid: TimeGrid) -> Self {
        Self { grid, within: vec![0.0; grid.count], changes: vec![0.0; grid.count + 1] }
    }

    /// Distributes `amount` evenly over the time from `from` to `to`. If the time range is inside one slice, the whole
    /// amount is added to that slice.
    pub fn add(&mut self, from: u64, to: u64, amount: f64) {
        let (first, last) = (self.grid.slice_index(from), self.grid.slice_index(to));
        if first >= last {
            return increase(&mut self.within, first, amount);
        }
        let (begin, end) = (self.grid.position(from), self.grid.position(to));
        let density = amount / (end - begin);
        increase(&mut self.within, first, density * ((first + 1) as f64 - begin));
        // The last slice gets the rest, even if the time range extends beyond the grid.
        increase(&mut self.within, last, density * (end - last as f64));
        increase(&mut self.changes, first + 1, density);
        increase(&mut self.changes, last, -density);
    }

    /// Returns the sum in each slice.
    pub fn amounts(&self) -> Vec<f64> {
        let mut level = 0.0;
        let steps = self.within.iter().zip(&self.changes);
        steps
            .map(|(within, change)| {
                level += change;
                // Rounding errors of sums that cancel each other must not make an amount negative.
                f64::max(level + within, 0.0)
            })
            .collect()
    }
}

fn increase(values: &mut [f64], place: usize, by: f64) {
    if let Some(value) = values.get_mut(place) {
        *value += by;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn amounts(spans: &[(u64, u64, f64)]) -> Vec<f64> {
        let mut spread = SliceTotals::new(TimeGrid { from: 100, width: 10, count: 4 });
        for &(from, to, amount) in spans {
            spread.add(from, to, amount);
        }
        spread.amounts()
    }

    #[test]
    fn distributes_an_amount_by_time() {
        assert_eq!(amounts(&[(102, 104, 3.0)]), [3.0, 0.0, 0.0, 0.0]);
        assert_eq!(amounts(&[(105, 135, 6.0)]), [1.0, 2.0, 2.0, 1.0]);
        assert_eq!(amounts(&[(115, 125, 6.0)]), [0.0, 3.0, 3.0, 0.0]);
        assert_eq!(amounts(&[(120, 120, 6.0)]), [0.0, 0.0, 6.0, 0.0]);
        assert_eq!(amounts(&[(135, 140, 5.0)]), [0.0, 0.0, 0.0, 5.0]);
    }

    #[test]
    fn a_grid_needs_a_duration() {
        assert_eq!(TimeGrid::new(5, 5, 10), None);
        assert_eq!(TimeGrid::new(6, 5, 10), None);
        let grid = TimeGrid::new(5, 16, 2).unwrap();
        assert_eq!((grid.width, grid.slice_start(2)), (6, 17));
        assert_eq!([0, 5, 10, 11, 16, 99].map(|at| grid.slice_index(at)), [0, 0, 0, 1, 1, 1]);
    }

    proptest! {
        #[test]
        fn preserves_the_total(spans in proptest::collection::vec((0_u64..40, 0_u64..40, 0.0..9.0_f64), 0..20)) {
            let spans: Vec<_> = spans
                .into_iter()
                .map(|(a, b, amount)| (100 + a.min(b), 100 + a.max(b), amount))
                .collect();
            let total: f64 = spans.iter().map(|(_, _, amount)| amount).sum();
            let found: f64 = amounts(&spans).iter().sum();
            prop_assert!((found - total).abs() < 1e-9);
        }
    }
}
