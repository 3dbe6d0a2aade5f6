//! Time cut into slices of one width, and amounts spread over them.

use crate::statistics::whole;

/// A span of time in equal slices.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Grid {
    /// Nanoseconds since 1970.
    pub from: u64,
    /// Nanoseconds; not 0.
    pub width: u64,
    pub count: usize,
}

impl Grid {
    /// `count` slices that reach from `from` to `to`, the last one perhaps further. `None` where there is no time
    /// between the two.
    pub fn over(from: u64, to: u64, count: usize) -> Option<Self> {
        let span = to.checked_sub(from).filter(|span| *span > 0)?;
        let width = span.div_ceil(count.max(1) as u64);
        Some(Self { from, width, count })
    }

    /// Where slice `index` begins.
    pub const fn at(&self, index: usize) -> u64 {
        self.from.saturating_add(self.width.saturating_mul(index as u64))
    }

    /// The slice that an instant falls into: the first or the last for what lies outside.
    pub fn slice(&self, at: u64) -> usize {
        whole(self.place(at)).min(self.count.saturating_sub(1))
    }

    /// In slices since the beginning.
    fn place(&self, at: u64) -> f64 {
        at.saturating_sub(self.from) as f64 / self.width as f64
    }

    /// The width of a slice in seconds.
    pub fn seconds(&self) -> f64 {
        self.width as f64 / 1e9
    }
}

/// Amounts per slice, each spread evenly from one instant to another in constant time: what lies within one slice goes
/// there, whole slices in between are kept as a rise and a fall.
#[derive(Debug)]
pub struct Spread {
    grid: Grid,
    within: Vec<f64>,
    changes: Vec<f64>,
}

impl Spread {
    pub fn new(grid: Grid) -> Self {
        Self { grid, within: vec![0.0; grid.count], changes: vec![0.0; grid.count + 1] }
    }

    /// Spreads `amount` evenly over `from` … `to`; all of it falls on `from` where there is no time between the two.
    pub fn add(&mut self, from: u64, to: u64, amount: f64) {
        let (first, last) = (self.grid.slice(from), self.grid.slice(to));
        if first >= last {
            return self.put(first, amount);
        }
        let (begin, end) = (self.grid.place(from), self.grid.place(to));
        let density = amount / (end - begin);
        self.put(first, density * ((first + 1) as f64 - begin));
        // The last slice takes the rest, which may reach past the grid.
        self.put(last, density * (end - last as f64));
        self.change(first + 1, density);
        self.change(last, -density);
    }

    fn put(&mut self, slice: usize, amount: f64) {
        if let Some(value) = self.within.get_mut(slice) {
            *value += amount;
        }
    }

    fn change(&mut self, slice: usize, by: f64) {
        if let Some(value) = self.changes.get_mut(slice) {
            *value += by;
        }
    }

    /// The amount in each slice.
    pub fn amounts(&self) -> Vec<f64> {
        let mut level = 0.0;
        let steps = self.within.iter().zip(&self.changes);
        steps
            .map(|(within, change)| {
                level += change;
                // What is left of sums that cancel must not become less than nothing.
                f64::max(level + within, 0.0)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn amounts(spans: &[(u64, u64, f64)]) -> Vec<f64> {
        let mut spread = Spread::new(Grid { from: 100, width: 10, count: 4 });
        for &(from, to, amount) in spans {
            spread.add(from, to, amount);
        }
        spread.amounts()
    }

    #[test]
    fn an_amount_falls_on_slices_by_the_time_in_each() {
        assert_eq!(amounts(&[(102, 104, 3.0)]), [3.0, 0.0, 0.0, 0.0]);
        assert_eq!(amounts(&[(105, 135, 6.0)]), [1.0, 2.0, 2.0, 1.0]);
        assert_eq!(amounts(&[(115, 125, 6.0)]), [0.0, 3.0, 3.0, 0.0]);
        assert_eq!(amounts(&[(120, 120, 6.0)]), [0.0, 0.0, 6.0, 0.0]);
        assert_eq!(amounts(&[(135, 140, 5.0)]), [0.0, 0.0, 0.0, 5.0]);
    }

    #[test]
    fn a_grid_needs_time() {
        assert_eq!(Grid::over(5, 5, 10), None);
        assert_eq!(Grid::over(6, 5, 10), None);
        let grid = Grid::over(5, 16, 2).unwrap();
        assert_eq!((grid.width, grid.at(2)), (6, 17));
        assert_eq!([0, 5, 10, 11, 16, 99].map(|at| grid.slice(at)), [0, 0, 0, 1, 1, 1]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost(spans in proptest::collection::vec((0_u64..40, 0_u64..40, 0.0..9.0_f64), 0..20)) {
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
