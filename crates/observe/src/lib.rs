//! Observes LLM requests and responses: copies body bytes off the data path and turns them into
//! [`Record`](tokengauge_measure::record::Record)s.
//!
//! An application starts an [`Observation`] and puts its [`ObserveLayer`] around a service or a client. Below that,
//! [`tee`] is the data path's side, [`Exchange`] is the observer's pipeline for one request, [`InFlightRequests`] holds
//! all open ones, and [`Observer`] is the thread that moves events from the tee to them. Everything but the thread is
//! free of I/O and takes time as an argument.

mod anomalies;
mod api_call;
mod content_decoder;
mod describe;
mod endpoint;
mod exchange;
mod in_flight;
mod layer;
mod observation;
mod observer;
mod request_state;
mod response;
mod tcp_info;
pub mod tee;
mod tool_arguments;
pub mod trace;
mod websocket;

pub use describe::{RequestContext, describe_request, describe_response, host};
pub use endpoint::{Endpoint, EndpointOpener};
pub use exchange::Exchange;
pub use in_flight::{InFlightRequests, Sinks, StreamPhase, StreamView};
pub use layer::{Observe, ObserveFuture, ObserveLayer, OpenExchange};
pub use observation::Observation;
pub use observer::Observer;
pub use tcp_info::TcpInfoQuery;

#[cfg(test)]
mod tests;
