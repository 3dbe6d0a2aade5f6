//! Counting everything that one exchange generates: each part of each choice by itself, in the model's own encoding and
//! in the standard one.

use super::{Encoder, Encoding, Source, encoding_of, estimate};
use crate::dialect::{Kind, Part};

/// The encoding in which every model's text is counted as well, so that speeds are comparable across vendors.
const STANDARD: Encoding = Encoding::O200k;

/// So many texts of one exchange are counted apart: 128 choices, OpenAI's limit, with text and reasoning each. What
/// comes beyond (a hostile upstream can open a tool call per event) is estimated from its bytes.
const MOST_STREAMS: usize = 256;

/// By how much a piece of text raised the counts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Added {
    /// In the model's own encoding: the rise of the highest count so far. The count of a growing text can fall, and what
    /// was told cannot be taken back, so the sum can be a few above the total at the end.
    pub native: u32,
    /// In the standard encoding: the tokens that became decided. They come a word late, and add up to the total exactly
    /// with [`Totals::standard_rest`].
    pub standard: u32,
}

/// The exact counts of an exchange that is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Totals {
    /// In the model's own encoding.
    pub native: u64,
    /// In the standard encoding.
    pub standard: u64,
    /// `native`, by kind in the order of [`Kind::ALL`].
    pub by_kind: [u64; Kind::ALL.len()],
    /// What of `standard` no [`Added`] has told.
    pub standard_rest: u32,
    pub source: Source,
}

/// Counts the generated text of one exchange.
#[derive(Clone, Debug)]
pub struct Counter {
    /// The own encoding of the model last named.
    own: Option<Encoding>,
    /// The encoding counted in.
    native: Encoding,
    streams: Vec<Stream>,
    /// Where the last text went; the next one goes there too, nearly always.
    latest: usize,
    beyond: Beyond,
}

impl Counter {
    pub const fn new() -> Self {
        Self {
            own: None,
            native: STANDARD,
            streams: Vec::new(),
            latest: 0,
            beyond: Beyond::new(),
        }
    }

    /// Names the model; the last name holds. It decides the encoding only as long as nothing is counted: text is counted
    /// in one encoding from its beginning to its end, and where that turns out not to be the model's, it is an estimate.
    pub fn set_model(&mut self, model: &str) {
        self.own = encoding_of(model);
        if self.streams.is_empty() {
            self.native = self.own.unwrap_or(STANDARD);
        }
    }

    /// `text` was generated next in this part of this choice.
    pub fn push(&mut self, choice: u32, part: Part, text: &str) -> Added {
        if text.is_empty() {
            return Added::default();
        }
        match self.stream(choice, part) {
            Some(stream) => stream.push(text),
            None => self.beyond.push(part.kind(), text),
        }
    }

    /// The totals, if the text ends here.
    pub fn finish(&mut self) -> Totals {
        let mut by_kind = self.beyond.by_kind();
        let mut standard = self.beyond.total();
        let mut standard_rest = 0u32;
        for stream in &mut self.streams {
            if let Some(kind) = by_kind.get_mut(stream.part.kind() as usize) {
                *kind += stream.native().total();
            }
            let total = stream.standard.total();
            standard += total;
            standard_rest = standard_rest.saturating_add(rise(&mut stream.standard_told, total));
        }
        Totals {
            native: by_kind.iter().sum(),
            standard,
            by_kind,
            standard_rest,
            source: self.source(),
        }
    }

    /// Where the counts come from, as far as is known now.
    pub fn source(&self) -> Source {
        if self.own == Some(self.native) && self.beyond.total() == 0 {
            Source::Counted
        } else {
            Source::Estimated
        }
    }

    fn stream(&mut self, choice: u32, part: Part) -> Option<&mut Stream> {
        let is_it = |stream: &Stream| stream.choice == choice && stream.part == part;
        if !self.streams.get(self.latest).is_some_and(is_it) {
            let known = self.streams.iter().position(is_it);
            if known.is_none() {
                if self.streams.len() == MOST_STREAMS {
                    return None;
                }
                self.streams.push(Stream::new(choice, part, self.native));
            }
            self.latest = known.unwrap_or(self.streams.len() - 1);
        }
        self.streams.get_mut(self.latest)
    }
}

impl Default for Counter {
    fn default() -> Self {
        Self::new()
    }
}

/// The text of one part of one choice.
#[derive(Clone, Debug)]
struct Stream {
    choice: u32,
    part: Part,
    standard: Encoder,
    /// Where the native encoding is another than the standard one.
    other: Option<Box<Encoder>>,
    /// What was told of the native count: its highest value so far.
    native_told: u64,
    standard_told: u64,
}

impl Stream {
    fn new(choice: u32, part: Part, native: Encoding) -> Self {
        Self {
            choice,
            part,
            standard: Encoder::new(STANDARD),
            other: (native != STANDARD).then(|| Box::new(Encoder::new(native))),
            native_told: 0,
            standard_told: 0,
        }
    }

    fn push(&mut self, text: &str) -> Added {
        self.standard.push(text);
        let native = match &mut self.other {
            Some(other) => {
                other.push(text);
                other.count()
            }
            None => self.standard.count(),
        };
        Added {
            native: rise(&mut self.native_told, native),
            standard: rise(&mut self.standard_told, self.standard.decided()),
        }
    }

    fn native(&self) -> &Encoder {
        self.other.as_deref().unwrap_or(&self.standard)
    }
}

/// The bytes, by kind, of text that came when all places were taken.
#[derive(Clone, Debug)]
struct Beyond {
    bytes: [u64; Kind::ALL.len()],
    told: u64,
}

impl Beyond {
    const fn new() -> Self {
        Self {
            bytes: [0; Kind::ALL.len()],
            told: 0,
        }
    }

    fn push(&mut self, kind: Kind, text: &str) -> Added {
        if let Some(bytes) = self.bytes.get_mut(kind as usize) {
            *bytes += text.len() as u64;
        }
        let total = self.total();
        let added = rise(&mut self.told, total);
        Added {
            native: added,
            standard: added,
        }
    }

    fn by_kind(&self) -> [u64; Kind::ALL.len()] {
        self.bytes.map(estimate)
    }

    fn total(&self) -> u64 {
        self.by_kind().iter().sum()
    }
}

/// By how much `now` is above everything told before; it is told with this.
fn rise(told: &mut u64, now: u64) -> u32 {
    let rise = u32::try_from(now.saturating_sub(*told)).unwrap_or(u32::MAX);
    *told += u64::from(rise);
    rise
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "I can't say: 'very' — 4096 tokens, 你好，世界。  Done!\n";

    /// Pushes `text` character by character; what was told.
    fn push_all(counter: &mut Counter, choice: u32, part: Part, text: &str) -> (u64, u64) {
        let mut told = (0, 0);
        for character in text.chars() {
            let added = counter.push(choice, part, character.encode_utf8(&mut [0; 4]));
            told.0 += u64::from(added.native);
            told.1 += u64::from(added.standard);
        }
        told
    }

    #[test]
    fn both_encodings_are_counted_and_told_standard_adds_up() {
        let mut counter = Counter::new();
        counter.set_model("gpt-4");
        let (native, standard) = push_all(&mut counter, 0, Part::Text, TEXT);
        let totals = counter.finish();
        assert_eq!(totals.native, Encoding::Cl100k.count(TEXT));
        assert_eq!(totals.standard, Encoding::O200k.count(TEXT));
        assert_ne!(totals.native, totals.standard);
        assert_eq!(totals.source, Source::Counted);
        assert_eq!(standard + u64::from(totals.standard_rest), totals.standard);
        assert!(standard > 0 && native >= totals.native);
        assert_eq!(counter.finish().standard_rest, 0, "told once");
    }

    #[test]
    fn one_encoder_serves_where_native_is_standard() {
        let mut counter = Counter::new();
        counter.set_model("gpt-4o");
        push_all(&mut counter, 0, Part::Text, TEXT);
        assert!(counter.streams[0].other.is_none());
        let totals = counter.finish();
        assert_eq!(totals.native, totals.standard);
        assert_eq!(totals.source, Source::Counted);
    }

    #[test]
    fn what_was_told_is_never_taken_back() {
        // `'v` is two tokens, `'ve` is one, and ` v` after it makes three.
        let mut counter = Counter::new();
        counter.set_model("gpt-4o");
        let rises = ["'v", "e", " v"].map(|text| counter.push(0, Part::Text, text).native);
        assert_eq!(rises, [2, 0, 0]);
        assert_eq!(counter.finish().native, 2);
    }

    #[test]
    fn parts_and_choices_are_counted_apart() {
        let mut counter = Counter::new();
        // Run together, the halves of other streams would make other tokens.
        let pieces = [
            (0, Part::Text),
            (1, Part::Text),
            (0, Part::Reasoning),
            (0, Part::Tool(0)),
            (0, Part::Tool(1)),
        ];
        for letters in ["stra", "ight"] {
            for (choice, part) in pieces {
                counter.push(choice, part, letters);
            }
        }
        let totals = counter.finish();
        let each = Encoding::O200k.count("straight");
        assert_eq!(totals.by_kind, [2 * each, each, 2 * each, 0, 0]);
        assert_eq!(totals.native, 5 * each);
    }

    #[test]
    fn a_model_without_known_encoding_is_estimated_in_the_standard_one() {
        let mut counter = Counter::new();
        counter.set_model("claude-sonnet-4-5");
        counter.push(0, Part::Text, TEXT);
        let totals = counter.finish();
        assert_eq!(totals.native, Encoding::O200k.count(TEXT));
        assert_eq!(totals.source, Source::Estimated);
    }

    #[test]
    fn a_late_model_does_not_recount_but_says_whether_the_count_is_its_own() {
        let late = |first: &str, then: &str| {
            let mut counter = Counter::new();
            counter.set_model(first);
            counter.push(0, Part::Text, TEXT);
            counter.set_model(then);
            counter.push(0, Part::Text, TEXT);
            let totals = counter.finish();
            (totals.native, totals.source)
        };
        let twice = TEXT.repeat(2);
        let (o200k, cl100k) = (
            Encoding::O200k.count(&twice),
            Encoding::Cl100k.count(&twice),
        );
        assert_eq!(late("my-deployment", "gpt-4o"), (o200k, Source::Counted));
        assert_eq!(late("my-deployment", "gpt-4"), (o200k, Source::Estimated));
        assert_eq!(late("gpt-4", "gpt-4-0613"), (cl100k, Source::Counted));
        assert_eq!(late("gpt-4", "gpt-4o"), (cl100k, Source::Estimated));
        assert_eq!(
            late("gpt-4o", "claude-sonnet-4-5"),
            (o200k, Source::Estimated)
        );
    }

    #[test]
    fn a_model_named_again_before_any_text_decides_anew() {
        let mut counter = Counter::new();
        counter.set_model("gpt-4o");
        counter.push(0, Part::Text, "");
        counter.set_model("gpt-4");
        counter.push(0, Part::Text, TEXT);
        assert_eq!(counter.finish().native, Encoding::Cl100k.count(TEXT));
        assert_eq!(counter.source(), Source::Counted);
    }

    #[test]
    fn beyond_the_bound_texts_are_estimated_from_their_bytes() {
        let mut counter = Counter::new();
        counter.set_model("gpt-4o");
        let mut told = (0, 0);
        for tool in 0..1_000 {
            let added = counter.push(0, Part::Tool(tool), "{}\n");
            told.0 += u64::from(added.native);
            told.1 += u64::from(added.standard);
        }
        assert_eq!(counter.streams.len(), MOST_STREAMS);
        let totals = counter.finish();
        let counted = MOST_STREAMS as u64 * Encoding::O200k.count("{}\n");
        assert_eq!(totals.native, counted + estimate(3 * (1_000 - 256)));
        assert_eq!(totals.by_kind[Kind::Tool as usize], totals.native);
        assert_eq!(told.0, totals.native);
        assert_eq!(told.1 + u64::from(totals.standard_rest), totals.standard);
        assert_eq!(totals.source, Source::Estimated);
    }
}
