//! Parses the responses of LLM APIs, streamed or not, and counts their tokens.
//!
//! [`ResponseParser`] parses the response to one request: every common API format, streamed or in one piece, compressed
//! or plain. The parser does no I/O and reads no clock. The caller pushes the bytes of the body and receives the
//! events.
//!
//! ```
//! use tokengauge_llm::ResponseParser;
//! use tokengauge_llm::dialect::Event;
//!
//! let mut parser = ResponseParser::builder("/v1/chat/completions")
//!     .request_body(br#"{"model": "gpt-4o", "stream": true, "messages": []}"#)
//!     .status(200)
//!     .content_type("text/event-stream")
//!     .build()?;
//! let body = r#"data: {"choices": [{"index": 0, "delta": {"content": "Hello"}}]}
//!
//! data: {"choices": [{"index": 0, "delta": {"content": " world"}, "finish_reason": "stop"}]}
//!
//! data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
//!
//! data: [DONE]
//!
//! "#;
//! let mut text = String::new();
//! // The pieces of a body may end anywhere.
//! for piece in body.as_bytes().chunks(10) {
//!     parser.push(piece, |event, _| {
//!         if let Event::Text { text: new, .. } = event {
//!             text.push_str(new);
//!         }
//!     });
//! }
//! let summary = parser.finish(|_, _| {});
//! assert_eq!(text, "Hello world");
//! assert_eq!(summary.tokens.native, 2);
//! assert_eq!(summary.usage.and_then(|usage| usage.input), Some(9));
//! assert!(summary.is_complete);
//! # Ok::<(), tokengauge_llm::BuildError>(())
//! ```
//!
//! The parser consists of four stages, which can also be used separately:
//!
//! - [`decode`] removes content encodings.
//! - [`frame`] splits the body into frames: server-sent events, JSON values, AWS event streams or WebSocket messages.
//! - [`dialect`] translates each frame of an API format into events that are the same for all formats.
//! - [`count`] counts the tokens of the generated text.
//!
//! [`content`] assembles prompts and answers if content capture is enabled. [`budget`] limits the memory and the
//! decompressed bytes of all parsers of a process together.

mod accumulator;
mod body;
pub mod budget;
pub mod content;
pub mod count;
pub mod decode;
pub mod dialect;
pub mod frame;
mod parser;

pub use accumulator::{Choice, ResponseAccumulator};
pub use body::{BodyItem, BodyReader};
pub use parser::{BuildError, ResponseParser, ResponseParserBuilder, ResponseSummary};
