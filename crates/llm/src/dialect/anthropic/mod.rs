//! Anthropic's formats: Messages and the older Complete, as served by Anthropic, Vertex, Bedrock and gateways, and
//! counting, which says nothing that counts here.
//!
//! A message comes as content blocks, numbered alike whatever they hold; there is one choice only.

mod body;
mod chunk;
mod request;
mod stream;
mod usage;

pub use request::is_prompt;

use super::asked::Format;
use super::shapes::Shapes;

pub const REQUEST: Format = Format { keys: request::KEYS, take: request::take };

/// Reads the answer of one call.
pub type Response = Shapes<stream::Stream, body::Message>;

#[cfg(test)]
mod tests;
