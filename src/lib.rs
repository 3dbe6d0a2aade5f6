//! tokengauge: an OpenTelemetry-native observability proxy for LLM APIs.
//!
//! The data path never waits for observation. [`route`] selects the upstream. [`forward`] sends the request there and
//! streams the response back. `tokengauge-observe` copies the bytes and measures them on its own thread. [`app`] builds
//! all parts from a [`config`] and owns their tasks.

pub mod admin;
pub mod app;
pub mod cli;
pub mod config;
pub mod console;
pub mod forward;
pub mod route;
pub mod scrape;
pub mod tcp;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex even if it is poisoned, because every critical section leaves its value consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
