//! Entry points of the fuzzers.
//!
//! The first bytes of an input select the operation and its subject. Each entry point asserts the invariants for every
//! input, in addition to the absence of panics.
//!
//! libFuzzer drives the entry points (`fuzz/`, which includes this folder), and so do the tests in the parent folder.

mod content;
mod dialects;
mod engines;
mod exchange;
mod frames;
mod inflaters;
mod manifests;
mod memory;
mod messages;
mod requests;
mod script;
mod sessions;
mod sockets;
mod tokens;
mod traces;

pub use content::content;
pub use dialects::{STATUSES, dialects, floods};
pub use engines::engines;
pub use exchange::{CODINGS, HEAD_STATUSES, board, exchange};
pub use frames::{CONTENT_TYPES, JSON, aws, elements, lines, sniffed, sse};
pub use inflaters::{br, codings, deflate, gzip, zstd};
pub use manifests::manifests;
pub use messages::Framed;
pub use requests::requests;
pub use sessions::realtime;
pub use sockets::websocket;
pub use tokens::tokens;
pub use traces::traces;
