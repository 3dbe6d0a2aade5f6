//! cli

pub mod simulate;
