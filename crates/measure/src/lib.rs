//! Measures LLM requests: timings, records of finished requests, load, SLOs, cost and workload drift.
//!
//! An *exchange* is a request and its response. All code here is arithmetic over observed events. Time is an argument
//! and is never read from a clock.

pub mod cost;
pub mod drift;
pub mod engine;
pub mod load;
pub mod record;
pub mod slo;
pub mod timing;

#[cfg(test)]
mod testing;
