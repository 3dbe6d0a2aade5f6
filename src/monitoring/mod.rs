//! What is made from the registry of names for those who watch this proxy: rules of alerts for Prometheus.
//!
//! Everything here is text in, text out: [`alerts`] say which rules there are and what they ask, [`Files`] is what comes
//! out, to be written to a folder or held against one.

pub mod alerts;
pub mod files;

pub use files::{Difference, Files};
