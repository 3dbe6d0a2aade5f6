//! Reads errors that a response reports. Only the kind is read, such as `rate_limit_error`, because an error message is
//! content.
//!
//! An error in a message of a stream is parsed ([`ErrorValue`]). An error in a JSON body is scanned ([`ErrorScanner`](super::json::ErrorScanner)).

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{IgnoredAny, MapAccess, SeqAccess};

use super::json::identifier;
use super::lenient::{Code, FromAny, Text, impl_lenient};
use super::{Event, EventSink};

/// Kinds of errors that an API attributes to the request. APIs use them where a status does not show the kind: in
/// streams, in batches of responses and in sessions.
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

/// The value of `error` in a message of a stream.
#[derive(Debug, Default)]
pub enum ErrorValue<'a> {
    #[default]
    None,
    /// An error that consists only of a message.
    Message,
    Object(Box<ErrorObject<'a>>),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct ErrorObject<'a> {
    #[serde(rename = "type")]
    pub kind: Text<'a>,
    /// The name of the kind in Google's errors.
    pub status: Text<'a>,
    pub code: Code<'a>,
}

impl<'de: 'a, 'a> FromAny<'de> for ErrorValue<'a> {
    fn copied(text: &str) -> Self {
        if text.is_empty() { Self::None } else { Self::Message }
    }

    /// Reads the first of several errors and skips the others.
    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let first = seq.next_element()?.unwrap_or_default();
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(first)
    }

    fn map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        Box::deserialize(MapAccessDeserializer::new(map)).map(Self::Object)
    }
}

impl ErrorValue<'_> {
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Returns the first value of type, status and code that is an identifier.
    pub fn kind(&self) -> Option<&str> {
        let Self::Object(object) = self else {
            return None;
        };
        [&*object.kind.0, &*object.status.0, &*object.code.0].into_iter().find_map(identifier)
    }
}

/// How much of a response's error was reported. Several messages can report the same error, the first one with less
/// detail.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub enum ErrorDetail {
    #[default]
    None,
    Failure,
    Kind,
}

impl ErrorDetail {
    /// Returns whether an error event adds detail. Other events always pass.
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

    /// Returns a sink that passes on all events except errors that add no detail.
    pub fn filter(&mut self, out: &mut impl EventSink) -> impl EventSink {
        |event: Event<'_>| {
            if self.admits(&event) {
                out(event);
            }
        }
    }
}

/// Returns whether an error of this kind was caused by the client. A kind can be an HTTP status: 408 and 429 then mean
/// that the backend lacked time or capacity.
pub fn blames_client(kind: &str) -> bool {
    match kind.parse::<u16>() {
        Ok(status) => matches!(status, 400..=499) && !matches!(status, 408 | 429),
        Err(_) => CLIENT_ERRORS.iter().any(|known| kind.eq_ignore_ascii_case(known)),
    }
}

impl_lenient! {
    impl['a] ErrorValue<'a> where 'de: 'a;
}
