//! Grafana dashboards and Prometheus alert rules, generated from the metric catalog.
//!
//! All functions return text. [`dashboards`] defines the panels and their queries, and [`alerts`] defines the rules and
//! their conditions. [`Files`] holds the generated files, to be written to a folder or compared with one.

pub mod alerts;
pub mod dashboards;
pub mod emitted;
pub mod files;

pub use files::{Difference, Files};
