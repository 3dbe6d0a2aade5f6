//! Generates small tokenizer.json files of every family, which differ in how they rewrite and split a text.
//!
//! The vocabularies are trained on a page of text, which suffices for tokens of every length.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

const TEXT: &str = "The harbour was quiet that morning. The boats had come in before the dawn, low in the water, and the \
    crews were already asleep. \"You'll want to wait for the tide,\" the old man said. They'd heard it in 1998, and in \
    2024 again. HTTPServer camelCase snake_case the the the of the of the don't we've ing ing ing for (foo) {\"a\": [1, 2]} \
    港口那天早晨很安静，然后两艘船进港，世界。你好，世界。你好，中文。日本語、カタカナ。 Привет мир и мир и é é नमस्ते में 한국어 한국어 مرحبا";

/// Returns the words of the page as byte-level vocabularies write them, each with the blank before it.
fn words(blank: char) -> Vec<String> {
    let words = TEXT.split(' ').filter(|word| !word.is_empty());
    words.map(|word| format!("{blank}{word}")).collect()
}

/// Returns each byte as a visible character.
fn byte_level(bytes: &[u8]) -> String {
    bytes.iter().copied().map(seen).collect()
}

fn seen(byte: u8) -> char {
    let unseen = |byte: &u8| !matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    match (0..=255).filter(unseen).position(|other| other == byte) {
        Some(turn) => char::from_u32(0x100 + u32::try_from(turn).unwrap()).unwrap(),
        None => char::from(byte),
    }
}

/// Trains up to `most` merges on `words`. Each merge joins the most frequent pair, and the alphabetically first pair on
/// a tie.
fn merges(words: &[String], most: usize) -> Vec<(String, String)> {
    let mut words: Vec<Vec<String>> =
        words.iter().map(|word| word.chars().map(String::from).collect()).collect();
    let mut merges = Vec::new();
    for _ in 0..most {
        let mut pairs: BTreeMap<(String, String), usize> = BTreeMap::new();
        for pair in words.iter().flat_map(|word| word.windows(2)) {
            *pairs.entry((pair[0].clone(), pair[1].clone())).or_default() += 1;
        }
        let best = pairs.into_iter().rev().max_by_key(|(_, times)| *times);
        let Some(((left, right), _)) = best else {
            break;
        };
        for word in &mut words {
            let mut at = 0;
            while at + 1 < word.len() {
                if word[at] == left && word[at + 1] == right {
                    word[at] += &right;
                    word.remove(at + 1);
                }
                at += 1;
            }
        }
        merges.push((left, right));
    }
    merges
}

fn bpe(alphabet: impl IntoIterator<Item = String>, merges: &[(String, String)]) -> Value {
    let mut tokens: BTreeSet<String> = alphabet.into_iter().collect();
    tokens.extend(merges.iter().map(|(left, right)| left.to_owned() + right));
    let vocabulary: BTreeMap<_, _> = tokens.into_iter().zip(0..).collect();
    let merges: Vec<_> = merges.iter().map(|(left, right)| format!("{left} {right}")).collect();
    json!({"type": "BPE", "vocab": vocabulary, "merges": merges})
}

fn bytes() -> impl Iterator<Item = String> {
    (0..=255).map(|byte| seen(byte).to_string())
}

fn byte_level_bpe() -> Value {
    let words: Vec<String> = words(' ').iter().map(|word| byte_level(word.as_bytes())).collect();
    bpe(bytes(), &merges(&words, 300))
}

fn tokenizer_json(normalizer: &Value, pre_tokenizer: &Value, model: &Value) -> Value {
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": null, "model": model,
    })
}

fn split(pattern: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
}

fn into_bytes(use_regex: bool, add_prefix_space: bool) -> Value {
    json!({"type": "ByteLevel", "use_regex": use_regex, "add_prefix_space": add_prefix_space, "trim_offsets": true})
}

fn in_turn(parts: &[Value]) -> Value {
    json!({"type": "Sequence", "pretokenizers": parts})
}

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

pub(super) fn gpt2() -> Value {
    tokenizer_json(&Value::Null, &into_bytes(true, false), &byte_level_bpe())
}

/// Like RoBERTa: inserts a blank before a text that begins with a word.
pub(super) fn gpt2_with_a_blank() -> Value {
    tokenizer_json(&Value::Null, &into_bytes(true, true), &byte_level_bpe())
}

pub(super) fn llama3() -> Value {
    let mut model = byte_level_bpe();
    model["ignore_merges"] = true.into();
    let parts = [split(LLAMA3), into_bytes(false, false)];
    let mut file = tokenizer_json(&Value::Null, &in_turn(&parts), &model);
    file["added_tokens"] =
        json!([added(1_000, "<|eot_id|>", true), added(1_001, "<think>", false),]);
    file["post_processor"] = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true});
    file
}

/// Returns a tokenizer with a token that absorbs the following blank.
pub(super) fn greedy() -> Value {
    let mut file = llama3();
    let mut token = added(1_002, "<mask>", true);
    token["rstrip"] = true.into();
    file["added_tokens"] = json!([token]);
    file
}

fn added(id: u32, content: &str, special: bool) -> Value {
    json!({
        "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": special,
    })
}

/// Like Qwen 2: composes characters, and each digit is a separate piece.
pub(super) fn qwen() -> Value {
    let pattern = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}");
    let parts = [split(&pattern), into_bytes(false, false)];
    tokenizer_json(&json!({"type": "NFC"}), &in_turn(&parts), &byte_level_bpe())
}

/// Like DeepSeek 3: several splits in sequence.
pub(super) fn deepseek() -> Value {
    let rest = r"[!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let parts = [
        split(r"\p{N}{1,3}"),
        split(r"[一-龥\u3040-ゟ゠-ヿ]+"),
        split(rest),
        into_bytes(false, false),
    ];
    tokenizer_json(&Value::Null, &in_turn(&parts), &byte_level_bpe())
}

/// Groups digits by three from the right, so that each additional digit changes all groups.
pub(super) fn digits_from_the_right() -> Value {
    let pattern = LLAMA3.replace(r"\p{N}{1,3}", r"\d{1,3}(?=(?:\d{3})*(?!\d))|\p{N}");
    let parts = [split(&pattern), into_bytes(false, false)];
    tokenizer_json(&Value::Null, &in_turn(&parts), &byte_level_bpe())
}

/// Returns a tokenizer with tokens that span blanks.
pub(super) fn over_blanks() -> Value {
    let merges = merges(&[byte_level(TEXT.as_bytes())], 300);
    tokenizer_json(&Value::Null, &into_bytes(false, false), &bpe(bytes(), &merges))
}

fn sentencepiece() -> Value {
    let merges = merges(&words('▁'), 300);
    let byte_tokens = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
    let characters = TEXT.chars().filter(|c| *c != ' ').chain(['▁']).map(String::from);
    let alphabet = byte_tokens.chain(characters).chain(["<unk>".to_owned()]);
    let mut model = bpe(alphabet, &merges);
    model["unk_token"] = "<unk>".into();
    model["fuse_unk"] = true.into();
    model["byte_fallback"] = true.into();
    model
}

/// Like Llama 2: does not split the text, and inserts a blank before every text.
pub(super) fn llama2() -> Value {
    let normalizer = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ]});
    tokenizer_json(&normalizer, &Value::Null, &sentencepiece())
}

pub(super) fn mistral() -> Value {
    let metaspace =
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false});
    tokenizer_json(&Value::Null, &metaspace, &sentencepiece())
}

pub(super) fn gemma() -> Value {
    let normalizer = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let split = json!({
        "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false,
    });
    tokenizer_json(&normalizer, &split, &sentencepiece())
}

/// Like T5: composes characters and collapses runs of blanks. Most characters that do not occur in the page are
/// unknown.
pub(super) fn t5() -> Value {
    let normalizer = json!({"type": "Sequence", "normalizers": [
        {"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    ]});
    let pre_tokenizer = in_turn(&[
        json!({"type": "WhitespaceSplit"}),
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}),
    ]);
    tokenizer_json(&normalizer, &pre_tokenizer, &unigram(&TEXT.replace(|c: char| c > 'ÿ', "")))
}

/// Like XLM-R: pieces of all scripts, and full-width signs become narrow signs.
pub(super) fn xlm_roberta() -> Value {
    let metaspace =
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    tokenizer_json(&json!({"type": "NFKC"}), &metaspace, &unigram(TEXT))
}

fn unigram(text: &str) -> Value {
    let mut pieces: BTreeMap<String, f64> = BTreeMap::new();
    for word in text.split(' ') {
        let word: Vec<char> = format!("▁{word}").chars().collect();
        for length in 1..=word.len().min(5) {
            for piece in word.windows(length) {
                *pieces.entry(piece.iter().collect()).or_default() += 1.0;
            }
        }
    }
    let total: f64 = pieces.values().sum();
    let scored = pieces.into_iter().map(|(piece, times)| json!([piece, (times / total).ln()]));
    let vocabulary: Vec<Value> = [json!(["<unk>", 0.0])].into_iter().chain(scored).collect();
    json!({"type": "Unigram", "unk_id": 0, "vocab": vocabulary, "byte_fallback": false})
}

/// Like BERT: lower case, no accents, no blanks in any token.
pub(super) fn bert() -> Value {
    let normalizer = json!({
        "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
        "lowercase": true,
    });
    let mut tokens = BTreeSet::from(["[UNK]".to_owned()]);
    for word in TEXT.to_lowercase().split(|c: char| !c.is_alphanumeric()) {
        let (begins, ends): (Vec<_>, Vec<_>) = word.chars().zip(0..).partition(|(_, at)| *at < 4);
        let joined = |part: Vec<(char, i32)>| part.into_iter().map(|(c, _)| c).collect::<String>();
        tokens.insert(joined(begins));
        tokens.insert(format!("##{}", joined(ends)));
        tokens.extend(word.chars().flat_map(|c| [c.to_string(), format!("##{c}")]));
    }
    tokens.retain(|token| !["", "##"].contains(&token.as_str()));
    let vocabulary: BTreeMap<_, _> = tokens.into_iter().zip(0..).collect();
    let model = json!({
        "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
        "vocab": vocabulary,
    });
    tokenizer_json(&normalizer, &json!({"type": "BertPreTokenizer"}), &model)
}

/// Returns a vocabulary of three words. Any other text is an error.
pub(super) fn words_only() -> Value {
    let model =
        json!({"type": "WordLevel", "vocab": {"a": 0, "good": 1, "day": 2}, "unk_token": "none"});
    tokenizer_json(&Value::Null, &json!({"type": "Whitespace"}), &model)
}

/// The tokenizer of GPT-2, built from the tables of r50k_base. If several pairs form the same token, the pair that
/// merging selects is used.
pub(super) fn gpt2_itself(tokens: &[Vec<u8>]) -> Value {
    let ranks: BTreeMap<&[u8], usize> = tokens.iter().map(Vec::as_slice).zip(0..).collect();
    let pair = |(rank, token): (usize, &Vec<u8>)| {
        let mut parts: Vec<&[u8]> = token.chunks(1).collect();
        while parts.len() > 2 {
            let joined = |at: usize| {
                let start: usize = parts[..at].iter().map(|part| part.len()).sum();
                &token[start..start + parts[at].len() + parts[at + 1].len()]
            };
            let rank_of = |at: usize| ranks.get(joined(at)).filter(|other| **other < rank);
            let best = (0..parts.len() - 1).filter_map(|at| Some((rank_of(at)?, at))).min();
            let (_, at) = best.unwrap();
            parts[at] = joined(at);
            parts.remove(at + 1);
        }
        Some((byte_level(parts.first()?), byte_level(parts.get(1)?)))
    };
    let merges: Vec<_> = (0..).zip(tokens).filter_map(pair).collect();
    let alphabet = tokens.iter().filter(|token| token.len() == 1).map(|token| byte_level(token));
    tokenizer_json(&Value::Null, &into_bytes(true, false), &bpe(alphabet, &merges))
}
