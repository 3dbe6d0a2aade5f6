//! The fields of a line. Their descriptions and units are also those of the JSON Schema and the documentation.
//!
//! Times are seconds. An unknown field, or one that does not apply, is omitted: it is never `null` or 0.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// Defines one part of a line: required fields, then optional ones.
macro_rules! part {
    (
        $(#[$about:meta])*
        $name:ident $(<$life:lifetime>)?
        always { $($(#[$always_doc:meta])* $always:ident: $always_type:ty,)* }
        known { $($(#[$known_doc:meta])* $known:ident: $known_type:ty,)* }
    ) => {
        $(#[$about])*
        #[derive(Debug, Serialize, JsonSchema)]
        #[schemars(inline, deny_unknown_fields)]
        pub(in crate::request_log) struct $name $(<$life>)? {
            $($(#[$always_doc])* pub(in crate::request_log) $always: $always_type,)*
            $(
                $(#[$known_doc])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub(in crate::request_log) $known: Option<$known_type>,
            )*
        }
    };
}

mod call;

pub(super) use call::{
    Allowance, Backend, Bands, Call, Cost, Output, Quota, Rates, Request, Response, Series, Stall,
    Stalls, Usage,
};

part! {
    /// One finished exchange of tokengauge.
    Line<'a>
    always {
        /// When the request headers were received: RFC 3339, UTC, with nanoseconds.
        time: String,
        /// Number of the request in this process, from 1, in the order of start.
        exchange: u64,
        /// Configuration in force when the request ended.
        config: Config<'a>,
        /// Route of the request.
        route: Route<'a>,
        /// Trace context.
        trace: Trace<'a>,
        /// HTTP request and response.
        http: Http<'a>,
        /// Timestamps that were reached.
        points: Points,
        /// Length of each stage. The stages add up to `points.end`.
        stages: Stages,
        /// `ok`, `error`, `cancelled`, `timeout`, `truncated` or `rejected`.
        outcome: &'static str,
        /// How the exchange ended on the wire.
        ending: Ending,
        /// Source of the error: `none`, `client`, `upstream` or `proxy`.
        fault: &'static str,
        /// Time in which the client did not read.
        #[schemars(extend("x-unit" = "s"))]
        blocked: f64,
    }
    known {
        /// Kind of error: the provider's type or code, a status code, or a keyword of this proxy. Absent on success.
        error_type: &'a str,
        /// Time from an earlier proxy to `time`, from `X-Request-Start` or `X-Queue-Start`. Absent unless one of them is a
        /// time of the last hour.
        #[schemars(extend("x-unit" = "s"))]
        edge_wait: f64,
        /// Tenant, session and variant, from the configured headers.
        who: Who<'a>,
        /// How the upstream connection was obtained. Absent without one.
        connection: Connection,
        /// TCP statistics of the kernel. Absent if unavailable.
        network: Network,
        /// WebSocket traffic. Absent for other requests.
        websocket: WebSocket,
        /// The call of a known API; absent for plain HTTP.
        call: Call<'a>,
        /// Parse errors: number of each kind.
        anomalies: BTreeMap<&'static str, u64>,
    }
}

part! {
    Config<'a>
    always {
        /// First 16 hexadecimal digits of the SHA-256 of all settings as `check --print` shows them, without secrets.
        hash: &'a str,
    }
    known {}
}

part! {
    Route<'a>
    always {
        /// Name of the route; `none` if no route matched.
        name: &'a str,
        /// Position of this proxy: `inbound`, `outbound` or `gateway`.
        vantage: &'static str,
        /// Host of the upstream.
        server_address: &'a str,
        /// Port of the upstream.
        server_port: u16,
        /// Bytes of the path prefix that were removed before forwarding.
        #[schemars(extend("x-unit" = "By"))]
        stripped: usize,
    }
    known {
        /// Time without a token after which a stream is stalled. Absent if disabled.
        #[schemars(extend("x-unit" = "s"))]
        stall_after: f64,
        /// Time without a first token after which a stream is stalled. Absent if disabled.
        #[schemars(extend("x-unit" = "s"))]
        hung_after: f64,
        /// Provider, if configured.
        provider: &'a str,
        /// API format, if configured.
        dialect: &'a str,
    }
}

part! {
    /// Hashed if configured.
    Who<'a>
    always {}
    known {
        /// Tenant of the request.
        tenant: &'a str,
        /// Conversation or run of the request.
        session: &'a str,
        /// Variant of the request.
        variant: &'a str,
    }
}

part! {
    Trace<'a>
    always {
        /// 32 hexadecimal digits.
        trace_id: String,
        /// SERVER span: 16 hexadecimal digits.
        server_span_id: String,
        /// CLIENT span.
        client_span_id: String,
    }
    known {
        /// Span of the client, if it sent one.
        parent_span_id: String,
        /// Sampled flag of the client, if it sent one.
        parent_sampled: bool,
        /// `tracestate` of the client, if valid; at most 512 characters.
        state: &'a str,
    }
}

part! {
    Http<'a>
    always {
        /// Method as the client sent it.
        method: &'a str,
        /// Path without the query, which is never logged.
        path: &'a str,
        /// Scheme that the client used: `http` or `https`.
        scheme: &'static str,
        /// HTTP version that the client used.
        version: &'static str,
        /// Whether this proxy generated the response.
        own_response: bool,
        /// Size of the request body.
        #[schemars(extend("x-unit" = "By"))]
        request_bytes: u64,
        /// Bytes of the response body that were forwarded.
        #[schemars(extend("x-unit" = "By"))]
        response_bytes: u64,
        /// Allow-listed request headers, none of which holds a credential.
        request_headers: BTreeMap<&'static str, &'a str>,
        /// Allow-listed response headers.
        response_headers: BTreeMap<&'static str, &'a str>,
    }
    known {
        /// Host in the request.
        host: &'a str,
        /// Status of the response. Absent without one.
        status: u16,
        /// Address of the client. Absent for a Unix socket.
        client_address: String,
    }
}

part! {
    /// Seconds since `time`.
    Points
    always {}
    known {
        /// The request passed the concurrency limit.
        #[schemars(extend("x-unit" = "s"))]
        admit: f64,
        /// The request headers were written to an upstream connection.
        #[schemars(extend("x-unit" = "s"))]
        sent: f64,
        /// The last byte of the request was written upstream.
        #[schemars(extend("x-unit" = "s"))]
        uploaded: f64,
        /// The response headers were received.
        #[schemars(extend("x-unit" = "s"))]
        head: f64,
        /// First byte of the response body.
        #[schemars(extend("x-unit" = "s"))]
        byte: f64,
        /// First well-formed event of the API's stream.
        #[schemars(extend("x-unit" = "s"))]
        event: f64,
        /// First generated token: the time to first token.
        #[schemars(extend("x-unit" = "s"))]
        token: f64,
        /// First token that a user would see.
        #[schemars(extend("x-unit" = "s"))]
        visible: f64,
        /// Last generated token.
        #[schemars(extend("x-unit" = "s"))]
        last: f64,
        /// The body ended, failed, or was abandoned by either side.
        #[schemars(extend("x-unit" = "s"))]
        end: f64,
    }
}

part! {
    Stages
    always {}
    known {
        /// accept … admit.
        #[schemars(extend("x-unit" = "s"))]
        admission: f64,
        /// admit … sent.
        #[schemars(extend("x-unit" = "s"))]
        connect: f64,
        /// sent … uploaded.
        #[schemars(extend("x-unit" = "s"))]
        upload: f64,
        /// uploaded … head.
        #[schemars(extend("x-unit" = "s"))]
        headers: f64,
        /// head … byte.
        #[schemars(extend("x-unit" = "s"))]
        first_byte: f64,
        /// byte … event.
        #[schemars(extend("x-unit" = "s"))]
        first_event: f64,
        /// event … token.
        #[schemars(extend("x-unit" = "s"))]
        first_token: f64,
        /// token … visible.
        #[schemars(extend("x-unit" = "s"))]
        thinking: f64,
        /// visible … last.
        #[schemars(extend("x-unit" = "s"))]
        decode: f64,
        /// last … end.
        #[schemars(extend("x-unit" = "s"))]
        tail: f64,
    }
}

part! {
    Ending
    always {
        /// `complete`, `client_gone`, `client_broke`, `upstream_failed`, `timed_out`, `rejected` or `drained`.
        how: &'static str,
    }
    known {
        /// Of `upstream_failed`: `dns`, `connect`, `tls`, `before_head`, `protocol`, `mid_body`. Of `timed_out`:
        /// `connect`, `head`, `idle`, `total`. Of `rejected`: `no_route`, `bad_request`, `overload`, `draining`.
        cause: &'static str,
    }
}

part! {
    Connection
    always {
        /// Whether an idle connection was reused. Then the last three times are absent.
        reused: bool,
    }
    known {
        /// Time waiting for another request to open the connection, or for an idle connection that turned out to be closed.
        #[schemars(extend("x-unit" = "s"))]
        wait: f64,
        /// DNS resolution.
        #[schemars(extend("x-unit" = "s"))]
        dns: f64,
        /// TCP connect.
        #[schemars(extend("x-unit" = "s"))]
        tcp: f64,
        /// TLS handshake.
        #[schemars(extend("x-unit" = "s"))]
        tls: f64,
    }
}

part! {
    Network
    always {}
    known {
        /// Connection of the client.
        client: TcpFacts,
        /// Connection to the upstream.
        upstream: TcpFacts,
    }
}

part! {
    TcpFacts
    always {
        /// Segments retransmitted since the last request that reported them, or since the connection was opened.
        #[schemars(extend("x-unit" = "{segment}"))]
        retransmits: u32,
    }
    known {
        /// Smoothed round-trip time.
        #[schemars(extend("x-unit" = "s"))]
        rtt: f64,
        /// Minimum recent round-trip time.
        #[schemars(extend("x-unit" = "s"))]
        least_rtt: f64,
    }
}

part! {
    WebSocket
    always {
        /// Messages from the client.
        #[schemars(extend("x-unit" = "{message}"))]
        request_messages: u64,
        /// Messages from the upstream.
        #[schemars(extend("x-unit" = "{message}"))]
        response_messages: u64,
        /// Whether frame parsing failed before the end.
        lost: bool,
        /// Whether messages were compressed and therefore not parsed.
        compressed: bool,
    }
    known {
        /// Sender of the first close frame: `client` or `upstream`.
        closed_by: &'static str,
        /// Code of that close frame, if it has one.
        close_code: u16,
        /// Peer that closed its side of the connection first.
        left_by: &'static str,
    }
}
