//! Reads errors that a response reports. Only the kind is read, such as `rate_limit_error`, because the text of an
//! error is content.
//!
//! [`ErrorScanner`](super::json::ErrorScanner) finds the kind in JSON bodies and in stream messages. A stream message
//! is scanned only if it contains an error ([`HasError`]).

use serde::de::{IgnoredAny, MapAccess, SeqAccess};

use super::lenient::{FromAny, impl_lenient};
use super::{Event, EventSink};

/// Kinds of errors that an API attributes to the client. Used where no HTTP status shows the cause: in streams, in
/// batches of responses and in sessions.
const CLIENT_ERRORS: [&str; 14] = [
    // OpenAI, Anthropic and most compatible APIs.
    "invalid_request_error",
    // Anthropic.
    "authentication_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    // vLLM and SGLang.
    "BadRequestError",
    "BadRequest",
    // TGI.
    "validation",
    // Google.
    "INVALID_ARGUMENT",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "NOT_FOUND",
    // AWS, whose event streams write the second with a small letter.
    "AccessDeniedException",
    "ValidationException",
];

/// Whether a stream message contains an error: an object, a text, or a list that begins with an object or a text.
#[derive(Clone, Copy, Debug, Default)]
pub struct HasError(pub bool);

impl<'de> FromAny<'de> for HasError {
    fn copied(text: &str) -> Self {
        Self(!text.is_empty())
    }

    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let first = seq.next_element()?.unwrap_or_default();
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(first)
    }

    fn map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self(true))
    }
}

/// How much of a response's error was reported, in increasing order. Several messages can report the same error, the
/// first without the kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub enum ErrorDetail {
    #[default]
    None,
    Failure,
    Kind,
}

impl ErrorDetail {
    /// Returns whether to emit an event. Errors without new detail are dropped.
    fn admits(&mut self, event: &Event<'_>) -> bool {
        let Event::Failed { kind } = event else {
            return true;
        };
        let detail = kind.map_or(Self::Failure, |_| Self::Kind);
        let adds = detail > *self;
        if adds {
            *self = detail;
        }
        adds
    }

    /// Returns a sink that passes on all events except errors without new detail.
    pub fn filter(&mut self, out: &mut impl EventSink) -> impl EventSink {
        |event: Event<'_>| {
            if self.admits(&event) {
                out(event);
            }
        }
    }
}

/// Returns whether the client caused an error of this kind. A kind can be an HTTP status. 408 and 429 do not count,
/// because the backend lacked time or capacity.
pub fn blames_client(kind: &str) -> bool {
    match kind.parse::<u16>() {
        Ok(status) => matches!(status, 400..=499) && !matches!(status, 408 | 429),
        Err(_) => CLIENT_ERRORS.iter().any(|known| kind.eq_ignore_ascii_case(known)),
    }
}

impl_lenient! {
    impl[] HasError;
}
