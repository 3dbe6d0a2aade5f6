//! Wraps the HTTP service of a connection: limits the requests in flight, counts active requests, and passes requests
//! and responses on.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::Service;

use super::active_exchanges::{ActiveExchange, ActiveExchanges};
use super::delivery::{BoxError, HeldError, Protocol};
use super::header_limits::{HeaderLimits, HeadersTooLarge};
use super::received_body::ReceivedBody;
use super::request_limit::{ClientRequests, RequestLimit};
use super::state::ListenerState;
use super::websocket::wants_websocket;
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::TimedResponse;

/// Settings that apply to the requests of all connections of a listener.
#[derive(Clone, Debug)]
pub(super) struct RequestSettings {
    pub(super) limit: Arc<RequestLimit>,
    pub(super) body_timeout: Duration,
    pub(super) state: Arc<ListenerState>,
    pub(super) headers: HeaderSettings,
}

/// How requests with large headers are handled.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderSettings {
    pub(super) limits: HeaderLimits,
    pub(super) marks_large: bool,
}

/// An HTTP service that counts active requests, and answers 503 to requests beyond the listener's limit.
#[derive(Debug)]
pub(super) struct CountingService<S, P> {
    inner: S,
    exchanges: Arc<ActiveExchanges>,
    client: Arc<ClientRequests>,
    settings: RequestSettings,
    protocol: PhantomData<fn() -> P>,
}

impl<S, P: Protocol> CountingService<S, P> {
    pub(super) const fn new(
        inner: S,
        exchanges: Arc<ActiveExchanges>,
        client: Arc<ClientRequests>,
        settings: RequestSettings,
    ) -> Self {
        Self { inner, exchanges, client, settings, protocol: PhantomData }
    }
}

impl<S, B, P> Service<Request<Incoming>> for CountingService<S, P>
where
    S: Service<Request<ReceivedBody>, Response = Response<B>, Future: Unpin>,
    B: Body<Data = Bytes> + TimedResponse,
    P: Protocol,
{
    type Response = Response<CountedBody<B, P>>;
    type Error = S::Error;
    type Future = CountingFuture<S::Future, P>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let RequestSettings { limit, body_timeout, state, headers } = &self.settings;
        let permit = limit.try_acquire(&self.client);
        let rejection = if permit.is_some() {
            headers.rejection(&mut request, state)
        } else {
            state.over_limit.fetch_add(1, Ordering::Relaxed);
            Some(Rejection::Overload)
        };
        let protocol = P::begin(self.exchanges.new_stream());
        let permit = protocol.hold(permit);
        let active = self.exchanges.begin(wants_websocket(&request), permit);
        let version = request.version();
        let connection = (version < Version::HTTP_2).then(|| Arc::clone(&self.exchanges));
        let request = ReceivedBody::wrap(request, *body_timeout, connection, || protocol.stream());
        let inner = match rejection {
            None => Ok(self.inner.call(request)),
            Some(rejection) => Err(rejection),
        };
        CountingFuture { inner, active: Some((active, protocol)), version }
    }
}

impl HeaderSettings {
    /// Returns the reason to reject a request with large headers. If the handler answers such requests, marks the
    /// request instead.
    fn rejection<B>(&self, request: &mut Request<B>, state: &ListenerState) -> Option<Rejection> {
        let too_large = self.limits.check_request(request).err()?;
        state.log_large_headers(Some(too_large));
        if self.marks_large {
            request.extensions_mut().insert(too_large);
            return None;
        }
        state.refused.fetch_add(1, Ordering::Relaxed);
        Some(Rejection::HeadersTooLarge(Box::new(too_large)))
    }
}

/// Why the listener itself answers a request.
#[derive(Debug)]
enum Rejection {
    /// The request is beyond the limit of requests.
    Overload,
    HeadersTooLarge(Box<HeadersTooLarge>),
}

/// Future of a response. When the headers are ready, `active` moves into the response body, so that the request counts
/// until the body ends.
#[derive(Debug)]
pub(super) struct CountingFuture<F, P> {
    inner: Result<F, Rejection>,
    /// `None` once the response is ready.
    active: Option<(ActiveExchange, P)>,
    /// HTTP version of the request.
    version: Version,
}

impl<F, B, E, P> Future for CountingFuture<F, P>
where
    F: Future<Output = Result<Response<B>, E>> + Unpin,
    B: Body<Data = Bytes> + TimedResponse,
    P: Protocol,
{
    type Output = Result<Response<CountedBody<B, P>>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut response = match &mut self.inner {
            Ok(inner) => ready!(Pin::new(inner).poll(cx))?.map(BodyState::Open),
            Err(rejection) => rejection.response().map(|body| BodyState::Local(Some(body))),
        };
        let (mut active, protocol) =
            self.active.take().expect("the future is not polled after its end");
        let limits = protocol.limits(active.connection_limits());
        limits.set_deadline(response.body().deadline());
        active.reset_unwritten();
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            active.keep_permit();
        } else {
            active.refuse_upgrade();
        }
        if active.is_last() {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        if self.version == Version::HTTP_10 {
            let has_length = response.body().size_hint().exact().is_some()
                || response.headers().contains_key(header::CONTENT_LENGTH);
            active.set_unframed(!has_length);
        }
        let keeps_length = self.version < Version::HTTP_2
            && response.status() == StatusCode::NOT_MODIFIED
            && response.headers().contains_key(header::CONTENT_LENGTH);
        let body = |state| CountedBody { state, active, keeps_length, protocol };
        Poll::Ready(Ok(response.map(body)))
    }
}

/// Body of the 503 response at the request limit.
const OVERLOAD: &str = "{\"error\":{\"message\":\"tokengauge: the request limit of this listener is reached\",\
     \"type\":\"tokengauge_overload\",\"code\":503}}";

impl Rejection {
    fn response(&self) -> Response<Bytes> {
        match self {
            Self::Overload => {
                let body = Bytes::from_static(OVERLOAD.as_bytes());
                let mut response = json_response(StatusCode::SERVICE_UNAVAILABLE, body);
                // Requests end all the time, so a client may retry soon.
                let soon = HeaderValue::from_static("1");
                response.headers_mut().insert(header::RETRY_AFTER, soon);
                response
            }
            Self::HeadersTooLarge(size) => {
                let body = format!(
                    "{{\"error\":{{\"message\":\"tokengauge: the request headers are too large: {size}\",\
                     \"type\":\"tokengauge_headers_too_large\",\"code\":431}}}}"
                );
                json_response(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, body.into())
            }
        }
    }
}

fn json_response(status: StatusCode, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// A response body that is passed on unchanged. An error is held back until the data before it is written. The request
/// counts as active until this body is dropped.
#[derive(Debug)]
pub(super) struct CountedBody<B: TimedResponse, P: Protocol> {
    state: BodyState<B>,
    active: ActiveExchange,
    /// Whether the response is a 304 with a `Content-Length` header. Such a response has no body, but hyper keeps the
    /// header only if the body reports an unknown length.
    keeps_length: bool,
    protocol: P,
}

#[derive(Debug)]
enum BodyState<B> {
    Open(B),
    Failed(HeldError),
    /// The response of the listener itself.
    Local(Option<Bytes>),
}

impl<B: Body + TimedResponse> BodyState<B> {
    fn deadline(&self) -> Option<MonotonicInstant> {
        match self {
            Self::Open(inner) => inner.deadline(),
            Self::Failed(..) | Self::Local(..) => None,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Open(inner) => inner.size_hint(),
            Self::Failed(..) => SizeHint::default(),
            Self::Local(body) => SizeHint::with_exact(body.as_ref().map_or(0, Bytes::len) as u64),
        }
    }
}

impl<B, P> Body for CountedBody<B, P>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + TimedResponse + Unpin,
    P: Protocol,
{
    type Data = P::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<P::Data>, BoxError>>> {
        let Self { state, active, protocol, .. } = &mut *self;
        let track = |bytes| protocol.track(bytes);
        if let BodyState::Open(inner) = state {
            if P::LIMITS_UNWRITTEN && !active.has_room() {
                return Poll::Pending;
            }
            let error = match ready!(Pin::new(inner).poll_frame(cx)) {
                Some(Err(error)) => error.into(),
                Some(Ok(frame)) => {
                    if P::LIMITS_UNWRITTEN {
                        active.add_unwritten(frame.data_ref().map_or(0, Bytes::len));
                    }
                    return Poll::Ready(Some(Ok(frame.map_data(track))));
                }
                None => return Poll::Ready(None),
            };
            // Drops the failed body, so that its upstream does not wait for the client.
            *state = BodyState::Failed(HeldError::new(error, active.flush()));
        }
        match state {
            BodyState::Open(_) => Poll::Ready(None),
            BodyState::Failed(held) => {
                let error = ready!(held.poll(cx, active.flush(), protocol));
                active.truncate();
                Poll::Ready(error.map(Err))
            }
            BodyState::Local(body) => Poll::Ready(body.take().map(track).map(Frame::data).map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        !self.keeps_length
            && match &self.state {
                BodyState::Open(inner) => inner.is_end_stream(),
                BodyState::Failed(..) => false,
                BodyState::Local(body) => body.is_none(),
            }
    }

    fn size_hint(&self) -> SizeHint {
        if self.keeps_length { SizeHint::default() } else { self.state.size_hint() }
    }
}

impl<B: TimedResponse, P: Protocol> Drop for CountedBody<B, P> {
    fn drop(&mut self) {
        if let BodyState::Open(inner) = &mut self.state {
            let connection = self.active.connection_limits();
            let own = self.protocol.limits(connection).timeout();
            if let Some(timeout) = own.or_else(|| connection.timeout()) {
                inner.time_out(timeout);
            }
        }
    }
}
