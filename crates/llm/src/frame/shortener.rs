//! Shortens a JSON message that exceeds the size limit of a frame, while the message arrives.
//!
//! Images, audio and files are long strings in a message. The shortened message has empty strings in their place. All
//! other values stay, such as the type, the token counts and the finish reason, in any order. If the rest is still too
//! long, shorter strings and the ends of long lists are removed, too. The result does not depend on how the message is
//! split, and contains no part of a removed string.

use memchr::memchr2;

/// Divides the size limit of a frame. The quotient is the target size of a shortened message: 128 KiB for 1 MiB.
const LIMIT_DIVISOR: usize = 8;

/// Divides the size limit of a frame. The quotient is the maximum capacity of the buffer. A string is removed only when
/// it turns out to be too long, so the buffer exceeds the target size by up to one string.
const CAPACITY_DIVISOR: usize = 4;

/// What is removed, least first. A level applies if the levels before it did not remove enough.
const LEVELS: [Level; 4] = [
    Level { string_divisor: 16, elements: u16::MAX },
    Level { string_divisor: 256, elements: 1_024 },
    Level { string_divisor: 2_048, elements: 64 },
    Level { string_divisor: 8_192, elements: 16 },
];

/// Strings up to this length in bytes are never removed. Identifiers, types and model names are shorter.
const MIN_REMOVED_BYTES: usize = 128;

/// Maximum depth of objects and lists whose content is kept. The deepest value that a format reads has 12 levels.
const MAX_DEPTH: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Level {
    /// Divides the size limit of a frame. Strings that are longer than the quotient are removed.
    string_divisor: usize,
    /// Number of elements of a list that are kept.
    elements: u16,
}

/// Shortens one JSON object or list.
#[derive(Debug)]
pub struct Shortener {
    /// Size limit of a frame in bytes. All other limits derive from it.
    cap: usize,
    level: Level,
    stricter: &'static [Level],
    kept: Vec<u8>,
    /// Number of open objects and lists in `kept`.
    depth: usize,
    /// For each open object or list, whether it is a list. The lowest bit is the outermost one.
    lists: u64,
    /// Number of commas so far in each open list.
    commas: [u16; MAX_DEPTH],
    /// Number of open objects and lists whose rest is skipped, counted from the outermost one that is in `kept`.
    skipped: u32,
    string: InString,
    /// Whether the last byte of a string was a backslash, which escapes the next byte.
    escaped: bool,
    /// Whether the message is not a JSON object or list, or cannot be shortened.
    is_broken: bool,
}

/// Position relative to a string.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum InString {
    Outside,
    /// In a string whose text starts at this offset of `kept`.
    Kept {
        start: usize,
    },
    /// In a string whose text is removed.
    Removed,
    /// In a string in a skipped object or list. Its quotes are removed, too.
    Skipped,
}

impl Shortener {
    /// Creates a shortener for a message that exceeds `cap` bytes.
    pub const fn new(cap: usize) -> Self {
        let [level, stricter @ ..] = &LEVELS;
        Self::with_level(cap, *level, stricter)
    }

    const fn with_level(cap: usize, level: Level, stricter: &'static [Level]) -> Self {
        Self {
            cap,
            level,
            stricter,
            kept: Vec::new(),
            depth: 0,
            lists: 0,
            commas: [0; MAX_DEPTH],
            skipped: 0,
            string: InString::Outside,
            escaped: false,
            is_broken: false,
        }
    }

    /// Reads the next bytes of the message.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((byte, after)) = rest.split_first().filter(|_| !self.is_broken) {
            rest = self.step(*byte, rest, after);
        }
    }

    /// Reads bytes up to the opening quote of the string under the top-level key `bytes`. Returns the bytes after the
    /// quote, or `None` if the quote is not in `bytes`. [`Self::end_wrapped`] must follow.
    pub fn push_to_wrapped<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let mut rest = bytes;
        while let Some((byte, after)) = rest.split_first().filter(|_| !self.is_broken) {
            let was_outside = self.string == InString::Outside;
            rest = self.step(*byte, rest, after);
            let is_in_string = matches!(self.string, InString::Kept { .. });
            if was_outside
                && is_in_string
                && self.depth == 1
                && self.kept.ends_with(br#""bytes":""#)
            {
                return Some(rest);
            }
        }
        None
    }

    /// Replaces the string that [`Self::push_to_wrapped`] found by `text`, which needs no escapes.
    pub fn end_wrapped(&mut self, text: &[u8]) {
        self.keep(text);
        self.keep(b"\"");
        self.string = InString::Outside;
    }

    /// Returns the shortened message, or `None` if the message is incomplete, not an object or list, or still too long.
    pub fn finish(self) -> Option<Vec<u8>> {
        self.is_complete().then_some(self.kept)
    }

    pub const fn is_complete(&self) -> bool {
        !self.is_broken && self.depth == 0 && !self.kept.is_empty()
    }

    pub const fn capacity(&self) -> usize {
        self.kept.capacity()
    }

    fn step<'a>(&mut self, byte: u8, rest: &'a [u8], after: &'a [u8]) -> &'a [u8] {
        if self.string != InString::Outside {
            return self.read_string(rest);
        }
        if !byte.is_ascii_whitespace() {
            if self.skipped > 0 {
                self.skip(byte);
            } else {
                self.read_structure(byte);
                self.tighten();
            }
        }
        after
    }

    /// Reads a byte outside of strings.
    fn read_structure(&mut self, byte: u8) {
        match byte {
            b'{' | b'[' if self.depth > 0 || self.kept.is_empty() => self.open(byte),
            _ if self.depth == 0 => self.give_up(),
            b'}' | b']' => self.close(byte),
            b'"' => {
                self.keep(b"\"");
                self.string = InString::Kept { start: self.kept.len() };
            }
            b',' if self.is_list_full() => self.skipped = 1,
            _ => self.keep(&[byte]),
        }
    }

    fn open(&mut self, byte: u8) {
        self.keep(&[byte]);
        if let Some(commas) = self.commas.get_mut(self.depth) {
            *commas = 0;
            self.lists = self.lists & !(1 << self.depth) | u64::from(byte == b'[') << self.depth;
        } else {
            self.skipped = 1;
        }
        self.depth += 1;
    }

    fn close(&mut self, byte: u8) {
        self.keep(&[byte]);
        self.depth -= 1;
    }

    /// Counts a comma. Returns whether the rest of its list is skipped.
    fn is_list_full(&mut self) -> bool {
        let inner = self.depth - 1;
        let Some(commas) = self.commas.get_mut(inner).filter(|_| self.lists & 1 << inner != 0)
        else {
            return false;
        };
        *commas = commas.saturating_add(1);
        *commas >= self.level.elements
    }

    /// Reads a byte of an object or list whose rest is skipped.
    fn skip(&mut self, byte: u8) {
        match byte {
            b'"' => self.string = InString::Skipped,
            b'{' | b'[' => self.skipped = self.skipped.saturating_add(1),
            b'}' | b']' => {
                self.skipped -= 1;
                if self.skipped == 0 {
                    self.close(byte);
                }
            }
            _ => {}
        }
    }

    fn read_string<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let escaped = usize::from(std::mem::take(&mut self.escaped));
        let from = bytes.get(escaped..).unwrap_or_default();
        let end = memchr2(b'"', b'\\', from).map_or(bytes.len(), |end| end + escaped);
        let (run, rest) = bytes.split_at_checked(end).unwrap_or((bytes, b""));
        self.keep_text(run);
        let Some((byte, rest)) = rest.split_first() else {
            return rest;
        };
        if *byte == b'\\' {
            self.keep_text(b"\\");
            self.escaped = true;
            return rest;
        }
        let was = std::mem::replace(&mut self.string, InString::Outside);
        if was != InString::Skipped {
            self.keep(b"\"");
            self.tighten();
        }
        rest
    }

    /// Keeps a part of a string, or removes the string if it is now too long.
    fn keep_text(&mut self, run: &[u8]) {
        let InString::Kept { start } = self.string else {
            return;
        };
        let least = MIN_REMOVED_BYTES.min(self.cap / LEVELS[0].string_divisor);
        let longest = (self.cap / self.level.string_divisor).max(least);
        if self.kept.len() - start + run.len() > longest {
            self.kept.truncate(start);
            self.string = InString::Removed;
        } else {
            self.keep(run);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        append(&mut self.kept, bytes, self.cap / CAPACITY_DIVISOR);
    }

    /// Removes more if the kept bytes exceed their limit. Only called outside of strings, so that the result does not
    /// depend on how the message is split.
    fn tighten(&mut self) {
        if self.kept.len() <= self.cap / LIMIT_DIVISOR {
            return;
        }
        let Some((level, stricter)) = self.stricter.split_first() else {
            return self.give_up();
        };
        let kept = std::mem::take(&mut self.kept);
        *self = Self::with_level(self.cap, *level, stricter);
        self.push(&kept);
    }

    fn give_up(&mut self) {
        self.is_broken = true;
        self.kept = Vec::new();
    }
}

/// Appends `piece` to `kept`. The caller ensures that the result has at most `cap` bytes. The capacity of the vector
/// doubles when it is full, but never exceeds `cap`.
pub fn append(kept: &mut Vec<u8>, piece: &[u8], cap: usize) {
    let needed = kept.len() + piece.len();
    if needed > kept.capacity() {
        let room = (kept.capacity() * 2).min(cap).max(needed);
        kept.reserve_exact(room - kept.len());
    }
    kept.extend_from_slice(piece);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const CAP: usize = 1 << 20;

    fn shorten(cap: usize, pieces: &[&[u8]]) -> Option<String> {
        let mut shortener = Shortener::new(cap);
        for piece in pieces {
            shortener.push(piece);
            assert!(shortener.capacity() <= cap / CAPACITY_DIVISOR + 2, "{}", shortener.capacity());
        }
        shortener.finish().map(|kept| String::from_utf8(kept).unwrap())
    }

    fn shortened(message: &Value) -> Value {
        let short = shorten(CAP, &[message.to_string().as_bytes()]).unwrap();
        serde_json::from_str(&short).unwrap()
    }

    #[test]
    fn removes_long_strings_and_keeps_everything_else() {
        let image = "iVBOR/+=".repeat(200_000);
        let message = |image: &str| {
            json!({
                "type": "done", "before": {"total": 12}, "image": image, "parts": [{"b64": image, "n": 1.5}],
                "text": "a \"quoted\" \\ text", "usage": {"input": 3, "none": null, "yes": true, "list": []},
            })
        };
        assert_eq!(shortened(&message(&image)), message(""));
    }

    #[test]
    fn removes_only_as_much_as_necessary() {
        // 100 strings of 2 KiB exceed the target size, and strings of 1 KiB do not.
        let message =
            |long: &str| json!({"long": vec![long; 100], "short": vec!["b"; 100], "end": 1});
        assert_eq!(shortened(&message(&"a".repeat(1_000))), message(&"a".repeat(1_000)));
        let short = shortened(&message(&"a".repeat(2_000)));
        assert_eq!((&short["end"], short["short"][0].as_str()), (&json!(1), Some("b")));
        assert_eq!(short["long"][63], json!(""));
        // A long list of short values loses its end.
        let short = shortened(&json!({"a": vec![0.125; 300_000], "usage": {"total": 7}}));
        assert_eq!(
            (short["a"].as_array().unwrap().len(), &short["usage"]["total"]),
            (1_024, &json!(7))
        );
        let nested =
            vec![json!({"id": "c", "top": vec![json!({"token": "x", "p": [1, 2]}); 20]}); 20_000];
        let short = shortened(&json!({"usage": 1, "logprobs": nested, "finish": "stop"}));
        assert_eq!((&short["usage"], &short["finish"]), (&json!(1), &json!("stop")));
    }

    #[test]
    fn skips_what_is_nested_too_deeply() {
        let deep = format!(r#"{{"a":{}"x]"{},"b":1}}"#, "[".repeat(5_000), "]".repeat(5_000));
        let expected = format!(r#"{{"a":{}{},"b":1}}"#, "[".repeat(32), "]".repeat(32));
        assert_eq!(shorten(CAP, &[deep.as_bytes()]).as_deref(), Some(&*expected));
    }

    #[test]
    fn gives_up_if_the_message_is_not_one_object_or_list() {
        for text in ["", " ", "{", "{\"a", "xyz", "\"text\"", "1", "}", "{}{}", "{} x", "[1]2"] {
            assert_eq!(shorten(CAP, &[text.as_bytes()]), None, "{text}");
        }
        let keys: Vec<String> = (0..100_000).map(|key| format!("\"{key}\":0")).collect();
        assert_eq!(shorten(CAP, &[format!("{{{}}}", keys.join(",")).as_bytes()]), None);
        assert_eq!(shorten(8, &[b"{\"a\":1}"]), None);
    }

    /// Generates JSON with strings and lists of any length, some of which end in a backslash or a quote.
    fn message() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            "[a-z]{0,12}",
            "[\\\\\"é\u{1F980}]{0,40}",
            (0..400_usize).prop_map(|length| "\"x".repeat(length)),
        ];
        let leaf = prop_oneof![
            text.prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            Just(Value::Null)
        ];
        leaf.prop_recursive(4, 60, 20, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..20).prop_map(Value::from),
                prop::collection::btree_map("[a-z]{0,3}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_result_is_json_and_the_same_for_every_cut(
            message in message(),
            pretty in any::<bool>(),
            size in 1..50_usize,
            cap in prop::sample::select(vec![40_usize, 400, 4_000, CAP]),
        ) {
            let message = json!({"of": message, "end": 7});
            let text = if pretty { serde_json::to_string_pretty(&message).unwrap() } else { message.to_string() };
            let whole = shorten(cap, &[text.as_bytes()]);
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(&shorten(cap, &pieces), &whole);
            if let Some(whole) = whole {
                let short: Value = serde_json::from_str(&whole).unwrap();
                prop_assert_eq!(&short["end"], &json!(7));
                prop_assert!(whole.len() <= text.len());
            }
        }
    }
}
