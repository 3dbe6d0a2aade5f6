//! Makes JSON text readable whose only fault is half a surrogate pair (`"\ud83d"`), which serde_json refuses.

use std::borrow::Cow;

const REPLACEMENT: &str = "\\ufffd";

/// Replaces every escape of half a pair by that of U+FFFD.
pub fn lone_surrogates(json: &str) -> Cow<'_, str> {
    let mut repaired = String::new();
    let mut kept = 0;
    let mut at = 0;
    while let Some(found) = json.get(at..).and_then(|rest| rest.find('\\')) {
        at += found;
        let Some(unit) = unit(json, at) else {
            // Another escape: its second character may be a backslash, too.
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

/// The UTF-16 unit whose escape stands at `at`.
fn unit(json: &str, at: usize) -> Option<u16> {
    let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok()
}
