//! Scope of an SLO.

use serde::Serialize;

use crate::record::{Call, Record};
use tokengauge_llm::dialect::Operation;
use tokengauge_types::label::{GlobPattern, Label, Name};

/// Filter that selects the requests of an SLO. A field that is `None` matches all requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Scope {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<Label>,
    /// Glob pattern on the model name; `*` matches any text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Glob pattern for the tenant name. A request without a tenant does not match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "word")]
    pub operation: Option<Operation>,
    /// `true` for streams only, `false` for non-streams only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
}

fn word<S: serde::Serializer>(operation: &Option<Operation>, to: S) -> Result<S::Ok, S::Error> {
    operation.map(Operation::as_str).serialize(to)
}

/// Fields of a request, finished or in flight, that a scope is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub route: &'a Label,
    /// Requested model name, because configurations use this name and failed requests have no other. If the request
    /// names no model, the model label of the metrics is used.
    pub model: &'a str,
    pub tenant: Option<&'a str>,
    pub operation: Operation,
    /// Whether the response is a stream. For an error response: whether the request asked for a stream.
    pub stream: bool,
}

impl<'a> Subject<'a> {
    pub fn from_call(record: &'a Record, call: &'a Call) -> Self {
        let model = call.request.model.as_ref();
        Self {
            route: &record.route.name,
            model: model.map_or(call.series.model.as_str(), |name| name.as_str()),
            tenant: record.caller.tenant.as_ref().map(Name::as_str),
            operation: call.series.operation,
            stream: is_stream(call),
        }
    }
}

/// Returns whether the call is a stream of generated tokens.
pub(super) fn is_stream(call: &Call) -> bool {
    call.series.operation.generates() && (call.streamed || call.request.stream == Some(true))
}

/// A [`Scope`] with compiled patterns.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    scope: Scope,
    model: Option<GlobPattern>,
    tenant: Option<GlobPattern>,
}

impl Filter {
    pub(super) fn new(scope: &Scope) -> Self {
        let pattern = |text: &Option<String>| text.as_deref().map(GlobPattern::new);
        Self { model: pattern(&scope.model), tenant: pattern(&scope.tenant), scope: scope.clone() }
    }

    pub(super) fn matches(&self, subject: &Subject<'_>) -> bool {
        let Scope { route, operation, stream, .. } = &self.scope;
        let of_tenant =
            |pattern: &GlobPattern| subject.tenant.is_some_and(|it| pattern.matches(it));
        route.as_ref().is_none_or(|it| it == subject.route)
            && operation.is_none_or(|it| it == subject.operation)
            && stream.is_none_or(|it| it == subject.stream)
            && self.tenant.as_ref().is_none_or(of_tenant)
            && self.model.as_ref().is_none_or(|it| it.matches(subject.model))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stream;

    fn matches(scope: &Scope, record: &Record) -> bool {
        let subject = Subject::from_call(record, record.call.as_ref().unwrap());
        Filter::new(scope).matches(&subject)
    }

    fn in_scope(route: Option<&str>, model: Option<&str>, record: &Record) -> bool {
        let scope = Scope {
            route: route.map(Label::from_trusted),
            model: model.map(str::to_owned),
            ..Scope::default()
        };
        matches(&scope, record)
    }

    #[test]
    fn an_empty_scope_matches_all_and_a_given_field_must_match() {
        let record = stream();
        assert!(in_scope(None, None, &record));
        assert!(in_scope(Some("default"), None, &record));
        assert!(!in_scope(Some("Default"), None, &record));
        assert!(in_scope(Some("default"), Some("gpt-*"), &record));
        assert!(!in_scope(Some("default"), Some("claude-*"), &record));
        assert!(!in_scope(Some("other"), Some("gpt-*"), &record));
    }

    #[test]
    fn the_scope_matches_the_requested_model_or_its_label() {
        let mut record = stream();
        assert!(!in_scope(None, Some("gpt-4o-2024*"), &record));
        let call = record.call.as_mut().unwrap();
        call.request.model = Name::new("team/gpt-4o");
        assert!(in_scope(None, Some("team/*"), &record));
        let call = record.call.as_mut().unwrap();
        call.request.model = None;
        assert!(in_scope(None, Some("gpt-4o"), &record));
    }

    #[test]
    fn a_request_without_a_tenant_matches_no_tenant_scope() {
        let scope = |tenant: &str| Scope { tenant: Some(tenant.to_owned()), ..Scope::default() };
        let mut record = stream();
        assert!(!matches(&scope("*"), &record));
        record.caller.tenant = Name::new("acme-eu");
        assert!(matches(&scope("acme-*"), &record) && !matches(&scope("acme"), &record));
    }

    #[test]
    fn scopes_distinguish_operations_and_streams() {
        let scope = |operation, stream| Scope { operation, stream, ..Scope::default() };
        let mut record = stream();
        assert!(matches(&scope(Some(Operation::Chat), None), &record));
        assert!(!matches(&scope(Some(Operation::Embeddings), None), &record));
        assert!(matches(&scope(None, Some(true)), &record));
        assert!(!matches(&scope(None, Some(false)), &record));
        let call = record.call.as_mut().unwrap();
        call.streamed = false;
        assert!(
            matches(&scope(None, Some(true)), &record),
            "a stream was asked for, and an error came"
        );
        let call = record.call.as_mut().unwrap();
        call.request.stream = None;
        assert!(matches(&scope(Some(Operation::Chat), Some(false)), &record));
    }
}
