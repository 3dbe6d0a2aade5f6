//! Normalizes the percent-encoding of a path (RFC 3986, section 6.2.2).

use std::borrow::Cow;

/// Decodes characters that need no encoding, and writes other encodings with uppercase digits. Servers treat the result
/// like the original path. Encoded delimiters, such as `%2F`, stay encoded.
pub fn normalize(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let mut normal = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('%') {
        normal.push_str(before);
        rest = after;
        let digits =
            after.get(..2).filter(|digits| digits.bytes().all(|it| it.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| Some((digits, u8::from_str_radix(digits, 16).ok()?)));
        match code {
            Some((_, code)) if is_unreserved(code) => normal.push(char::from(code)),
            Some((digits, _)) => {
                normal.push('%');
                normal.extend(digits.chars().map(|digit| digit.to_ascii_uppercase()));
            }
            // A stray percent sign.
            None => normal.push('%'),
        }
        if code.is_some() {
            rest = after.get(2..).unwrap_or_default();
        }
    }
    normal.push_str(rest);
    Cow::Owned(normal)
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_only_what_needs_no_encoding() {
        for (path, expected) in [
            ("/v1/chat/completions", "/v1/chat/completions"),
            ("/v1/chat/completion%73", "/v1/chat/completions"),
            ("/%76%31/%63hat%2Dx%7e%5F%2e", "/v1/chat-x~_."),
            ("/a%2fb%3a%20%c3%A9", "/a%2Fb%3A%20%C3%A9"),
            ("/a%2573", "/a%2573"),
            ("/100%/%zz%4", "/100%/%zz%4"),
            ("/%é%e", "/%é%e"),
            ("%", "%"),
        ] {
            assert_eq!(normalize(path), expected, "{path}");
        }
    }
}
