//! Copies the parts of request headers and response headers that the observer needs.
//!
//! Only the host, the path and allow-listed headers are copied, so that credentials cannot reach the observer. Of the
//! query, only the name of the model is copied.

use std::sync::Arc;

use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, Request, Response};
use percent_encoding::percent_decode_str;

use tokengauge_types::clock;
use tokengauge_types::event::{
    BodyWaitState, CallerIdentity, Headers, REQUEST_HEADERS, RESPONSE_HEADERS, RequestHead,
    ResponseHead, RouteFacts, Scheme, SessionRule, TraceContext,
};
use tokengauge_types::label::{MAX_NAME_BYTES, Name};
use tokengauge_types::tcp::TcpConnection;

/// Query parameters that name a model, in order of preference. Azure OpenAI uses `deployment`.
const MODEL_PARAMETERS: [&str; 2] = ["model", "deployment"];

/// Facts about a request that are not part of its headers.
#[derive(Debug)]
pub struct RequestContext {
    pub route: Arc<RouteFacts>,
    /// The client's TCP connection. `None` for other transports.
    pub connection: Option<Arc<TcpConnection>>,
    pub scheme: Scheme,
    pub trace: TraceContext,
    /// The conversation id from the caller's baggage.
    pub conversation: Option<Name>,
    pub identity: CallerIdentity,
    pub session_rule: SessionRule,
}

/// Describes the headers of `request`, which were just received.
pub fn describe_request<B>(request: &Request<B>, context: RequestContext) -> RequestHead {
    let RequestContext { route, connection, scheme, trace, conversation, identity, session_rule } =
        context;
    let uri = request.uri();
    let path = uri.path();
    RequestHead {
        wall: clock::wall_now(),
        method: request.method().clone(),
        path: Name::new(path).unwrap_or_else(root_path),
        whole_path: (path.len() > MAX_NAME_BYTES).then(|| path.into()),
        model: uri.query().and_then(model_in_query),
        host: host(request).and_then(Name::new),
        version: request.version(),
        scheme,
        headers: Headers::pick(request.headers(), &REQUEST_HEADERS),
        length: content_length(request.headers()),
        client: connection.as_ref().map(|connection| connection.remote.ip()),
        connection,
        route,
        trace,
        conversation,
        identity,
        session_rule,
        body_wait: Arc::<BodyWaitState>::default(),
    }
}

/// Describes the headers of `response`. `from_proxy` is true if this process generated the response.
pub fn describe_response<B>(response: &Response<B>, from_proxy: bool) -> ResponseHead {
    ResponseHead {
        status: response.status().as_u16(),
        version: response.version(),
        headers: Headers::pick(response.headers(), &RESPONSE_HEADERS),
        length: content_length(response.headers()),
        from_proxy,
    }
}

/// Returns the requested host: the host in the request target, or else the `Host` header.
pub fn host<B>(request: &Request<B>) -> Option<&str> {
    let in_target = request.uri().authority().map(|authority| {
        let text = authority.as_str();
        text.rsplit_once('@').map_or(text, |(_, host)| host)
    });
    in_target.or_else(|| request.headers().get(HOST)?.to_str().ok())
}

/// Returns the path `/`. It replaces the path of a CONNECT request, which has none.
fn root_path() -> Name {
    Name::new("/").unwrap_or_else(|| unreachable!("the text is not empty"))
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn model_in_query(query: &str) -> Option<Name> {
    MODEL_PARAMETERS.iter().find_map(|parameter| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(name, _)| name == parameter)?;
        let decoded: Vec<u8> = percent_decode_str(value).take(MAX_NAME_BYTES).collect();
        Name::new(&String::from_utf8_lossy(&decoded))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(query: &str) -> Option<String> {
        model_in_query(query).map(|name| name.to_string())
    }

    #[test]
    fn keeps_the_whole_path_only_if_it_is_cut() {
        let described = |path: &str| {
            let request = Request::builder().uri(path).body(()).unwrap();
            let context = RequestContext {
                route: crate::tests::open("/").route,
                connection: None,
                scheme: Scheme::Http,
                trace: TraceContext::default(),
                conversation: None,
                identity: CallerIdentity::default(),
                session_rule: SessionRule::default(),
            };
            describe_request(&request, context)
        };
        assert_eq!(described("/v1/chat?key=secret").whole_path, None);
        let path = format!("/{}/v1/chat", "x".repeat(1_000));
        let head = described(&format!("{path}?key=secret"));
        assert_eq!(head.whole_path.as_deref(), Some(path.as_str()));
        assert_eq!(head.sent_path(), path);
    }

    #[test]
    fn finds_model_in_query() {
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(model("model=gpt-realtime"), named("gpt-realtime"));
        assert_eq!(model("api-version=1&deployment=mine&x"), named("mine"));
        assert_eq!(model("deployment=mine&model=gpt-realtime"), named("gpt-realtime"));
        assert_eq!(model("model=ft%3Agpt-4o%3aacme%2"), named("ft:gpt-4o:acme%2"));
        assert_eq!(model("model=%+5%C3%A9%FF"), named("%+5é\u{FFFD}"));
    }

    #[test]
    fn ignores_other_parameters_and_bounds_the_name() {
        for query in ["", "model", "model=", "amodel=x", "x=model=y", "Model=x", "key=secret"] {
            assert_eq!(model(query), None, "{query}");
        }
        let long = model(&format!("model={}", "%41".repeat(10_000))).unwrap();
        assert_eq!(long, "A".repeat(MAX_NAME_BYTES));
    }
}
