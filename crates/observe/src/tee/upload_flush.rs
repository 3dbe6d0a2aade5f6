//! Detects when the whole request has been written to the socket.
//!
//! hyper takes the last frame of a body long before it writes the frame. It buffers up to 64 KiB while the kernel
//! accepts no more data, for example during a long prompt on a slow connection. An HTTP/1.1 connection carries one
//! request at a time. So the first flush after the end of the body shows that the request was sent.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::RequestObserver;
use tokengauge_types::clock;
use tokengauge_types::sync::lock;

/// Flush state that a connection shares with the request body that it sends. A flush costs one atomic load if no body
/// waits for it.
#[derive(Debug, Default)]
pub struct UploadFlush {
    is_expected: AtomicBool,
    observer: Mutex<Option<RequestObserver>>,
}

impl UploadFlush {
    /// Arranges that the next flush reports the end of the request. Called after hyper has taken the last frame.
    pub(super) fn expect(&self, observer: RequestObserver) {
        *lock(&self.observer) = Some(observer);
        self.is_expected.store(true, Ordering::Release);
    }

    /// Records that the kernel has accepted all data that hyper had to write.
    pub fn on_flushed(&self) {
        if self.is_expected.load(Ordering::Relaxed)
            && self.is_expected.swap(false, Ordering::Acquire)
        {
            let observer = lock(&self.observer).take();
            if let Some(observer) = observer {
                observer.request_end(clock::now());
            }
        }
    }
}
