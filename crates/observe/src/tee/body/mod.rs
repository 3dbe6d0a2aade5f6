//! Body wrappers that copy every frame into the observation channel and pass the frame on unchanged.
//!
//! The wrappers forward `is_end_stream` and `size_hint`, because hyper relies on both. hyper drops a body as soon as
//! `is_end_stream()` is true, and never polls the bodies of HEAD, 204 and 304 responses. The end of a request is
//! therefore recorded when its response body is dropped, at the latest.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::{RequestObserver, UploadFlush};
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::event::{
    BackpressureTime, Direction, Ending, MIN_BACKPRESSURE, ObserverEvent, TimedResponse,
    TimeoutKind, UpstreamFailure, WaitingFor,
};

pin_project! {
    /// The body of an observed request.
    #[derive(Debug)]
    pub struct RequestBody<B> {
        #[pin]
        inner: B,
        observer: RequestObserver,
        end: EndReporter,
    }
}

/// Selects who reports that the whole request body was sent.
#[derive(Debug)]
enum EndReporter {
    /// The body reports the end when it passes on the last frame.
    Body,
    /// The upstream connection reports the end when it has written the last frame.
    Connection(Arc<UploadFlush>),
    /// The end was reported.
    Reported,
}

impl<B> RequestBody<B> {
    pub fn new(inner: B, observer: RequestObserver) -> Self {
        Self { inner, observer, end: EndReporter::Body }
    }

    pub const fn observer(&self) -> &RequestObserver {
        &self.observer
    }

    /// Lets the connection report the end of this body, if `flush` is given. Otherwise the body reports its end itself.
    pub fn report_end_by(&mut self, flush: Option<Arc<UploadFlush>>) {
        self.end = flush.map_or(EndReporter::Body, EndReporter::Connection);
    }

    /// Records that the caller has passed on `polled`, a result of [`poll_copied`](Self::poll_copied). `is_last` is
    /// true if no frame follows.
    pub fn report_passed_on<E>(
        self: Pin<&mut Self>,
        polled: Option<&Result<Frame<Bytes>, E>>,
        is_last: bool,
    ) {
        let this = self.project();
        match polled {
            Some(Ok(frame)) if !is_last && !frame.is_trailers() => {}
            Some(Ok(_)) | None => this.end.report(this.observer, clock::now()),
            Some(Err(_)) => this.observer.end(clock::now(), Ending::RequestBodyFailed),
        }
    }
}

impl<B: Body<Data = Bytes>> RequestBody<B> {
    /// Reads the next frame and copies it into the observation channel. The caller may hold the frame back, and calls
    /// [`report_passed_on`](Self::report_passed_on) when it passes the frame on.
    pub fn poll_copied(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let polled = ready!(this.inner.poll_frame(cx));
        if let Some(Ok(frame)) = &polled {
            let at = clock::now();
            if let Some(data) = frame.data_ref() {
                this.observer.record_body(
                    Direction::Request,
                    at,
                    data,
                    BackpressureTime::default(),
                );
            } else if frame.is_trailers() {
                this.observer.report(at, ObserverEvent::Trailers(Direction::Request));
            }
        }
        Poll::Ready(polled)
    }
}

impl EndReporter {
    fn report(&mut self, observer: &RequestObserver, at: MonotonicInstant) {
        match std::mem::replace(self, Self::Reported) {
            Self::Body => observer.request_end(at),
            Self::Connection(flush) => flush.expect(observer.clone()),
            Self::Reported => {}
        }
    }
}

impl<B: Body<Data = Bytes>> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = ready!(self.as_mut().poll_copied(cx));
        let is_last = self.inner.is_end_stream();
        self.report_passed_on(polled.as_ref(), is_last);
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

pin_project! {
    /// The body of an observed response.
    #[derive(Debug)]
    pub struct ResponseBody<B>
    where
        B: Body<Data = Bytes>,
    {
        #[pin]
        inner: B,
        observer: RequestObserver,
        // Time at which the last frame was passed on to the client. `None` while the client is polling for a frame.
        passed_on: Option<MonotonicInstant>,
        // Time in which the client did not poll before the current frame, if it is long enough to report.
        blocked: BackpressureTime,
        is_over: bool,
    }

    impl<B> PinnedDrop for ResponseBody<B>
    where
        B: Body<Data = Bytes>,
    {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if !*this.is_over {
                let is_complete = this.inner.is_end_stream();
                let ending = if is_complete { Ending::Complete } else { this.observer.abandoned() };
                this.observer.end(clock::now(), ending);
            }
        }
    }
}

impl<B: Body<Data = Bytes>> ResponseBody<B> {
    /// Observes `inner`. Has no effect if the request has ended or was upgraded to another protocol.
    pub fn new(inner: B, observer: RequestObserver) -> Self {
        let is_over = observer.is_ended() || observer.is_upgraded();
        if !is_over {
            observer.set_waiting_for(WaitingFor::Upstream, clock::now());
        }
        Self { inner, observer, passed_on: None, blocked: BackpressureTime::default(), is_over }
    }

    /// Records that the client polls again. The time since the last frame counts as backpressure of the client.
    fn begin_poll(self: Pin<&mut Self>) {
        let this = self.project();
        let Some(passed_on) = this.passed_on.take() else {
            return;
        };
        let at = clock::now();
        let pause = at.since(passed_on);
        *this.blocked = if pause >= MIN_BACKPRESSURE {
            BackpressureTime::from_duration(pause)
        } else {
            BackpressureTime::default()
        };
        this.observer.set_waiting_for(WaitingFor::Upstream, at);
    }

    fn record_frame(mut self: Pin<&mut Self>, frame: &Frame<Bytes>) {
        let at = clock::now();
        if let Some(data) = frame.data_ref() {
            self.observer.record_body(Direction::Response, at, data, self.blocked);
        } else if frame.is_trailers() {
            // Reports the trailers at once. They are the last frame, so the body may not be polled again.
            self.observer.report(at, ObserverEvent::Trailers(Direction::Response));
            self.as_mut().finish(Ending::Complete);
        }
        self.observer.set_waiting_for(WaitingFor::Client, at);
        *self.project().passed_on = Some(at);
    }

    fn finish(self: Pin<&mut Self>, ending: Ending) {
        let this = self.project();
        if !std::mem::replace(this.is_over, true) {
            this.observer.end(clock::now(), ending);
        }
    }
}

impl<B: Body<Data = Bytes> + TimedResponse> TimedResponse for ResponseBody<B> {
    fn deadline(&self) -> Option<MonotonicInstant> {
        self.inner.deadline()
    }

    fn time_out(&mut self, timeout: TimeoutKind) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.observer.end(clock::now(), Ending::TimedOut(timeout));
        }
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.as_mut().begin_poll();
        let polled = ready!(self.as_mut().project().inner.poll_frame(cx));
        match &polled {
            Some(Ok(frame)) => self.record_frame(frame),
            Some(Err(_)) => self.finish(Ending::UpstreamFailed(UpstreamFailure::MidBody)),
            None => self.finish(Ending::Complete),
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

#[cfg(test)]
mod tests;
