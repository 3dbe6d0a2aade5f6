//! Bodies that leave a stamped copy of every frame at the channel and hand it on unchanged.
//!
//! hyper drops a body once `is_end_stream()` says so, without polling for `None`, and never polls those of HEAD, 204
//! and 304. So both wrappers forward `is_end_stream` and `size_hint`, and the response's `Drop` decides how it ended.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::{RequestObserver, UploadFlush};
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::event::{
    BackpressureTime, Direction, Ending, MIN_BACKPRESSURE, TimeoutKind, UpstreamFailure, WaitingFor,
};

/// A request's body on its way to the upstream.
#[derive(Debug)]
pub struct RequestBody<B> {
    inner: B,
    observer: RequestObserver,
    end: End,
}

/// Who says that the request's body was sent to its end.
#[derive(Debug)]
enum End {
    /// This body, when the last of it was handed on.
    Here,
    /// The connection, when that was written.
    UploadFlush(Arc<UploadFlush>),
    /// Nobody any more.
    Told,
}

impl<B> RequestBody<B> {
    pub fn new(inner: B, observer: RequestObserver) -> Self {
        Self { inner, observer, end: End::Here }
    }

    /// Leaves it to the connection, where it can tell, to say when this body was sent to its end.
    pub fn sent_over(&mut self, written: Option<Arc<UploadFlush>>) {
        self.end = written.map_or(End::Here, End::UploadFlush);
    }

    fn ended(&mut self, at: MonotonicInstant) {
        match std::mem::replace(&mut self.end, End::Told) {
            End::Here => self.observer.request_end(at),
            End::UploadFlush(written) => written.due(self.observer.clone()),
            End::Told => {}
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        let at = clock::now();
        match &polled {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.observer.arrival(
                        Direction::Request,
                        at,
                        data,
                        BackpressureTime::default(),
                    );
                } else if frame.is_trailers() {
                    self.observer.trailers(Direction::Request, at);
                }
                if frame.is_trailers() || self.inner.is_end_stream() {
                    self.ended(at);
                }
            }
            Some(Err(_)) => self.observer.end(at, Ending::RequestBodyFailed),
            None => self.ended(at),
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Why a response's body broke off; for the client it is a truncated body, never a clean end.
#[derive(Debug, thiserror::Error)]
pub enum Broken<E> {
    #[error(transparent)]
    Source(E),
    #[error("a time limit of the proxy ran out")]
    TimedOut,
}

/// Time limits of a response's body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Between two frames.
    pub idle: Option<Duration>,
    /// For the whole exchange.
    pub deadline: Option<Instant>,
}

/// A response's body on its way to the client.
#[derive(Debug)]
pub struct ResponseBody<B: Body<Data = Bytes> + Unpin> {
    inner: B,
    observer: RequestObserver,
    /// When the last frame was handed on; none while a frame is being asked for.
    handed: Option<MonotonicInstant>,
    /// How long the client's side had not asked, where that is worth telling.
    blocked: BackpressureTime,
    over: bool,
    /// Boxed, and only where a limit is set: by default a proxy must not cut a thinking model.
    timers: Option<Box<Timers>>,
}

impl<B: Body<Data = Bytes> + Unpin> ResponseBody<B> {
    pub fn new(inner: B, observer: RequestObserver, limits: Limits) -> Self {
        let timers = Timers::new(limits).map(Box::new);
        observer.wait_for(WaitingFor::Upstream, clock::now());
        Self {
            inner,
            observer,
            handed: None,
            blocked: BackpressureTime::default(),
            over: false,
            timers,
        }
    }

    /// A body that says nothing: its exchange goes on, or ended, elsewhere.
    pub fn silent(inner: B, observer: RequestObserver) -> Self {
        Self {
            inner,
            observer,
            handed: None,
            blocked: BackpressureTime::default(),
            over: true,
            timers: None,
        }
    }

    /// Being asked again: what passed since the last frame was handed on was the client's time.
    fn asked(&mut self) {
        let Some(handed) = self.handed.take() else {
            return;
        };
        let at = clock::now();
        let pause = at.since(handed);
        self.blocked = if pause >= MIN_BACKPRESSURE {
            BackpressureTime::from_duration(pause)
        } else {
            BackpressureTime::default()
        };
        self.observer.wait_for(WaitingFor::Upstream, at);
        if let Some(timers) = &mut self.timers {
            timers.restart_idle();
        }
    }

    fn hand_on(&mut self, frame: &Frame<Bytes>) {
        let at = clock::now();
        if let Some(data) = frame.data_ref() {
            self.observer.arrival(Direction::Response, at, data, self.blocked);
        } else if frame.is_trailers() {
            // Nothing can follow, and nobody need ask whether anything does.
            self.observer.trailers(Direction::Response, at);
            self.finish(Ending::Complete);
        }
        self.observer.wait_for(WaitingFor::Client, at);
        self.handed = Some(at);
    }

    fn finish(&mut self, ending: Ending) {
        if !std::mem::replace(&mut self.over, true) {
            self.observer.end(clock::now(), ending);
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = Broken<B::Error>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.asked();
        // First, or an upstream that always has more, or a client that hardly asks, would never meet it.
        if self.timers.as_mut().is_some_and(|timers| timers.is_over(cx)) {
            self.finish(Ending::TimedOut(TimeoutKind::Total));
            return Poll::Ready(Some(Err(Broken::TimedOut)));
        }
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.hand_on(&frame);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                self.finish(Ending::UpstreamFailed(UpstreamFailure::MidBody));
                Poll::Ready(Some(Err(Broken::Source(error))))
            }
            Poll::Ready(None) => {
                self.finish(Ending::Complete);
                Poll::Ready(None)
            }
            Poll::Pending => {
                let Some(timers) = &mut self.timers else {
                    return Poll::Pending;
                };
                ready!(timers.poll_idle(cx));
                self.finish(Ending::TimedOut(TimeoutKind::Idle));
                Poll::Ready(Some(Err(Broken::TimedOut)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B: Body<Data = Bytes> + Unpin> Drop for ResponseBody<B> {
    fn drop(&mut self) {
        let ending =
            if self.inner.is_end_stream() { Ending::Complete } else { self.observer.abandoned() };
        self.finish(ending);
    }
}

#[derive(Debug)]
struct Timers {
    idle: Option<(Duration, Pin<Box<Sleep>>)>,
    total: Option<Pin<Box<Sleep>>>,
}

impl Timers {
    fn new(limits: Limits) -> Option<Self> {
        let Limits { idle, deadline } = limits;
        if idle.is_none() && deadline.is_none() {
            return None;
        }
        Some(Self {
            idle: idle.map(|limit| (limit, Box::pin(sleep(limit)))),
            total: deadline.map(|at| Box::pin(sleep_until(at))),
        })
    }

    fn restart_idle(&mut self) {
        if let Some((limit, sleep)) = &mut self.idle {
            sleep.as_mut().reset(Instant::now() + *limit);
        }
    }

    /// Whether the time for the whole exchange has run out.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        let total = self.total.as_mut();
        total.is_some_and(|total| total.as_mut().poll(cx).is_ready())
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.idle {
            Some((_, idle)) => idle.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests;
