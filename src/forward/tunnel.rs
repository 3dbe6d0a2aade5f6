//! Copies the bytes of an upgraded connection, such as a WebSocket, in both directions, and observes them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};

use super::limiter::Permit;
use tokengauge_observe::tee::RequestObserver;
use tokengauge_types::clock;
use tokengauge_types::event::{
    BackpressureTime, Direction, Ending, ObserverEvent, UpstreamFailure,
};

/// The two sides of an upgraded connection.
pub struct Tunnel {
    pub(super) client: OnUpgrade,
    pub(super) upstream: OnUpgrade,
    pub(super) observer: RequestObserver,
    /// Held until the tunnel ends.
    pub(super) permit: Option<Permit>,
}

impl Tunnel {
    /// Copies bytes until both sides have closed or one side has failed. If this future is dropped earlier, the request
    /// counts as aborted.
    pub(super) async fn run(self) {
        let Self { client, upstream, observer, permit: _permit } = self;
        let Ok(upstream) = upstream.await else {
            observer.end(clock::now(), Ending::UpstreamFailed(UpstreamFailure::Protocol));
            return;
        };
        let Ok(client) = client.await else {
            observer.end(clock::now(), observer.abandoned());
            return;
        };
        let mut client = Observed::new(TokioIo::new(client), &observer, Direction::Request);
        let mut upstream = Observed::new(TokioIo::new(upstream), &observer, Direction::Response);
        let ending = match copy_bidirectional(&mut client, &mut upstream).await {
            Ok(_) => Ending::Complete,
            Err(_) if upstream.failed => Ending::UpstreamFailed(UpstreamFailure::MidBody),
            Err(_) => observer.abandoned(),
        };
        observer.end(clock::now(), ending);
    }
}

/// One side of a tunnel: client or upstream. Reports all bytes that are read from this side, and its end once.
struct Observed<'a, T> {
    inner: T,
    observer: &'a RequestObserver,
    direction: Direction,
    ended: bool,
    failed: bool,
}

impl<'a, T> Observed<'a, T> {
    fn new(inner: T, observer: &'a RequestObserver, direction: Direction) -> Self {
        Self { inner, observer, direction, ended: false, failed: false }
    }

    /// Records an I/O error of this side. The observer can then report which side ended the tunnel.
    fn note_failure<R>(&mut self, polled: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        self.failed |= matches!(polled, Poll::Ready(Err(_)));
        polled
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Observed<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        ready!(self.note_failure(polled))?;
        let read = buf.filled().get(before..).unwrap_or_default();
        let (observer, at) = (self.observer, clock::now());
        if !read.is_empty() {
            observer.arrival(self.direction, at, read, BackpressureTime::default());
        } else if !std::mem::replace(&mut self.ended, true) {
            observer.report(at, ObserverEvent::Closed(self.direction));
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Observed<'_, T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.note_failure(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        self.note_failure(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.note_failure(polled)
    }
}
