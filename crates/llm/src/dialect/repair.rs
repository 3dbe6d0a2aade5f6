//! Parses JSON with small faults that serde_json rejects. Providers send half of a surrogate pair (`"\ud83d"`), invalid
//! UTF-8, duplicate keys, and `NaN` and `Infinity`, which Python writes for log probabilities.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde::Deserialize;
use serde_json::Value;

use super::lenient;

const REPLACEMENT: &str = "\\ufffd";

/// Matches an escape in a string. The first group matches only half of a surrogate pair. Complete pairs and other
/// escapes match without the group.
static UNICODE_ESCAPE: LazyLock<Regex> = LazyLock::new(|| {
    let high = r"\\u[dD][89abAB][[:xdigit:]]{2}";
    let low = r"\\u[dD][c-fC-F][[:xdigit:]]{2}";
    pattern(&format!(r"{high}{low}|({high}|{low})|\\."))
});

/// Matches a string, or a number that JSON does not define. Only the number is in the first group.
static NOT_NUMBER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#""(?:[^"\\]|\\.)*"|(NaN|-?Infinity)"#));

fn pattern(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is valid")
}

/// A message that was parsed after a repair.
#[derive(Debug)]
pub struct Repaired {
    pub tree: Value,
    /// Whether text was replaced by U+FFFD.
    pub lossy: bool,
}

/// Parses a message. A faulty message is first repaired in `buffer`. The flag is set if text was lost.
pub fn read<'d, Message: Deserialize<'d>>(
    data: &'d [u8],
    buffer: &'d mut Option<Repaired>,
) -> Option<(Message, bool)> {
    lenient::take_misfit();
    let text = std::str::from_utf8(data).ok();
    if let Some(message) = text.and_then(|text| serde_json::from_str(text).ok()) {
        return Some((message, false));
    }
    lenient::take_misfit();
    let repaired: &'d Repaired = buffer.insert(tree(data)?);
    let message = Message::deserialize(&repaired.tree).ok()?;
    Some((message, repaired.lossy))
}

/// Repairs and parses a message. Returns `None` if the repaired message is not JSON either.
pub fn tree(data: &[u8]) -> Option<Repaired> {
    let utf8 = String::from_utf8_lossy(data);
    let json = replace_first_group(&UNICODE_ESCAPE, &utf8, REPLACEMENT);
    let lossy = matches!(utf8, Cow::Owned(_)) || json != utf8;
    let tree = serde_json::from_str(&json)
        .or_else(|_| serde_json::from_str(&replace_first_group(&NOT_NUMBER, &json, "null")))
        .ok()?;
    Some(Repaired { tree, lossy })
}

/// Replaces every match in which the first group matches.
fn replace_first_group<'j>(pattern: &Regex, json: &'j str, by: &str) -> Cow<'j, str> {
    pattern.replace_all(json, |found: &Captures<'_>| match found.get(1) {
        Some(_) => by.to_owned(),
        None => found.get(0).map_or("", |all| all.as_str()).to_owned(),
    })
}
