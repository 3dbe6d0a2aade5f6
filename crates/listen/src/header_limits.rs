//! Maximum size of the headers of a message, for HTTP/1 and HTTP/2 alike.
//!
//! hyper and h2 have separate limits, which count differently and reject a message without a trace. They are set
//! higher here, and protect the memory of the proxy. The exact limit is checked after a message was parsed.

use http::header::HOST;
use http::{HeaderMap, Request};

/// Maximum number and size of header lines of one message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HeaderLimits {
    /// Maximum number of lines. A repeated header counts once per line. Pseudo-headers of HTTP/2 do not count, except
    /// `:authority`, which is the `Host` of HTTP/1.
    pub max_lines: usize,
    /// Maximum size in bytes, as HTTP/1 writes the lines: name, `: `, value and line end. The target of a request counts
    /// as well, but not its method and its version.
    pub max_bytes: usize,
}

/// Headers that exceed a limit. An extension of a request whose listener does not reject it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HeadersTooLarge {
    pub lines: usize,
    pub bytes: usize,
    pub limits: HeaderLimits,
}

/// Bytes of a line in addition to its name and its value.
const LINE_OVERHEAD: usize = ": \r\n".len();

/// Size that HTTP/2 adds to the name and the value of a field (RFC 9113 §6.5.2).
const FIELD_OVERHEAD: usize = 32;

/// Room in bytes for the first line of an HTTP/1 message, the pseudo-headers of HTTP/2, and optional white space.
const FIRST_LINE: usize = 4 << 10;

impl HeaderLimits {
    /// Default number of lines: twice what Envoy, Apache and hyper allow. Requests through several gateways carry more
    /// than 100 lines, and some providers report each rate limit in a separate line.
    ///
    /// hyper fills two tables with an entry of 32 bytes for each line that it allows. They are freed after each message,
    /// but the memory stays resident and is used for buffers that would otherwise have untouched pages. With 1,000
    /// lines, a stream took 21 KiB more resident memory.
    pub const MAX_LINES: usize = 200;
    /// Default size, about the same as in Envoy (60 KiB), and twice that of nginx. Several signed tokens fit.
    pub const MAX_BYTES: usize = 64 << 10;
    pub const DEFAULT: Self = Self { max_lines: Self::MAX_LINES, max_bytes: Self::MAX_BYTES };

    /// Checks the headers of a request.
    ///
    /// # Errors
    /// Returns the size of headers that exceed a limit.
    pub fn check_request<B>(&self, request: &Request<B>) -> Result<(), HeadersTooLarge> {
        let (uri, headers) = (request.uri(), request.headers());
        let authority = uri.authority().filter(|_| !headers.contains_key(HOST));
        let host = authority.map(|authority| HOST.as_str().len() + authority.as_str().len());
        let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
        let host_bytes = host.map_or(0, |host| host + LINE_OVERHEAD);
        self.check_size(headers, usize::from(host.is_some()), target + host_bytes)
    }

    /// Checks the headers of a response, or trailers.
    ///
    /// # Errors
    /// Returns the size of headers that exceed a limit.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), HeadersTooLarge> {
        self.check_size(headers, 0, 0)
    }

    fn check_size(
        &self,
        headers: &HeaderMap,
        more_lines: usize,
        more_bytes: usize,
    ) -> Result<(), HeadersTooLarge> {
        let size = headers.iter().map(|(name, value)| name.as_str().len() + value.len());
        let lines = headers.len() + more_lines;
        let bytes = size.sum::<usize>() + headers.len() * LINE_OVERHEAD + more_bytes;
        if lines <= self.max_lines && bytes <= self.max_bytes {
            return Ok(());
        }
        Err(HeadersTooLarge { lines, bytes, limits: *self })
    }

    /// Returns the number of bytes that a parser of HTTP/1 must accept, so that it accepts what these limits allow.
    pub const fn http1_bytes(&self) -> usize {
        self.max_bytes.saturating_add(FIRST_LINE)
    }

    /// Returns the value of `SETTINGS_MAX_HEADER_LIST_SIZE` that accepts what these limits allow.
    pub fn http2_list_size(&self) -> u32 {
        let fields = self.max_lines.saturating_mul(FIELD_OVERHEAD);
        u32::try_from(self.max_bytes.saturating_add(fields) + FIRST_LINE).unwrap_or(u32::MAX)
    }

    /// Returns the limits for a parser: a quarter more lines and twice the size, so that most messages that exceed the
    /// exact limit can be answered with an explanation and recorded.
    #[must_use]
    pub const fn for_parser(&self) -> Self {
        let Self { max_lines, max_bytes } = self;
        Self {
            max_lines: max_lines.saturating_add(*max_lines / 4),
            max_bytes: max_bytes.saturating_mul(2),
        }
    }
}

impl std::fmt::Display for HeaderLimits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { max_lines, max_bytes } = self;
        write!(
            f,
            "{max_lines} lines (limits.header_lines) and {max_bytes} bytes (limits.header_size)"
        )
    }
}

impl std::fmt::Display for HeadersTooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { lines, bytes, limits } = self;
        write!(f, "{lines} lines and {bytes} bytes; the limits are {limits}")
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const LIMITS: HeaderLimits = HeaderLimits { max_lines: 3, max_bytes: 40 };

    fn request(uri: &str, lines: &[(&'static str, &str)]) -> Request<()> {
        let mut request = Request::new(());
        *request.uri_mut() = uri.parse().unwrap();
        for (name, value) in lines {
            request.headers_mut().append(*name, HeaderValue::from_str(value).unwrap());
        }
        request
    }

    #[test]
    fn counts_the_same_for_both_versions() {
        let limits = HeaderLimits { max_lines: 0, max_bytes: 0 };
        let size = |request: &Request<()>| {
            let TooLargeSize(lines, bytes) = limits.check_request(request).map_or_else(
                |too_large| TooLargeSize(too_large.lines, too_large.bytes),
                |()| TooLargeSize(0, 0),
            );
            (lines, bytes)
        };
        let http1 = request("/v1?a=b", &[("host", "example"), ("x", "1"), ("x", "23")]);
        let http2 = request("http://example/v1?a=b", &[("x", "1"), ("x", "23")]);
        let wire = "/v1?a=b".len() + "host: example\r\nx: 1\r\nx: 23\r\n".len();
        assert_eq!(size(&http1), (3, wire));
        assert_eq!(size(&http2), (3, wire));
    }

    struct TooLargeSize(usize, usize);

    #[test]
    fn a_limit_itself_is_allowed() {
        let value = |length: usize| "v".repeat(length);
        // The target, the name and the overhead of a line take 6 bytes.
        let of = |length| request("/", &[("x", value(length).as_str())]);
        assert!(LIMITS.check_request(&of(34)).is_ok());
        let too_large = LIMITS.check_request(&of(35)).unwrap_err();
        assert_eq!((too_large.lines, too_large.bytes), (1, 41));
        let lines = |count| request("/", &vec![("x", ""); count]);
        assert!(LIMITS.check_request(&lines(3)).is_ok());
        let message = LIMITS.check_request(&lines(4)).unwrap_err().to_string();
        assert_eq!(
            message,
            "4 lines and 21 bytes; the limits are 3 lines (limits.header_lines) and 40 bytes (limits.header_size)"
        );
    }
}
