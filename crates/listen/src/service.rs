//! The service of a connection: passes requests and responses through, and reports them to the state of the connection.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Version, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::Service;

use super::delivery::{BoxError, HeldError, Protocol};
use super::exchanges::{ActiveExchange, Exchanges};
use super::received_body::ReceivedBody;

/// An HTTP service that counts its exchanges.
#[derive(Debug)]
pub(super) struct CountingService<S, P> {
    inner: S,
    exchanges: Arc<Exchanges>,
    protocol: PhantomData<fn() -> P>,
}

impl<S, P: Protocol> CountingService<S, P> {
    pub(super) fn new(inner: S) -> (Self, Arc<Exchanges>) {
        let exchanges = Arc::<Exchanges>::default();
        let counted = Self { inner, exchanges: Arc::clone(&exchanges), protocol: PhantomData };
        (counted, exchanges)
    }
}

impl<S, B, P> Service<Request<Incoming>> for CountingService<S, P>
where
    S: Service<Request<ReceivedBody>, Response = Response<B>, Future: Unpin>,
    B: Body<Data = Bytes>,
    P: Protocol,
{
    type Response = Response<CountedBody<B, P>>;
    type Error = S::Error;
    type Future = CountingFuture<S::Future, P>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let active = self.exchanges.begin(!asks_for_websocket(request.headers()));
        let version = request.version();
        let connection = (version < Version::HTTP_2).then(|| Arc::clone(&self.exchanges));
        let request = request.map(|body| ReceivedBody::new(body, connection));
        let inner = self.inner.call(request);
        CountingFuture { inner, active: Some(active), version, protocol: PhantomData }
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
pub(super) struct CountingFuture<F, P> {
    inner: F,
    /// `None` once the response is ready.
    active: Option<ActiveExchange>,
    /// HTTP version of the request.
    version: Version,
    protocol: PhantomData<fn() -> P>,
}

impl<F, B, E, P> Future for CountingFuture<F, P>
where
    F: Future<Output = Result<Response<B>, E>> + Unpin,
    B: Body<Data = Bytes>,
    P: Protocol,
{
    type Output = Result<Response<CountedBody<B, P>>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut response = ready!(Pin::new(&mut self.inner).poll(cx))?;
        let active = self.active.take().expect("the future is not polled after its end");
        if active.is_last() {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        if self.version == Version::HTTP_10 {
            let has_length = response.body().size_hint().exact().is_some()
                || response.headers().contains_key(header::CONTENT_LENGTH);
            active.set_unframed(!has_length);
        }
        let body =
            |inner| CountedBody { state: State::Open(inner), active, protocol: P::default() };
        Poll::Ready(Ok(response.map(body)))
    }
}

/// A response body whose data is passed through unchanged, and whose error is held back until the data is written.
/// Dropping the body ends its exchange.
#[derive(Debug)]
pub(super) struct CountedBody<B, P> {
    state: State<B>,
    active: ActiveExchange,
    protocol: P,
}

#[derive(Debug)]
enum State<B> {
    Open(B),
    Failed(HeldError),
}

impl<B, P> Body for CountedBody<B, P>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
    P: Protocol,
{
    type Data = P::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<P::Data>, BoxError>>> {
        let Self { state, active, protocol } = &mut *self;
        if let State::Open(inner) = state {
            let error = match ready!(Pin::new(inner).poll_frame(cx)) {
                Some(Err(error)) => error.into(),
                Some(Ok(frame)) => {
                    return Poll::Ready(Some(Ok(frame.map_data(|bytes| protocol.track(bytes)))));
                }
                None => return Poll::Ready(None),
            };
            // Drops the failed body, so that its upstream does not wait for the client.
            *state = State::Failed(HeldError::new(error, active.flush()));
        }
        let State::Failed(held) = state else { return Poll::Ready(None) };
        let error = ready!(held.poll(cx, active.flush(), protocol));
        active.truncate();
        Poll::Ready(error.map(Err))
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Open(inner) => inner.is_end_stream(),
            State::Failed(..) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.state {
            State::Open(inner) => inner.size_hint(),
            State::Failed(..) => SizeHint::default(),
        }
    }
}
