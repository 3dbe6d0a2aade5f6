//! Tests exchanges that break off.
//!
//! Each one is reported correctly, its upstream connection is released, and no state remains.

mod drain;
mod http1;
mod http2;
pub mod rig;
mod slow;
mod storm;
mod stream;
mod table;
