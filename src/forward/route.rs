//! The layer that selects the route of a request.

use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use http::Request;
use hyper::body::Incoming;
use tower::{Layer, Service};

use super::route_table::{Destination, RouteTable};
use crate::route::TraceHeaders;
use tokengauge_observe::host;
use tokengauge_types::event::{CallerIdentity, RouteFacts, Scheme};
use tokengauge_types::tcp::TcpConnection;

/// A client, as its connection identifies it.
#[derive(Clone, Debug)]
pub struct Client {
    /// `None` for a Unix socket.
    pub connection: Option<Arc<TcpConnection>>,
    pub scheme: Scheme,
}

/// A request as the listener receives it.
#[derive(Debug)]
pub(super) struct ClientRequest {
    pub(super) request: Request<Incoming>,
    pub(super) client: Client,
}

/// A request and its route.
#[derive(Debug)]
pub(super) struct RoutedRequest {
    pub(super) request: Request<Incoming>,
    pub(super) client: Client,
    pub(super) facts: Arc<RouteFacts>,
    pub(super) who: CallerIdentity,
    pub(super) trace_headers: TraceHeaders,
    /// `None` if no route matches.
    pub(super) destination: Option<Destination>,
}

#[derive(Clone, Debug)]
pub(super) struct RouteLayer {
    /// Replaced on a reload. Each request keeps its original route.
    routes: Arc<ArcSwap<RouteTable>>,
    /// Reported for requests that no route matches.
    unrouted: Arc<RouteFacts>,
}

#[derive(Clone, Debug)]
pub(super) struct Route<S> {
    inner: S,
    routes: Arc<ArcSwap<RouteTable>>,
    unrouted: Arc<RouteFacts>,
}

impl RouteLayer {
    pub(super) fn new(routes: Arc<ArcSwap<RouteTable>>, unrouted: Arc<RouteFacts>) -> Self {
        Self { routes, unrouted }
    }
}

impl<S> Layer<S> for RouteLayer {
    type Service = Route<S>;

    fn layer(&self, inner: S) -> Route<S> {
        let Self { routes, unrouted } = self.clone();
        Route { inner, routes, unrouted }
    }
}

impl<S: Service<RoutedRequest>> Service<ClientRequest> for Route<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: ClientRequest) -> S::Future {
        let ClientRequest { request, client } = request;
        let routes = self.routes.load();
        let who = routes.identity().read(request.headers());
        let routed = match routes.find(host(&request), request.uri().path()) {
            Some(route) => RoutedRequest {
                facts: Arc::clone(&route.target.facts),
                trace_headers: route.target.trace,
                destination: route.destination(),
                request,
                client,
                who,
            },
            None => RoutedRequest {
                facts: Arc::clone(&self.unrouted),
                trace_headers: TraceHeaders::default(),
                destination: None,
                request,
                client,
                who,
            },
        };
        // Dropped here, so that a reload does not wait for any request.
        drop(routes);
        self.inner.call(routed)
    }
}
