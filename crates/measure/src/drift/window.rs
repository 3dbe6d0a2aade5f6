//! The latest lengths of one flow.

use std::collections::VecDeque;

use crate::drift::lengths::{Bucket, Lengths};

/// So many of the latest lengths, and their histogram: as each comes the oldest goes, at the same cost whatever the
/// traffic. A number rather than a time: what chance makes of an index depends on the number alone, and a window of
/// time would have nothing to say at night. 2 B each, and 2.5 KiB.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    lengths: Lengths,
    order: VecDeque<Bucket>,
}

impl Window {
    /// Keeps at most `most`.
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
