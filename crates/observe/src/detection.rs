//! Detects the API of a request from its headers.

use std::borrow::Cow;

use tokengauge_llm::dialect::{self, Api, DetectedApi, Family};
use tokengauge_types::event::RequestHead;
use tokengauge_types::label::Label;

/// Returns the API that a request calls, and whether nothing but a call of this API can have such headers. `None` for
/// plain HTTP.
pub(super) fn detect(open: &RequestHead) -> Option<(DetectedApi, bool)> {
    detect_with(open, &open.method)
}

/// Returns whether the messages of a WebSocket on this path are requests and responses of the Responses API.
pub(super) fn has_turns(open: &RequestHead) -> bool {
    detect_posted(open).is_some_and(|(found, _)| found.api == Api::OpenAiResponses)
}

/// Like [`detect`], for a request that a client sends as a message of a WebSocket, instead of posting it.
pub(super) fn detect_posted(open: &RequestHead) -> Option<(DetectedApi, bool)> {
    detect_with(open, &http::Method::POST)
}

fn detect_with(open: &RequestHead, method: &http::Method) -> Option<(DetectedApi, bool)> {
    let path = sent_path(open);
    let target = dialect::RequestTarget {
        hint: open.route.dialect.as_ref().map(Label::as_str),
        method,
        host: Some(open.route.server_address.as_str()),
        path: &path,
        header_family: open.headers.get("anthropic-version").map(|_| Family::Anthropic),
    };
    let found = dialect::detect(&target)?;
    let is_certain = dialect::is_certain(&target, &found);
    Some((found.or_model(open.model.as_ref()), is_certain))
}

/// Returns the path that the upstream receives.
pub(super) fn sent_path(open: &RequestHead) -> Cow<'_, str> {
    let route = &open.route;
    let rest = open.sent_path().get(route.stripped..).unwrap_or_default();
    match route.base_path.as_str() {
        "" => rest.into(),
        base => [base, rest].concat().into(),
    }
}
