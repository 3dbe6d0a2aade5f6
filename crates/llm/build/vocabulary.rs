//! The tokens of an encoding, extracted from its tokenizer.

use std::error::Error;

use tiktoken_rs::CoreBPE;

use crate::layout::Slot;

/// Extracts the tokens from `tokenizer`.
///
/// Ranks count up from 0 without a gap until the special tokens. One gap precedes the special tokens in most encodings.
/// In p50k, special tokens are among the others. There they keep their rank, with empty bytes and no hash table slot,
/// because no piece of text is a special token.
pub fn read(tokenizer: &CoreBPE) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let special = tokenizer.special_tokens();
    let is_special = |token: &[u8]| special.iter().any(|name| name.as_bytes() == token);
    let mut tokens: Vec<Vec<u8>> = (0..Slot::MAX_RANKS)
        .map_while(|rank| tokenizer.decode_bytes(&[rank]).ok())
        .map(|token| if is_special(&token) { Vec::new() } else { token })
        .collect();
    let last = tokens.iter().rposition(|token| !token.is_empty());
    tokens.truncate(last.map_or(0, |last| last + 1));
    if !(50_000..=200_000).contains(&tokens.len()) {
        return Err(format!("a vocabulary of {} tokens", tokens.len()).into());
    }
    Ok(tokens)
}
