//! Counts tokens with the encoding of the simulated models, o200k_base.
//!
//! The counts come from the crate `tiktoken-rs`, not from `tokengauge_llm::count`, because the demo checks the proxy's
//! counts against them. Loading the encoding takes about 50 MB and 0.1 s, but only in processes that simulate a
//! backend.

pub fn count(text: &str) -> u64 {
    tiktoken_rs::o200k_base_singleton().count_ordinary(text) as u64
}

/// Loads the encoding in advance, so that no stream waits for it. Blocks for about 0.1 s.
pub fn load() {
    tiktoken_rs::o200k_base_singleton();
}

/// Maximum length in bytes of a prompt that is counted exactly. Counting megabytes would delay all streams on the
/// thread.
const MAX_COUNTED_BYTES: usize = 64 << 10;

/// Returns the number of tokens in a prompt. A prompt of more than 64 KiB is estimated at four bytes per token.
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
