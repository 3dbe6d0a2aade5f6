//! (signatures)

use crate::wire::Trace;

/// Which traces are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Sampler {
    #[default]
    AlwaysOn,
}

impl Sampler {
    /// The decision at the head, which the sampled flag sent upstream repeats.
    pub fn head(&self, _trace: &Trace) -> bool {
        true
    }
}
