//! Types shared by the tokengauge crates: timestamps, bounded text, rolling windows, and the events of a request and
//! its response.
//!
//! This crate does not depend on a runtime, an HTTP implementation or a telemetry library.

pub mod bounded;
pub mod clock;
pub mod error;
pub mod event;
pub mod label;
pub mod notifier;
pub mod rolling_window;
pub mod sync;
pub mod tcp;
pub mod url;
pub mod value;
