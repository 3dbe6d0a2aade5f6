//! The endpoints of the console: `/api/v1/…`, and the files of the web page.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{Either, Full};
use percent_encoding::percent_decode_str;

use super::live::{LiveFeed, MAX_VIEWERS, Refusal};
use super::{JSON, PageBody};
use tokengauge_console::assets::{Asset, asset};
use tokengauge_console::document::RecentRequests;
use tokengauge_console::requests::{MAX_LIMIT, RequestQuery};

/// Default of the parameter `limit`.
const DEFAULT_LIMIT: usize = 100;

/// The page may load only its own files. It sends data only to this port.
const SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Headers of all files of the page.
const FILE_HEADERS: [(HeaderName, &str); 4] = [
    (CONTENT_SECURITY_POLICY, SECURITY_POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    // A browser asks each time whether its copy is current, because an upgrade replaces all files at once.
    (CACHE_CONTROL, "no-cache"),
];

/// Content of the endpoints.
#[expect(missing_debug_implementations, reason = "closures have no Debug")]
pub struct Console {
    pub live: Arc<LiveFeed>,
    /// Finds finished requests. `None` if the observer is too busy.
    pub find: Box<dyn Fn(RequestQuery) -> Option<RecentRequests> + Send + Sync>,
}

/// An endpoint with data, which needs authorization.
#[derive(Clone, Debug)]
pub(super) enum ConsoleEndpoint {
    Snapshot,
    Live,
    /// The query of the request.
    Requests(String),
}

impl ConsoleEndpoint {
    pub(super) fn from_path(path: &str, query: Option<&str>) -> Option<Self> {
        match path {
            "/api/v1/snapshot" => Some(Self::Snapshot),
            "/api/v1/live" => Some(Self::Live),
            "/api/v1/requests" => Some(Self::Requests(query.unwrap_or_default().to_owned())),
            _ => None,
        }
    }
}

/// Returns the file of the web page at `path`. Only browsers get the page at `/`.
pub(super) fn file(path: &str, headers: &HeaderMap) -> Option<&'static Asset> {
    match path {
        "/" if accepts_html(headers) => asset("index.html"),
        path => asset(path.strip_prefix("/console/")?),
    }
}

fn accepts_html(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|list| list.split(',')).any(|kind| {
        let kind = kind.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("text/html")
    })
}

/// Creates the response with a file of the web page.
pub(super) fn file_response(asset: &Asset, headers: &HeaderMap) -> Response<PageBody> {
    let known = headers.get_all(IF_NONE_MATCH).iter();
    let mut known = known.filter_map(|value| value.to_str().ok()).flat_map(|it| it.split(','));
    let is_known = known.any(|tag| tag.trim().trim_start_matches("W/") == asset.etag);
    let content = if is_known { Bytes::new() } else { Bytes::from_static(asset.content) };
    let mut response = whole(StatusCode::OK, asset.content_type, content);
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    for (name, value) in FILE_HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response.headers_mut().insert(ETAG, HeaderValue::from_static(asset.etag));
    response
}

impl Console {
    /// Creates the response of an endpoint. Computes on a blocking thread.
    pub(super) async fn respond(self: Arc<Self>, endpoint: ConsoleEndpoint) -> Response<PageBody> {
        if let ConsoleEndpoint::Live = endpoint {
            return self.live();
        }
        let rendered = tokio::task::spawn_blocking(move || self.render(&endpoint));
        rendered.await.unwrap_or_else(|_| {
            error(StatusCode::INTERNAL_SERVER_ERROR, "this document cannot be rendered")
        })
    }

    fn live(&self) -> Response<PageBody> {
        match Arc::clone(&self.live).connect() {
            Ok(events) => {
                let mut response = Response::new(Either::Right(Either::Right(events)));
                let headers = response.headers_mut();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
                response
            }
            Err(Refusal::TooManyViewers) => {
                let message = format!(
                    "{MAX_VIEWERS} viewers are connected, the limit; close one or use /api/v1/snapshot"
                );
                error(StatusCode::SERVICE_UNAVAILABLE, &message)
            }
            Err(Refusal::Draining) => {
                let message = "the process drains; use another replica or /api/v1/snapshot";
                error(StatusCode::SERVICE_UNAVAILABLE, message)
            }
        }
    }

    fn render(&self, endpoint: &ConsoleEndpoint) -> Response<PageBody> {
        let busy = || error(StatusCode::SERVICE_UNAVAILABLE, "the observer is busy; try again");
        match endpoint {
            ConsoleEndpoint::Snapshot | ConsoleEndpoint::Live => {
                self.live.snapshot().map_or_else(busy, |snapshot| json(&*snapshot))
            }
            ConsoleEndpoint::Requests(query) => match parse_query(query) {
                Ok(query) => (self.find)(query).map_or_else(busy, |found| json(&found)),
                Err(message) => error(StatusCode::BAD_REQUEST, &message),
            },
        }
    }
}

/// Parses the query of `/api/v1/requests`.
fn parse_query(text: &str) -> Result<RequestQuery, String> {
    let mut query = RequestQuery { limit: DEFAULT_LIMIT, ..RequestQuery::default() };
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = value.replace('+', " ");
        let value = percent_decode_str(&value).decode_utf8_lossy().into_owned();
        match key {
            "ended_from_unix_ms" => query.ended_from_unix_ms = Some(number(key, &value)?),
            "ended_to_unix_ms" => query.ended_to_unix_ms = Some(number(key, &value)?),
            "provider" => query.provider = Some(value),
            "model" => query.model = Some(value),
            "route" => query.route = Some(value),
            "tenant" => query.tenant = Some(value),
            "limit" => {
                let limit = usize::try_from(number(key, &value)?).unwrap_or(usize::MAX);
                if !(1..=MAX_LIMIT).contains(&limit) {
                    return Err(format!("limit: write a number from 1 to {MAX_LIMIT}"));
                }
                query.limit = limit;
            }
            _ => {
                let expected = "expected ended_from_unix_ms, ended_to_unix_ms, provider, model, route, tenant or limit";
                return Err(format!("unknown parameter \"{key}\"; {expected}"));
            }
        }
    }
    Ok(query)
}

fn number(key: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{key}: \"{value}\" is not a whole number; write digits"))
}

fn json(document: &impl serde::Serialize) -> Response<PageBody> {
    // Plain structs, strings and numbers always serialise.
    let text = serde_json::to_vec(document).unwrap_or_default();
    data(StatusCode::OK, text)
}

fn error(status: StatusCode, message: &str) -> Response<PageBody> {
    data(status, serde_json::json!({ "error": message }).to_string().into_bytes())
}

fn data(status: StatusCode, text: Vec<u8>) -> Response<PageBody> {
    let mut response = whole(status, JSON, text.into());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn whole(status: StatusCode, content_type: &'static str, content: Bytes) -> Response<PageBody> {
    let mut response = Response::new(Either::Left(Full::new(content)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_query() {
        let text = "ended_from_unix_ms=5&ended_to_unix_ms=9&model=a%2Fb+c&tenant=%3Cb%3E&limit=3";
        let query = parse_query(text).unwrap();
        assert_eq!((query.ended_from_unix_ms, query.ended_to_unix_ms), (Some(5), Some(9)));
        assert_eq!((query.model.as_deref(), query.tenant.as_deref()), (Some("a/b c"), Some("<b>")));
        assert_eq!((query.limit, query.route), (3, None));
        assert_eq!(parse_query("").unwrap().limit, DEFAULT_LIMIT);
    }

    #[test]
    fn a_wrong_query_is_an_error_that_names_the_parameter() {
        for (text, part) in [
            ("limit=0", "limit: write a number from 1 to 500"),
            ("limit=501", "limit: write a number from 1 to 500"),
            ("limit=x", "limit: \"x\" is not a whole number"),
            ("ended_to_unix_ms=-1", "ended_to_unix_ms: \"-1\""),
            ("modell=a", "unknown parameter \"modell\"; expected"),
        ] {
            let message = parse_query(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn only_browsers_get_the_page() {
        let accept = |value: &'static str| {
            let headers = [(ACCEPT, HeaderValue::from_static(value))];
            accepts_html(&headers.into_iter().collect())
        };
        assert!(accept("text/html,application/xhtml+xml,*/*;q=0.8"));
        assert!(accept("application/json, text/html;q=0.9"));
        assert!(!accept("*/*") && !accept("text/plain"));
        assert!(!accepts_html(&HeaderMap::new()));
    }
}
