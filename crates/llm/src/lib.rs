//! Parses LLM API streams and counts their tokens.
//!
//! Bytes of a response pass through four stages: [`decode`] removes content encodings, [`frame`] splits the body into
//! frames (server-sent events, JSON values, AWS event streams, WebSocket messages), [`dialect`] reads each frame as
//! events of one API format, and [`count`] counts the tokens of the generated text. [`content`] assembles prompts and
//! answers where content capture is enabled.

pub mod content;
pub mod count;
pub mod decode;
pub mod dialect;
pub mod frame;
