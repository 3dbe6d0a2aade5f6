//! Integration tests of the proxy over loopback sockets, in one binary. The tests check order and bytes, but not
//! durations.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod aborts;
mod admin;
#[path = "../pages/admin_fields.rs"]
mod admin_fields;
mod admission;
mod bounds;
mod budgets;
mod clients;
mod coded;
mod collector;
mod console;
mod cost;
mod data_path;
mod disk;
mod drain;
mod engine;
mod exchanges;
mod exemplars;
mod first_minute;
mod hangs;
mod identity;
mod injected;
mod injector;
mod leaks;
mod lifecycle;
mod log;
mod network;
mod outages;
mod overload;
mod reload;
mod report;
mod request_log;
mod stats;
mod support;
mod traces;
mod unobserved;
mod unread;
mod websocket;
