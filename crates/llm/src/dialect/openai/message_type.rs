//! Determines the type of a stream message, for APIs whose messages have many types.

use std::borrow::Cow;

use memchr::memchr;
use serde::Deserialize;

use crate::dialect::lenient::Text;
use crate::dialect::repair;

/// The beginning of most messages.
const FIRST_KEY: &[u8] = b"{\"type\":";

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Typed<'a> {
    #[serde(rename = "type")]
    kind: Text<'a>,
}

/// Returns the type of a message: the name of its event, or the value of its key `type`. Returns an empty string if
/// both are absent.
///
/// Not every server names its events. A name saves parsing the message, which can have 100 KB.
pub fn message_type<'a>(name: &'a [u8], data: &'a [u8]) -> Cow<'a, str> {
    if name == b"error" || name.contains(&b'.') {
        return String::from_utf8_lossy(name);
    }
    if let Some(kind) = first_value(data) {
        return Cow::Borrowed(kind);
    }
    match serde_json::from_slice::<Typed<'_>>(data) {
        Ok(message) => message.kind.0,
        Err(_) => of_repaired(data).map_or(Cow::Borrowed(""), Cow::Owned),
    }
}

/// Returns the type if it is the first key of the message and has no escapes.
fn first_value(data: &[u8]) -> Option<&str> {
    let value = data.strip_prefix(FIRST_KEY)?.trim_ascii_start();
    let text = value.strip_prefix(b"\"")?;
    let text = text.get(..memchr(b'"', text)?)?;
    let text = std::str::from_utf8(text).ok()?;
    (!text.contains('\\')).then_some(text)
}

fn of_repaired(data: &[u8]) -> Option<String> {
    let repaired = repair::tree(data)?;
    Some(repaired.tree.get("type")?.as_str()?.to_owned())
}
