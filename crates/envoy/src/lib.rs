//! Observes the traffic of Envoy without being in its path.
//!
//! Envoy's filter `ext_proc` in observability mode sends a copy of the headers, body chunks and trailers of each request
//! and its response, and waits for no answer. Envoy's gRPC access log reports how each request ended, which `ext_proc`
//! does not show if the client or the upstream aborts. [`EnvoyService`] serves both protocols, and turns their messages
//! into the calls of a [`RequestObserver`](tokengauge_observe::tee::RequestObserver). Everything behind it is the same as
//! in the proxy.
//!
//! The gRPC protocol is implemented here: it is two prefixes on an HTTP/2 stream, and a general server would have its
//! own listener, limits and drain beside those of [`tokengauge_listen`].

mod access_log;
mod ai;
mod body;
mod counts;
mod flags;
mod frames;
mod heads;
mod open_exchanges;
mod processor;
mod proto;
mod routes;
mod service;
mod shared;

pub use counts::Counts;
pub use routes::{FindRoute, Routes};
pub use service::{Dependencies, EnvoyService};
pub use shared::ReadIdentity;
