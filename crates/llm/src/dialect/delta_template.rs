//! Reads a message that differs from the previous one only in its text, without parsing it.
//!
//! Most messages of a stream repeat the previous message, with another piece of text and other padding:
//!
//! ```text
//! {"id":"1","model":"m","choices":[{"index":0,"delta":{"content":"Hel"}}],"obfuscation":"x7"}
//! {"id":"1","model":"m","choices":[{"index":0,"delta":{"content":"lo"}}],"obfuscation":"Aq2"}
//! ```
//!
//! A template keeps the bytes around the text and around the values that the format ignores. If they match the next
//! message, and the bytes between them are the inside of JSON strings without escapes, then a parser would find the
//! same values and the new text.

use std::ops::Range;

use memchr::memchr2;

use super::{Event, Part};
use crate::budget::{MemoryPermit, RequestBudget};

/// Maximum length in bytes of a template and its event name. Each stream has one template. Messages of most providers
/// have 100 to 400 bytes around the text.
const MAX_TEMPLATE_BYTES: usize = 1024;

/// Maximum number of values that may differ between messages, including the text.
const MAX_GAPS: usize = 4;

/// Maximum number of digits of a number whose value may differ between messages. Numbers of up to 15 digits are exact
/// both as a 64-bit integer and as a double.
const MAX_DIGITS: usize = 15;

#[derive(Debug)]
pub struct DeltaTemplate {
    /// Name of the server-sent event.
    name: Vec<u8>,
    /// The bytes around the gaps, without the gaps.
    fixed: Vec<u8>,
    gaps: Vec<Gap>,
    /// The choice and its part that receive the text. `None` without a template.
    target: Option<(u32, Part)>,
    /// Whether a second parsed message matched the template. The match shows that such messages do not change the state
    /// of the format, so later messages need no parsing.
    is_confirmed: bool,
    memory: MemoryPermit,
}

/// A value that differs between messages.
#[derive(Clone, Debug)]
struct Gap {
    /// Position in the fixed bytes.
    at: usize,
    kind: GapKind,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum GapKind {
    Text,
    String,
    Number,
}

/// Observes the events of one parsed message.
#[derive(Debug)]
pub struct ObservedMessage<'m> {
    data: &'m [u8],
    /// Number of events.
    events: usize,
    /// Choice, part and byte range of a text that is a slice of the message.
    text: Option<(u32, Part, Range<usize>)>,
}

impl DeltaTemplate {
    pub fn new(budget: &RequestBudget) -> Self {
        Self {
            name: Vec::new(),
            fixed: Vec::new(),
            gaps: Vec::new(),
            target: None,
            is_confirmed: false,
            memory: budget.hold(),
        }
    }

    /// Returns the text of a message that matches the template. `None`: the message must be parsed.
    pub fn read<'m>(&self, name: &[u8], data: &'m [u8]) -> Option<Event<'m>> {
        let (choice, part) = self.target.filter(|_| self.is_confirmed)?;
        Some(Event::Text { choice, part, text: self.text(name, data)? })
    }

    /// Returns the text of a message with this form.
    fn text<'m>(&self, name: &[u8], data: &'m [u8]) -> Option<&'m str> {
        // Most streams have no event names. A comparison of two empty slices calls `memcmp` with a dangling pointer,
        // which takes 80 ns instead of 2 on a CPU with AVX-512, because the CPU must suppress a page fault.
        let is_unnamed = self.name.is_empty() && name.is_empty();
        if !is_unnamed && self.name != name {
            return None;
        }
        let (mut rest, mut from, mut text) = (data, 0, None);
        for gap in &self.gaps {
            rest = rest.strip_prefix(self.fixed.get(from..gap.at)?)?;
            let value;
            (value, rest) = rest.split_at_checked(gap.kind.length(rest)?)?;
            if gap.kind == GapKind::Text {
                text = Some(std::str::from_utf8(value).ok()?);
            } else if !value.is_ascii() {
                std::str::from_utf8(value).ok()?;
            }
            from = gap.at;
        }
        text.filter(|_| self.fixed.get(from..) == Some(rest))
    }

    /// Builds or confirms a template from a parsed message whose only event was a text. Other messages remove the
    /// template. Top-level members with a key in `ignored` may differ.
    pub fn learn(&mut self, name: &[u8], observed: &ObservedMessage<'_>, ignored: &[&str]) {
        let Some((choice, part, text)) = observed.only_text() else {
            self.target = None;
            return;
        };
        let target = Some((choice, part));
        let is_same = self.target == target
            && self
                .text(name, observed.data)
                .is_some_and(|found| position(observed.data, found) == Some(text.start));
        if is_same {
            self.is_confirmed = true;
        } else {
            self.is_confirmed = false;
            self.target = self.replace(name, observed.data, text, ignored).and(target);
        }
    }

    /// Stores a message as the new template. Returns `None` if the message is too long or the memory budget is
    /// exhausted.
    fn replace(
        &mut self,
        name: &[u8],
        data: &[u8],
        text: Range<usize>,
        ignored: &[&str],
    ) -> Option<()> {
        self.name.clear();
        self.fixed.clear();
        self.gaps.clear();
        let mut gaps = vec![(text, GapKind::Text)];
        find_members(data, ignored, |gap, kind| {
            if gaps.len() < MAX_GAPS {
                gaps.push((gap, kind));
            }
        });
        gaps.sort_unstable_by_key(|(gap, _)| gap.start);
        let removed: usize = gaps.iter().map(|(gap, _)| gap.len()).sum();
        if name.len() + data.len() - removed > MAX_TEMPLATE_BYTES {
            return None;
        }
        self.name.extend_from_slice(name);
        self.fixed.reserve_exact(data.len() - removed);
        self.gaps.reserve_exact(gaps.len());
        let mut from = 0;
        for (gap, kind) in gaps {
            self.fixed.extend_from_slice(data.get(from..gap.start)?);
            self.gaps.push(Gap { at: self.fixed.len(), kind });
            from = gap.end;
        }
        self.fixed.extend_from_slice(data.get(from..)?);
        let is_granted = self.reserve_memory();
        if !is_granted {
            (self.name, self.fixed, self.gaps) = (Vec::new(), Vec::new(), Vec::new());
            // Returns the bytes of the previous template.
            self.reserve_memory();
        }
        is_granted.then_some(())
    }

    /// Reserves memory for the template. Returns `false` if the memory budget is exhausted.
    fn reserve_memory(&mut self) -> bool {
        let gaps = self.gaps.capacity() * size_of::<Gap>();
        self.memory.resize(self.name.capacity() + self.fixed.capacity() + gaps)
    }
}

impl GapKind {
    /// Returns the length of the value at the start of `bytes`. Returns `None` if the value is empty or must be parsed
    /// (escapes). Does not check that a string is valid UTF-8.
    fn length(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::Text | Self::String => {
                let is_special = |byte: &u8| *byte < b' ' || matches!(byte, b'"' | b'\\');
                let end = bytes.iter().position(is_special)?;
                (end > 0 && bytes.get(end) == Some(&b'"')).then_some(end)
            }
            Self::Number => {
                let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
                let is_whole = matches!(bytes.get(digits), Some(b',' | b'}'));
                let has_zeros = digits > 1 && bytes.starts_with(b"0");
                ((1..=MAX_DIGITS).contains(&digits) && is_whole && !has_zeros).then_some(digits)
            }
        }
    }
}

impl<'m> ObservedMessage<'m> {
    pub const fn new(data: &'m [u8]) -> Self {
        Self { data, events: 0, text: None }
    }

    pub fn event(&mut self, event: &Event<'_>) {
        self.events += 1;
        if let Event::Text { choice, part, text } = event {
            let start = position(self.data, text);
            self.text = start.map(|start| (*choice, *part, start..start + text.len()));
        }
    }

    /// Returns the choice, part and byte range of the text, if the text was the only event.
    fn only_text(&self) -> Option<(u32, Part, Range<usize>)> {
        let (choice, part, text) = self.text.clone().filter(|_| self.events == 1)?;
        let (before, rest) = self.data.split_at_checked(text.start)?;
        let is_plain = before.ends_with(b"\"") && GapKind::Text.length(rest) == Some(text.len());
        is_plain.then_some((choice, part, text))
    }
}

/// Returns the offset of `text` in `data`, or `None` if `text` is not a slice of `data`.
fn position(data: &[u8], text: &str) -> Option<usize> {
    let start = text.as_ptr().addr().checked_sub(data.as_ptr().addr())?;
    (start + text.len() <= data.len()).then_some(start)
}

/// Finds the values of top-level members with these keys in a valid JSON object. Reports only strings and whole
/// numbers.
fn find_members(data: &[u8], keys: &[&str], mut found: impl FnMut(Range<usize>, GapKind)) {
    let (mut depth, mut rest) = (0_usize, data);
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let Some((string, after)) = split_string(after) else {
                    return;
                };
                rest = after;
                if depth == 1
                    && keys.iter().any(|key| key.as_bytes() == string)
                    && let Some(value) = after.trim_ascii_start().strip_prefix(b":")
                {
                    let value = value.trim_ascii_start();
                    let (value, kind) = match value.strip_prefix(b"\"") {
                        Some(inside) => (inside, GapKind::String),
                        None => (value, GapKind::Number),
                    };
                    if let Some(length) = kind.length(value) {
                        let start = data.len() - value.len();
                        found(start..start + length, kind);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Splits the bytes after an opening quote into the string and the bytes after the closing quote.
fn split_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut end = 0;
    loop {
        end += memchr2(b'"', b'\\', bytes.get(end..)?)?;
        match bytes.get(end)? {
            b'"' => return Some((bytes.get(..end)?, bytes.get(end + 1..)?)),
            _ => end += 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::budget::Budget;
    use crate::dialect::Api;
    use crate::dialect::anthropic::Messages;
    use crate::dialect::openai::{Chat, Responses};
    use crate::dialect::response::{Format, FormatReader};
    use crate::frame::Frame;

    /// Returns the events of each message, and the number of messages that were read with a template.
    fn read<F: Format>(
        mut reader: FormatReader<F>,
        messages: &[(&str, Vec<u8>)],
    ) -> (Vec<String>, usize) {
        let (mut events, mut from_template) = (Vec::new(), 0);
        for (name, data) in messages {
            from_template += usize::from(reader.matches_template(name.as_bytes(), data));
            let frame = Frame::Event { name: name.as_bytes(), data };
            reader.read(&frame, &mut |event| events.push(format!("{event:?}")));
            events.push("end".to_owned());
        }
        (events, from_template)
    }

    /// Compares a reader with templates to a reader that parses every message. Returns the number of messages that were
    /// read with a template.
    fn assert_equal_within<F: Format>(
        budget: &RequestBudget,
        format: impl Fn() -> F,
        messages: &[(&str, Vec<u8>)],
    ) -> usize {
        let reader = || FormatReader::new(format(), false);
        let (events, from_template) = read(reader().with_templates(budget), messages);
        assert_eq!(events, read(reader(), messages).0);
        from_template
    }

    fn assert_equal<F: Format>(format: impl Fn() -> F, messages: &[(&str, Vec<u8>)]) -> usize {
        assert_equal_within(&RequestBudget::default(), format, messages)
    }

    const SHAPES: [(&str, &str); 15] = [
        ("", r#"{"id":"1","model":"m","choices":[{"index":0,"delta":{"content":"@"}}]}"#),
        ("", r#"{"id":"1","choices":[{"index":1,"delta":{"content":"@"},"finish_reason":null}]}"#),
        ("", r#"{"choices":[{"delta":{"reasoning_content":"@"}}],"x":"@"}"#),
        (
            "",
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"@"}}]}}]}"#,
        ),
        ("", r#"{"choices":[{"delta":{"content":"@","content":"@"}}]}"#),
        ("", r#"{"choices":[{"text":"@"}],"error":null}"#),
        ("", r#"{"value":"@"}"#),
        (
            "content_block_delta",
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"@"}}"#,
        ),
        (
            "content_block_delta",
            r#"{"type":"content_block_delta","index":1,"delta":{"partial_json":"@"}}"#,
        ),
        ("", r#"{"id":"1","choices":[{"delta":{"content":"@","id":"7"}}],"obfuscation":"~"}"#),
        ("", r#"{"id":"~","choices":[{"delta":{"content":"@"},"id":"~"}],"p":"~"}"#),
        ("", r#"{"p": "~", "a": {"p": "~"}, "choices": [{"delta": {"content": "@"}}], "id": 4}"#),
        ("", r#"{"x\"":"id","id":"~","id":"~","choices":[{"text":"@"}],"p":"id"}"#),
        (
            "response.output_text.delta",
            r#"{"type":"response.output_text.delta","sequence_number":~,"delta":"@","obfuscation":"~"}"#,
        ),
        (
            "response.output_text.delta",
            r#"{"sequence_number":~,"output_index":1,"delta":"@","sequence_number":"~"}"#,
        ),
    ];

    const WORDS: [&str; 12] =
        ["a", " word", "é", "😀", "", "\\n", "\\u00e9", "\\ud83d", "\"", "\n", "\u{7f}", "}]"];

    const PADDING: [&str; 10] =
        ["1", "12", "07", "", "x7", "\\u00e9", "\"", "1.5", "9999999999999999", "\u{7f}"];

    proptest! {
        #[test]
        fn a_template_reads_what_a_parser_reads(
            steps in prop::collection::vec(
                (
                    0..SHAPES.len(),
                    1..6_usize,
                    prop::collection::vec(0..WORDS.len(), 1..3),
                    prop::collection::vec(0..PADDING.len(), 1..3),
                ),
                1..8,
            ),
            mutations in prop::collection::vec((0..40_usize, 0..200_usize, any::<u8>()), 0..6),
        ) {
            let mut messages = Vec::new();
            for (shape, repeats, words, padding) in steps {
                let (name, shape) = SHAPES[shape];
                for repeat in 0..repeats {
                    let text = WORDS[words[repeat % words.len()]];
                    let padding = PADDING[padding[repeat % padding.len()]];
                    let message = shape.replace('@', text).replace('~', padding);
                    messages.push((name, message.into_bytes()));
                }
            }
            for (message, position, byte) in mutations {
                if let Some((_, data)) = messages.get_mut(message)
                    && let Some(known) = data.get_mut(position)
                {
                    *known = byte;
                }
            }
            assert_equal(|| Chat::new(Api::OpenAiChat), &messages);
            assert_equal(Messages::new, &messages);
            assert_equal(|| Responses::new(Api::OpenAiResponses), &messages);
        }
    }

    fn messages(shape: (&'static str, &str), words: &[&str]) -> Vec<(&'static str, Vec<u8>)> {
        let padding = ["1", "23", "456", "7890"].iter().cycle();
        let message = |(word, padding): (&&str, &&str)| {
            (shape.0, shape.1.replace('@', word).replace('~', padding).into_bytes())
        };
        words.iter().zip(padding).map(message).collect()
    }

    #[test]
    fn the_third_of_equal_messages_is_not_parsed() {
        let words = ["Hel", "lo", " all", "!"];
        assert_eq!(assert_equal(|| Chat::new(Api::OpenAiChat), &messages(SHAPES[0], &words)), 1);
        assert_eq!(assert_equal(|| Chat::new(Api::OpenAiChat), &messages(SHAPES[3], &words)), 2);
        assert_eq!(assert_equal(Messages::new, &messages(SHAPES[7], &words)), 2);
        assert_eq!(assert_equal(|| Chat::new(Api::OpenAiChat), &messages(SHAPES[9], &words)), 1);
        let nested = messages(SHAPES[11], &words);
        assert_eq!(
            assert_equal(|| Chat::new(Api::OpenAiChat), &nested),
            0,
            "padding below the top"
        );
        let responses = || Responses::new(Api::OpenAiResponses);
        assert_eq!(assert_equal(responses, &messages(SHAPES[13], &words)), 2);
    }

    #[test]
    fn a_message_with_another_event_name_is_parsed() {
        let format = || Chat::new(Api::OpenAiChat);
        for (usual, other) in [("", "x"), ("x", ""), ("x", "y")] {
            let mut messages = messages((usual, SHAPES[1].1), &["a", "a", "a", "a"]);
            assert_eq!(assert_equal(format, &messages), 1, "{usual:?}");
            messages[3].0 = other;
            assert_eq!(assert_equal(format, &messages), 0, "{usual:?} {other:?}");
        }
    }

    #[test]
    fn texts_that_need_a_parser_are_parsed() {
        for word in ["a\\nb", "", "\\u00e9", "\n", "\""] {
            let messages = messages(SHAPES[1], &["a", "a", "a", "a", word]);
            let format = || Chat::new(Api::OpenAiChat);
            assert_eq!(assert_equal(format, &messages), 1, "{word}");
        }
        // A message with two texts, and one with a long frame, have no template.
        let format = || Chat::new(Api::OpenAiChat);
        assert_eq!(assert_equal(format, &messages(SHAPES[6], &["a", "b", "c", "d"])), 0);
        let long = format!(
            r#"{{"model":"{}","choices":[{{"text":"@"}}]}}"#,
            "x".repeat(MAX_TEMPLATE_BYTES)
        );
        assert_eq!(assert_equal(format, &messages(("", &long), &["a", "b", "c", "d"])), 0);
        let name: &'static str = Box::leak("n".repeat(MAX_TEMPLATE_BYTES).into_boxed_str());
        let named = messages((name, SHAPES[5].1), &["a", "b", "c", "d"]);
        assert_eq!(assert_equal(format, &named), 0, "a long name has no template");
    }

    #[test]
    fn templates_of_all_streams_share_a_budget() {
        let budget = Budget::new(4_000);
        let deltas = messages(SHAPES[0], &["a", "b", "c", "d"]);
        let readers: Vec<_> = (0..100)
            .map(|_| {
                let mut reader = FormatReader::new(Chat::new(Api::OpenAiChat), false)
                    .with_templates(&budget.request());
                for (name, data) in &deltas {
                    reader.read(&Frame::Event { name: name.as_bytes(), data }, &mut |_| {});
                }
                reader
            })
            .collect();
        let (name, data) = &deltas[0];
        let matching = readers.iter().filter(|it| it.matches_template(name.as_bytes(), data));
        let length = SHAPES[0].1.len() - 1;
        let count = matching.count();
        assert!((1..=4_000 / length).contains(&count), "{count} templates of {length} bytes");
        assert!((count * length..=4_000).contains(&budget.held_bytes()));
        drop(readers);
        assert_eq!(budget.held_bytes(), 0);
        let empty = Budget::new(0).request();
        let format = || Chat::new(Api::OpenAiChat);
        assert_eq!(assert_equal_within(&empty, format, &deltas), 0, "every message is parsed");
    }
}
