//! tokengauge: an OpenTelemetry-native observability proxy for LLM APIs.
//!
//! The data path forwards bytes and never waits for observation: [`route`] picks the upstream, [`forward`] sends the
//! request there and streams the response back. `tokengauge-observe` copies what passes and measures it on its own
//! thread. [`app`] builds everything from a [`config`] and owns the tasks.

pub mod admin;
pub mod app;
pub mod cli;
pub mod config;
pub mod console;
pub mod forward;
pub mod route;
pub mod scrape;
pub mod tcp;
