//! Rewrites requests and responses for forwarding: hop-by-hop headers, host, path prefix and HTTP version.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme as UriScheme};
use http::{Method, Request, Response, Uri, Version};

use super::Protocol;
use super::upstream::Upstream;
use tokengauge_listen::websocket::{WEBSOCKET, items};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Hop-by-hop headers, which are removed before forwarding. Separate code handles `TE`, `Upgrade` and the headers that
/// `Connection` names.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    HTTP2_SETTINGS,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TRANSFER_ENCODING,
];

/// The message cannot be forwarded because of its URL or its headers.
#[derive(Debug)]
pub struct BadRequest;

/// Rewrites the request line and headers for `upstream`. Strips the first `stripped` bytes of the path.
pub(super) fn rewrite_request<B>(
    request: &mut Request<B>,
    upstream: &Upstream,
    stripped: usize,
    upgrade: bool,
) -> Result<(), BadRequest> {
    if has_unsupported_coding(request.headers()) {
        return Err(BadRequest);
    }
    unify_content_length(request.headers_mut())?;
    strip_hop_by_hop(request.headers_mut(), upgrade);
    let is_http2 = request.version() == Version::HTTP_2;
    let path = path_and_query(request, &upstream.config().base_path, stripped)?;
    let host = if upstream.config().preserve_host {
        let requested = request.uri().authority().and_then(host_without_user);
        requested
            .or_else(|| request.headers().get(header::HOST).cloned())
            .unwrap_or_else(|| upstream.host.clone())
    } else {
        upstream.host.clone()
    };
    let absolute = match upstream.config().protocol {
        Protocol::Http1 => upstream.is_behind_plain_proxy(),
        Protocol::Http2 => true,
    };
    *request.uri_mut() =
        if absolute { absolute_uri(&host, path, upstream.config().tls)? } else { Uri::from(path) };
    let headers = request.headers_mut();
    if let Some(authorization) = upstream.proxy_authorization() {
        headers.insert(header::PROXY_AUTHORIZATION, authorization.clone());
    }
    match upstream.config().protocol {
        Protocol::Http1 => {
            headers.insert(header::HOST, host);
            if is_http2 {
                join_cookies(headers);
            }
            *request.version_mut() = Version::HTTP_11;
        }
        Protocol::Http2 => {
            headers.remove(header::HOST);
            *request.version_mut() = Version::HTTP_2;
        }
    }
    Ok(())
}

/// Converts an HTTP/2 request to HTTP/1.1, for an upstream that chose HTTP/1.1 during the TLS handshake (ALPN).
pub(super) fn convert_to_http1<B>(request: &mut Request<B>) {
    if request.version() != Version::HTTP_2 {
        return;
    }
    *request.version_mut() = Version::HTTP_11;
    join_cookies(request.headers_mut());
    let target = std::mem::take(request.uri_mut()).into_parts();
    if let Some(host) = target.authority.and_then(|host| HeaderValue::try_from(host.as_str()).ok())
    {
        request.headers_mut().insert(header::HOST, host);
    }
    if let Some(path) = target.path_and_query {
        *request.uri_mut() = Uri::from(path);
    }
}

/// Joins the `Cookie` headers of an HTTP/2 request into one (RFC 9113 §8.2.3). HTTP/2 clients may send each cookie in a
/// separate header, but many HTTP/1.1 servers read only the first.
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> =
        headers.get_all(header::COOKIE).iter().map(|it| it.as_bytes()).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(header::COOKIE, joined);
    }
}

/// Returns the value of the `Host` header for an authority. Omits user and password, which do not belong there (RFC
/// 9110 §7.2).
fn host_without_user(authority: &Authority) -> Option<HeaderValue> {
    let text = authority.as_str();
    HeaderValue::try_from(text.rsplit_once('@').map_or(text, |(_, host)| host)).ok()
}

/// Returns whether the response has both `Transfer-Encoding` and `Content-Length`. `Transfer-Encoding` applies (RFC
/// 9112 §6.3). Such a response can be an attack (response smuggling), so the connection must not be reused.
pub(super) fn has_ambiguous_length<B>(response: &Response<B>) -> bool {
    let headers = response.headers();
    headers.contains_key(header::TRANSFER_ENCODING) && headers.contains_key(header::CONTENT_LENGTH)
}

/// Replaces repeated values of `Content-Length`, such as `3, 3` or two equal headers, by one number. A recipient that
/// reads such a header differently would find another end of the body (RFC 9110 §8.6). Returns an error if the values
/// differ or are not numbers.
pub(super) fn unify_content_length(headers: &mut HeaderMap) -> Result<(), BadRequest> {
    let mut values = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = values.next() else { return Ok(()) };
    if values.next().is_none() && parse_length(first.as_bytes()).is_some() {
        return Ok(());
    }
    let mut length = None;
    for value in headers.get_all(header::CONTENT_LENGTH) {
        for number in value.as_bytes().split(|byte| *byte == b',') {
            let number = parse_length(number.trim_ascii()).ok_or(BadRequest)?;
            if length.replace(number).is_some_and(|other| other != number) {
                return Err(BadRequest);
            }
        }
    }
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(())
}

/// Parses a length, which has only digits. `u64::from_str` alone would accept a sign.
fn parse_length(digits: &[u8]) -> Option<u64> {
    let text = str::from_utf8(digits).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Returns whether `Transfer-Encoding` contains a coding other than `chunked`, such as `gzip, chunked`. hyper decodes
/// only `chunked`, so the recipient would not know of the other codings.
pub(super) fn has_unsupported_coding(headers: &HeaderMap) -> bool {
    items(headers, &header::TRANSFER_ENCODING)
        .any(|coding| !["chunked", "identity"].iter().any(|it| coding.eq_ignore_ascii_case(it)))
}

/// Rewrites the HTTP version and headers of a response for the client.
pub(super) fn rewrite_response<B>(mut response: Response<B>, upgrade: bool) -> Response<B> {
    if has_ambiguous_length(&response) {
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    strip_hop_by_hop(response.headers_mut(), upgrade);
    // An upstream that answers in HTTP/1.0 must not downgrade the client's connection.
    *response.version_mut() = Version::HTTP_11;
    response
}

fn strip_hop_by_hop(headers: &mut HeaderMap, upgrade: bool) {
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = items(headers, &header::CONNECTION)
            .filter_map(|name| HeaderName::try_from(name).ok())
            .filter(|name| !is_protected(name))
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    // A search in the few received names costs less than hashing each hop-by-hop name.
    for name in &HOP_BY_HOP {
        if headers.keys().any(|received| received == name) {
            headers.remove(name);
        }
    }
    if headers.contains_key(header::TE) {
        let trailers =
            items(headers, &header::TE).any(|name| name.eq_ignore_ascii_case("trailers"));
        headers.remove(header::TE);
        if trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
    }
    if upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        if items(headers, &header::UPGRADE).count() > 1 {
            headers.insert(header::UPGRADE, HeaderValue::from_static(WEBSOCKET));
        }
    } else if headers.contains_key(header::UPGRADE) {
        headers.remove(header::UPGRADE);
    }
}

/// Returns whether a header is kept even if `Connection` names it. Without the header, the message would have another
/// meaning, or separate code handles the header.
fn is_protected(name: &HeaderName) -> bool {
    [
        header::HOST,
        header::CONTENT_LENGTH,
        header::CONTENT_TYPE,
        header::CONTENT_ENCODING,
        header::TE,
        header::UPGRADE,
    ]
    .contains(name)
}

fn path_and_query<B>(
    request: &Request<B>,
    base: &str,
    stripped: usize,
) -> Result<PathAndQuery, BadRequest> {
    let original = request.uri().path_and_query().ok_or(BadRequest)?;
    let path = original.path();
    if request.method() == Method::CONNECT {
        return Err(BadRequest);
    }
    if (base.is_empty() && stripped == 0) || path == "*" {
        return Ok(original.clone());
    }
    let rest = path.get(stripped..).ok_or(BadRequest)?;
    let query = original.query();
    let mut target = String::with_capacity(base.len() + original.as_str().len() + 1);
    target.push_str(base);
    target.push_str(rest);
    if target.is_empty() {
        target.push('/');
    }
    if let Some(query) = query {
        target.push('?');
        target.push_str(query);
    }
    PathAndQuery::try_from(target).map_err(|_| BadRequest)
}

fn absolute_uri(host: &HeaderValue, path: PathAndQuery, tls: bool) -> Result<Uri, BadRequest> {
    let authority = Authority::try_from(host.as_bytes()).map_err(|_| BadRequest)?;
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(if tls { UriScheme::HTTPS } else { UriScheme::HTTP });
    uri.authority = Some(authority);
    uri.path_and_query = Some(path);
    Uri::from_parts(uri).map_err(|_| BadRequest)
}
