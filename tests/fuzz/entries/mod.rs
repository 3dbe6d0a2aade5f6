//! Entry points of the fuzz targets.
//!
//! The first bytes of an input select the operation and its subject. Each entry point asserts properties that must hold
//! for every input, in addition to the absence of panics.
//!
//! libFuzzer calls the entry points through `fuzz/`, which includes this folder. The tests in the parent folder call
//! them, too.

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
pub use dialects::{STATUSES, dialects, floods, templates};
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
