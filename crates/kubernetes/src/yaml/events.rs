//! Reads the events of the YAML parser with their positions, and splits a text into documents.

use std::ops::Range;

use serde_saphyr::granit_parser::{Event, Parser, ScanError, Span, options};

use super::{MAX_DEPTH, YamlError};

/// Returns the events of the YAML parser. `lines_before` is added to the line numbers in errors.
pub(super) fn events<'t>(
    text: &'t str,
    comments: bool,
    lines_before: usize,
) -> impl Iterator<Item = Result<(Event<'t>, Position), YamlError>> {
    let options = options! {
        emit_anchor_events: true,
        emit_comments: comments,
        max_buffered_comment_events: usize::MAX,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    Parser::new_from_str_with_options(text, options).map(move |event| match event {
        Ok((event, span)) => Ok((event, Position::from_span(span))),
        Err(error) => Err(syntax_error(&error, lines_before)),
    })
}

fn syntax_error(error: &ScanError, lines_before: usize) -> YamlError {
    let line = lines_before + error.marker().line().max(1);
    if error.info().contains("recursion limit") {
        return YamlError::TooDeep { line };
    }
    YamlError::Syntax { line, column: error.marker().col() + 1, message: error.info().clone() }
}

/// The byte range of an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) tag: Option<usize>,
}

impl Position {
    /// Converts a span of the parser. The markers of a `&str` parser always have a byte offset.
    fn from_span(span: Span) -> Self {
        let start = span.start.byte_offset().unwrap_or_default();
        Self {
            start,
            end: span.end.byte_offset().unwrap_or_default().max(start),
            tag: span.tag_start().and_then(|mark| mark.byte_offset()),
        }
    }

    pub(super) fn range(self) -> Range<usize> {
        self.start..self.end
    }
}

/// Splits a text into its YAML documents. Text before the first document belongs to the first, and text after the last
/// document to the last.
pub(super) fn split_documents(text: &str) -> Result<Vec<&str>, YamlError> {
    let mut cuts = vec![0];
    let mut documents = 0_usize;
    let mut after_end_marker = None;
    for event in events(text, false, 0) {
        let (event, position) = event?;
        if matches!(event, Event::DocumentStart(..)) {
            documents += 1;
            if documents > 1 {
                cuts.push(after_end_marker.take().unwrap_or(position.start));
            }
        } else if matches!(event, Event::DocumentEnd) && text.get(position.range()) == Some("...") {
            after_end_marker = Some(super::text::next_line(text, position.end));
        }
    }
    cuts.push(text.len());
    let pieces = cuts.windows(2).filter_map(|cut| match *cut {
        [from, to] if from < to => text.get(from..to),
        _ => None,
    });
    Ok(pieces.collect())
}
