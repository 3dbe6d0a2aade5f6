//! Parses JSON with minor faults: half a surrogate pair (`"\ud83d"`), which serde_json rejects, invalid UTF-8, duplicate
//! keys, which only a tree of values allows, and `NaN` and `Infinity`, which Python writes for log probabilities.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

const REPLACEMENT: &str = "\\ufffd";

const NOT_NUMBERS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

/// A message that was parsed after a repair.
#[derive(Debug)]
pub struct Repaired {
    pub tree: Value,
    /// Text was replaced by U+FFFD.
    pub lossy: bool,
}

/// Parses a message, after repairing it in `room` if necessary. Also returns whether text was lost.
pub fn read<'d, Message: Deserialize<'d>>(
    data: &'d [u8],
    room: &'d mut Option<Repaired>,
) -> Option<(Message, bool)> {
    let text = std::str::from_utf8(data).ok();
    if let Some(message) = text.and_then(|text| serde_json::from_str(text).ok()) {
        return Some((message, false));
    }
    let repaired: &'d Repaired = room.insert(tree(data)?);
    let message = Message::deserialize(&repaired.tree).ok()?;
    Some((message, repaired.lossy))
}

/// Repairs a message. Returns `None` if it is not JSON then either.
pub fn tree(data: &[u8]) -> Option<Repaired> {
    let utf8 = String::from_utf8_lossy(data);
    let json = replace_lone_surrogates(&utf8);
    let lossy = matches!((&utf8, &json), (Cow::Owned(_), _) | (_, Cow::Owned(_)));
    let tree = serde_json::from_str(&json)
        .or_else(|_| serde_json::from_str(&replace_not_numbers(&json)))
        .ok()?;
    Some(Repaired { tree, lossy })
}

/// Replaces `NaN` and `Infinity` by null.
fn replace_not_numbers(json: &str) -> String {
    let mut repaired = String::with_capacity(json.len());
    let mut rest = json;
    let mut in_text = false;
    while let Some(at) = rest.find(['"', '\\', 'N', 'I', '-']) {
        let (before, found) = rest.split_at(at);
        repaired.push_str(before);
        let not_number = NOT_NUMBERS.iter().find(|word| found.starts_with(**word));
        let (kept, length) = match (not_number, in_text) {
            (Some(word), false) => ("null", word.len()),
            _ => {
                // The character after a backslash belongs to the escape, quote or not.
                let characters = if found.starts_with('\\') { 2 } else { 1 };
                let length = found.chars().take(characters).map(char::len_utf8).sum();
                in_text ^= found.starts_with('"');
                (found.get(..length).unwrap_or_default(), length)
            }
        };
        repaired.push_str(kept);
        rest = found.get(length..).unwrap_or_default();
    }
    repaired.push_str(rest);
    repaired
}

/// Replaces every escape of half a surrogate pair by that of U+FFFD.
fn replace_lone_surrogates(json: &str) -> Cow<'_, str> {
    let mut repaired = String::new();
    let mut kept = 0;
    let mut at = 0;
    while let Some(found) = json.get(at..).and_then(|rest| rest.find('\\')) {
        at += found;
        let Some(unit) = unit(json, at) else {
            // The second character of another escape may be a backslash, too.
            at += 2;
            continue;
        };
        let next = unit_after(json, at);
        let paired = (0xD800..0xDC00).contains(&unit)
            && next.is_some_and(|next| (0xDC00..0xE000).contains(&next));
        if paired {
            at += 12;
        } else {
            if (0xD800..0xE000).contains(&unit) {
                repaired.push_str(json.get(kept..at).unwrap_or_default());
                repaired.push_str(REPLACEMENT);
                kept = at + 6;
            }
            at += 6;
        }
    }
    if kept == 0 {
        return Cow::Borrowed(json);
    }
    repaired.push_str(json.get(kept..).unwrap_or_default());
    Cow::Owned(repaired)
}

fn unit_after(json: &str, at: usize) -> Option<u16> {
    unit(json, at + 6)
}

/// Returns the UTF-16 unit whose escape is at `at`.
fn unit(json: &str, at: usize) -> Option<u16> {
    let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok()
}
