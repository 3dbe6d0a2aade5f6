//! tokengauge: an OpenTelemetry-native observability proxy for LLM APIs.
//!
//! [`forward`] selects the upstream of a request, sends the request there and streams the response back.
//! `tokengauge-observe` copies the bytes and measures them on a separate thread, so that measuring delays no request.
//! [`app`] builds all parts from a [`config`] and owns their tasks.

pub mod admin;
pub mod app;
pub mod cli;
pub mod config;
pub mod forward;
pub mod scrape;
pub mod tcp;
