//! Where a response's body comes from.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::admission::Permit;
use super::http1::Http1Connection;
use super::upstream::Upstream;

/// The body of a response: from the upstream, or the proxy's own.
#[derive(Debug)]
pub struct RelayBody {
    kind: Kind,
    /// The exchange's place under the limit; free again when the body is gone.
    _place: Option<Permit>,
}

#[derive(Debug)]
enum Kind {
    Own(Option<Bytes>),
    /// Fed by a task of its own: HTTP/2, or a link that was detached.
    Fed(Incoming),
    /// Fed by the link that is polled here.
    Linked {
        incoming: Incoming,
        lease: Option<Lease>,
    },
}

/// A link and the pool it goes back to once the body was read to its end.
pub(super) struct Lease {
    pub(super) link: Box<Http1Connection>,
    pub(super) upstream: Arc<Upstream>,
}

impl RelayBody {
    pub(super) fn own(body: Bytes) -> Self {
        Self { kind: Kind::Own((!body.is_empty()).then_some(body)), _place: None }
    }

    pub(super) fn upstream(
        incoming: Incoming,
        lease: Option<Lease>,
        place: Option<Permit>,
    ) -> Self {
        let kind = match lease {
            None => Kind::Fed(incoming),
            Some(lease) if incoming.is_end_stream() => {
                lease.give_back();
                Kind::Fed(incoming)
            }
            lease @ Some(_) => Kind::Linked { incoming, lease },
        };
        Self { kind, _place: place }
    }
}

impl Body for RelayBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        match &mut self.kind {
            Kind::Own(body) => Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
            Kind::Fed(incoming) => Pin::new(incoming).poll_frame(cx),
            Kind::Linked { incoming, lease } => poll_linked(incoming, lease, cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Own(body) => body.is_none(),
            Kind::Fed(incoming) | Kind::Linked { incoming, .. } => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Own(body) => SizeHint::with_exact(body.as_ref().map_or(0, Bytes::len) as u64),
            Kind::Fed(incoming) | Kind::Linked { incoming, .. } => incoming.size_hint(),
        }
    }
}

fn poll_linked(
    incoming: &mut Incoming,
    lease: &mut Option<Lease>,
    cx: &mut Context<'_>,
) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
    let polled = match lease {
        Some(Lease { link, .. }) => {
            link.poll_with(cx, |cx| Pin::new(&mut *incoming).poll_frame(cx))
        }
        None => Pin::new(&mut *incoming).poll_frame(cx),
    };
    let whole = match &polled {
        Poll::Ready(None) => true,
        Poll::Ready(Some(Ok(frame))) => frame.is_trailers() || incoming.is_end_stream(),
        Poll::Ready(Some(Err(_))) | Poll::Pending => false,
    };
    if whole && let Some(lease) = lease.take() {
        lease.give_back();
    }
    polled
}

impl Lease {
    fn give_back(self) {
        let Self { link, upstream } = self;
        upstream.keep(link);
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}
