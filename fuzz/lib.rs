//! What libFuzzer calls: the entry points that the tests of the root package drive too.

#[path = "../tests/fuzz/entries/mod.rs"]
pub mod entries;
