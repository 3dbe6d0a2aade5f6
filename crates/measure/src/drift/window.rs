//! Latest lengths of one model key.

use std::collections::VecDeque;

use crate::drift::lengths::{Bucket, Lengths};

/// Latest lengths and their histogram. Each new length evicts the oldest, at a cost that does not depend on the
/// traffic.
///
/// The window is a number of exchanges and not a time span. The index that chance yields depends only on the number,
/// and a time window would be empty at night. It takes 2 B per length, plus 2.5 KiB.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    lengths: Lengths,
    order: VecDeque<Bucket>,
}

impl Window {
    /// Adds a length and keeps at most `most` lengths.
    pub(super) fn add(&mut self, bucket: Bucket, most: usize) {
        while self.order.len() >= most.max(1)
            && let Some(oldest) = self.order.pop_front()
        {
            self.lengths.remove(oldest);
        }
        self.order.push_back(bucket);
        self.lengths.add(bucket, 1);
    }

    pub(super) const fn lengths(&self) -> &Lengths {
        &self.lengths
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_the_latest(list in prop::collection::vec(0_u64..1_000, 0..200), most in 1_usize..50) {
            let mut window = Window::default();
            for length in &list {
                window.add(Bucket::of(*length), most);
            }
            let mut latest = Lengths::default();
            for length in &list[list.len().saturating_sub(most)..] {
                latest.add(Bucket::of(*length), 1);
            }
            prop_assert_eq!(window.lengths(), &latest);
        }
    }
}
