//! Handles text that arrives in byte pieces, split at any position.

/// Returns the length in bytes of the complete characters. Excludes an incomplete character at the end. Also excludes a
/// final carriage return, because it may be the first half of a line end.
pub fn whole_characters(bytes: &[u8]) -> usize {
    if bytes.ends_with(b"\r") {
        return bytes.len() - 1;
    }
    let is_cut = |tail: &[u8]| {
        let error = std::str::from_utf8(tail).err();
        error.is_some_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (bytes.len().saturating_sub(3)..bytes.len())
        .find(|start| bytes.get(*start..).is_some_and(is_cut))
        .unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_back_an_incomplete_end() {
        for (bytes, whole) in [
            (&b""[..], 0),
            (b"ab", 2),
            (b"ab\r", 2),
            (b"a\n", 2),
            ("é€😀".as_bytes(), 9),
            (b"a\xC3", 1),
            (b"a\xE2\x82", 1),
            (b"\xF0\x9F\x98", 0),
            (b"\x98\x98\x98", 3),
            (b"\xFF", 1),
        ] {
            assert_eq!(whole_characters(bytes), whole, "{bytes:?}");
        }
    }
}
