//! What is made for those who watch is right: every query asks for what is emitted, every dashboard keeps the rules of
//! Grafana's linter, and the files in the repository are those that the program generates.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "this is a test: what is not as expected shall end it, and tables of cases are long"
)]

#[path = "monitoring/books.rs"]
mod books;
#[path = "monitoring/dashboards.rs"]
mod dashboards;
#[path = "monitoring/lint.rs"]
mod lint;
mod pages;
#[path = "monitoring/promql.rs"]
mod promql;
#[path = "monitoring/rules.rs"]
mod rules;
#[path = "monitoring/scaling.rs"]
mod scaling;
#[path = "monitoring/stack.rs"]
mod stack;
