//! The layer that turns errors of the layers below into responses of the proxy.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Response;
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use super::body::RelayBody;
use super::error::ForwardError;
use super::open::OpenRequest;
use tokengauge_observe::describe_response;
use tokengauge_observe::tee::RequestObserver;
use tokengauge_types::clock;

#[derive(Clone, Copy, Debug)]
pub(super) struct RespondLayer;

#[derive(Clone, Debug)]
pub(super) struct Respond<S> {
    inner: S,
}

pin_project! {
    /// The response future of [`Respond`].
    pub(super) struct RespondFuture<F> {
        #[pin]
        inner: F,
        observer: RequestObserver,
    }
}

impl<S> Layer<S> for RespondLayer {
    type Service = Respond<S>;

    fn layer(&self, inner: S) -> Respond<S> {
        Respond { inner }
    }
}

impl<S> Service<OpenRequest> for Respond<S>
where
    S: Service<OpenRequest, Response = Response<RelayBody>, Error = ForwardError>,
{
    type Response = Response<RelayBody>;
    type Error = Infallible;
    type Future = RespondFuture<S::Future>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The services below are always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: OpenRequest) -> Self::Future {
        let observer = request.observer().clone();
        RespondFuture { inner: self.inner.call(request), observer }
    }
}

impl<F> Future for RespondFuture<F>
where
    F: Future<Output = Result<Response<RelayBody>, ForwardError>>,
{
    type Output = Result<Response<RelayBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.inner.poll(cx));
        Poll::Ready(Ok(result.unwrap_or_else(|error| {
            let response = error.to_response();
            let at = clock::now();
            this.observer.head(at, describe_response(&response, true));
            this.observer.end(at, error.ending);
            response.map(RelayBody::local)
        })))
    }
}
