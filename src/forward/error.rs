//! Forwarding errors and their responses.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use serde_json::json;

use super::buffered_body::{Upload, readable_body};
use tokengauge_listen::HeadersTooLarge;
use tokengauge_types::event::{Ending, RejectReason, TimeoutKind, UpstreamFailure};
use tokengauge_types::label::Label;

/// The reason why the proxy answers a request with an error response.
#[derive(Debug)]
pub struct ForwardError {
    pub(super) ending: Ending,
    /// The name of the upstream. `None` if the request failed before it was forwarded.
    pub(super) upstream: Option<Label>,
    /// Details of the error, or empty. The text comes from this program, sockets, TLS or hyper. The text contains no
    /// URL and no header, and therefore no secret.
    pub(super) cause: String,
    /// Time after which the client should retry, if known.
    pub(super) retry_after: Option<Duration>,
    /// The request body, if no connection has taken it. `None` if the body must not be read.
    pub(super) unsent: Option<Box<Upload>>,
}

impl ForwardError {
    pub(super) const fn new(ending: Ending) -> Self {
        Self { ending, upstream: None, cause: String::new(), retry_after: None, unsent: None }
    }

    pub(super) fn with_cause(ending: Ending, cause: impl Into<String>) -> Self {
        Self { cause: cause.into(), ..Self::new(ending) }
    }

    /// The error of a request that is not forwarded.
    pub(super) fn rejected(reason: RejectReason, request: Request<Upload>) -> Self {
        let too_large = request.extensions().get::<HeadersTooLarge>();
        let cause = too_large.map(HeadersTooLarge::to_string).unwrap_or_default();
        Self::with_cause(Ending::Rejected(reason), cause).with_unsent(request.map(Some))
    }

    /// Adds the body of `request`, which no connection has taken.
    pub(super) fn with_unsent(self, mut request: Request<Option<Upload>>) -> Self {
        let body = readable_body(&mut request).and_then(Option::take);
        Self { unsent: body.map(Box::new), ..self }
    }

    /// Returns whether the upstream is at fault: it cannot be reached, or does not send a valid response in time.
    pub(super) const fn is_upstream_failure(&self) -> bool {
        match self.ending {
            Ending::UpstreamFailed(_)
            | Ending::TimedOut(TimeoutKind::Connect | TimeoutKind::ResponseHeader) => true,
            Ending::TimedOut(
                TimeoutKind::Idle
                | TimeoutKind::Total
                | TimeoutKind::TotalUnread
                | TimeoutKind::Send,
            )
            | Ending::Rejected(_)
            | Ending::Drained
            | Ending::RequestBodyFailed
            | Ending::ClientDisconnected
            | Ending::Complete => false,
        }
    }

    /// Describes the error in one line, with its details.
    pub(super) fn problem(&self) -> String {
        let (_, _, description) = describe(self.ending);
        match self.cause.as_str() {
            "" => description.to_owned(),
            cause => format!("{description}: {cause}"),
        }
    }

    /// Creates the error response: a short JSON body in the format of OpenAI's errors.
    pub(super) fn to_response(&self) -> Response<Bytes> {
        let Self { ending, upstream, cause, retry_after, unsent: _ } = self;
        let (status, kind, description) = describe(*ending);
        let mut message = format!("tokengauge: {description}");
        if let Some(upstream) = upstream {
            message.push_str(&format!(" (upstream {upstream})"));
        }
        if !cause.is_empty() {
            message.push_str(": ");
            message.push_str(cause);
        }
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

/// Rounds up to whole seconds, and to at least 1. Clients would retry immediately on 0.
fn whole_seconds(time: Duration) -> u64 {
    let fraction = u64::from(time.subsec_nanos() > 0);
    (time.as_secs() + fraction).max(1)
}

/// Returns the HTTP status, the error type without its prefix `tokengauge_`, and the description.
fn describe(ending: Ending) -> (StatusCode, &'static str, &'static str) {
    use RejectReason::{BadRequest, Draining, HeadersTooLarge, Loop, NoRoute, Overload};
    use TimeoutKind::{Connect, Idle, ResponseHeader, Send, Total, TotalUnread};
    let timeout = |description| (StatusCode::GATEWAY_TIMEOUT, "upstream_timeout", description);
    let bad_gateway = |kind, description| (StatusCode::BAD_GATEWAY, kind, description);
    match ending {
        Ending::UpstreamFailed(failure) => match failure {
            UpstreamFailure::Dns => {
                bad_gateway("upstream_dns", "the upstream's name cannot be resolved")
            }
            UpstreamFailure::Connect => {
                bad_gateway("upstream_connect", "cannot connect to the upstream")
            }
            UpstreamFailure::Tls => {
                bad_gateway("upstream_tls", "the TLS handshake with the upstream failed")
            }
            UpstreamFailure::BeforeResponse | UpstreamFailure::MidBody => bad_gateway(
                "upstream_closed",
                "the upstream closed the connection before it responded",
            ),
            UpstreamFailure::Protocol => bad_gateway(
                "upstream_protocol",
                "the upstream's response is not valid HTTP or exceeds a limit",
            ),
        },
        Ending::TimedOut(Connect) => timeout("connecting to the upstream timed out"),
        Ending::TimedOut(ResponseHeader | Idle) => timeout("the upstream's response timed out"),
        Ending::TimedOut(Total | TotalUnread) => timeout("the request exceeded its total timeout"),
        Ending::TimedOut(Send) => timeout("the client did not read its response"),
        Ending::Rejected(NoRoute) => {
            let description =
                "no route matches this host and path; check the prefix in the client's base URL";
            (StatusCode::NOT_FOUND, "no_route", description)
        }
        Ending::Rejected(Overload) => (
            StatusCode::TOO_MANY_REQUESTS,
            "overload",
            "the concurrency limit of this route is reached",
        ),
        Ending::Rejected(Draining) | Ending::Drained => {
            (StatusCode::SERVICE_UNAVAILABLE, "draining", "shutting down")
        }
        Ending::Rejected(Loop) => (
            StatusCode::LOOP_DETECTED,
            "loop",
            "the upstream's address leads back to this proxy; correct the upstream's URL",
        ),
        Ending::Rejected(HeadersTooLarge) => (
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "headers_too_large",
            "the request headers are too large",
        ),
        Ending::Rejected(BadRequest) => {
            let description = "the request cannot be forwarded; it needs one Host header, a path without \"..\", and \
                               no transfer coding other than chunked";
            (StatusCode::BAD_REQUEST, "bad_request", description)
        }
        Ending::RequestBodyFailed | Ending::ClientDisconnected | Ending::Complete => {
            (StatusCode::BAD_REQUEST, "bad_request", "the request body is incomplete")
        }
    }
}
