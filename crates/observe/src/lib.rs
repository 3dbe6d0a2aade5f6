//! Observes LLM requests and responses: copies body bytes off the data path and turns them into
//! [`Record`](tokengauge_measure::record::Record)s.
//!
//! [`tee`] is the data path's side. [`Exchange`] is the observer's pipeline for one request, [`InFlightRequests`] holds
//! all open ones, and [`Observer`] is the thread that moves events from the tee to them. Everything but the thread is
//! free of I/O and takes time as an argument.

mod anomalies;
mod api_call;
mod content_decoder;
mod exchange;
mod in_flight;
mod observer;
mod request_state;
mod response;
mod tcp_info;
pub mod tee;
mod tool_arguments;
mod websocket;

pub use exchange::Exchange;
pub use in_flight::{InFlightRequests, Sinks, StreamPhase, StreamView};
pub use observer::Observer;
pub use tcp_info::TcpInfoQuery;

#[cfg(test)]
mod tests;
