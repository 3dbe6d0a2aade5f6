//! Counts the tokens of one response. Each text of each choice, such as its reasoning, is counted with the model's own
//! tokenizer and in the standard encoding (o200k).

use std::sync::Arc;

use super::stream::{STANDARD, Stream, record_increase};
use super::uncounted_text::UncountedText;
use super::{Source, TokenDelta, Tokenizer, Tokenizers, estimate};
use crate::budget::RequestBudget;
use crate::dialect::{Part, TextKind};
use tokengauge_types::label::Label;

/// Maximum number of separately counted texts per response: text and reasoning of 128 choices, which is OpenAI's limit.
/// The tokens of further texts are estimated from their bytes, because a hostile upstream could open a tool call with
/// every event.
const MAX_STREAMS: usize = 256;

/// The token counts of a response at its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TokenTotals {
    /// Tokens in the encoding of the model.
    pub native: u64,
    /// Tokens in the standard encoding, o200k.
    pub standard: u64,
    /// Tokens in `native` for each kind of text, such as reasoning. The order is [`TextKind::ALL`].
    pub by_kind: [u64; TextKind::ALL.len()],
    /// Tokens in `by_kind` that no earlier [`TokenDelta`] contained.
    pub native_unreported: [u32; TextKind::ALL.len()],
    /// Tokens in `standard` that no earlier [`TokenDelta`] contained.
    pub standard_unreported: u32,
    pub source: Source,
}

/// Counts the tokens of the text in one response.
#[derive(Debug)]
pub struct TokenCounter {
    tokenizers: Tokenizers,
    /// Tokenizer of the latest model name. `None` if it is unknown.
    model_tokenizer: Option<Tokenizer>,
    /// The tokenizer that counts `native`.
    native: Tokenizer,
    streams: Vec<Stream>,
    /// Index of the text that grew last. Usually, the next delta belongs to the same text.
    latest: usize,
    untracked: UntrackedTexts,
    uncounted: UncountedText,
    /// Whether all counts so far are exact. A count is inexact if the text was estimated or cut at an unsafe position.
    exact: bool,
}

impl TokenCounter {
    pub fn new(tokenizers: &Tokenizers, budget: &RequestBudget) -> Self {
        // A request or response without a model name has the tokenizer of the pattern `*`.
        let model_tokenizer = tokenizers.for_model("");
        Self {
            tokenizers: tokenizers.clone(),
            native: model_tokenizer.clone().unwrap_or(Tokenizer::BuiltIn(STANDARD)),
            model_tokenizer,
            streams: Vec::new(),
            latest: 0,
            untracked: UntrackedTexts::default(),
            uncounted: UncountedText::new(Arc::clone(&budget.memory)),
            exact: true,
        }
    }

    /// Sets the name of the model. If several names are set, the last one applies.
    ///
    /// The tokenizer does not change after the first text, because one tokenizer has to count the whole text. If a
    /// later name requires another tokenizer, the source of the count becomes [`Source::Estimated`].
    pub fn set_model(&mut self, model: &str) {
        self.model_tokenizer = self.tokenizers.for_model(model);
        if self.streams.is_empty() {
            self.native = self.model_tokenizer.clone().unwrap_or(Tokenizer::BuiltIn(STANDARD));
        }
    }

    /// Appends `text` to one part of a choice, such as its reasoning. Returns the tokens that `text` adds.
    pub fn push(&mut self, choice: u32, part: Part, text: &str) -> TokenDelta {
        if text.is_empty() {
            return TokenDelta::default();
        }
        let Some(stream) = self.stream(choice, part) else {
            return self.untracked.push(part.kind(), text);
        };
        let added = stream.push(text);
        self.enforce_budget();
        added
    }

    /// Returns the counts of the text received so far.
    pub fn finish(&mut self) -> TokenTotals {
        let mut by_kind = self.untracked.by_kind();
        let mut standard = self.untracked.total();
        let mut native_unreported = [0_u32; TextKind::ALL.len()];
        let mut standard_unreported = 0_u32;
        for stream in &mut self.streams {
            let kind = stream.part().kind() as usize;
            let (total, rest) = stream.native_total();
            if let (Some(of_kind), Some(unreported)) =
                (by_kind.get_mut(kind), native_unreported.get_mut(kind))
            {
                *of_kind += total;
                *unreported = unreported.saturating_add(rest);
            }
            self.exact &= stream.is_exact();
            let (total, rest) = stream.standard_total();
            standard += total;
            standard_unreported = standard_unreported.saturating_add(rest);
        }
        TokenTotals {
            native: by_kind.iter().sum(),
            standard,
            by_kind,
            native_unreported,
            standard_unreported,
            source: self.source(),
        }
    }

    /// Returns the source of the counts so far.
    pub fn source(&self) -> Source {
        let is_own = self.model_tokenizer.as_ref() == Some(&self.native);
        if is_own && self.exact && self.untracked.total() == 0 {
            Source::Counted
        } else {
            Source::Estimated
        }
    }

    /// Returns the name of the tokenizer that counts `native`.
    pub fn tokenizer(&self) -> Label {
        self.native.name()
    }

    /// Enforces the memory limit for text that is not counted yet. Above the limit, the latest text is counted as if it
    /// ended here.
    fn enforce_budget(&mut self) {
        let Some(stream) = self.streams.get_mut(self.latest) else {
            return;
        };
        let (before, now) = stream.update_held_bytes();
        if !self.uncounted.resize(before, now) {
            stream.count_and_free_tail();
            let (before, now) = stream.update_held_bytes();
            self.uncounted.resize(before, now);
        }
        self.exact &= stream.is_exact();
    }

    fn stream(&mut self, choice: u32, part: Part) -> Option<&mut Stream> {
        let is_same = |stream: &Stream| stream.matches(choice, part);
        if !self.streams.get(self.latest).is_some_and(is_same) {
            let known = self.streams.iter().position(is_same);
            if known.is_none() {
                if self.streams.len() == MAX_STREAMS {
                    return None;
                }
                // Most responses have one text, and a vector would begin with room for four.
                self.streams.reserve_exact(usize::from(self.streams.is_empty()));
                self.streams.push(Stream::new(choice, part, &self.native));
            }
            self.latest = known.unwrap_or(self.streams.len() - 1);
        }
        self.streams.get_mut(self.latest)
    }
}

impl Default for TokenCounter {
    fn default() -> Self {
        Self::new(&Tokenizers::default(), &RequestBudget::default())
    }
}

/// Sizes in bytes of the texts beyond [`MAX_STREAMS`], for each kind of text. Tokens are estimated from these sizes.
#[derive(Clone, Debug, Default)]
struct UntrackedTexts {
    bytes: [u64; TextKind::ALL.len()],
    reported: u64,
}

impl UntrackedTexts {
    fn push(&mut self, kind: TextKind, text: &str) -> TokenDelta {
        if let Some(bytes) = self.bytes.get_mut(kind as usize) {
            *bytes += text.len() as u64;
        }
        let total = self.total();
        let added = record_increase(&mut self.reported, total);
        TokenDelta { native: added, chunk: added, standard: added }
    }

    fn by_kind(&self) -> [u64; TextKind::ALL.len()] {
        self.bytes.map(estimate)
    }

    fn total(&self) -> u64 {
        self.by_kind().iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::count::Encoding;

    const TEXT: &str = "I can't say: 'very' — 4096 tokens, 你好，世界。  Done!\n";

    fn sum(by_kind: [u32; TextKind::ALL.len()]) -> u64 {
        by_kind.into_iter().map(u64::from).sum()
    }

    /// Appends `text` one character at a time. Returns the sums of the added tokens.
    fn push_all(counter: &mut TokenCounter, choice: u32, part: Part, text: &str) -> (u64, u64) {
        let mut reported = (0, 0);
        for character in text.chars() {
            let added = counter.push(choice, part, character.encode_utf8(&mut [0; 4]));
            reported.0 += u64::from(added.native);
            reported.1 += u64::from(added.standard);
        }
        reported
    }

    #[test]
    fn counts_both_encodings_and_reports_all_standard_tokens() {
        let mut counter = TokenCounter::default();
        counter.set_model("gpt-4");
        let (native, standard) = push_all(&mut counter, 0, Part::Text, TEXT);
        let totals = counter.finish();
        assert_eq!(totals.native, Encoding::Cl100k.count(TEXT));
        assert_eq!(totals.standard, Encoding::O200k.count(TEXT));
        assert_ne!(totals.native, totals.standard);
        assert_eq!(totals.source, Source::Counted);
        assert_eq!(standard + u64::from(totals.standard_unreported), totals.standard);
        assert!(standard > 0 && native > 0);
        assert_eq!(native + sum(totals.native_unreported), totals.native);
        let again = counter.finish();
        let unreported = (again.standard_unreported, sum(again.native_unreported));
        assert_eq!(unreported, (0, 0), "reported once");
    }

    #[test]
    fn native_equals_standard_for_models_with_the_standard_encoding() {
        let mut counter = TokenCounter::default();
        counter.set_model("gpt-4o");
        push_all(&mut counter, 0, Part::Text, TEXT);
        let totals = counter.finish();
        assert_eq!(totals.native, totals.standard);
        assert_eq!(totals.source, Source::Counted);
    }

    #[test]
    fn native_tokens_add_up_and_chunk_tokens_are_never_withdrawn() {
        // `'v` is two tokens, and `'ve` is one. A following ` v` makes two.
        let mut counter = TokenCounter::default();
        counter.set_model("gpt-4o");
        let added = ["'v", "e", " v"].map(|text| counter.push(0, Part::Text, text));
        assert_eq!(added.map(|added| added.chunk), [2, 0, 0]);
        assert_eq!(added.map(|added| added.native), [1, 0, 1]);
        let totals = counter.finish();
        assert_eq!((totals.native, sum(totals.native_unreported)), (2, 0));
    }

    #[test]
    fn words_cut_at_any_character_are_not_counted_twice() {
        let text = TEXT.repeat(20) + "An international";
        for model in ["gpt-4o", "gpt-4", "text-davinci-003"] {
            for length in 1..7 {
                let mut counter = TokenCounter::default();
                counter.set_model(model);
                let text: Vec<char> = text.chars().collect();
                let mut reported = 0;
                for chunk in text.chunks(length) {
                    let chunk = String::from_iter(chunk);
                    reported += u64::from(counter.push(0, Part::Text, &chunk).native);
                }
                let totals = counter.finish();
                let rest = sum(totals.native_unreported);
                assert_eq!(reported + rest, totals.native, "{model} {length}");
            }
        }
    }

    #[test]
    fn a_long_run_without_a_word_boundary_is_counted_while_it_arrives() {
        let mut counter = TokenCounter::default();
        counter.set_model("gpt-4o");
        let (live, _) = push_all(&mut counter, 0, Part::Text, &"港口那天早晨很安静".repeat(8));
        let total = counter.finish().native;
        assert!(live + 16 > total && live <= total, "{live} of {total}");
    }

    #[test]
    fn parts_and_choices_are_counted_separately() {
        let mut counter = TokenCounter::default();
        // If halves of different streams were concatenated, they would form other tokens.
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
    fn a_model_without_known_encoding_is_estimated_with_the_standard() {
        let mut counter = TokenCounter::default();
        counter.set_model("claude-sonnet-4-5");
        counter.push(0, Part::Text, TEXT);
        let totals = counter.finish();
        assert_eq!(totals.native, Encoding::O200k.count(TEXT));
        assert_eq!(totals.source, Source::Estimated);
    }

    #[test]
    fn a_late_model_changes_the_source_and_not_the_count() {
        let late = |first: &str, then: &str| {
            let mut counter = TokenCounter::default();
            counter.set_model(first);
            counter.push(0, Part::Text, TEXT);
            counter.set_model(then);
            counter.push(0, Part::Text, TEXT);
            let totals = counter.finish();
            (totals.native, totals.source)
        };
        let twice = TEXT.repeat(2);
        let (o200k, cl100k) = (Encoding::O200k.count(&twice), Encoding::Cl100k.count(&twice));
        assert_eq!(late("my-deployment", "gpt-4o"), (o200k, Source::Counted));
        assert_eq!(late("my-deployment", "gpt-4"), (o200k, Source::Estimated));
        assert_eq!(late("gpt-4", "gpt-4-0613"), (cl100k, Source::Counted));
        assert_eq!(late("gpt-4", "gpt-4o"), (cl100k, Source::Estimated));
        assert_eq!(late("gpt-4o", "claude-sonnet-4-5"), (o200k, Source::Estimated));
    }

    #[test]
    fn the_last_model_before_any_text_applies() {
        let mut counter = TokenCounter::default();
        counter.set_model("gpt-4o");
        counter.push(0, Part::Text, "");
        counter.set_model("gpt-4");
        counter.push(0, Part::Text, TEXT);
        assert_eq!(counter.finish().native, Encoding::Cl100k.count(TEXT));
        assert_eq!(counter.source(), Source::Counted);
    }

    #[test]
    fn texts_beyond_the_limit_are_estimated_from_their_bytes() {
        let mut counter = TokenCounter::default();
        counter.set_model("gpt-4o");
        let mut reported = (0, 0);
        for tool in 0..1_000 {
            let added = counter.push(0, Part::Tool(tool), "{}\n");
            reported.0 += u64::from(added.native);
            reported.1 += u64::from(added.standard);
        }
        assert_eq!(counter.streams.len(), MAX_STREAMS);
        let totals = counter.finish();
        let counted = MAX_STREAMS as u64 * Encoding::O200k.count("{}\n");
        assert_eq!(totals.native, counted + estimate(3 * (1_000 - 256)));
        assert_eq!(totals.by_kind[TextKind::Tool as usize], totals.native);
        assert_eq!(reported.0, totals.native);
        assert_eq!(reported.1 + u64::from(totals.standard_unreported), totals.standard);
        assert_eq!(totals.source, Source::Estimated);
    }

    #[test]
    fn an_exchange_at_its_memory_limit_is_estimated() {
        let mut counter = TokenCounter::default();
        counter.set_model("gpt-4");
        let run = "=".repeat(48 * 1024);
        for tool in 0..8 {
            counter.push(0, Part::Tool(tool), &run);
            assert!(counter.uncounted.bytes() <= 128 * 1024);
            let full = tool > 0;
            assert_eq!(counter.source() == Source::Estimated, full, "{tool}");
        }
        let counted = counter.finish().native;
        let off = counted.abs_diff(8 * Encoding::Cl100k.count(&run));
        assert!(off <= 2 * 8, "{off}");
    }

    #[test]
    fn words_are_exact_if_the_shared_budget_is_used_up() {
        let budget = Budget::new(64 * 1024);
        let tokenizers = Tokenizers::default();
        let mut greedy: Vec<TokenCounter> = Vec::new();
        for _ in 0..20 {
            let mut counter = TokenCounter::new(&tokenizers, &budget.request());
            counter.set_model("gpt-4o");
            counter.push(0, Part::Text, &"=".repeat(20 * 1024));
            greedy.push(counter);
        }
        let held: usize = greedy.iter().map(|counter| counter.uncounted.bytes()).sum();
        assert!(held <= 20 * 4 * 1024 + 64 * 1024, "{held}");
        let estimated = |counter: &&TokenCounter| counter.source() == Source::Estimated;
        assert!(greedy.iter().filter(estimated).count() > 10);

        let mut counter = TokenCounter::new(&tokenizers, &budget.request());
        counter.set_model("gpt-4");
        push_all(&mut counter, 0, Part::Text, &TEXT.repeat(20));
        let counted = Encoding::Cl100k.count(&TEXT.repeat(20));
        assert_eq!(counter.finish().native, counted);
        assert_eq!(counter.source(), Source::Counted);
        drop(greedy);
        let mut counter = TokenCounter::new(&tokenizers, &budget.request());
        counter.set_model("gpt-4o");
        counter.push(0, Part::Text, &"=".repeat(20 * 1024));
        assert_eq!(counter.source(), Source::Counted, "the budget was returned");
    }

    /// Requests to llama.cpp's `/completion` name no model, and its streams name the model at the end.
    #[cfg(feature = "hf-tokenizers")]
    #[test]
    fn a_tokenizer_of_all_models_counts_text_without_a_model_name() {
        use crate::count::{CustomTokenizer, TokenizerAssignment};

        let file = br#"{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
            "pre_tokenizer": {"type": "Whitespace"}}"#;
        for (models, expected) in [("*", Source::Counted), ("llama-*", Source::Estimated)] {
            let assigned = TokenizerAssignment {
                models: models.to_owned(),
                file: "llama.json".into(),
                tokenizer: CustomTokenizer::read(file, "llama").unwrap().into(),
            };
            let tokenizers = Tokenizers::new([assigned]);
            let mut counter = TokenCounter::new(&tokenizers, &RequestBudget::default());
            push_all(&mut counter, 0, Part::Text, "every word is a token");
            counter.set_model("llama-3");
            assert_eq!(counter.finish().source, expected, "{models}");
        }
    }

    #[cfg(feature = "hf-tokenizers")]
    #[test]
    fn a_configured_tokenizer_counts_exactly() {
        use crate::count::{CustomTokenizer, TokenizerAssignment};

        let file = br#"{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
            "pre_tokenizer": {"type": "Whitespace"}}"#;
        let assigned = TokenizerAssignment {
            models: "llama-*".to_owned(),
            file: "llama.json".into(),
            tokenizer: CustomTokenizer::read(file, "llama").unwrap().into(),
        };
        let tokenizers = Tokenizers::new([assigned]);
        let mut counter = TokenCounter::new(&tokenizers, &RequestBudget::default());
        counter.set_model("meta-llama/Llama-3.3-70B-Instruct");
        let text = "every word is a token here ";
        let (reported, _) = push_all(&mut counter, 0, Part::Text, text);
        let (more, _) = push_all(&mut counter, 0, Part::Reasoning, text);
        let totals = counter.finish();
        assert_eq!((reported + more + sum(totals.native_unreported), totals.native), (12, 12));
        assert_eq!(totals.standard, 2 * Encoding::O200k.count(text));
        assert_eq!(totals.source, Source::Counted);
        assert_eq!(counter.tokenizer().as_str(), "llama");
        counter.set_model("gpt-4o");
        assert_eq!(counter.source(), Source::Estimated);
        assert_eq!(
            counter.tokenizer().as_str(),
            "llama",
            "the tokenizer does not change after the first text"
        );
    }
}
