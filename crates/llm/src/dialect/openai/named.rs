//! What a message of a stream says that it is, in the APIs whose messages are of many kinds.

use std::borrow::Cow;

use memchr::memchr;
use serde::Deserialize;

use crate::dialect::lenient::Text;
use crate::dialect::repair;

/// How most messages begin.
const FIRST_KEY: &[u8] = b"{\"type\":";

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Message<'a> {
    #[serde(rename = "type")]
    kind: Text<'a>,
}

/// The kind of a message: the name of its event, or else its `type`, wherever that stands. Empty where it has none.
///
/// The name says the same as the `type`, but not everyone sends names. It is worth a look: messages of which only the
/// kind is wanted may have a hundred kilobytes.
pub fn kind<'a>(name: &'a [u8], data: &'a [u8]) -> Cow<'a, str> {
    if name == b"error" || name.contains(&b'.') {
        return String::from_utf8_lossy(name);
    }
    if let Some(kind) = first_value(data) {
        return Cow::Borrowed(kind);
    }
    match serde_json::from_slice::<Message<'_>>(data) {
        Ok(message) => message.kind.0,
        Err(_) => of_repaired(data).map_or(Cow::Borrowed(""), Cow::Owned),
    }
}

/// The string that stands first in a message, if it is its type and has no escapes.
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
