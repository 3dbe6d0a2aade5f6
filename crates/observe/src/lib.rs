//! Observes LLM requests and responses. Body bytes are copied off the data path and converted into
//! [`Record`](tokengauge_measure::record::Record)s.
//!
//! An application starts an [`Observation`] and wraps a service or a client in its [`ObserveLayer`]. [`tee`] copies
//! bytes on the data path. [`Exchange`] is the observer's pipeline for one request, and [`InFlightRequests`] holds all
//! open requests. [`Observer`] is the thread that moves events from the tee to the open requests. The pipeline itself
//! does no I/O and takes the time as an argument.

mod api_call;
mod backlog;
mod describe;
mod detection;
mod endpoint;
mod exchange;
mod in_flight;
mod layer;
mod lendable;
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
pub use in_flight::{InFlightRequests, Sinks, StreamView};
pub use layer::{Observe, ObserveFuture, ObserveLayer, OpenExchange};
pub use observation::Observation;
pub use observer::{Observed, Observer};
pub use tcp_info::TcpInfoQuery;

#[cfg(test)]
mod tests;
