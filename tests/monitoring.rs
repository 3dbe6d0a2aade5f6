//! Checks dashboards, rules and runbooks. Every query must select exported series, every dashboard must follow the
//! rules of Grafana's linter, and the files in the repository must match the generator's output.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may panic, and tables of cases are long"
)]

#[path = "monitoring/books.rs"]
mod books;
#[path = "monitoring/dashboards.rs"]
mod dashboards;
#[path = "monitoring/lean.rs"]
mod lean;
#[path = "monitoring/lint.rs"]
mod lint;
mod pages;
#[path = "monitoring/promql.rs"]
mod promql;
#[path = "monitoring/readability.rs"]
mod readability;
#[path = "monitoring/rules.rs"]
mod rules;
#[path = "monitoring/scaling.rs"]
mod scaling;
#[path = "monitoring/stack.rs"]
mod stack;
