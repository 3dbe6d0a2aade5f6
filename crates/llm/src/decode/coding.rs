//! Parses the `content-encoding` header (RFC 9110, section 8.4), such as `gzip` or `deflate, br`.

use super::Unsupported;

/// Maximum number of codings (such as gzip) that are applied to one body. Servers have no reason to apply more than
/// two, and curl accepts five.
const MAX_CODINGS: usize = 3;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

/// Returns the codings in the order in which the sender applied them.
pub(super) fn parse(content_encoding: &str) -> Result<Vec<Coding>, Unsupported> {
    let mut codings = Vec::new();
    for name in content_encoding.split(',').map(str::trim) {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        codings.push(match name {
            _ if name.is_empty() || is("identity") => continue,
            _ if is("gzip") || is("x-gzip") => Coding::Gzip,
            _ if is("deflate") => Coding::Deflate,
            _ if is("br") => Coding::Brotli,
            _ if is("zstd") => Coding::Zstd,
            _ => return Err(Unsupported),
        });
    }
    if codings.len() > MAX_CODINGS {
        return Err(Unsupported);
    }
    Ok(codings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_are_read_in_any_case_and_number() {
        use Coding::{Brotli, Deflate, Gzip, Zstd};
        let read: [(&str, Result<&[Coding], Unsupported>); 12] = [
            ("", Ok(&[])),
            ("identity", Ok(&[])),
            ("gzip", Ok(&[Gzip])),
            ("X-GZip", Ok(&[Gzip])),
            ("Deflate", Ok(&[Deflate])),
            ("bR", Ok(&[Brotli])),
            ("ZSTD", Ok(&[Zstd])),
            ("gzip,br", Ok(&[Gzip, Brotli])),
            (" zstd ,\tidentity,, gzip ", Ok(&[Zstd, Gzip])),
            ("gzip, compress", Err(Unsupported)),
            ("gzip;q=1", Err(Unsupported)),
            ("gzip, gzip, gzip, gzip", Err(Unsupported)),
        ];
        for (header, expected) in read {
            assert_eq!(parse(header).as_deref(), expected.as_deref(), "{header:?}");
        }
    }
}
