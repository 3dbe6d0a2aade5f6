//! Tests the data path.
//!
//! Every byte must pass unchanged and in time, and each exchange must emit each of its events once.

mod addresses;
mod blocked_clients;
mod bodies;
mod breaks;
mod channel;
mod clients;
mod failures;
mod header_limits;
mod heads;
mod http2_upstreams;
mod lengths;
mod names;
mod protocols;
mod repeats;
mod reuse;
mod traces;
mod tunnels;
mod unanswered;
mod uploads;
