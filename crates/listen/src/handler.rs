//! The interface to the program: one HTTP service per connection.

use std::convert::Infallible;
use std::error::Error as StdError;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::service::Service;

use super::{Peer, ReceivedBody};
use tokengauge_types::event::TimedResponse;

/// Creates the HTTP service of each connection.
pub trait Handler: Clone + Send + Sync + 'static {
    type Body: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>>
        + TimedResponse
        + Send
        + Unpin
        + 'static;
    type Service: Service<
            Request<ReceivedBody>,
            Response = Response<Self::Body>,
            Error = Infallible,
            Future: Send + Unpin + 'static,
        > + Send
        + Unpin
        + 'static;

    fn service_for(&self, peer: Peer) -> Self::Service;
}

impl<F, S, B> Handler for F
where
    F: Fn(Peer) -> S + Clone + Send + Sync + 'static,
    S: Service<Request<ReceivedBody>, Response = Response<B>, Error = Infallible>
        + Send
        + Unpin
        + 'static,
    S::Future: Send + Unpin + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>>
        + TimedResponse
        + Send
        + Unpin
        + 'static,
{
    type Body = B;
    type Service = S;

    fn service_for(&self, peer: Peer) -> S {
        self(peer)
    }
}
