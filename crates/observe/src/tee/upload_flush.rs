//! Detects when the whole request has been written to the upstream's socket.
//!
//! hyper takes the last frame of a body long before it writes this frame: it buffers up to 64 KiB while the kernel
//! accepts no more data, for example a long prompt on a slow connection. An HTTP/1.1 connection carries one request at
//! a time. The first flush after the end of the body therefore shows that the whole request was written.

use super::RequestObserver;
use tokengauge_types::clock;
use tokengauge_types::sync::{AtomicBool, Mutex, Ordering, lock};

/// Flush state shared by an upstream connection and the request body that it sends. While no body waits, a flush costs
/// one atomic load.
#[derive(Debug, Default)]
pub struct UploadFlush {
    is_expected: AtomicBool,
    observer: Mutex<Option<RequestObserver>>,
}

impl UploadFlush {
    /// Called after hyper has taken the last frame of the request body. The next flush then reports to `observer` that
    /// the whole request was sent.
    pub(crate) fn expect(&self, observer: RequestObserver) {
        *lock(&self.observer) = Some(observer);
        self.is_expected.store(true, Ordering::Release);
    }

    /// Records a flush: the kernel has accepted all data that hyper had to write.
    pub fn on_flushed(&self) {
        if self.is_expected.load(Ordering::Relaxed)
            && self.is_expected.swap(false, Ordering::Acquire)
        {
            let observer = lock(&self.observer).take();
            if let Some(observer) = observer {
                observer.request_written(clock::now());
            }
        }
    }
}
