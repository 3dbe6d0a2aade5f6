//! Observes LLM requests and responses. Body bytes are copied while traffic passes, and a separate thread turns the
//! copies into [`Record`](tokengauge_measure::record::Record)s.
//!
//! An application starts an [`Observation`] and wraps a service or a client in its [`ObserveLayer`]. [`tee`] copies the
//! bytes. [`Observer`] is the thread that reads the copies. [`ObservedExchange`] parses one request and its response, and
//! [`InFlightRequests`] holds all open requests. Parsing does no I/O and takes the time as an argument.

mod api_call;
mod backlog;
mod describe;
mod detection;
mod endpoint;
mod exchange;
mod in_flight;
mod layer;
mod mcp;
mod mcp_sessions;
mod observation;
mod observer;
mod provider;
mod request_state;
mod response;
mod tcp_info;
pub mod tee;
mod tool_arguments;
pub mod trace;
mod websocket;

pub use describe::{RequestContext, describe_request, describe_response, host};
pub use endpoint::{Endpoint, EndpointOpener};
pub use exchange::ObservedExchange;
pub use in_flight::{ConsoleReading, InFlightRequests, ObserverSettings, Sinks, StreamView};
pub use layer::{Observe, ObserveFuture, ObserveLayer, OpenExchange};
pub use observation::Observation;
pub use observer::{Observed, Observer};
pub use tcp_info::TcpInfoQuery;

#[cfg(test)]
mod tests;
