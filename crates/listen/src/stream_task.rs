//! Runs the task of each HTTP/2 stream, and ends a stream whose client does not read it.
//!
//! A client can read its connection and still not read one of its streams. hyper then waits for the flow-control window
//! of this stream, and polls nothing else of it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::Executor;
use pin_project_lite::pin_project;

use super::active_exchanges::ActiveExchanges;
use super::delivery::StreamState;
use super::send_timer::SendTimer;

/// Maximum size in bytes of the end of a response that is left to the HTTP/2 library without a timeout. Most streams end
/// with a short event, and their tasks then need not wait until it is written.
const SMALL_REST: usize = 1_024;

/// Starts the tasks of the streams of one connection.
#[derive(Clone, Debug)]
pub(super) struct StreamExecutor {
    pub(super) connection: Arc<ActiveExchanges>,
    pub(super) send_timeout: Duration,
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let Some(stream) = self.connection.new_stream().take() else {
            drop(tokio::spawn(future));
            return;
        };
        let connection = Arc::clone(&self.connection);
        let timer = SendTimer::new(self.send_timeout);
        drop(tokio::spawn(StreamTask { future: Some(future), connection, stream, timer }));
    }
}

pin_project! {
    /// The task of one stream.
    struct StreamTask<F> {
        // Receives the request and passes the response to the HTTP/2 library. `None` once it is done. If it is dropped
        // earlier, the library resets the stream.
        #[pin]
        future: Option<F>,
        connection: Arc<ActiveExchanges>,
        stream: Arc<StreamState>,
        timer: SendTimer,
    }
}

impl<F: Future<Output = ()>> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        if let Some(future) = this.future.as_mut().as_pin_mut()
            && future.poll(cx).is_ready()
        {
            this.future.set(None);
        }
        let is_done = this.future.is_none();
        let is_small = this.stream.unwritten_bytes() <= SMALL_REST;
        if is_done && (is_small || this.stream.poll_written(cx).is_ready()) {
            return Poll::Ready(());
        }
        let is_blocked = this.stream.has_unwritten_frames();
        let deadline = this.stream.limits().deadline();
        if !is_blocked && deadline.is_none() {
            return Poll::Pending;
        }
        let progress = is_blocked.then(|| this.stream.writes());
        let timeout = ready!(this.timer.poll(progress, deadline, cx));
        this.stream.time_out(timeout);
        if is_done {
            // The library has the complete response, and no longer resets the stream.
            this.connection.set_stuck();
        }
        Poll::Ready(())
    }
}
