//! Tests exchanges that end early.
//!
//! Each one must be reported correctly and release its upstream connection, and no state may remain.

mod drain;
mod http1;
mod http2;
pub mod rig;
mod slow;
mod storm;
mod stream;
mod table;
pub mod unaccepting;
