//! The rows of the outage page: what breaks, and the alerts that fire if all calls of a route take this path.

use super::call::{ACCEPTED, Call, TOKEN};
use tokengauge_types::event::{Ending, RejectReason, TimeoutKind, UpstreamFailure};

/// An alert, and the minutes from the change to the evaluation in which it fires. promtool tests the number.
pub(super) type Firing = (&'static str, u32);

const GONE: Ending = Ending::ClientDisconnected;
const DOWN: &[Firing] = &[("LLMModelFailing", 5), ("LLMProviderDown", 4), ("LLMProviderErrors", 6)];
const HANGS: &[Firing] = &[("LLMThroughputCollapse", 4)];

/// Which calls a row describes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Both,
    Streams,
}

pub(super) struct Row {
    pub(super) breaks: &'static str,
    pub(super) kind: Kind,
    pub(super) play: Box<dyn Fn(&mut Call)>,
    /// Alerts of streams, and of calls without a stream.
    pub(super) alerts: [Vec<Firing>; 2],
}

impl Row {
    pub(super) fn healthy() -> Self {
        Self::new("nothing", Call::healthy, &[])
    }

    fn new(breaks: &'static str, play: impl Fn(&mut Call) + 'static, alerts: &[Firing]) -> Self {
        let alerts = [alerts.to_vec(), alerts.to_vec()];
        Self { breaks, kind: Kind::Both, play: Box::new(play), alerts }
    }

    /// Adds alerts that only streams can cause.
    fn with_streams(mut self, alerts: &[Firing]) -> Self {
        self.alerts[0].extend(alerts);
        self
    }

    fn only_streams(self) -> Self {
        Self { kind: Kind::Streams, ..self }
    }
}

/// Returns the rows in the order of the page.
pub(super) fn rows() -> Vec<Row> {
    let mut rows = connecting();
    rows.extend(before_headers());
    rows.extend(statuses());
    rows.extend(responses());
    rows.extend(slow());
    rows.extend(clients());
    rows.extend(proxy());
    rows
}

fn connecting() -> Vec<Row> {
    let failing = |failure| {
        move |call: &mut Call| {
            call.ask();
            call.own(1_050, 502, Ending::UpstreamFailed(failure));
        }
    };
    vec![
        Row::new("the name of the upstream does not resolve", failing(UpstreamFailure::Dns), DOWN),
        Row::new("the upstream refuses connections", failing(UpstreamFailure::Connect), DOWN),
        Row::new("the TLS handshake fails", failing(UpstreamFailure::Tls), DOWN),
        Row::new(
            "connecting hangs until the timeout of 10 s",
            |call| {
                call.ask();
                call.own(11_000, 504, Ending::TimedOut(TimeoutKind::Connect));
            },
            DOWN,
        )
        .with_streams(HANGS),
    ]
}

fn before_headers() -> Vec<Row> {
    let failing = |failure| {
        move |call: &mut Call| {
            call.ask_and_send();
            call.own(1_100, 502, Ending::UpstreamFailed(failure));
        }
    };
    let hanging = |seconds: u64, ending: Ending| {
        move |call: &mut Call| {
            call.ask_and_send();
            let end = ACCEPTED + seconds * 1_000;
            if ending == GONE {
                call.end(end, ending);
            } else {
                call.own(end, 504, ending);
            }
        }
    };
    vec![
        Row::new(
            "the upstream closes or resets the connection before the response headers",
            failing(UpstreamFailure::BeforeResponse),
            DOWN,
        ),
        Row::new("the response is not HTTP", failing(UpstreamFailure::Protocol), DOWN),
        Row::new(
            "no response headers, and clients leave after 60 s",
            hanging(60, GONE),
            &[("LLMRequestsCancelled", 11)],
        )
        .with_streams(&[
            ("LLMModelStalled", 3),
            ("LLMQueueGrowing", 7),
            ("LLMStreamsStalled", 3),
            ("LLMThroughputCollapse", 4),
        ]),
        Row::new(
            "no response headers until `timeouts.response_header` of 20 s",
            hanging(20, Ending::TimedOut(TimeoutKind::ResponseHeader)),
            DOWN,
        )
        .with_streams(&[("LLMQueueGrowing", 9), ("LLMThroughputCollapse", 4)]),
    ]
}

fn statuses() -> Vec<Row> {
    let status = |breaks, status, kind: &'static str, alerts: &[Firing]| {
        Row::new(breaks, move |call: &mut Call| call.fail(status, kind), alerts)
    };
    let rejected = &[("LLMClientErrors", 8), ("LLMCredentialsRejected", 7)];
    vec![
        status(
            "the upstream responds 400",
            400,
            "invalid_request_error",
            &[("LLMClientErrors", 8)],
        ),
        status("the upstream responds 401", 401, "authentication_error", rejected),
        status("the upstream responds 403", 403, "permission_error", rejected),
        status("the upstream responds 404", 404, "not_found_error", &[("LLMClientErrors", 8)]),
        status("the upstream responds 408", 408, "timeout", DOWN),
        status("the upstream responds 429", 429, "rate_limit_error", &[("LLMRateLimited", 6)]),
        status("the upstream responds 500", 500, "server_error", DOWN),
        status("the upstream responds 503", 503, "unavailable", DOWN),
        status("the upstream responds 529", 529, "overloaded_error", DOWN),
    ]
}

fn responses() -> Vec<Row> {
    let reporting = |kind: &'static str| {
        move |call: &mut Call| {
            call.ask_and_send();
            let last = call.tokens(TOKEN, 10, 25);
            call.event(last + 10, &format!(r#"{{"error":{{"type":"{kind}"}}}}"#));
            call.end(last + 20, Ending::Complete);
        }
    };
    let ending = |after: u64, ending| {
        move |call: &mut Call| {
            call.ask_and_send();
            let last = call.tokens(TOKEN, 10, 25);
            call.end(last + after, ending);
        }
    };
    let broke = Ending::UpstreamFailed(UpstreamFailure::MidBody);
    vec![
        Row::new(
            "the provider reports `server_error` in the stream",
            reporting("server_error"),
            DOWN,
        )
        .only_streams(),
        Row::new(
            "the provider reports `invalid_request_error` in the stream",
            reporting("invalid_request_error"),
            &[("LLMClientErrors", 8)],
        )
        .only_streams(),
        Row::new("the upstream cuts the response after 25 tokens", ending(10, broke), DOWN)
            .with_streams(&[("LLMStreamsTruncated", 6)]),
        Row::new("the stream ends without its final event", ending(10, Ending::Complete), DOWN)
            .with_streams(&[("LLMStreamsTruncated", 6)])
            .only_streams(),
        Row::new(
            "the response hangs after 25 tokens, and clients leave after 60 s",
            ending(60_000, GONE),
            &[("LLMRequestsCancelled", 11)],
        )
        .with_streams(&[
            ("LLMModelStalled", 3),
            ("LLMOutputTPSAnomaly", 16),
            ("LLMStreamsStalled", 3),
        ]),
        Row::new(
            "the response hangs after 25 tokens until `timeouts.idle` of 20 s",
            ending(20_000, Ending::TimedOut(TimeoutKind::Idle)),
            DOWN,
        )
        .with_streams(&[
            ("LLMModelStalled", 3),
            ("LLMOutputTPSAnomaly", 16),
            ("LLMStreamsStalled", 3),
        ]),
    ]
}

fn slow() -> Vec<Row> {
    vec![
        Row::new(
            "slow prefill: the first token takes 12 s",
            |call| {
                call.ask_and_send();
                call.serve(13_000, 10);
            },
            &[],
        )
        .with_streams(&[("LLMTTFTDegraded", 6)]),
        Row::new(
            "slow decode: 10 tokens per second",
            |call| {
                call.ask_and_send();
                call.serve(TOKEN, 100);
            },
            &[],
        )
        .with_streams(&[("LLMOutputTPSAnomaly", 16)]),
        Row::new(
            "the queue of the proxy grows: requests wait 20 s",
            |call| {
                call.receive(true);
                call.queue();
                call.admit(21_000);
                call.send(21_011);
                call.serve(21_300, 10);
            },
            &[("LLMQueueGrowing", 9)],
        )
        .with_streams(&[("LLMTTFTDegraded", 6)]),
    ]
}

fn clients() -> Vec<Row> {
    let cancelled = &[("LLMRequestsCancelled", 11)];
    let leaving = |breaks, after: u64| {
        Row::new(
            breaks,
            move |call: &mut Call| {
                call.ask_and_send();
                call.end(ACCEPTED + after, GONE);
            },
            cancelled,
        )
    };
    vec![
        Row::new(
            "clients break off their uploads",
            |call| {
                call.receive(false);
                call.admit(ACCEPTED);
                call.end(1_200, Ending::RequestBodyFailed);
            },
            cancelled,
        ),
        leaving("clients leave after 0.2 s, before the response headers", 200),
        leaving("clients leave after 2 s, before the response headers", 2_000),
        leaving("clients leave after 11 s, before the response headers", 11_000)
            .with_streams(HANGS),
        Row::new(
            "clients leave after 2 s, while the model reasons",
            |call| {
                call.ask_and_send();
                call.reasoning(TOKEN, 10, 170);
                call.end(ACCEPTED + 2_000, GONE);
            },
            cancelled,
        )
        .only_streams(),
        Row::new(
            "clients leave in the middle of the response",
            |call| {
                call.ask_and_send();
                let last = call.tokens(TOKEN, 10, 25);
                call.end(last + 10, GONE);
            },
            cancelled,
        ),
    ]
}

fn proxy() -> Vec<Row> {
    let rejecting = |millis, status, reason| {
        move |call: &mut Call| {
            call.receive(true);
            if millis > ACCEPTED {
                call.queue();
            }
            call.own(millis, status, Ending::Rejected(reason));
        }
    };
    vec![
        Row::new(
            "the observer is behind and drops a part of each response",
            |call| {
                call.ask_and_send();
                let last = call.tokens(TOKEN, 10, 25);
                call.lose(last + 10);
                call.finish(last + 20);
            },
            &[("TokengaugeObserverDropping", 6), ("TokengaugeParseErrors", 3)],
        ),
        Row::new(
            "the concurrency limit and its queue are full",
            rejecting(ACCEPTED, 429, RejectReason::Overload),
            &[],
        ),
        Row::new(
            "requests exceed the queue timeout of 5 s",
            rejecting(6_000, 429, RejectReason::Overload),
            &[],
        ),
        Row::new(
            "a drain rejects new requests",
            rejecting(ACCEPTED, 503, RejectReason::Draining),
            &[],
        ),
        Row::new(
            "a shutdown aborts responses after 25 tokens",
            |call| {
                call.ask_and_send();
                let last = call.tokens(TOKEN, 10, 25);
                call.end(last + 10, Ending::Drained);
            },
            &[],
        ),
    ]
}
