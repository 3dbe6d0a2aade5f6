//! Counts tokens with o200k_base, the encoding of the simulated models.
//!
//! The demo compares these counts with the counts of the proxy. This module therefore uses the crate `tiktoken-rs`,
//! not `tokengauge_llm::count`. The encoding takes about 50 MB and 0.1 s to load, but only in processes that simulate
//! a backend.

pub fn count(text: &str) -> u64 {
    tiktoken_rs::o200k_base_singleton().count_ordinary(text) as u64
}

/// Loads the encoding (about 0.1 s) before the first request, so that no stream waits for it.
pub fn load() {
    tiktoken_rs::o200k_base_singleton();
}

/// Maximum length of a prompt whose tokens are counted, in bytes. Counting a longer prompt would delay all streams of
/// the thread.
const MAX_COUNTED_BYTES: usize = 64 << 10;

/// Returns the number of tokens in a prompt. For a prompt of more than 64 KiB, returns an estimate of one token per
/// four bytes.
pub fn count_prompt(text: &str) -> u64 {
    if text.len() <= MAX_COUNTED_BYTES { count(text) } else { text.len() as u64 / 4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_prompt_is_estimated() {
        assert_eq!(count_prompt("hello world"), 2);
        assert_eq!(count_prompt(&"a".repeat(1 << 20)), 1 << 18);
    }
}
