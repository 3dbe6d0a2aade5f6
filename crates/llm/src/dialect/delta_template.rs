//! Reads a message that differs from the previous one only in its text, without parsing it.
//!
//! Most messages of a stream repeat the previous message, with another piece of text:
//!
//! ```text
//! {"id":"1","model":"m","choices":[{"index":0,"delta":{"content":"Hel"}}]}
//! {"id":"1","model":"m","choices":[{"index":0,"delta":{"content":"lo"}}]}
//! ```
//!
//! A template keeps the bytes before and after the text. If both match the next message, and the bytes between them are
//! the inside of a JSON string without escapes, then a parser would find the same values and the new text.

use super::{Event, Part};
use crate::budget::{MemoryPermit, RequestBudget};

/// Maximum length of a template in bytes, including the name of the event. Each stream keeps one template. Deltas of most providers have 100 to 400 bytes around the text.
const LONGEST: usize = 1024;

#[derive(Debug)]
pub struct DeltaTemplate {
    /// Name of the server-sent event.
    name: Vec<u8>,
    before: Vec<u8>,
    after: Vec<u8>,
    /// The choice and the part that receive the text. `None` without a template.
    target: Option<(u32, Part)>,
    /// Whether a second message had the same result as the first one. This shows that such messages do not change the
    /// state of the format, so the template may be used.
    is_confirmed: bool,
    memory: MemoryPermit,
}

/// Observes the events of one parsed message.
#[derive(Debug)]
pub struct Observed<'m> {
    data: &'m [u8],
    /// Number of events.
    events: usize,
    /// Target and position of a text that is part of the message.
    text: Option<(u32, Part, usize, usize)>,
}

impl DeltaTemplate {
    pub fn new(budget: &RequestBudget) -> Self {
        Self {
            name: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
            target: None,
            is_confirmed: false,
            memory: budget.hold(),
        }
    }

    /// Returns the event of a message that matches the template.
    pub fn read<'m>(&self, name: &[u8], data: &'m [u8]) -> Option<Event<'m>> {
        let (choice, part) = self.target.filter(|_| self.is_confirmed && self.name == name)?;
        let text = data.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        let text = plain_text(text)?;
        Some(Event::Text { choice, part, text })
    }

    /// Replaces the template by the message that was observed, if its only event was a text. Without memory in the
    /// budget, there is no template and each message is parsed.
    pub fn learn(&mut self, name: &[u8], observed: &Observed<'_>) {
        let fits = |(_, _, before, after): &(u32, Part, &[u8], &[u8])| {
            name.len() + before.len() + after.len() <= LONGEST
        };
        let Some((choice, part, before, after)) = observed.parts().filter(fits) else {
            self.target = None;
            self.is_confirmed = false;
            return;
        };
        let target = Some((choice, part));
        self.is_confirmed = self.target == target
            && self.name == name
            && self.before == before
            && self.after == after;
        if !self.is_confirmed {
            self.target = target;
            for (kept, new) in
                [(&mut self.name, name), (&mut self.before, before), (&mut self.after, after)]
            {
                kept.clear();
                kept.extend_from_slice(new);
            }
            self.account();
        }
    }

    fn account(&mut self) {
        let held = self.name.capacity() + self.before.capacity() + self.after.capacity();
        if !self.memory.resize(held) {
            self.target = None;
            (self.name, self.before, self.after) = (Vec::new(), Vec::new(), Vec::new());
            // Returns the bytes of the previous template.
            self.account();
        }
    }
}

impl<'m> Observed<'m> {
    pub const fn new(data: &'m [u8]) -> Self {
        Self { data, events: 0, text: None }
    }

    pub fn event(&mut self, event: &Event<'_>) {
        self.events += 1;
        if let Event::Text { choice, part, text } = event {
            let start = text.as_ptr().addr().checked_sub(self.data.as_ptr().addr());
            self.text = start.map(|start| (*choice, *part, start, start + text.len()));
        }
    }

    /// Returns the target of the only text, and the bytes before and after it.
    fn parts(&self) -> Option<(u32, Part, &'m [u8], &'m [u8])> {
        let (choice, part, start, end) = self.text.filter(|_| self.events == 1)?;
        let (before, text) = self.data.get(..end)?.split_at_checked(start)?;
        let after = self.data.get(end..)?;
        plain_text(text)?;
        let is_string = before.ends_with(b"\"") && after.starts_with(b"\"");
        is_string.then_some((choice, part, before, after))
    }
}

/// Returns the text of a JSON string from the bytes between its quotes. Returns `None` if the string is empty, needs
/// decoding or is invalid.
fn plain_text(bytes: &[u8]) -> Option<&str> {
    let is_plain = |byte: &u8| *byte >= b' ' && !matches!(byte, b'"' | b'\\');
    if bytes.is_empty() || !bytes.iter().all(is_plain) {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::budget::Budget;
    use crate::dialect::Api;
    use crate::dialect::anthropic::Messages;
    use crate::dialect::openai::Chat;
    use crate::dialect::response::{Format, FormatReader};
    use crate::frame::Frame;

    /// Returns the events of each message, and the number of messages that a template has read.
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

    /// Compares a reader that has templates with a reader that parses every message. Returns the number of messages
    /// that a template has read.
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

    const SHAPES: [(&str, &str); 9] = [
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
    ];

    const WORDS: [&str; 12] =
        ["a", " word", "é", "😀", "", "\\n", "\\u00e9", "\\ud83d", "\"", "\n", "\u{7f}", "}]"];

    proptest! {
        #[test]
        fn a_template_reads_what_a_parser_reads(
            steps in prop::collection::vec(
                (0..SHAPES.len(), 1..6_usize, prop::collection::vec(0..WORDS.len(), 1..3)),
                1..8,
            ),
            mutations in prop::collection::vec((0..40_usize, 0..200_usize, any::<u8>()), 0..6),
        ) {
            let mut messages = Vec::new();
            for (shape, repeats, words) in steps {
                let (name, shape) = SHAPES[shape];
                for repeat in 0..repeats {
                    let text = WORDS[words[repeat % words.len()]];
                    messages.push((name, shape.replace('@', text).into_bytes()));
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
        }
    }

    fn messages(shape: (&'static str, &str), words: &[&str]) -> Vec<(&'static str, Vec<u8>)> {
        words.iter().map(|word| (shape.0, shape.1.replace('@', word).into_bytes())).collect()
    }

    #[test]
    fn the_third_of_equal_messages_is_not_parsed() {
        let words = ["Hel", "lo", " all", "!"];
        assert_eq!(assert_equal(|| Chat::new(Api::OpenAiChat), &messages(SHAPES[0], &words)), 1);
        assert_eq!(assert_equal(|| Chat::new(Api::OpenAiChat), &messages(SHAPES[3], &words)), 2);
        assert_eq!(assert_equal(Messages::new, &messages(SHAPES[7], &words)), 2);
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
        let long = format!(r#"{{"id":"{}","choices":[{{"text":"@"}}]}}"#, "x".repeat(LONGEST));
        assert_eq!(assert_equal(format, &messages(("", &long), &["a", "b", "c", "d"])), 0);
        let name: &'static str = Box::leak("n".repeat(LONGEST).into_boxed_str());
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
