//! Counts tokens with the encoding of the simulated models.
//!
//! The reference implementation counts, not `tokengauge_llm::count`, because the demo checks the counts of the
//! proxy against these. Loading takes about 50 MB and 0.1 s, only in processes that simulate.

/// Returns the tokens of `text` in o200k_base.
pub fn count(text: &str) -> u64 {
    tiktoken_rs::o200k_base_singleton().count_ordinary(text) as u64
}

/// Loads the encoding in advance, so that it delays no stream. Blocks for about 0.1 s.
pub fn load() {
    tiktoken_rs::o200k_base_singleton();
}

/// Maximum length of a counted text in bytes. Counting megabytes would delay all streams of the thread.
const MAX_COUNTED_BYTES: usize = 64 << 10;

/// Returns the tokens of a prompt. Beyond 64 KiB, estimates four bytes per token.
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
