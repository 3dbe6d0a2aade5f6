//! Counts the exchanges (request and response) of a connection, to detect whether the connection is idle.
//!
//! hyper does not report whether a connection is idle. The counters add one number per response to the memory
//! of a stream.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, ready};

use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body::{Body, Frame, SizeHint};
use hyper::service::Service;

/// Numbers of started and completed exchanges. Both counters wrap around, because only their equality is
/// tested.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    begun: AtomicU32,
    over: AtomicU32,
    closing: AtomicBool,
}

impl Exchanges {
    pub(super) fn begun(&self) -> u32 {
        self.begun.load(Ordering::Acquire)
    }

    pub(super) fn over(&self) -> u32 {
        self.over.load(Ordering::Acquire)
    }

    /// Adds `Connection: close` to every later response, so that hyper closes the connection. Used only for
    /// HTTP/1.
    ///
    /// A graceful shutdown by hyper is not sufficient. It takes effect between two polls, but within one poll a
    /// request can arrive and be answered.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    fn begin(self: &Arc<Self>) -> ActiveExchange {
        self.begun.fetch_add(1, Ordering::AcqRel);
        ActiveExchange(Arc::clone(self))
    }
}

/// An active exchange. It is dropped after the last byte of the response was passed on, or when the exchange is
/// aborted.
#[derive(Debug)]
pub(super) struct ActiveExchange(Arc<Exchanges>);

impl Drop for ActiveExchange {
    fn drop(&mut self) {
        self.0.over.fetch_add(1, Ordering::AcqRel);
    }
}

/// An HTTP service that counts its exchanges.
#[derive(Debug)]
pub(super) struct CountingService<S> {
    inner: S,
    exchanges: Arc<Exchanges>,
}

impl<S> CountingService<S> {
    pub(super) fn new(inner: S) -> (Self, Arc<Exchanges>) {
        let exchanges = Arc::<Exchanges>::default();
        let counted = Self { inner, exchanges: Arc::clone(&exchanges) };
        (counted, exchanges)
    }
}

impl<R, S, B> Service<Request<R>> for CountingService<S>
where
    S: Service<Request<R>, Response = Response<B>, Future: Unpin>,
{
    type Response = Response<CountedBody<B>>;
    type Error = S::Error;
    type Future = CountingFuture<S::Future>;

    fn call(&self, request: Request<R>) -> Self::Future {
        let active = (!asks_for_websocket(request.headers())).then(|| self.exchanges.begin());
        CountingFuture { inner: self.inner.call(request), active }
    }
}

/// Returns whether the request asks for a WebSocket upgrade. Upgrades are not counted. During a shutdown, hyper
/// would answer a counted upgrade with `Connection: Upgrade, close`. This header is valid, but some clients
/// reject it. A WebSocket connection serves no further exchange anyway.
fn asks_for_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE);
    upgrade.is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Future of a response. When the headers are ready, the active exchange moves into the response body.
#[derive(Debug)]
pub(super) struct CountingFuture<F> {
    inner: F,
    /// Active exchange, which moves into the response body.
    active: Option<ActiveExchange>,
}

impl<F, B, E> Future for CountingFuture<F>
where
    F: Future<Output = Result<Response<B>, E>> + Unpin,
{
    type Output = Result<Response<CountedBody<B>>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(Pin::new(&mut self.inner).poll(cx));
        let active = self.active.take();
        let closing = |active: &ActiveExchange| active.0.closing.load(Ordering::Acquire);
        Poll::Ready(result.map(|mut response| {
            if active.as_ref().is_some_and(closing) {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            response.map(|inner| CountedBody { inner, active })
        }))
    }
}

/// A response body that is passed through unchanged. Dropping the body ends its exchange.
#[derive(Debug)]
pub(super) struct CountedBody<B> {
    inner: B,
    #[expect(dead_code, reason = "dropping it ends the exchange")]
    active: Option<ActiveExchange>,
}

impl<B: Body + Unpin> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
