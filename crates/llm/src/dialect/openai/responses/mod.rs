//! The Responses API: an answer is a list of items (messages, reasoning, tool calls), each with texts of its own.
//!
//! A stream tells a text up to four times over: in pieces, whole when the text is done, within its item when that is
//! done, and within the answer at the end. Some producers leave out some of these. [`Heard`] knows what was told, so
//! that each text counts once, at the first telling that it had.

mod heard;
mod output;
mod stream;

pub use output::Output;
pub use stream::Stream;

#[cfg(test)]
mod tests;
