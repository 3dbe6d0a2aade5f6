//! Defines the fields of a log line. The doc comments and units of the fields also appear in the JSON Schema and in
//! `docs/reference/request-log.md`.
//!
//! Times are in seconds. A field that is unknown or does not apply is omitted. It is never `null` or 0 instead.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::request_log::rfc3339;
use crate::span::protocol_version;
use tokengauge_measure::record::{self, Record};
use tokengauge_measure::timing;
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{
    CallerIdentity, ConnectTimings, Direction, RouteFacts, SessionSource, TraceContext, UserAgent,
};
use tokengauge_types::label::Label;
use values::{given, hex, limit, seconds, since, tally, text};

/// Defines one object of a line: required fields, and then optional fields. The unit of a field is in brackets.
///
/// An object with a `from` clause gets a constructor, which computes each field by the expression after `=`. The clause
/// names all fields of the source struct. A new field of the source is therefore a compile error until it is logged or
/// ignored by name.
macro_rules! part {
    (
        $(#[$about:meta])*
        $name:ident $(<$life:lifetime>)?
        from $source:path { $($field:ident $(: $ignored:tt)?),* $(,)? } $(($arg:ident: $arg_type:ty))?
        $(always {
            $($(#[$always_doc:meta])* $always:ident $([$always_unit:literal])?: $always_type:ty = $always_value:expr,)*
        })?
        $(known {
            $($(#[$known_doc:meta])* $known:ident $([$known_unit:literal])?: $known_type:ty = $known_value:expr,)*
        })?
    ) => {
        part! {
            $(#[$about])*
            $name $(<$life>)?
            always { $($($(#[$always_doc])* $always $([$always_unit])?: $always_type,)*)? }
            known { $($($(#[$known_doc])* $known $([$known_unit])?: $known_type,)*)? }
        }

        impl $(<$life>)? $name $(<$life>)? {
            pub(in crate::request_log) fn new(source: &$($life)? $source $(, $arg: $arg_type)?) -> Self {
                let $source { $($field $(: $ignored)?),* } = source;
                Self { $($($always: $always_value,)*)? $($($known: $known_value,)*)? }
            }
        }
    };
    (
        $(#[$about:meta])*
        $name:ident $(<$life:lifetime>)?
        $(always { $($(#[$always_doc:meta])* $always:ident $([$always_unit:literal])?: $always_type:ty,)* })?
        $(known { $($(#[$known_doc:meta])* $known:ident $([$known_unit:literal])?: $known_type:ty,)* })?
    ) => {
        $(#[$about])*
        #[derive(Debug, Serialize, JsonSchema)]
        #[schemars(inline, deny_unknown_fields)]
        pub(in crate::request_log) struct $name $(<$life>)? {
            $($(
                $(#[$always_doc])*
                $(#[schemars(extend("x-unit" = $always_unit))])?
                $always: $always_type,
            )*)?
            $($(
                $(#[$known_doc])*
                $(#[schemars(extend("x-unit" = $known_unit))])?
                #[serde(skip_serializing_if = "Option::is_none")]
                $known: Option<$known_type>,
            )*)?
        }
    };
}

mod call;
mod values;

use call::Call;

part! {
    /// One finished exchange of tokengauge.
    Line<'a>
    from Record {
        exchange, wall, edge_wait, timestamps, stages, route, caller, trace, http, websocket, call, mcp, outcome, ending,
        error_source, error_type, connected, network, blocked, anomalies,
        // A call inside a WebSocket has no `websocket`, and its method is that of the WebSocket.
        is_turn: _, gateway_usage: _,
    } (fingerprint: &'a str)
    always {
        /// When the request headers were received: RFC 3339, UTC, with nanoseconds.
        time: String = rfc3339(wall.unix_nanos()),
        /// Number of the request in this process, from 1, in the order of start.
        request_number: u64 = exchange.0,
        /// Configuration in force when the request ended.
        config: RequestLogConfig<'a> = RequestLogConfig { hash: fingerprint },
        /// Route of the request.
        route: Route<'a> = Route::new(route),
        /// Trace context.
        trace: Trace<'a> = Trace::new(trace),
        /// HTTP request and response.
        http: Http<'a> = Http::new(http),
        /// Timestamps that were reached.
        times: Times = Times::new(timestamps),
        /// Length of each stage. The stages add up to `times.end`.
        stages: Stages = values::stages(stages),
        /// `ok`, `error`, `cancelled`, `timeout`, `truncated` or `rejected`.
        outcome: &'static str = outcome.as_str(),
        /// How the exchange ended on the wire.
        ending: Ending = values::ending(*ending),
        /// Source of the error: `none`, `client`, `upstream` or `proxy`.
        error_source: &'static str = error_source.as_str(),
        /// Time in which the client did not read.
        client_backpressure["s"]: f64 = blocked.as_secs_f64(),
    }
    known {
        /// Kind of error: the provider's type or code, a status code, or a keyword of this proxy. Absent on success.
        error_type: &'a str = text(error_type.as_ref()),
        /// Time from an earlier proxy to `time`, from `X-Request-Start` or `X-Queue-Start`. Absent unless one of them is a
        /// time of the last hour.
        edge_queue_wait["s"]: f64 = seconds(*edge_wait),
        /// Tenant, session and variant, from the configured headers, and the session of coding agents.
        identity: Identity<'a> = given(caller, Identity::new),
        /// Program that sent the request, from its `User-Agent`.
        agent: Agent<'a> = http.request_headers.get("user-agent").and_then(UserAgent::parse).map(Agent::from_header),
        /// Attempts that belong together. Absent if neither the client nor a gateway reports any.
        attempts: Attempts = Attempts::from_headers(http),
        /// How the upstream connection was obtained. Absent without one.
        connection: Connection = connected.as_ref().map(Connection::new),
        /// TCP statistics of the kernel. Absent if unavailable.
        network: Network = given(network, Network::new),
        /// WebSocket traffic. Absent for other requests.
        websocket: WebSocket = websocket.as_ref().map(WebSocket::new),
        /// The call of a known API; absent for plain HTTP.
        call: Call<'a> = call.as_ref().map(|call| Call::new(call, timestamps.accept)),
        /// Messages of the Model Context Protocol. Absent for other requests.
        mcp: Mcp<'a> = mcp.as_ref().map(|mcp| Mcp::new(mcp, timestamps.accept)),
        /// Parse errors: number of each kind.
        parse_errors: BTreeMap<&'static str, u64> =
            tally(anomalies.iter().map(|(anomaly, times)| (anomaly.as_str(), u64::from(*times)))),
    }
}

part! {
    Mcp<'a>
    from record::Mcp { session, protocol_version, operations } (accept: MonotonicInstant)
    always {
        /// Requests and notifications of the client, in order.
        operations: Vec<McpOperation<'a>> =
            operations.iter().map(|operation| McpOperation::new(operation, accept)).collect(),
    }
    known {
        /// Session, from the header `Mcp-Session-Id`.
        session: &'a str = text(session.as_ref()),
        /// Version of the protocol.
        protocol_version: &'a str = text(protocol_version.as_ref()),
    }
}

part! {
    McpOperation<'a>
    from record::McpOperation { message, answered, error_code, is_tool_error } (accept: MonotonicInstant)
    known {
        /// Method of the request or notification.
        method: &'a str = text(message.method.as_ref()),
        /// Tool or prompt that the request names.
        target: &'a str = text(message.target.as_ref()),
        /// The response arrived, or the server acknowledged the notification. Since accept.
        answered["s"]: f64 = answered.map(|at| at.since(accept).as_secs_f64()),
        /// Code of the JSON-RPC error.
        error_code: i64 = *error_code,
        /// `true` if the tool reports an error.
        tool_error: bool = is_tool_error.then_some(true),
    }
}

part! {
    RequestLogConfig<'a>
    always {
        /// First 16 hexadecimal digits of the SHA-256 of all settings as `check --print` shows them, without secrets.
        hash: &'a str,
    }
}

part! {
    Route<'a>
    from RouteFacts {
        name, position, server_address, server_port, provider, dialect, stripped, inter_token_after, first_token_after,
        // Not logged, because this path can contain the id of an account at a gateway.
        base_path: _,
        // Part of the provider of the call.
        learned_provider: _,
    }
    always {
        /// Name of the route; `none` if no route matched.
        name: &'a str = name.as_str(),
        /// Position of this proxy: `inbound`, `outbound`, `gateway` or `envoy`.
        position: &'static str = position.as_str(),
        /// Host of the upstream.
        server_address: &'a str = server_address.as_str(),
        /// Port of the upstream.
        server_port: u16 = *server_port,
        /// Bytes of the path prefix that were removed before forwarding.
        stripped_prefix_bytes["By"]: usize = *stripped,
    }
    known {
        /// Time without a token after which a stream is stalled. Absent if disabled.
        inter_token_stall_after["s"]: f64 = limit(*inter_token_after),
        /// Time without a first token after which a stream is stalled. Absent if disabled.
        first_token_stall_after["s"]: f64 = limit(*first_token_after),
        /// Provider, if configured.
        provider: &'a str = provider.as_ref().map(Label::as_str),
        /// API format, if configured.
        api_format: &'a str = dialect.as_ref().map(Label::as_str),
    }
}

part! {
    /// Hashed if configured.
    Identity<'a>
    from CallerIdentity { tenant, session, session_source, sub_agent, variant }
    known {
        /// Tenant of the request.
        tenant: &'a str = text(tenant.as_ref()),
        /// Conversation or run of the request.
        session: &'a str = text(session.as_ref()),
        /// Where the session was found: `configured`, the name of a header or body field, or `baggage`.
        session_source: &'static str = session_source.map(SessionSource::as_str),
        /// Sub-agent that sent the request, as a coding agent reports it.
        sub_agent: &'a str = text(sub_agent.as_ref()),
        /// Variant of the request.
        variant: &'a str = text(variant.as_ref()),
    }
}

part! {
    /// Set by the client.
    Agent<'a>
    always {
        /// Name of the program: `claude-cli`, `OpenAI/Python`.
        name: &'a str,
    }
    known {
        /// Version of the program.
        version: &'a str,
    }
}

impl<'a> Agent<'a> {
    fn from_header(agent: UserAgent<'a>) -> Self {
        let UserAgent { name, version } = agent;
        Self { name, version }
    }
}

part! {
    Attempts
    known {
        /// Attempts of the same operation before this request, from `x-stainless-retry-count`: 0 for the first one.
        resend_count["{attempt}"]: u32,
        /// Retries of a gateway behind this proxy, from `x-litellm-attempted-retries`.
        gateway_retries["{attempt}"]: u32,
        /// Other models that this gateway tried, from `x-litellm-attempted-fallbacks`.
        gateway_fallbacks["{attempt}"]: u32,
    }
}

impl Attempts {
    fn from_headers(http: &record::Http) -> Option<Self> {
        let gateway = |name| http.response_headers.number(name);
        let attempts = Self {
            resend_count: http.request_headers.resend_count(),
            gateway_retries: gateway("x-litellm-attempted-retries"),
            gateway_fallbacks: gateway("x-litellm-attempted-fallbacks"),
        };
        let Self { resend_count, gateway_retries, gateway_fallbacks } = &attempts;
        let is_known = resend_count.or(*gateway_retries).or(*gateway_fallbacks).is_some();
        is_known.then_some(attempts)
    }
}

part! {
    Trace<'a>
    from TraceContext { trace_id, parent, parent_sampled, server_span, client_span, state }
    always {
        /// 32 hexadecimal digits.
        trace_id: String = hex(trace_id),
        /// SERVER span: 16 hexadecimal digits.
        server_span_id: String = hex(server_span),
        /// CLIENT span.
        client_span_id: String = hex(client_span),
    }
    known {
        /// Span of the client, if it sent one.
        parent_span_id: String = parent.as_ref().map(|span| hex(span)),
        /// Sampled flag of the client, if it sent one.
        parent_sampled: bool = *parent_sampled,
        /// `tracestate` of the client, if valid; at most 512 characters.
        state: &'a str = state.as_deref(),
    }
}

part! {
    Http<'a>
    from record::Http {
        method, path, host, scheme, version, status, own, client, request_bytes, response_bytes, request_headers,
        response_headers,
    }
    always {
        /// Method as the client sent it.
        method: &'a str = method.as_str(),
        /// Path without the query, which is never logged.
        path: &'a str = path.as_str(),
        /// Scheme that the client used: `http` or `https`.
        scheme: &'static str = scheme.as_str(),
        /// HTTP version that the client used.
        version: &'static str = protocol_version(*version),
        /// Whether this proxy generated the response.
        proxy_response: bool = *own,
        /// Size of the request body.
        request_bytes["By"]: u64 = *request_bytes,
        /// Bytes of the response body that were forwarded.
        response_bytes["By"]: u64 = *response_bytes,
        /// Allow-listed request headers, none of which holds a credential.
        request_headers: BTreeMap<&'static str, &'a str> = request_headers.iter().collect(),
        /// Allow-listed response headers.
        response_headers: BTreeMap<&'static str, &'a str> = response_headers.iter().collect(),
    }
    known {
        /// Host in the request.
        host: &'a str = text(host.as_ref()),
        /// Status of the response. Absent without one.
        status: u16 = *status,
        /// Address of the client. Absent for a Unix socket.
        client_address: String = client.map(|address| address.to_string()),
    }
}

part! {
    /// Seconds since `time`.
    Times
    from timing::Timestamps { accept, admit, sent, uploaded, head, byte, event, token, visible, last, end }
    known {
        /// The request passed the concurrency limit.
        admitted["s"]: f64 = since(*accept, *admit),
        /// The request headers were written to an upstream connection.
        request_headers_sent["s"]: f64 = since(*accept, *sent),
        /// The last byte of the request was written upstream.
        request_sent["s"]: f64 = since(*accept, *uploaded),
        /// The response headers were received.
        response_headers["s"]: f64 = since(*accept, *head),
        /// First byte of the response body.
        first_byte["s"]: f64 = since(*accept, *byte),
        /// First well-formed event of the API's stream.
        first_event["s"]: f64 = since(*accept, *event),
        /// First generated token: the time to first token.
        first_token["s"]: f64 = since(*accept, *token),
        /// First token that a user would see.
        first_visible_token["s"]: f64 = since(*accept, *visible),
        /// Last generated token.
        last_token["s"]: f64 = since(*accept, *last),
        /// The body ended, failed, or was abandoned by either side.
        end["s"]: f64 = since(*accept, *end),
    }
}

part! {
    Stages
    known {
        /// accept … admit.
        admission["s"]: f64,
        /// admit … sent.
        connect["s"]: f64,
        /// sent … uploaded.
        upload["s"]: f64,
        /// uploaded … head.
        headers["s"]: f64,
        /// head … byte.
        first_byte["s"]: f64,
        /// byte … event.
        first_event["s"]: f64,
        /// event … token.
        first_token["s"]: f64,
        /// token … visible.
        reasoning["s"]: f64,
        /// visible … last.
        decode["s"]: f64,
        /// last … end.
        tail["s"]: f64,
    }
}

part! {
    Ending
    always {
        /// `complete`, `client_gone`, `client_broke`, `upstream_failed`, `timed_out`, `rejected` or `drained`.
        kind: &'static str,
    }
    known {
        /// Of `upstream_failed`: `dns`, `connect`, `tls`, `before_response`, `protocol`, `mid_body`. Of `timed_out`:
        /// `connect`, `response_header`, `idle`, `total`. Of `rejected`: `no_route`, `bad_request`, `headers_too_large`, `overload`, `draining`, `loop`.
        cause: &'static str,
    }
}

part! {
    Connection
    from ConnectTimings { reused, wait, dns, tcp, tls, connection: _ }
    always {
        /// Whether an idle connection was reused. Then the last three times are absent.
        reused: bool = *reused,
    }
    known {
        /// Time waiting for another request to open the connection, or for an idle connection that turned out to be closed.
        wait["s"]: f64 = seconds(*wait),
        /// DNS resolution.
        dns["s"]: f64 = seconds(*dns),
        /// TCP connect.
        tcp["s"]: f64 = seconds(*tcp),
        /// TLS handshake.
        tls["s"]: f64 = seconds(*tls),
    }
}

part! {
    Network
    from record::Network { client, upstream }
    known {
        /// Connection of the client.
        client: TcpFacts = client.as_ref().map(TcpFacts::new),
        /// Connection to the upstream.
        upstream: TcpFacts = upstream.as_ref().map(TcpFacts::new),
    }
}

part! {
    TcpFacts
    from record::ConnectionSample { rtt, least_rtt, retransmits }
    always {
        /// Segments that were retransmitted since the previous request on the connection that has this value, or since
        /// the connection was opened.
        retransmits["{segment}"]: u32 = *retransmits,
    }
    known {
        /// Smoothed round-trip time.
        rtt["s"]: f64 = seconds(*rtt),
        /// Minimum recent round-trip time.
        min_rtt["s"]: f64 = seconds(*least_rtt),
    }
}

part! {
    WebSocket
    from record::WebSocket { request_messages, response_messages, closed, left, lost, compressed }
    always {
        /// Messages from the client.
        request_messages["{message}"]: u64 = *request_messages,
        /// Messages from the upstream.
        response_messages["{message}"]: u64 = *response_messages,
        /// Whether frame parsing failed before the end.
        parse_failed: bool = *lost,
        /// Whether compressed messages could not be parsed.
        compressed: bool = *compressed,
    }
    known {
        /// Sender of the first close frame: `client` or `upstream`.
        closed_by: &'static str = closed.map(|closed| closed.by.sender()),
        /// Code of that close frame, if it has one.
        close_code: u16 = closed.and_then(|closed| closed.code),
        /// Peer that closed its side of the connection first.
        disconnected_by: &'static str = left.map(Direction::sender),
    }
}
