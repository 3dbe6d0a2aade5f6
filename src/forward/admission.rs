//! The service that admits requests: each waits for a permit of its route's concurrency limiter.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Response;
use pin_project_lite::pin_project;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tower::Service;

use super::ShutdownState;
use super::body::RelayBody;
use super::buffered_body::{self, Upload, readable_body};
use super::error::ForwardError;
use super::limiter::{ConcurrencyLimit, Entry, Permit, Queued};
use super::request::ForwardRequest;
use tokengauge_types::clock;
use tokengauge_types::event::{Ending, ObserverEvent, RejectReason};

/// Service that calls the inner service once the route's concurrency limiter has granted a permit.
#[derive(Clone, Debug)]
pub struct Admission<S> {
    pub(super) inner: S,
    pub(super) shutdown: watch::Sender<ShutdownState>,
}

pin_project! {
    /// The response future of [`Admission`].
    #[project = AdmissionProjection]
    pub enum AdmissionFuture<S, F> {
        Rejected { error: Option<ForwardError> },
        // Boxed, because most requests never wait.
        Queued { waiting: Pin<Box<dyn Future<Output = Result<ForwardRequest, ForwardError>> + Send>>, inner: S },
        Admitted { #[pin] future: F },
    }
}

impl<S> Service<ForwardRequest> for Admission<S>
where
    S: Service<ForwardRequest, Response = Response<RelayBody>, Error = ForwardError> + Clone,
{
    type Response = S::Response;
    type Error = ForwardError;
    type Future = AdmissionFuture<S, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ForwardError>> {
        self.inner.poll_ready(cx)
    }

    /// Enters the limiter immediately and not in the returned future, so that requests are queued in the order of
    /// arrival.
    fn call(&mut self, mut request: ForwardRequest) -> Self::Future {
        let limiter = request.destination.limiter.take();
        let observer = request.http.body().observer();
        match limiter.map(|limiter| limiter.enter()) {
            Some(Entry::Full(limit)) => {
                let error = overload(&limit, "the queue is full");
                let error = Some(error.with_unsent(request.http.map(Some)));
                return AdmissionFuture::Rejected { error };
            }
            Some(Entry::Queued(queued)) => {
                observer.report(clock::now(), ObserverEvent::Queued);
                let waiting = Box::pin(wait(queued, request, self.shutdown.subscribe()));
                return AdmissionFuture::Queued { waiting, inner: self.inner.clone() };
            }
            Some(Entry::Admitted(permit)) => request.destination.permit = Some(permit),
            None => {}
        }
        let observer = request.http.body().observer();
        observer.report(request.received_at, ObserverEvent::Admitted);
        AdmissionFuture::Admitted { future: self.inner.call(request) }
    }
}

impl<S> Future for AdmissionFuture<S, S::Future>
where
    S: Service<ForwardRequest, Error = ForwardError>,
{
    type Output = Result<S::Response, ForwardError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let future = match self.as_mut().project() {
                AdmissionProjection::Rejected { error } => {
                    let error = error.take().expect("a future is not polled after it is ready");
                    return Poll::Ready(Err(error));
                }
                AdmissionProjection::Queued { waiting, inner } => {
                    let admitted = ready!(waiting.as_mut().poll(cx))?;
                    // The service below is always ready.
                    inner.call(admitted)
                }
                AdmissionProjection::Admitted { future } => return future.poll(cx),
            };
            self.set(Self::Admitted { future });
        }
    }
}

/// Waits for the permit of `request`.
async fn wait(
    queued: Queued,
    mut request: ForwardRequest,
    shutdown: watch::Receiver<ShutdownState>,
) -> Result<ForwardRequest, ForwardError> {
    let body = readable_body(&mut request.http);
    match wait_for_permit(queued, body, request.destination.deadline, shutdown).await {
        Ok(permit) => {
            request.http.body().observer().report(clock::now(), ObserverEvent::Admitted);
            request.destination.permit = Some(permit);
            Ok(request)
        }
        Err(error) => Err(error.with_unsent(request.http.map(Some))),
    }
}

/// Waits until the limiter admits the request. Dropping this future removes the request from the queue. `body` is
/// `None` if the request body must not be read yet. `deadline` is the end of the total timeout.
async fn wait_for_permit(
    queued: Queued,
    body: Option<&mut Upload>,
    deadline: Option<Instant>,
    mut shutdown: watch::Receiver<ShutdownState>,
) -> Result<Permit, ForwardError> {
    let Queued { permit, admitted, limit } = queued;
    let until = Instant::now() + limit.queue_timeout;
    let until = deadline.map_or(until, |deadline| until.min(deadline));
    let waiting = async {
        tokio::select! {
            biased;
            // The limiter does not drop the sender of a queued exchange.
            _ = admitted => Ok(()),
            () = buffered_body::read_ahead_until_failure(body) => {
                Err(ForwardError::new(Ending::RequestBodyFailed))
            }
            _ = shutdown.wait_for(|state| *state != ShutdownState::Serving) => {
                Err(ForwardError::new(Ending::Rejected(RejectReason::Draining)))
            }
        }
    };
    match timeout_at(until, waiting).await {
        Ok(result) => result.map(|()| permit),
        Err(_) => Err(overload(&limit, "the request exceeded the queue timeout")),
    }
}

/// Creates the error for a request that got no permit. `Retry-After` is the queue timeout. After that time, every
/// request that is queued now has left the queue.
fn overload(limit: &ConcurrencyLimit, cause: &str) -> ForwardError {
    ForwardError {
        retry_after: Some(limit.queue_timeout),
        ..ForwardError::with_cause(Ending::Rejected(RejectReason::Overload), cause)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::forward::limiter::ConcurrencyLimiter;

    const LIMIT: ConcurrencyLimit = ConcurrencyLimit {
        max_in_flight: 1,
        max_queue: 9,
        queue_timeout: Duration::from_secs(3_600),
    };

    /// Enters a limiter that has no free permit. Returns the place in the queue.
    fn enter(limiter: &Arc<ConcurrencyLimiter>) -> Queued {
        let entry = limiter.enter();
        let Entry::Queued(queued) = entry else { panic!("not queued: {entry:?}") };
        queued
    }

    /// The wait ends with whichever event comes first. The permit is returned in each case.
    #[tokio::test]
    async fn wait_ends_by_timeout_deadline_shutdown_or_admission() {
        const SHORT: Duration = Duration::from_millis(20);
        let (shutdown, _) = watch::channel(ShutdownState::Serving);
        let limiter = ConcurrencyLimiter::new(LIMIT);
        let Entry::Admitted(running) = limiter.enter() else { panic!("not admitted") };
        let wait = |deadline: Option<Duration>| {
            let deadline = deadline.map(|after| Instant::now() + after);
            wait_for_permit(enter(&limiter), None, deadline, shutdown.subscribe())
        };
        let begun = Instant::now();
        limiter.set_limit(Some(ConcurrencyLimit { queue_timeout: SHORT, ..LIMIT }));
        let error = wait(None).await.unwrap_err();
        assert_eq!(error.ending, Ending::Rejected(RejectReason::Overload));
        assert_eq!(error.retry_after, Some(SHORT));
        assert!(begun.elapsed() >= SHORT);
        limiter.set_limit(Some(LIMIT));
        let error = wait(Some(SHORT)).await.unwrap_err();
        assert_eq!(error.ending, Ending::Rejected(RejectReason::Overload));
        let waiting = wait(None);
        shutdown.send_replace(ShutdownState::Draining);
        let error = waiting.await.unwrap_err();
        assert_eq!(error.ending, Ending::Rejected(RejectReason::Draining));
        // If admission and shutdown happen together, the exchange is admitted.
        let waiting = wait(None);
        drop(running);
        drop(waiting.await.unwrap());
        assert!(matches!(limiter.enter(), Entry::Admitted(_)), "all permits are returned");
    }
}
