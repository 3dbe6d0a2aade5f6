//! The body of a page that is rendered in pieces while the client reads, to save memory.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::{Semaphore, mpsc};

/// The text of a page in pieces.
pub type Pieces = Box<dyn Iterator<Item = String> + Send>;

/// A response body that is rendered in pieces. Rendering stays at most two pieces ahead of the client.
#[derive(Debug)]
pub(super) struct PiecesBody {
    pieces: mpsc::Receiver<Option<Bytes>>,
    is_complete: bool,
}

impl PiecesBody {
    /// Creates the body. A blocking thread renders each piece. `rendering` is the permit that all pages share. `held`
    /// is dropped when the body is complete or the client has disconnected.
    pub(super) fn new(
        pieces: Pieces,
        rendering: Arc<Semaphore>,
        held: impl Send + 'static,
    ) -> Self {
        // One piece waits while the client reads the one before it.
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let _held = held;
            let mut rest = Some(pieces);
            while let Some(mut pieces) = rest.take() {
                let Ok(turn) = Arc::clone(&rendering).acquire_owned().await else { return };
                let rendered = tokio::task::spawn_blocking(move || {
                    let piece = pieces.next();
                    drop(turn);
                    (piece, pieces)
                });
                // After a panic, the body ends with an error, because the page is incomplete.
                let Ok((piece, pieces)) = rendered.await else { return };
                if piece.is_some() {
                    rest = Some(pieces);
                }
                if sender.send(piece.map(Bytes::from)).await.is_err() {
                    return;
                }
            }
        });
        Self { pieces: receiver, is_complete: false }
    }
}

impl Body for PiecesBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.is_complete {
            return Poll::Ready(None);
        }
        let piece = ready!(self.pieces.poll_recv(cx));
        self.is_complete = !matches!(piece, Some(Some(_)));
        Poll::Ready(match piece {
            Some(piece) => piece.map(|piece| Ok(Frame::data(piece))),
            None => Some(Err(io::Error::other("the page cannot be rendered completely"))),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.is_complete
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http_body_util::BodyExt;

    use super::*;

    fn body(pieces: impl Iterator<Item = String> + Send + 'static) -> PiecesBody {
        PiecesBody::new(Box::new(pieces), Arc::new(Semaphore::new(1)), ())
    }

    #[tokio::test]
    async fn delivers_all_pieces() {
        let pieces = ["one ", "two ", "three"].map(str::to_owned);
        let collected = body(pieces.into_iter()).collect().await.unwrap();
        assert_eq!(collected.to_bytes(), "one two three");
    }

    #[tokio::test]
    async fn renders_only_what_is_read() {
        let rendered = Arc::new(Mutex::new(0));
        let count = Arc::clone(&rendered);
        let mut body = body((0..100).map(move |piece: u32| {
            *count.lock().unwrap() += 1;
            piece.to_string()
        }));
        for _ in 0..3 {
            body.frame().await.unwrap().unwrap();
        }
        tokio::task::yield_now().await;
        let ahead = *rendered.lock().unwrap() - 3;
        assert!(ahead <= 2, "{ahead} pieces before they are read");
    }

    #[tokio::test]
    async fn a_page_that_cannot_be_rendered_does_not_look_complete() {
        let pieces = (0..3).map(|piece: u32| {
            assert!(piece < 2, "a fault in the third piece");
            piece.to_string()
        });
        body(pieces).collect().await.unwrap_err();
    }

    #[tokio::test]
    async fn what_is_held_is_released_when_the_client_disconnects() {
        let held = Arc::new(());
        let pieces = Box::new((0..100).map(|piece: u32| piece.to_string()));
        let mut body = PiecesBody::new(pieces, Arc::new(Semaphore::new(1)), Arc::clone(&held));
        body.frame().await.unwrap().unwrap();
        drop(body);
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
