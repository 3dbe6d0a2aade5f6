//! How many tokens a text has, by the encoding in which the simulated models think.
//!
//! By the reference implementation and not by `tokengauge_llm::count`: what the demo holds the proxy's counts against must not
//! be those very counts. It costs some 50 MB and 0.1 s at the first text, in processes that simulate only.

/// Tokens of `text` in o200k_base.
pub fn count(text: &str) -> u64 {
    tiktoken_rs::o200k_base_singleton().count_ordinary(text) as u64
}

/// Loads the encoding, which takes some 0.1 s: done beforehand, it holds up no stream. Blocks meanwhile.
pub fn load() {
    tiktoken_rs::o200k_base_singleton();
}

/// Texts longer than this are estimated: a prompt of megabytes would hold up every stream of the thread.
const LONGEST_COUNTED: usize = 64 << 10;

/// Tokens of a prompt; beyond 64 KiB four bytes are taken for a token.
pub fn count_prompt(text: &str) -> u64 {
    if text.len() <= LONGEST_COUNTED { count(text) } else { text.len() as u64 / 4 }
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
