//! The parser's events, and where they stand.

use std::ops::Range;

use serde_saphyr::granit_parser::{Event, Parser, ScanError, Span, options};

use super::MAX_DEPTH;
use super::error::Error;

/// The parser's events with the bytes they stand in.
pub(super) fn events<'t>(
    text: &'t str,
    comments: bool,
) -> impl Iterator<Item = Result<(Event<'t>, Bytes), Error>> {
    let options = options! {
        emit_anchor_events: true,
        emit_comments: comments,
        max_buffered_comment_events: usize::MAX,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    Parser::new_from_str_with_options(text, options).map(|event| match event {
        Ok((event, span)) => Ok((event, Bytes::of(span))),
        Err(error) => Err(syntax(&error)),
    })
}

fn syntax(error: &ScanError) -> Error {
    let line = error.marker().line().max(1);
    if error.info().contains("recursion limit") {
        return Error::TooDeep { line };
    }
    Error::Syntax { line, column: error.marker().col() + 1, message: error.info().clone() }
}

/// Where an event stands, and its column in characters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) column: usize,
    pub(super) tag: Option<usize>,
}

impl Bytes {
    /// Of a parser of a `&str` every marker has its offset.
    fn of(span: Span) -> Self {
        let start = span.start.byte_offset().unwrap_or_default();
        Self {
            start,
            end: span.end.byte_offset().unwrap_or_default().max(start),
            column: span.start.col(),
            tag: span.tag_start().and_then(|mark| mark.byte_offset()),
        }
    }

    pub(super) fn range(self) -> Range<usize> {
        self.start..self.end
    }
}
