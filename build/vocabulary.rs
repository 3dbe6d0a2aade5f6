//! A vocabulary as flat arrays: the bytes of all tokens one after another in the order of their ranks, where each ends,
//! a hash table from bytes to rank, and a table of the ranks of all pairs of bytes.

use std::error::Error;
use std::fs;
use std::path::Path;

use tiktoken_rs::CoreBPE;

use crate::layout::{self, Slot};

pub struct Vocabulary {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    slots: Vec<Slot>,
    pairs: Vec<u32>,
}

/// Reads the tokens back out of `tokeniser`. Ranks count up from 0 without a gap up to the special tokens, which stand
/// behind one, or (in p50k) in the midst of the others: there they keep their rank, without bytes and without a place in
/// the hash table, for no piece of text is a special token.
pub fn read(tokeniser: &CoreBPE) -> Result<Vocabulary, Box<dyn Error>> {
    let special = tokeniser.special_tokens();
    let is_special = |token: &[u8]| special.iter().any(|name| name.as_bytes() == token);
    let mut tokens: Vec<Vec<u8>> = (0..Slot::MOST_RANKS)
        .map_while(|rank| tokeniser.decode_bytes(&[rank]).ok())
        .map(|token| {
            if is_special(&token) {
                Vec::new()
            } else {
                token
            }
        })
        .collect();
    let last = tokens.iter().rposition(|token| !token.is_empty());
    tokens.truncate(last.map_or(0, |last| last + 1));
    if !(50_000..=200_000).contains(&tokens.len()) {
        return Err(format!("a vocabulary of {} tokens", tokens.len()).into());
    }
    let mut vocabulary = Vocabulary {
        bytes: tokens.concat(),
        ends: Vec::with_capacity(tokens.len()),
        // At most half full: a search for what is not there, the commonest in a merge, ends after 1 or 2 places.
        slots: vec![Slot::from_bytes([0; 4]); (2 * tokens.len()).next_power_of_two()],
        pairs: vec![0; layout::PAIRS],
    };
    let mut end = 0;
    for (rank, token) in (0..).zip(&tokens) {
        end += u32::try_from(token.len())?;
        vocabulary.ends.push(end);
        if !token.is_empty() {
            vocabulary.place(token, rank)?;
        }
        if let [first, second] = token.as_slice()
            && let Some(pair) = vocabulary.pairs.get_mut(layout::pair(*first, *second))
        {
            *pair = rank + 1;
        }
    }
    Ok(vocabulary)
}

impl Vocabulary {
    pub fn write(&self, stem: &Path) -> Result<(), Box<dyn Error>> {
        let ends: Vec<[u8; 4]> = self.ends.iter().map(|end| end.to_le_bytes()).collect();
        let slots: Vec<[u8; 4]> = self.slots.iter().map(|slot| slot.to_bytes()).collect();
        let pairs: Vec<[u8; 4]> = self.pairs.iter().map(|rank| rank.to_le_bytes()).collect();
        fs::write(stem.with_extension("pairs"), pairs.as_flattened())?;
        fs::write(stem.with_extension("bytes"), &self.bytes)?;
        fs::write(stem.with_extension("ends"), ends.as_flattened())?;
        fs::write(stem.with_extension("slots"), slots.as_flattened())?;
        Ok(())
    }

    fn place(&mut self, token: &[u8], rank: u32) -> Result<(), Box<dyn Error>> {
        let hash = layout::hash(token);
        let home = usize::try_from(hash & (self.slots.len() as u64 - 1))?;
        let (before, from) = self.slots.split_at_mut(home);
        let free = from
            .iter_mut()
            .chain(before)
            .find(|slot| slot.rank().is_none())
            .ok_or("the hash table is full")?;
        *free = Slot::new(hash, rank);
        Ok(())
    }
}
