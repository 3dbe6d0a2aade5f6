//! The entry points of the fuzzers. Each takes an input whose first bytes choose what is done and to what, and asserts
//! what must hold for every input: not only that nothing panics.
//!
//! libFuzzer drives them (`fuzz/`, which takes this folder in), and so do the tests beside this folder.

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
