//! Ends: how each exchange that is broken off is told, that its upstream is let go, and that nothing is left of it.

mod drain;
mod http1;
mod http2;
pub mod rig;
mod slow;
mod storm;
mod stream;
mod table;
