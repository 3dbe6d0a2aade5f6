//! Checks that a request names exactly one host, and that its path cannot leave the prefix of its route.

use http::{Request, Version, header};

/// Returns whether the request names exactly one host (RFC 9112 §3.2). HTTP/1.0 needs no `Host`, and HTTP/2 has
/// `:authority` instead.
pub(super) fn has_one_host<B>(request: &Request<B>) -> bool {
    let hosts = request.headers().get_all(header::HOST).iter().count();
    hosts == 1 || hosts == 0 && request.version() != Version::HTTP_11
}

/// Returns whether the path has a segment `..`, plain or percent-encoded. Many servers resolve such segments. The
/// request could then leave the prefix of its route or the base path of its upstream.
pub(super) fn has_parent_segment(path: &str) -> bool {
    if !path.contains("..") && !path.contains('%') {
        return false;
    }
    let plain = path.to_ascii_lowercase().replace("%2e", ".");
    let plain = plain.replace("%2f", "/").replace("%5c", "\\").replace("%3b", ";");
    plain
        .split(['/', '\\'])
        // Some servers ignore what follows a semicolon.
        .any(|segment| segment.split(';').next() == Some(".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_parent_segments_in_any_encoding() {
        for path in [
            "/a/../b",
            "/..",
            "/a/%2e%2E/b",
            "/a/.%2e/b",
            "/a/..%2Fb",
            "/a%2f..%2fb",
            "/a/..\\b",
            "/a/..%5cb",
            "/a/..;x/b",
            "/a/..%3Bx/b",
        ] {
            assert!(has_parent_segment(path), "{path}");
        }
        for path in ["/", "/a/./b", "/a..b/c", "/a/...", "/a/%2e/b", "/models/v1..2", "/%25252e"] {
            assert!(!has_parent_segment(path), "{path}");
        }
    }
}
