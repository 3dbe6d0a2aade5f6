//! Errors of forwarding, and the responses that report them to the client.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::json;

use tokengauge_types::event::{Ending, RejectReason, TimeoutKind, UpstreamFailure};
use tokengauge_types::label::Label;

/// Why a request gets no response from an upstream.
#[derive(Debug)]
pub(super) struct ForwardError {
    pub(super) ending: Ending,
    /// The upstream of the request. `None` if the request was not forwarded.
    pub(super) upstream: Option<Label>,
    /// Details, or empty. They come from this program, sockets, TLS and hyper, never from a URL or a header, so they
    /// contain no secret.
    pub(super) cause: String,
    /// Time after which a retry is useful, if known.
    pub(super) retry_after: Option<Duration>,
}

impl ForwardError {
    pub(super) const fn new(ending: Ending) -> Self {
        Self { ending, upstream: None, cause: String::new(), retry_after: None }
    }

    pub(super) fn with_cause(ending: Ending, cause: impl Into<String>) -> Self {
        Self { cause: cause.into(), ..Self::new(ending) }
    }

    /// Makes a response with a short JSON error in the format that OpenAI clients parse.
    pub(super) fn to_response(&self) -> Response<Bytes> {
        let Self { ending, upstream, cause, retry_after } = self;
        let (kind, description) = describe(*ending);
        let mut message = format!("tokengauge: {description}");
        if let Some(upstream) = upstream {
            message.push_str(&format!(" (upstream {upstream})"));
        }
        if !cause.is_empty() {
            message.push_str(": ");
            message.push_str(cause);
        }
        let status = status(*ending);
        let error = json!({"error": {
            "message": message,
            "type": format!("tokengauge_{kind}"),
            "code": status.as_u16(),
        }});
        let body = Bytes::from(error.to_string());
        let length = HeaderValue::from(body.len());
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_LENGTH, length);
        if let Some(time) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(*time)));
        }
        response
    }
}

fn status(ending: Ending) -> StatusCode {
    match ending {
        Ending::UpstreamFailed(_) => StatusCode::BAD_GATEWAY,
        Ending::TimedOut(_) => StatusCode::GATEWAY_TIMEOUT,
        Ending::Rejected(RejectReason::NoRoute) => StatusCode::NOT_FOUND,
        Ending::Rejected(RejectReason::Overload) => StatusCode::TOO_MANY_REQUESTS,
        Ending::Rejected(RejectReason::Draining) | Ending::Drained => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Ending::Rejected(RejectReason::BadRequest)
        | Ending::RequestBodyFailed
        | Ending::ClientDisconnected
        | Ending::Complete => StatusCode::BAD_REQUEST,
    }
}

/// Rounds up to at least 1, because clients would retry immediately on 0.
fn whole_seconds(time: Duration) -> u64 {
    let fraction = u64::from(time.subsec_nanos() > 0);
    (time.as_secs() + fraction).max(1)
}

fn describe(ending: Ending) -> (&'static str, &'static str) {
    match ending {
        Ending::UpstreamFailed(failure) => describe_failure(failure),
        Ending::TimedOut(TimeoutKind::Connect) => {
            ("upstream_timeout", "no connection to the upstream in time")
        }
        Ending::TimedOut(TimeoutKind::ResponseHeader | TimeoutKind::Idle) => {
            ("upstream_timeout", "no answer from the upstream in time")
        }
        Ending::TimedOut(TimeoutKind::Total) => {
            ("upstream_timeout", "the time limit of the exchange ran out")
        }
        Ending::Rejected(RejectReason::NoRoute) => ("no_route", "no route fits this host and path"),
        Ending::Rejected(RejectReason::Overload) => {
            ("overload", "this route takes no more requests at once")
        }
        Ending::Rejected(RejectReason::Draining) | Ending::Drained => ("draining", "shutting down"),
        Ending::Rejected(RejectReason::BadRequest) => {
            ("bad_request", "this request cannot be sent on")
        }
        Ending::RequestBodyFailed | Ending::ClientDisconnected | Ending::Complete => {
            ("bad_request", "the request's body broke off")
        }
    }
}

fn describe_failure(failure: UpstreamFailure) -> (&'static str, &'static str) {
    match failure {
        UpstreamFailure::Dns => ("upstream_dns", "the upstream's name cannot be resolved"),
        UpstreamFailure::Connect => ("upstream_connect", "cannot connect to the upstream"),
        UpstreamFailure::Tls => ("upstream_tls", "the TLS handshake with the upstream failed"),
        UpstreamFailure::BeforeResponse | UpstreamFailure::MidBody => {
            ("upstream_closed", "the upstream closed the connection before it answered")
        }
        UpstreamFailure::Protocol => ("upstream_protocol", "what the upstream sent is not HTTP"),
    }
}
