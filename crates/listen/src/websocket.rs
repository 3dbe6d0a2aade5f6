//! Recognizes requests for a WebSocket.

use http::header::{CONNECTION, HeaderMap, HeaderName, UPGRADE};
use http::{Request, Version};

/// The only protocol that a connection can be upgraded to. Other protocols, such as h2c, could carry requests that
/// bypass the routes.
pub const WEBSOCKET: &str = "websocket";

/// Returns whether `request` asks to upgrade its connection to a WebSocket (RFC 9110 §7.8). The header `Upgrade` alone
/// has no effect.
pub fn wants_websocket<B>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_11
        && items(request.headers(), &CONNECTION).any(|name| name.eq_ignore_ascii_case("upgrade"))
        && upgrades_to_websocket(request.headers())
}

/// Returns whether the header `Upgrade` names the WebSocket protocol.
pub fn upgrades_to_websocket(headers: &HeaderMap) -> bool {
    items(headers, &UPGRADE).any(|name| name.eq_ignore_ascii_case(WEBSOCKET))
}

/// Returns the comma-separated items in all values of a header.
pub fn items<'a>(headers: &'a HeaderMap, header: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(header)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_needs_both_headers_and_http_1_1() {
        let wants = |version, headers: &[(&str, &str)]| {
            let mut request = Request::builder().version(version);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            wants_websocket(&request.body(()).unwrap())
        };
        let upgrade = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];
        assert!(wants(Version::HTTP_11, &upgrade));
        let several = [("connection", "upgrade"), ("upgrade", "h2c"), ("upgrade", "a, websocket")];
        assert!(wants(Version::HTTP_11, &several));
        assert!(!wants(Version::HTTP_10, &upgrade) && !wants(Version::HTTP_2, &upgrade));
        assert!(!wants(Version::HTTP_11, &upgrade[..1]) && !wants(Version::HTTP_11, &upgrade[1..]));
        let other = [("connection", "close"), ("upgrade", "websocket")];
        assert!(!wants(Version::HTTP_11, &other));
        let h2c = [("connection", "upgrade"), ("upgrade", "h2c")];
        assert!(!wants(Version::HTTP_11, &h2c));
    }
}
