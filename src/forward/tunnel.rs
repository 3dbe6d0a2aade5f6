//! After a 101 both sides speak something else: bytes are copied both ways, and each way through the tap.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};

use super::admission::Place;
use tokengauge_observe::tee::Tap;
use tokengauge_types::clock;
use tokengauge_types::event::{Blocked, Direction, Ending, Failure};

/// Both sides of an upgraded exchange, and what it holds until it ends.
pub(super) struct Tunnel {
    pub(super) client: OnUpgrade,
    pub(super) upstream: OnUpgrade,
    pub(super) tap: Tap,
    pub(super) place: Option<Place>,
}

impl Tunnel {
    /// Copies until both sides have ended, or one failed. Dropped before, the tap says that it was abandoned.
    pub(super) async fn run(self) {
        let Self { client, upstream, tap, place: _place } = self;
        let Ok(upstream) = upstream.await else {
            tap.end(clock::now(), Ending::UpstreamFailed(Failure::Protocol));
            return;
        };
        let Ok(client) = client.await else {
            tap.end(clock::now(), tap.abandoned());
            return;
        };
        let mut client = Observed::new(TokioIo::new(client), &tap, Direction::Request);
        let mut upstream = Observed::new(TokioIo::new(upstream), &tap, Direction::Response);
        let ending = match copy_bidirectional(&mut client, &mut upstream).await {
            Ok(_) => Ending::Complete,
            Err(_) if upstream.failed => Ending::UpstreamFailed(Failure::MidBody),
            Err(_) => tap.abandoned(),
        };
        tap.end(clock::now(), ending);
    }
}

/// One side of a tunnel; what is read from it is an arrival, and its end is said once.
struct Observed<'tap, T> {
    inner: T,
    tap: &'tap Tap,
    direction: Direction,
    ended: bool,
    failed: bool,
}

impl<'tap, T> Observed<'tap, T> {
    fn new(inner: T, tap: &'tap Tap, direction: Direction) -> Self {
        Self { inner, tap, direction, ended: false, failed: false }
    }

    /// Remembers that this side failed, so that it is known whose fault the end was.
    fn noting<R>(&mut self, polled: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
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
        ready!(self.noting(polled))?;
        let read = buf.filled().get(before..).unwrap_or_default();
        let (tap, at) = (self.tap, clock::now());
        if !read.is_empty() {
            tap.arrival(self.direction, at, read, Blocked::default());
        } else if !std::mem::replace(&mut self.ended, true) {
            tap.closed(self.direction, at);
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
        self.noting(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        self.noting(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.noting(polled)
    }
}
