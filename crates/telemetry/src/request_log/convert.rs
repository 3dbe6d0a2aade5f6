//! Converts a record to the fields of its line.
//!
//! Each part of a record is destructured in full, without `..`. A new field therefore causes a compile error until it
//! is logged here or ignored by name.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::request_log::convert_call::{call, seconds, some, text};
use crate::request_log::line::{
    Config, Connection, Ending, Http, Line, Network, Points, Route, Stages, TcpFacts, Trace,
    WebSocket, Who,
};
use crate::request_log::time::rfc3339;
use crate::span::protocol_version;
use tokengauge_measure::record::{self, Record};
use tokengauge_measure::timing::{self, Stage};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{
    self, ConnectTimings, Direction, Headers, RejectReason, RouteFacts, TimeoutKind,
    UpstreamFailure,
};
use tokengauge_types::label::Label;

/// Returns all facts of the record without its text.
pub(super) fn line<'a>(record: &'a Record, fingerprint: &'a str) -> Line<'a> {
    let Record {
        exchange,
        wall,
        edge_wait,
        points,
        stages,
        route,
        who,
        trace,
        http,
        websocket,
        call,
        outcome,
        ending,
        fault,
        error_type,
        connected,
        network,
        blocked,
        anomalies,
    } = record;
    let mut parse_errors = BTreeMap::new();
    for (anomaly, times) in anomalies {
        *parse_errors.entry(anomaly.as_str()).or_default() += u64::from(*times);
    }
    Line {
        time: rfc3339(wall.unix_nanos()),
        exchange: exchange.0,
        config: Config { hash: fingerprint },
        route: self::route(route),
        who: self::who(who),
        trace: self::trace(trace),
        http: self::http(http),
        points: self::points(points),
        stages: self::stages(stages),
        outcome: outcome.as_str(),
        ending: self::ending(*ending),
        fault: fault.as_str(),
        blocked: blocked.as_secs_f64(),
        error_type: text(error_type.as_ref()),
        edge_wait: edge_wait.map(|wait| wait.as_secs_f64()),
        connection: connected.as_ref().map(connection),
        network: self::network(network),
        websocket: websocket.as_ref().map(self::websocket),
        call: call.as_ref().map(|call| self::call(call, points.accept)),
        anomalies: some(parse_errors),
    }
}

fn route(facts: &RouteFacts) -> Route<'_> {
    let RouteFacts {
        name,
        vantage,
        server_address,
        server_port,
        provider,
        dialect,
        stripped,
        // The field may contain an account id of a gateway.
        base_path: _,
        stall_after,
        hung_after,
    } = facts;
    let limit = |time: &Duration| (*time < Duration::MAX).then_some(time.as_secs_f64());
    Route {
        name: name.as_str(),
        vantage: vantage.as_str(),
        server_address: server_address.as_str(),
        server_port: *server_port,
        stripped: *stripped,
        provider: provider.as_ref().map(Label::as_str),
        dialect: dialect.as_ref().map(Label::as_str),
        stall_after: limit(stall_after),
        hung_after: limit(hung_after),
    }
}

fn who(who: &event::CallerIdentity) -> Option<Who<'_>> {
    let event::CallerIdentity { tenant, session, variant } = who;
    (*who != event::CallerIdentity::default()).then(|| Who {
        tenant: text(tenant.as_ref()),
        session: text(session.as_ref()),
        variant: text(variant.as_ref()),
    })
}

fn trace(trace: &event::TraceContext) -> Trace<'_> {
    let event::TraceContext { trace_id, parent, parent_sampled, server_span, client_span, state } =
        trace;
    Trace {
        trace_id: hex(trace_id),
        server_span_id: hex(server_span),
        client_span_id: hex(client_span),
        parent_span_id: parent.as_ref().map(|span| hex(span)),
        parent_sampled: *parent_sampled,
        state: state.as_deref(),
    }
}

fn http(http: &record::Http) -> Http<'_> {
    let record::Http {
        method,
        path,
        host,
        scheme,
        version,
        status,
        own,
        client,
        request_bytes,
        response_bytes,
        request_headers,
        response_headers,
    } = http;
    Http {
        method: method.as_str(),
        path: path.as_str(),
        scheme: scheme.as_str(),
        version: protocol_version(*version),
        own_response: *own,
        request_bytes: *request_bytes,
        response_bytes: *response_bytes,
        request_headers: headers(request_headers),
        response_headers: headers(response_headers),
        host: text(host.as_ref()),
        status: *status,
        client_address: client.map(|address| address.to_string()),
    }
}

fn headers(headers: &Headers) -> BTreeMap<&'static str, &str> {
    headers.iter().collect()
}

fn points(points: &timing::Timestamps) -> Points {
    let timing::Timestamps {
        accept,
        admit,
        sent,
        uploaded,
        head,
        byte,
        event,
        token,
        visible,
        last,
        end,
    } = points;
    let since = |at: &Option<MonotonicInstant>| at.map(|at| at.since(*accept).as_secs_f64());
    Points {
        admit: since(admit),
        sent: since(sent),
        uploaded: since(uploaded),
        head: since(head),
        byte: since(byte),
        event: since(event),
        token: since(token),
        visible: since(visible),
        last: since(last),
        end: since(end),
    }
}

fn stages(stages: &timing::Stages) -> Stages {
    let mut lengths = [None; Stage::ALL.len()];
    for (stage, length) in stages.iter() {
        let place = Stage::ALL.iter().position(|known| *known == stage);
        if let Some(slot) = place.and_then(|place| lengths.get_mut(place)) {
            *slot = Some(length.as_secs_f64());
        }
    }
    let [
        admission,
        connect,
        upload,
        headers,
        first_byte,
        first_event,
        first_token,
        thinking,
        decode,
        tail,
    ] = lengths;
    Stages {
        admission,
        connect,
        upload,
        headers,
        first_byte,
        first_event,
        first_token,
        thinking,
        decode,
        tail,
    }
}

fn ending(ending: event::Ending) -> Ending {
    let (how, cause) = match ending {
        event::Ending::Complete => ("complete", None),
        event::Ending::ClientDisconnected => ("client_gone", None),
        event::Ending::RequestBodyFailed => ("client_broke", None),
        event::Ending::Drained => ("drained", None),
        event::Ending::UpstreamFailed(failure) => {
            let cause = match failure {
                UpstreamFailure::Dns => "dns",
                UpstreamFailure::Connect => "connect",
                UpstreamFailure::Tls => "tls",
                UpstreamFailure::BeforeResponse => "before_head",
                UpstreamFailure::Protocol => "protocol",
                UpstreamFailure::MidBody => "mid_body",
            };
            ("upstream_failed", Some(cause))
        }
        event::Ending::TimedOut(limit) => {
            let cause = match limit {
                TimeoutKind::Connect => "connect",
                TimeoutKind::ResponseHeader => "head",
                TimeoutKind::Idle => "idle",
                TimeoutKind::Total => "total",
            };
            ("timed_out", Some(cause))
        }
        event::Ending::Rejected(refusal) => {
            let cause = match refusal {
                RejectReason::NoRoute => "no_route",
                RejectReason::BadRequest => "bad_request",
                RejectReason::Overload => "overload",
                RejectReason::Draining => "draining",
            };
            ("rejected", Some(cause))
        }
    };
    Ending { how, cause }
}

fn connection(connected: &ConnectTimings) -> Connection {
    let ConnectTimings { reused, wait, dns, tcp, tls, connection: _ } = connected;
    Connection {
        reused: *reused,
        wait: seconds(*wait),
        dns: seconds(*dns),
        tcp: seconds(*tcp),
        tls: seconds(*tls),
    }
}

fn network(network: &record::Network) -> Option<Network> {
    let record::Network { client, upstream } = network;
    let side = |connection: &record::ConnectionSample| {
        let record::ConnectionSample { rtt, least_rtt, retransmits } = connection;
        TcpFacts { retransmits: *retransmits, rtt: seconds(*rtt), least_rtt: seconds(*least_rtt) }
    };
    (client.is_some() || upstream.is_some()).then(|| Network {
        client: client.as_ref().map(side),
        upstream: upstream.as_ref().map(side),
    })
}

fn websocket(socket: &record::WebSocket) -> WebSocket {
    let record::WebSocket { request_messages, response_messages, closed, left, lost, compressed } =
        socket;
    let side = |direction: Direction| match direction {
        Direction::Request => "client",
        Direction::Response => "upstream",
    };
    WebSocket {
        request_messages: *request_messages,
        response_messages: *response_messages,
        lost: *lost,
        compressed: *compressed,
        closed_by: closed.map(|closed| side(closed.by)),
        close_code: closed.and_then(|closed| closed.code),
        left_by: left.map(side),
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().map_or('0', char::from);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
