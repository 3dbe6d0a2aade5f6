//! A [`tower`] layer that observes the requests and responses of a service or a client.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::describe::describe_response;
use crate::tee::RequestObserver;
use crate::tee::body::ResponseBody;
use tokengauge_types::clock;
use tokengauge_types::event::{Ending, UpstreamFailure};

/// Starts the observation of a request of type `R`.
///
/// [`EndpointOpener`](crate::EndpointOpener) is the implementation for any application. A proxy uses its own
/// implementation, which also sets a route and a client connection.
pub trait OpenExchange<R> {
    /// The request that is passed on to the service. Its body is wrapped in a
    /// [`RequestBody`](crate::tee::body::RequestBody).
    type Request;

    fn open(&self, request: R) -> (Self::Request, RequestObserver);
}

/// Observes the requests and responses of a service.
///
/// Frames of the request body and the response body are copied into a [channel](crate::tee::ObservationChannel). The
/// caller gets the same frames, errors and backpressure as without the layer, and nothing is allocated per frame. The
/// service can be a server (axum, tonic, hyper-util) or a client: any `Service<http::Request<_>, Response =
/// http::Response<_>>` whose bodies carry [`Bytes`].
#[derive(Debug)]
pub struct ObserveLayer<O> {
    opener: Arc<O>,
}

/// The service that [`ObserveLayer`] creates.
#[derive(Debug)]
pub struct Observe<S, O> {
    inner: S,
    opener: Arc<O>,
}

pin_project! {
    /// The response future of [`Observe`].
    pub struct ObserveFuture<F> {
        #[pin]
        inner: F,
        observer: RequestObserver,
    }
}

impl<O> ObserveLayer<O> {
    pub fn with_opener(opener: O) -> Self {
        Self { opener: Arc::new(opener) }
    }
}

impl<O> Clone for ObserveLayer<O> {
    fn clone(&self) -> Self {
        Self { opener: Arc::clone(&self.opener) }
    }
}

impl<S, O> Layer<S> for ObserveLayer<O> {
    type Service = Observe<S, O>;

    fn layer(&self, inner: S) -> Self::Service {
        Observe { inner, opener: Arc::clone(&self.opener) }
    }
}

impl<S: Clone, O> Clone for Observe<S, O> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), opener: Arc::clone(&self.opener) }
    }
}

impl<S, O, R, B> Service<R> for Observe<S, O>
where
    O: OpenExchange<R>,
    S: Service<O::Request, Response = Response<B>>,
    B: Body<Data = Bytes>,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = ObserveFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let (request, observer) = self.opener.open(request);
        ObserveFuture { inner: self.inner.call(request), observer }
    }
}

impl<F, B, E> Future for ObserveFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body<Data = Bytes>,
{
    type Output = Result<Response<ResponseBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.inner.poll(cx));
        let at = clock::now();
        Poll::Ready(match result {
            Ok(response) => {
                // If the service generated the response itself or upgraded the connection, it has already reported the
                // response headers.
                if !this.observer.has_head() {
                    this.observer.head(at, describe_response(&response, false));
                }
                Ok(response.map(|body| ResponseBody::new(body, this.observer.clone())))
            }
            Err(error) => {
                this.observer.end(at, Ending::UpstreamFailed(UpstreamFailure::BeforeResponse));
                Err(error)
            }
        })
    }
}

impl<F> fmt::Debug for ObserveFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObserveFuture")
            .field("exchange", &self.observer.id())
            .finish_non_exhaustive()
    }
}
