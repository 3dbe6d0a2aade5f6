//! When a request has left this process.
//!
//! hyper takes a body's last frame long before it is written: it holds up to 400 KiB back while the kernel takes no more,
//! as it does with a long prompt over a slow line. So over HTTP/1.1, where one request at a time uses a connection, the
//! body's end only makes its telling due; the flush that follows tells it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::RequestObserver;
use tokengauge_types::clock;

/// Shared by a connection and the body that is sent over it. A flush with nothing due costs a load.
#[derive(Debug, Default)]
pub struct UploadFlush {
    due: AtomicBool,
    observer: Mutex<Option<RequestObserver>>,
}

impl UploadFlush {
    /// The last of the body was handed to hyper.
    pub(super) fn due(&self, observer: RequestObserver) {
        *self.observer.lock().unwrap_or_else(PoisonError::into_inner) = Some(observer);
        self.due.store(true, Ordering::Release);
    }

    /// Everything that hyper had was written to the kernel.
    pub fn flushed(&self) {
        if self.due.load(Ordering::Relaxed) && self.due.swap(false, Ordering::Acquire) {
            let observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(observer) = observer {
                observer.request_end(clock::now());
            }
        }
    }
}
