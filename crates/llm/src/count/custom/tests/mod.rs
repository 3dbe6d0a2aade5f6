//! Compares the counts of growing texts with the counts of whole texts, for custom tokenizers of every family.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{CustomTokenizer, Cuts};
use crate::count::encoder::MAX_TAIL_BYTES;
use crate::count::tests::{deltas, oracle, text};
use crate::count::{Encoding, TextCounter, TokenizerError, estimate};

mod files;

const NONE: Cuts = Cuts { words: false, signs: false, clauses: false };
const BLANKS: Cuts = Cuts { words: true, signs: true, ..NONE };
const WORDS: Cuts = Cuts { words: true, clauses: true, ..NONE };
const ALL: Cuts = Cuts { clauses: true, ..BLANKS };

type Family = (&'static str, fn() -> Value, Cuts);

/// Every family, and the positions at which its texts can be cut.
const FAMILIES: [Family; 14] = [
    ("gpt2", files::gpt2, ALL),
    ("gpt2_with_a_blank", files::gpt2_with_a_blank, ALL),
    ("llama3", files::llama3, ALL),
    ("greedy", files::greedy, WORDS),
    ("qwen", files::qwen, ALL),
    ("deepseek", files::deepseek, ALL),
    ("digits_from_the_right", files::digits_from_the_right, ALL),
    ("over_blanks", files::over_blanks, NONE),
    ("llama2", files::llama2, BLANKS),
    ("mistral", files::mistral, BLANKS),
    ("gemma", files::gemma, BLANKS),
    // A run of unknown characters is one token.
    ("t5", files::t5, BLANKS),
    ("xlm_roberta", files::xlm_roberta, BLANKS),
    ("bert", files::bert, ALL),
];

fn read(file: &Value) -> Result<CustomTokenizer, TokenizerError> {
    CustomTokenizer::read(file.to_string().as_bytes(), "test")
}

fn families() -> &'static [(&'static str, Arc<CustomTokenizer>, Cuts)] {
    static READ: OnceLock<Vec<(&str, Arc<CustomTokenizer>, Cuts)>> = OnceLock::new();
    READ.get_or_init(|| {
        let read = |(name, file, cuts): (_, fn() -> Value, _)| {
            (name, Arc::new(read(&file()).unwrap()), cuts)
        };
        FAMILIES.map(read).into()
    })
}

#[test]
fn finds_the_cut_positions_of_each_family() {
    let found: Vec<_> = families().iter().map(|(name, given, _)| (*name, given.cuts())).collect();
    assert_eq!(found, FAMILIES.map(|(name, _, cuts)| (name, cuts)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn counts_at_every_delta_equal_counts_of_the_whole_text(
        text in text(),
        lengths in prop::collection::vec(1..24_usize, 1..5),
    ) {
        for (name, given, _) in families() {
            let mut counter = TextCounter::custom(Arc::clone(given));
            let mut read = String::new();
            for delta in deltas(&text, &lengths) {
                counter.push(delta);
                read.push_str(delta);
                if read.len() <= 256 {
                    prop_assert_eq!(Some(counter.count()), given.count(&read), "{} {:?}", name, &read);
                }
            }
            prop_assert_eq!(Some(counter.total()), given.count(&text), "{} {:?}", name, &text);
            prop_assert!(counter.is_exact());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn gpt2_from_a_file_matches_tiktoken(
        text in text(),
        lengths in prop::collection::vec(1..24_usize, 1..5),
    ) {
        let mut counter = TextCounter::custom(Arc::clone(gpt2_itself()));
        for delta in deltas(&text, &lengths) {
            counter.push(delta);
            counter.count();
        }
        prop_assert_eq!(counter.total(), Encoding::R50k.count(&text));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reading_in_parts_equals_reading_with_the_crate(text in text()) {
        for ((name, file, _), (_, given, _)) in FAMILIES.iter().zip(families()) {
            static WHOLE: Mutex<BTreeMap<&str, tokenizers::Tokenizer>> = Mutex::new(BTreeMap::new());
            let mut whole = WHOLE.lock().unwrap();
            let whole = whole.entry(name).or_insert_with(|| file().to_string().parse().unwrap());
            let expected = whole.encode(text.as_str(), false).unwrap().len() as u64;
            prop_assert_eq!(given.count(&text), Some(expected), "{}", name);
        }
    }
}

fn gpt2_itself() -> &'static Arc<CustomTokenizer> {
    static READ: OnceLock<Arc<CustomTokenizer>> = OnceLock::new();
    READ.get_or_init(|| {
        let token = |rank| oracle(Encoding::R50k).decode_bytes(&[rank]).unwrap();
        let tokens: Vec<Vec<u8>> = (0..50_256).map(token).collect();
        Arc::new(read(&files::gpt2_itself(&tokens)).unwrap())
    })
}

#[test]
fn matches_counts_computed_by_hand() {
    let model = json!({
        "type": "BPE", "unk_token": "?", "merges": ["t h", "th e", "▁ the", "c a", "ca t", "▁ cat"],
        "vocab": {"?": 0, "▁": 1, "t": 2, "h": 3, "e": 4, "c": 5, "a": 6, "th": 7, "the": 8, "▁the": 9, "ca": 10, "cat": 11,
            "▁cat": 12},
    });
    let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"});
    let given = read(&json!({"model": model, "pre_tokenizer": metaspace})).unwrap();
    for (text, tokens) in
        [("", 0), ("the cat", 2), ("thecat", 2), ("the catcat the", 4), ("hat", 4), ("the dog", 5)]
    {
        assert_eq!(given.count(text), Some(tokens), "{text}");
    }
}

#[test]
fn counts_added_tokens_and_no_special_tokens_around_a_text() {
    let given = read(&files::llama3()).unwrap();
    assert_eq!(given.count("<think>"), Some(1));
    assert_eq!(given.count("<|eot_id|>"), Some(1));
    assert!(given.count("<thunk>") > Some(1));
}

#[test]
fn ignores_parts_for_training_and_for_prompts() {
    let plain = read(&files::gpt2()).unwrap();
    let mut file = files::gpt2();
    file["truncation"] =
        json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    file["padding"] = json!({
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0,
        "pad_token": "!",
    });
    file["model"]["dropout"] = json!(0.9);
    let given = read(&file).unwrap();
    let text = "The harbour was quiet that morning.";
    assert_eq!(given.count(text), plain.count(text));
    assert_eq!(given.cuts(), ALL, "dropout is not applied");
}

#[test]
fn a_text_without_cut_positions_is_exact_up_to_the_memory_limit() {
    let (_, given, _) = &families()[7];
    let mut counter = TextCounter::custom(Arc::clone(given));
    let line = "the of the of the harbour of the morning ";
    let lines = MAX_TAIL_BYTES / line.len();
    for _ in 0..lines {
        counter.push(line);
        counter.count();
    }
    let whole = line.repeat(lines);
    assert_eq!(Some(counter.total()), given.count(&whole));
    assert!(counter.is_exact());
    assert!(counter.tail_capacity() >= whole.len());
    for _ in 0..lines {
        counter.push(line);
        assert!(counter.tail_capacity() <= 4 * MAX_TAIL_BYTES);
    }
    let off = counter.total().abs_diff(given.count(&whole.repeat(2)).unwrap());
    assert!(off <= 2, "{off}");
    assert!(!counter.is_exact());
}

#[test]
fn a_text_with_cut_positions_holds_one_word() {
    for (name, given, cuts) in families().iter().filter(|(.., cuts)| cuts.words) {
        let mut counter = TextCounter::custom(Arc::clone(given));
        counter.push(&"All work and no play ".repeat(1_000));
        assert!(counter.tail_capacity() <= 1_024, "{name} {cuts:?}");
        counter.count_and_free_tail();
        assert!(counter.tail_capacity() <= 8, "{name}");
        assert!(!counter.is_exact());
    }
}

#[test]
fn text_that_cannot_be_encoded_is_estimated() {
    let given = Arc::new(read(&files::words_only()).unwrap());
    let mut counter = TextCounter::custom(Arc::clone(&given));
    counter.push("a good");
    assert_eq!((counter.count(), counter.is_exact()), (2, true));
    counter.push(" evening");
    assert_eq!(counter.total(), estimate(14));
    assert!(!counter.is_exact());
}

#[test]
fn errors_name_the_reason() {
    let of_model = |model: Value| json!({"version": "1.0", "model": model}).to_string();
    let words_only = files::words_only();
    let too_long = json!({"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]});
    let cases = [
        ("", "this is not JSON (EOF"),
        ("\u{a}\u{3}abc", "this is not JSON (expected value at line 2"),
        ("[]", "this is JSON without a \"model\""),
        ("{\"vocab\": []}", "this is JSON without a \"model\""),
        ("{\"model\": 5}", "this is JSON without a \"model\""),
        (&of_model(json!({"type": "Tekken"})), "its model has the type \"Tekken\""),
        (&of_model(json!({"type": "BPE"})), "the tokenizer.json is invalid ("),
        (
            &json!({"version": "2.0", "model": {}}).to_string(),
            "the tokenizer.json is invalid (its version is 2.0)",
        ),
        (
            &json!({"model": words_only["model"], "normalizer": {"type": "Rot13"}}).to_string(),
            "the tokenizer.json is invalid (normalizer: ",
        ),
        (&of_model(json!({})), "the tokenizer.json is invalid ("),
        (&of_model(too_long), "the tokenizer.json is invalid ("),
    ];
    for (file, expected) in cases {
        let error = CustomTokenizer::read(file.as_bytes(), "test").unwrap_err().to_string();
        assert!(error.starts_with(expected), "{file}: {error}");
    }
}

#[test]
fn recognizes_the_same_content() {
    let file = files::gpt2().to_string();
    let given = CustomTokenizer::read(file.as_bytes(), "test").unwrap();
    assert!(given.is_of(file.as_bytes()));
    assert!(!given.is_of((file + " ").as_bytes()));
}
