//! The service that turns forwarding errors into error responses, so that every request gets a response.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Response;
use pin_project_lite::pin_project;
use tokio::time::timeout;
use tower::Service;

use super::body::RelayBody;
use super::error::ForwardError;
use super::request::{ForwardRequest, RejectedRequest};
use tokengauge_observe::describe_response;
use tokengauge_observe::tee::RequestObserver;
use tokengauge_types::clock;
use tokengauge_types::event::Ending;

/// Maximum time that an error response waits for the rest of the request body. A client that is 80 ms away needs this
/// time: on a new TCP connection, 64 KiB take three round trips. A body that arrived with the headers causes no wait.
/// Clients wait longer than this before they retry.
const REQUEST_REST_TIMEOUT: Duration = Duration::from_millis(250);

/// Converts errors of the inner services to JSON responses.
#[derive(Clone, Debug)]
pub struct Respond<S> {
    pub(super) inner: S,
}

pin_project! {
    /// The response future of [`Respond`].
    #[project = RespondProjection]
    pub enum RespondFuture<F> {
        Forwarding { #[pin] inner: F, observer: RequestObserver },
        // Boxed, because most requests get the response of an upstream.
        Failed { response: Pin<Box<dyn Future<Output = Response<RelayBody>> + Send>> },
    }
}

impl<S> Service<Result<ForwardRequest, RejectedRequest>> for Respond<S>
where
    S: Service<ForwardRequest, Response = Response<RelayBody>, Error = ForwardError>,
{
    type Response = Response<RelayBody>;
    type Error = Infallible;
    type Future = RespondFuture<S::Future>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The services below are always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Result<ForwardRequest, RejectedRequest>) -> Self::Future {
        match request {
            Ok(request) => {
                let observer = request.http.body().observer().clone();
                RespondFuture::Forwarding { inner: self.inner.call(request), observer }
            }
            Err(RejectedRequest { http, reason }) => {
                let observer = http.body().observer().clone();
                RespondFuture::failed(ForwardError::rejected(reason, http), observer)
            }
        }
    }
}

impl<F> RespondFuture<F> {
    fn failed(error: ForwardError, observer: RequestObserver) -> Self {
        Self::Failed { response: Box::pin(Failure { error, observer }.into_response()) }
    }
}

impl<F> Future for RespondFuture<F>
where
    F: Future<Output = Result<Response<RelayBody>, ForwardError>>,
{
    type Output = Result<Response<RelayBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let failed = match self.as_mut().project() {
                RespondProjection::Forwarding { inner, observer } => match ready!(inner.poll(cx)) {
                    Ok(response) => return Poll::Ready(Ok(response)),
                    Err(error) => Self::failed(error, observer.clone()),
                },
                RespondProjection::Failed { response } => {
                    return response.as_mut().poll(cx).map(Ok);
                }
            };
            self.set(failed);
        }
    }
}

/// A failed request. Dropping this value reports the error to the observer, even if the client has left before the
/// error response.
#[derive(Debug)]
struct Failure {
    error: ForwardError,
    observer: RequestObserver,
}

impl Failure {
    /// Waits up to [`REQUEST_REST_TIMEOUT`] for the rest of the request body, so that the observer receives it. Then
    /// returns the error response.
    async fn into_response(mut self) -> Response<RelayBody> {
        if let Some(body) = self.error.unsent.take() {
            // A timeout is no error: the observer then has only a part of the body.
            drop(timeout(REQUEST_REST_TIMEOUT, body.discard()).await);
        }
        let response = self.error.to_response();
        // A client that broke off its upload does not read the response.
        if self.error.ending != Ending::RequestBodyFailed {
            self.observer.head(clock::now(), describe_response(&response, true));
        }
        response.map(RelayBody::local)
    }
}

impl Drop for Failure {
    fn drop(&mut self) {
        self.observer.end(clock::now(), self.error.ending);
    }
}
