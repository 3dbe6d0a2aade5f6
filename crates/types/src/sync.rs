//! Locks that ignore poisoning, and the primitives of code that several threads use without a lock.
//!
//! The models in `loom/` replace this module by one that tries all interleavings of threads. Code with a model imports
//! its primitives from here.

pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub use std::sync::{Mutex, MutexGuard};

use std::sync::PoisonError;

/// Locks a mutex even if it is poisoned. The caller ensures that a panic leaves the guarded value consistent.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
