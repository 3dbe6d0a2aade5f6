//! Reads errors that a response reports. Only the kind is read, such as `rate_limit_error`, because the text of an
//! error is content.
//!
//! [`ErrorScanner`](super::json::ErrorScanner) finds the kind in JSON bodies and in stream messages. A stream message
//! is scanned only if it contains an error ([`HasError`]).

use serde::de::{IgnoredAny, MapAccess, SeqAccess};

use super::lenient::{FromAny, Text, impl_lenient};
use super::{Event, EventSink};

/// Words that servers write into an error field if there is no error.
const NO_ERRORS: [&str; 8] = ["0", "200", "null", "none", "nil", "undefined", "ok", "success"];

/// Keys of an error object that describe the error. An object without any of them, or with empty values only, is no
/// error.
const DETAIL_KEYS: [&str; 9] =
    ["message", "msg", "detail", "details", "description", "type", "code", "status", "error"];

/// Returns whether the value of an error field describes an error.
pub fn states_error(word: &str) -> bool {
    let word = word.trim_ascii();
    !word.is_empty() && !NO_ERRORS.iter().any(|none| none.eq_ignore_ascii_case(word))
}

/// Whether a stream message contains an error: a text, an object with a message, a code or a type, or a list that
/// begins with one of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct HasError(pub bool);

impl<'de> FromAny<'de> for HasError {
    /// Other values, such as `false` or `0`, are no error.
    fn misfit() -> Self {
        Self::default()
    }

    fn copied(text: &str) -> Self {
        Self(states_error(text))
    }

    fn number(number: u64) -> Self {
        Self(!matches!(number, 0 | 200))
    }

    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let first = seq.next_element()?.unwrap_or_default();
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(first)
    }

    fn map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut has_detail = false;
        while let Some(Text(key)) = map.next_key()? {
            if DETAIL_KEYS.contains(&&*key) {
                has_detail |= map.next_value::<Self>()?.0;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Self(has_detail))
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

impl_lenient! {
    impl[] HasError;
}
