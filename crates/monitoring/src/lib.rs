//! What is made from the registry of names for those who watch this proxy: dashboards for Grafana, and rules of alerts for
//! Prometheus.
//!
//! Everything here is text in, text out: [`dashboards`] say which panels there are and what they ask, [`alerts`] which rules
//! there are and when they fire. [`Files`] is what comes out, to be written to a folder or held against one.

pub mod alerts;
pub mod dashboards;
pub mod emitted;
pub mod files;

pub use files::{Difference, Files};
