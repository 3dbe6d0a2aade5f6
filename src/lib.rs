//! tokengauge: an OpenTelemetry-native observability proxy for LLM traffic.
//!
//! Two paths joined by one seam. The **data path** moves bytes and never waits for observation; the **observation
//! path** is pure, synchronous arithmetic over stamped copies of those bytes. The modules stand in the data's order:
//! bytes travel `listen` → `route` → `forward` → upstream and back through the `tee`; copies go `decode` → `frame` →
//! `dialect` → `count` → `measure` → `record`, and from there to `load`, `slo`, `drift` and `export`.

pub mod forward;
pub mod route;
pub mod tcp;

pub mod admin;
pub mod console;

pub mod app;
pub mod cli;
pub mod config;
#[cfg(feature = "desk")]
pub mod report;
pub mod scrape;
#[cfg(feature = "demo")]
pub mod simulate;
