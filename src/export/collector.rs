//! Takes one picture of all metrics. (signatures)

/// Owns the SDK's provider and readers.
#[derive(Debug)]
pub struct Collector {}
