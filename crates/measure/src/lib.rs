//! Measures LLM requests: timings, finished-request records, load, SLOs, cost and workload drift.
//!
//! Everything here is arithmetic over observed events. Time is an argument, never read from a clock.

pub mod cost;
pub mod drift;
pub mod engine;
pub mod load;
pub mod record;
pub mod slo;
pub mod timing;

#[cfg(test)]
mod testing;
