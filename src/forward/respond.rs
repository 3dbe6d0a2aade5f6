//! The innermost service: answers every request, with the response of its upstream or with an error response.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Response;
use tokio::sync::watch;
use tokio::time::timeout;
use tower::Service;

use super::ShutdownState;
use super::admission::EnteredRequest;
use super::body::RelayBody;
use super::error::ForwardError;
use super::open::OpenRequest;
use super::relay::relay;
use tokengauge_observe::describe_response;
use tokengauge_observe::tee::RequestObserver;
use tokengauge_types::clock;
use tokengauge_types::event::Ending;

/// Maximum time that an error response waits for the rest of the request body. A body that arrived with the headers
/// causes no wait. 64 KiB take three round trips on a new TCP connection, so the limit covers a client that is 80 ms
/// away. Clients wait longer than this before they retry.
const REQUEST_REST_TIMEOUT: Duration = Duration::from_millis(250);

/// Sends each request to its upstream, as soon as the route's concurrency limit admits the request.
#[derive(Clone, Debug)]
pub struct Respond {
    pub(super) shutdown: watch::Sender<ShutdownState>,
}

/// The response future of [`Respond`]. It is boxed, because hyper reserves memory for the future of a request for the
/// lifetime of the connection. The memory of the box is freed once the response headers are returned.
type RespondFuture = Pin<Box<dyn Future<Output = Result<Response<RelayBody>, Infallible>> + Send>>;

impl Service<OpenRequest> for Respond {
    type Response = Response<RelayBody>;
    type Error = Infallible;
    type Future = RespondFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: OpenRequest) -> RespondFuture {
        let observer = request.observer().clone();
        let forwarding = forward(EnteredRequest::new(request), self.shutdown.clone());
        Box::pin(async {
            Ok(match forwarding.await {
                Ok(response) => response,
                Err(error) => Failure { error, observer }.into_response().await,
            })
        })
    }
}

async fn forward(
    request: Result<EnteredRequest, ForwardError>,
    shutdown: watch::Sender<ShutdownState>,
) -> Result<Response<RelayBody>, ForwardError> {
    let admitted = request?.admitted(shutdown.subscribe()).await?;
    relay(admitted, shutdown).await
}

/// A failed exchange. Reports the error as the end of the exchange when it is dropped, even if the client leaves before
/// the error response.
#[derive(Debug)]
struct Failure {
    error: ForwardError,
    observer: RequestObserver,
}

impl Failure {
    /// Passes the part of the request body that has arrived to the observer, and then returns the error response.
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
