//! How many tokens a text has, by the encoding in which the simulated models think.

use crate::count::Encoding;

/// Tokens of `text` in o200k_base.
pub fn count(text: &str) -> u64 {
    Encoding::O200k.count(text)
}

/// Texts longer than this are estimated: a prompt of megabytes would hold up every stream of the thread.
const LONGEST_COUNTED: usize = 64 << 10;

/// Tokens of a prompt; beyond 64 KiB four bytes are taken for a token.
pub fn count_prompt(text: &str) -> u64 {
    if text.len() <= LONGEST_COUNTED {
        count(text)
    } else {
        text.len() as u64 / 4
    }
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
