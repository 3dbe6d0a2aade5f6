//! An instrument bound to one set of attributes at its first use: a set that is never used has no points, and one that
//! is costs a few nanoseconds where looking it up costs 200.

use std::sync::OnceLock;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{BoundCounter, Counter};

use crate::attributes::with;
use crate::instruments::exemplar_histogram::{BoundExemplarHistogram, ExemplarHistogram};

/// Empty until used. Must always be used with the same instrument and attributes.
#[derive(Debug)]
pub struct LazyInstrument<B>(OnceLock<B>);

impl<T> LazyInstrument<BoundExemplarHistogram<T>> {
    pub fn of(
        &self,
        to: &ExemplarHistogram<T>,
        base: &[KeyValue],
        own: &[KeyValue],
    ) -> &BoundExemplarHistogram<T> {
        self.0.get_or_init(|| to.bind(&with(base, own)))
    }
}

impl LazyInstrument<BoundCounter<u64>> {
    pub fn add(&self, to: &Counter<u64>, base: &[KeyValue], own: &[KeyValue], value: u64) {
        self.0.get_or_init(|| to.bind(&with(base, own))).add(value);
    }
}

impl<B> Default for LazyInstrument<B> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}
