//! Detects the API of a request from its headers.

use std::borrow::Cow;

use tokengauge_llm::dialect::{self, DetectedApi};
use tokengauge_types::event::RequestHead;
use tokengauge_types::label::Label;

/// Returns the API that a request calls, and whether nothing but a call of this API can have such headers. `None` for
/// plain HTTP.
pub(super) fn detect(open: &RequestHead) -> Option<(DetectedApi, bool)> {
    let path = sent_path(open);
    let target = dialect::RequestTarget {
        hint: open.route.dialect.as_ref().map(Label::as_str),
        method: &open.method,
        host: Some(open.route.server_address.as_str()),
        path: &path,
        anthropic: open.headers.get("anthropic-version").is_some(),
    };
    let found = dialect::detect(&target)?;
    let is_certain = dialect::is_certain(&target, &found);
    Some((found.or_model(open.model.as_ref()), is_certain))
}

/// Returns the path that the upstream receives.
fn sent_path(open: &RequestHead) -> Cow<'_, str> {
    let route = &open.route;
    let rest = open.sent_path().get(route.stripped..).unwrap_or_default();
    match route.base_path.as_str() {
        "" => rest.into(),
        base => [base, rest].concat().into(),
    }
}
