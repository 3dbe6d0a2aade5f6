//! Entry points for libFuzzer, shared with the tests of the root package.

#[path = "../tests/fuzz/entries/mod.rs"]
pub mod entries;
