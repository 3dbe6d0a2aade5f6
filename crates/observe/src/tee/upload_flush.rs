//! Detects when a request has left this process.
//!
//! hyper takes the last frame of a body long before it is written: it buffers up to 400 KiB while the kernel accepts no
//! more, as happens with a long prompt on a slow line. Over HTTP/1.1, where a connection carries one request at a time,
//! the end of the body is therefore reported by the flush that follows it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::RequestObserver;
use tokengauge_types::clock;

/// Shared by a connection and the request body that is sent over it. A flush that nobody waits for costs one load.
#[derive(Debug, Default)]
pub struct UploadFlush {
    is_expected: AtomicBool,
    observer: Mutex<Option<RequestObserver>>,
}

impl UploadFlush {
    /// Reports the end of the request at the next flush. hyper has taken the last frame of its body.
    pub(super) fn expect(&self, observer: RequestObserver) {
        *self.observer.lock().unwrap_or_else(PoisonError::into_inner) = Some(observer);
        self.is_expected.store(true, Ordering::Release);
    }

    /// Records that the kernel has taken everything that hyper had to write.
    pub fn on_flushed(&self) {
        if self.is_expected.load(Ordering::Relaxed)
            && self.is_expected.swap(false, Ordering::Acquire)
        {
            let observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(observer) = observer {
                observer.request_end(clock::now());
            }
        }
    }
}
