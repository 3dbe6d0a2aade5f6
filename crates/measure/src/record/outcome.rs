//! Outcome of a request, its error source (who caused the error), and its `error.type`.

use crate::record::Outcome;
use tokengauge_llm::dialect::ErrorFacts;
use tokengauge_types::event::{Ending, ErrorSource, UpstreamFailure};
use tokengauge_types::label::{Label, Name};

/// Facts about the response, collected by the end of the request.
#[derive(Clone, Debug, Default)]
pub struct ResponseSummary {
    pub status: Option<u16>,
    /// Whether the request is a streamed call of a known API.
    pub streamed: bool,
    /// Whether the stream had the provider's end marker: a stop reason for every choice, or the end-of-stream event of
    /// the API.
    pub finished: bool,
    /// Whether part of the body was not observed. The end marker may then have been missed.
    pub lost: bool,
    /// Whether the provider reported an error in the body or the stream.
    pub failed: bool,
    /// The provider's error type or code.
    pub failure: Option<Name>,
    /// The provider of the call. `None` for plain HTTP.
    pub provider: Option<Label>,
    /// Whether the proxy generated the response itself.
    pub own: bool,
}

/// Returns the outcome, error source and `error.type` of an exchange.
///
/// A stream with the provider's end marker is complete, no matter how its connection ends and which peer closes it.
/// Clients do close after the final event. A stream that HTTP delivered completely does not count as truncated if its
/// end was not observed.
///
/// [`ErrorFacts::blames_client`] decides whether the client or the upstream caused an error that the upstream reported.
pub fn classify(
    ending: Ending,
    answered: &ResponseSummary,
) -> (Outcome, ErrorSource, Option<Name>) {
    let error = |outcome, error_source, kind: &str| (outcome, error_source, Name::new(kind));
    let erred = answered.failed || answered.status.is_some_and(|status| status >= 400);
    match ending {
        Ending::Rejected(refusal) => {
            error(Outcome::Rejected, ending.error_source(), refusal.as_str())
        }
        _ if answered.finished && !erred => (Outcome::Ok, ErrorSource::None, None),
        Ending::TimedOut(limit) => {
            let kind = format!("timeout_{}", limit.as_str());
            error(Outcome::Timeout, ending.error_source(), &kind)
        }
        _ if erred => failed(ending, answered),
        Ending::Complete if !answered.streamed || answered.lost => {
            (Outcome::Ok, ErrorSource::None, None)
        }
        Ending::Complete => error(Outcome::Truncated, ErrorSource::Upstream, "truncated"),
        Ending::ClientDisconnected => {
            error(Outcome::Cancelled, ending.error_source(), "client_gone")
        }
        Ending::RequestBodyFailed => {
            error(Outcome::Cancelled, ending.error_source(), "client_broke")
        }
        Ending::UpstreamFailed(UpstreamFailure::MidBody) if answered.streamed => {
            error(Outcome::Truncated, ending.error_source(), failure_word(UpstreamFailure::MidBody))
        }
        Ending::UpstreamFailed(failure) => {
            error(Outcome::Error, ending.error_source(), failure_word(failure))
        }
        Ending::Drained if answered.streamed => {
            error(Outcome::Truncated, ending.error_source(), "drained")
        }
        Ending::Drained => error(Outcome::Error, ending.error_source(), "drained"),
    }
}

fn failed(ending: Ending, answered: &ResponseSummary) -> (Outcome, ErrorSource, Option<Name>) {
    if let (Ending::UpstreamFailed(failure), true) = (ending, answered.own) {
        return (Outcome::Error, ErrorSource::Upstream, Name::new(failure_word(failure)));
    }
    let status = answered.status.filter(|status| *status >= 400);
    let facts = ErrorFacts {
        provider: answered.provider.as_ref().map(Label::as_str),
        status,
        kind: answered.failure.as_ref().map(Name::as_str),
    };
    let status = status.and_then(|status| Name::new(&status.to_string()));
    let error_source =
        if facts.blames_client() { ErrorSource::Client } else { ErrorSource::Upstream };
    let kind = answered.failure.clone().or(status);
    (Outcome::Error, error_source, kind.or_else(|| Name::new("_OTHER")))
}

const fn failure_word(failure: UpstreamFailure) -> &'static str {
    match failure {
        UpstreamFailure::Dns => "upstream_dns",
        UpstreamFailure::Connect => "upstream_connect",
        UpstreamFailure::Tls => "upstream_tls",
        UpstreamFailure::BeforeResponse => "upstream_closed",
        UpstreamFailure::Protocol => "upstream_protocol",
        UpstreamFailure::MidBody => "upstream_truncated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_types::event::{RejectReason, TimeoutKind};

    fn actual(ending: Ending, answered: &ResponseSummary) -> (Outcome, ErrorSource, String) {
        let (outcome, error_source, kind) = classify(ending, answered);
        (outcome, error_source, kind.map(|kind| kind.to_string()).unwrap_or_default())
    }

    fn stream(finished: bool) -> ResponseSummary {
        ResponseSummary {
            status: Some(200),
            streamed: true,
            finished,
            ..ResponseSummary::default()
        }
    }

    #[test]
    fn an_unobserved_stream_is_not_truncated() {
        let lost = ResponseSummary { lost: true, ..stream(false) };
        assert_eq!(
            actual(Ending::Complete, &lost),
            (Outcome::Ok, ErrorSource::None, String::new())
        );
        assert_eq!(
            actual(Ending::ClientDisconnected, &lost),
            (Outcome::Cancelled, ErrorSource::Client, "client_gone".into())
        );
    }

    #[test]
    fn a_client_that_closes_after_the_final_event_received_everything() {
        assert_eq!(
            actual(Ending::ClientDisconnected, &stream(true)),
            (Outcome::Ok, ErrorSource::None, String::new())
        );
        assert_eq!(
            actual(Ending::ClientDisconnected, &stream(false)),
            (Outcome::Cancelled, ErrorSource::Client, "client_gone".into())
        );
    }

    #[test]
    fn a_stream_without_the_end_marker_of_the_provider_is_truncated() {
        assert_eq!(
            actual(Ending::Complete, &stream(false)),
            (Outcome::Truncated, ErrorSource::Upstream, "truncated".into())
        );
        assert_eq!(actual(Ending::Complete, &stream(true)).0, Outcome::Ok);
        let broke = Ending::UpstreamFailed(UpstreamFailure::MidBody);
        assert_eq!(
            actual(broke, &stream(false)),
            (Outcome::Truncated, ErrorSource::Upstream, "upstream_truncated".into())
        );
    }

    #[test]
    fn the_error_type_of_the_provider_takes_precedence_over_the_status() {
        let answer = |status, failure: Option<&str>| ResponseSummary {
            status: Some(status),
            failed: true,
            failure: failure.and_then(Name::new),
            ..ResponseSummary::default()
        };
        let named = actual(Ending::Complete, &answer(429, Some("rate_limit_exceeded")));
        assert_eq!(named, (Outcome::Error, ErrorSource::Upstream, "rate_limit_exceeded".into()));
        assert_eq!(
            actual(Ending::Complete, &answer(401, None)),
            (Outcome::Error, ErrorSource::Client, "401".into())
        );
        assert_eq!(
            actual(Ending::Complete, &answer(503, None)),
            (Outcome::Error, ErrorSource::Upstream, "503".into())
        );
        assert_eq!(
            actual(Ending::Complete, &answer(200, None)),
            (Outcome::Error, ErrorSource::Upstream, "_OTHER".into())
        );
    }

    #[test]
    fn an_error_in_a_success_body_is_of_the_client_for_client_error_types() {
        let source = |status, kind: &str| {
            let answered = ResponseSummary {
                failed: true,
                failure: Name::new(kind),
                ..ResponseSummary { status: Some(status), ..stream(true) }
            };
            actual(Ending::Complete, &answered).1
        };
        for kind in ["invalid_request_error", "BadRequestError", "validationException", "400"] {
            assert_eq!(source(200, kind), ErrorSource::Client, "{kind}");
        }
        for kind in ["server_error", "overloaded_error", "rate_limit_error", "408", "429", "500"] {
            assert_eq!(source(200, kind), ErrorSource::Upstream, "{kind}");
        }
        assert_eq!(
            source(500, "invalid_request_error"),
            ErrorSource::Upstream,
            "the status decides"
        );
        for status in [408, 429] {
            assert_eq!(source(status, "invalid_request_error"), ErrorSource::Upstream, "{status}");
        }
    }

    #[test]
    fn responses_of_the_proxy_itself_name_their_cause() {
        let own = ResponseSummary { status: Some(502), own: true, ..ResponseSummary::default() };
        let refused = actual(Ending::UpstreamFailed(UpstreamFailure::Connect), &own);
        assert_eq!(refused, (Outcome::Error, ErrorSource::Upstream, "upstream_connect".into()));
        let slow = actual(
            Ending::TimedOut(TimeoutKind::ResponseHeader),
            &ResponseSummary { status: Some(504), ..own.clone() },
        );
        assert_eq!(
            slow,
            (Outcome::Timeout, ErrorSource::Upstream, "timeout_response_header".into())
        );
        let lost = actual(
            Ending::Rejected(RejectReason::NoRoute),
            &ResponseSummary { status: Some(404), ..own },
        );
        assert_eq!(lost, (Outcome::Rejected, ErrorSource::Client, "no_route".into()));
    }

    #[test]
    fn plain_http_is_ok_unless_its_status_is_an_error() {
        let plain = |status| ResponseSummary { status: Some(status), ..ResponseSummary::default() };
        assert_eq!(
            actual(Ending::Complete, &plain(204)),
            (Outcome::Ok, ErrorSource::None, String::new())
        );
        assert_eq!(
            actual(Ending::Complete, &plain(404)),
            (Outcome::Error, ErrorSource::Client, "404".into())
        );
    }
}
