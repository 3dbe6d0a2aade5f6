//! cli

pub mod demo;
pub mod simulate;
