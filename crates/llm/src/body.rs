//! Reads one response body: decodes its content encoding, splits it into frames and translates the frames into events.

use crate::budget::RequestBudget;
use crate::decode::ContentDecoder;
use crate::dialect::{self, Api, Event, RequestFacts, ResponseReader};
use crate::frame::{BudgetedFramer, Frame, ParseError, is_foreign_media_type};
use tokengauge_types::event::Headers;

/// Reads the body of one response, in pieces of any size.
#[derive(Debug)]
pub struct BodyReader {
    decoder: ContentDecoder,
    framer: BudgetedFramer,
    reader: ResponseReader,
    is_lossy: bool,
    /// Whether the model or its container chose the media type, such as CSV. The body is then not read.
    is_foreign: bool,
}

/// An item that is read from a body.
#[derive(Debug)]
pub enum BodyItem<'a> {
    Event(Event<'a>),
    /// End of a frame, after all events of the frame. `is_message` is true if the frame is one message of a stream.
    FrameEnd {
        is_message: bool,
    },
}

impl BodyReader {
    /// Creates the reader of a response with these headers. Calls `out` for counts, durations and errors that the
    /// headers report.
    pub fn new(
        api: Api,
        request: &RequestFacts,
        (status, headers): (u16, &Headers),
        budget: &RequestBudget,
        out: &mut impl FnMut(Event<'_>),
    ) -> Self {
        let is_whole = request.stream != Some(true);
        let failed = dialect::is_error(status);
        dialect::headers::read(headers, failed, is_whole, out);
        let is_foreign = !failed
            && api.has_free_media_type()
            && headers.get("content-type").is_some_and(is_foreign_media_type);
        Self {
            decoder: ContentDecoder::new(headers.get("content-encoding"), budget),
            framer: BudgetedFramer::new(headers.get("content-type"), api.json(), budget),
            reader: ResponseReader::new(api, request, status, budget),
            is_lossy: false,
            is_foreign,
        }
    }

    /// Parses the next bytes. Calls `out` for each item that these bytes complete. Returns `false` if a limit or the
    /// memory budget left some bytes unread.
    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(BodyItem<'_>)) -> bool {
        if self.is_foreign {
            return true;
        }
        let Self { decoder, framer, reader, is_lossy, .. } = self;
        let mut is_over_budget = false;
        let is_decoded = decoder.push(bytes, &mut |plain| {
            framer.push(plain, &mut |frame| is_over_budget |= read_frame(reader, frame, out));
        });
        *is_lossy |= is_over_budget || !is_decoded;
        if !is_decoded {
            framer.gap();
        }
        !is_over_budget && !decoder.is_given_up()
    }

    /// Records that bytes were lost. For server-sent events and JSON lines, parsing continues at the next event or
    /// line. The rest of any other body, and of a compressed body, is ignored.
    pub fn gap(&mut self) {
        self.decoder.gap();
        self.framer.gap();
        self.is_lossy = true;
    }

    /// Ends the body. Calls `out` for each item that is complete only at the end. `is_delivered` is true if HTTP
    /// delivered the whole body. Only then is a missing end marker a parse error.
    pub fn finish(&mut self, is_delivered: bool, out: &mut impl FnMut(BodyItem<'_>)) {
        let Self { decoder, framer, reader, is_lossy, is_foreign } = self;
        if is_delivered {
            decoder.end();
        }
        if *is_foreign || decoder.is_unread() {
            return;
        }
        let mut out = |item: BodyItem<'_>| {
            let ends_early =
                matches!(item, BodyItem::Event(Event::ParseError(ParseError::Unterminated)));
            if is_delivered || !ends_early {
                out(item);
            }
        };
        framer.finish(&mut |frame| *is_lossy |= read_frame(reader, frame, &mut out));
    }

    /// Returns whether a part of the body was lost or not decoded.
    pub const fn is_lossy(&self) -> bool {
        self.is_lossy
    }

    /// Returns whether the body is ignored because its media type belongs to the model or its container.
    pub const fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// Returns whether the body is ignored because its content encoding is unknown.
    pub const fn is_unread(&self) -> bool {
        self.decoder.is_unread()
    }

    /// Returns whether the compressed data ended too early.
    pub fn is_short(&self) -> bool {
        self.decoder.is_short()
    }

    /// Returns whether the body is a stream of messages, or `None` until enough bytes have arrived.
    pub fn is_stream(&self) -> Option<bool> {
        self.framer.is_stream()
    }

    /// Returns why the body was not decoded, or was decoded only in part. Returns `None` if no error occurred.
    pub const fn error(&self) -> Option<ParseError> {
        self.decoder.error()
    }
}

/// Reads one frame. Returns `true` if a part of the body was discarded because the memory budget was used up.
fn read_frame(
    reader: &mut ResponseReader,
    frame: Frame<'_>,
    out: &mut impl FnMut(BodyItem<'_>),
) -> bool {
    let mut is_lossy = false;
    reader.read(&frame, &mut |event| {
        is_lossy |= matches!(event, Event::ParseError(ParseError::Budget));
        out(BodyItem::Event(event));
    });
    out(BodyItem::FrameEnd { is_message: matches!(frame, Frame::Event { .. }) });
    is_lossy
}
