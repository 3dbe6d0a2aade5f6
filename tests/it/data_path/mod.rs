//! Tests the data path.
//!
//! Every byte passes unchanged and in time, and each exchange emits each of its events once.

mod bodies;
mod breaks;
mod channel;
mod failures;
mod heads;
mod protocols;
mod traces;
mod uploads;
