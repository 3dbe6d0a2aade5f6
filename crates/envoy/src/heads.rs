//! Reads requests and responses from the headers and attributes that Envoy sends.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use http::header::HOST;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
};
use prost_types::Struct;

use crate::proto;

/// Attributes by filter name. Envoy sends one group, under the name that the filter has in its configuration.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a>(pub &'a HashMap<String, Struct>);

impl<'a> Attributes<'a> {
    pub fn text(self, name: &str) -> Option<&'a str> {
        self.0.values().find_map(|group| proto::text(group, name))
    }

    pub fn whole_number(self, name: &str) -> Option<u64> {
        self.0.values().find_map(|group| proto::whole_number(group, name))
    }

    /// Returns the address of the client, as Envoy determined it.
    pub fn client(self) -> Option<IpAddr> {
        let address = self.text("source.address")?;
        let socket = address.parse::<SocketAddr>().map(|socket| socket.ip());
        socket.ok().or_else(|| address.parse().ok())
    }

    /// Returns the HTTP version of the client's request. HTTP/1.1 if Envoy does not send it.
    pub fn version(self) -> Version {
        match self.text("request.protocol") {
            Some("HTTP/1.0") => Version::HTTP_10,
            Some("HTTP/2") => Version::HTTP_2,
            Some("HTTP/3") => Version::HTTP_3,
            Some(_) | None => Version::HTTP_11,
        }
    }
}

/// Returns the request of these headers, without its body, and whether its scheme is `https`.
pub fn request(headers: &proto::HeaderMap, version: Version) -> (Request<()>, bool) {
    let mut request = Request::new(());
    let mut is_https = false;
    *request.version_mut() = version;
    for header in &headers.headers {
        let value = header.bytes();
        match header.key.as_str() {
            ":method" => {
                *request.method_mut() = Method::from_bytes(value).unwrap_or_default();
            }
            // A target that is not a valid URI gets the path `/`.
            ":path" => *request.uri_mut() = Uri::try_from(value).unwrap_or_default(),
            ":scheme" => is_https = value.eq_ignore_ascii_case(b"https"),
            ":authority" => add(request.headers_mut(), HOST.as_str(), value),
            name => add(request.headers_mut(), name, value),
        }
    }
    (request, is_https)
}

/// Returns the response of these headers. `None` if its status is invalid.
pub fn response(headers: &proto::HeaderMap, version: Version) -> Option<Response<()>> {
    let mut response = Response::new(());
    *response.version_mut() = version;
    let mut status = None;
    for header in &headers.headers {
        match header.key.as_str() {
            ":status" => status = StatusCode::from_bytes(header.bytes()).ok(),
            name => add(response.headers_mut(), name, header.bytes()),
        }
    }
    *response.status_mut() = status?;
    Some(response)
}

/// Adds a header. A header that is invalid, or for which the map has no room, is left out.
fn add(headers: &mut HeaderMap, name: &str, value: &[u8]) {
    if let (Ok(name), Ok(value)) =
        (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value))
    {
        drop(headers.try_append(name, value));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost_types::Value;
    use prost_types::value::Kind;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> proto::HeaderMap {
        let header = |(key, value): &(&str, &str)| proto::HeaderValue {
            key: (*key).to_owned(),
            value: String::new(),
            raw_value: Bytes::copy_from_slice(value.as_bytes()),
        };
        proto::HeaderMap { headers: pairs.iter().map(header).collect() }
    }

    #[test]
    fn reads_a_request() {
        let (request, is_https) = request(
            &headers(&[
                (":method", "POST"),
                (":path", "/v1/chat?model=m"),
                (":scheme", "https"),
                (":authority", "llm.example.com"),
                ("accept", "a"),
                ("accept", "b"),
                ("bad name", "x"),
            ]),
            Version::HTTP_2,
        );
        assert!(is_https && request.version() == Version::HTTP_2);
        assert_eq!((request.method(), request.uri().path()), (&Method::POST, "/v1/chat"));
        assert_eq!(request.headers()[HOST], "llm.example.com");
        assert_eq!(request.headers().get_all("accept").iter().count(), 2);
        assert_eq!(request.headers().len(), 3);
    }

    #[test]
    fn reads_a_response_only_with_a_status() {
        let ok = response(&headers(&[(":status", "200"), ("server", "x")]), Version::HTTP_11);
        assert_eq!(ok.unwrap().status(), 200);
        for invalid in [&[][..], &[(":status", "2000")], &[(":status", "")]] {
            assert!(response(&headers(invalid), Version::HTTP_11).is_none());
        }
    }

    #[test]
    fn reads_attributes_of_any_filter_name() {
        let value = |kind| Value { kind: Some(kind) };
        let fields = [
            ("source.address", value(Kind::StringValue("[::1]:80".to_owned()))),
            ("request.protocol", value(Kind::StringValue("HTTP/2".to_owned()))),
            ("response.flags", value(Kind::NumberValue(64.0))),
            ("odd", value(Kind::NumberValue(0.5))),
        ];
        let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let groups = HashMap::from([("any".to_owned(), Struct { fields })]);
        let attributes = Attributes(&groups);
        assert_eq!(attributes.client(), Some("::1".parse().unwrap()));
        assert_eq!(attributes.version(), Version::HTTP_2);
        assert_eq!(attributes.whole_number("response.flags"), Some(64));
        assert_eq!(attributes.whole_number("odd"), None);
        assert_eq!(attributes.text("response.flags"), None);
    }
}
