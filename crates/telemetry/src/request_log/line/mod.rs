//! The fields of a line. What stands here is also its JSON Schema and its documentation, descriptions and units included.
//!
//! Times are seconds. A field that is not known, or does not apply, is left out: no `null`, and no 0 in its place.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// One part of a line: the fields that every such part has, then those that may be left out.
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
        /// When the request's head was received: RFC 3339, UTC, to the nanosecond.
        time: String,
        /// Numbers the exchanges of one process in the order in which they began, from 1.
        exchange: u64,
        /// The configuration in force when it ended.
        config: Config<'a>,
        /// Where it went.
        route: Route<'a>,
        /// Its place in a trace.
        trace: Trace<'a>,
        /// The HTTP side of it.
        http: Http<'a>,
        /// When each clock point was reached.
        points: Points,
        /// How long each stage was that took place; they add up to `points.end`.
        stages: Stages,
        /// `ok`, `error`, `cancelled`, `timeout`, `truncated` or `rejected`.
        outcome: &'static str,
        /// How it ended on the wire.
        ending: Ending,
        /// Whose fault it was: `none`, `client`, `upstream` or `proxy`.
        fault: &'static str,
        /// Time in which the client did not read.
        #[schemars(extend("x-unit" = "s"))]
        blocked: f64,
    }
    known {
        /// What went wrong: the provider's type or code, a status code, or a word of ours. Absent on success.
        error_type: &'a str,
        /// How long the request was on its way before `time`, by the `X-Request-Start` or `X-Queue-Start` of a proxy before
        /// this one; absent where neither is a time of the last hour.
        #[schemars(extend("x-unit" = "s"))]
        edge_wait: f64,
        /// Whom the request said it was for, by the headers that the configuration names.
        who: Who<'a>,
        /// How the connection to the upstream was had; absent where there was none.
        connection: Connection,
        /// What the kernel said of the connections; absent where it was not asked or did not know.
        network: Network,
        /// What went by over a WebSocket; absent where it was none.
        websocket: WebSocket,
        /// The call of a known API; absent for plain HTTP.
        call: Call<'a>,
        /// What was odd in what went by: each kind with how often.
        anomalies: BTreeMap<&'static str, u64>,
    }
}

part! {
    Config<'a>
    always {
        /// The first 16 hexadecimal digits of the SHA-256 of all settings as `check --print` shows them: secrets play no
        /// part.
        hash: &'a str,
    }
    known {}
}

part! {
    Route<'a>
    always {
        /// The route's name; `none` where no route fitted.
        name: &'a str,
        /// Where this proxy stands: `inbound`, `outbound` or `gateway`.
        vantage: &'static str,
        /// The upstream's host.
        server_address: &'a str,
        /// The upstream's port.
        server_port: u16,
        /// Bytes of the path's prefix that were taken off before the path was sent on.
        #[schemars(extend("x-unit" = "By"))]
        stripped: usize,
    }
    known {
        /// From when on a silent stream counts as stalled; absent where it never does.
        #[schemars(extend("x-unit" = "s"))]
        stall_after: f64,
        /// From when on a stream without a first token counts as hung; absent where it never does.
        #[schemars(extend("x-unit" = "s"))]
        hung_after: f64,
        /// The provider, where the configuration names it.
        provider: &'a str,
        /// The dialect, where the configuration names it.
        dialect: &'a str,
    }
}

part! {
    /// Hashed where the configuration says so.
    Who<'a>
    always {}
    known {
        /// On whose account it was.
        tenant: &'a str,
        /// The conversation or run that it was a part of.
        session: &'a str,
        /// Which of several ways it went.
        variant: &'a str,
    }
}

part! {
    Trace<'a>
    always {
        /// 32 hexadecimal digits.
        trace_id: String,
        /// Of the SERVER span: 16 hexadecimal digits.
        server_span_id: String,
        /// Of the CLIENT span.
        client_span_id: String,
    }
    known {
        /// The caller's span, where it sent one.
        parent_span_id: String,
        /// The caller's sampled flag, where it sent one.
        parent_sampled: bool,
        /// The caller's `tracestate`, where it is valid; at most 512 characters.
        state: &'a str,
    }
}

part! {
    Http<'a>
    always {
        /// As the client wrote it.
        method: &'a str,
        /// Without its query, of which nothing is logged.
        path: &'a str,
        /// `http` or `https`: what the client spoke.
        scheme: &'static str,
        /// The HTTP version that the client spoke.
        version: &'static str,
        /// Whether this proxy itself wrote the answer.
        own_response: bool,
        /// Of the request's body.
        #[schemars(extend("x-unit" = "By"))]
        request_bytes: u64,
        /// Of the response's body, as far as it was passed on.
        #[schemars(extend("x-unit" = "By"))]
        response_bytes: u64,
        /// The request's headers that telemetry may see; none of them holds a credential.
        request_headers: BTreeMap<&'static str, &'a str>,
        /// The response's headers that telemetry may see.
        response_headers: BTreeMap<&'static str, &'a str>,
    }
    known {
        /// The host that the client asked for.
        host: &'a str,
        /// Absent where no response head came and none was made.
        status: u16,
        /// The peer's address; absent over a Unix socket.
        client_address: String,
    }
}

part! {
    /// Seconds since `time`.
    Points
    always {}
    known {
        /// The exchange passed the admission limit.
        #[schemars(extend("x-unit" = "s"))]
        admit: f64,
        /// The request's head was written to an upstream connection.
        #[schemars(extend("x-unit" = "s"))]
        sent: f64,
        /// The last byte of the request was written upstream.
        #[schemars(extend("x-unit" = "s"))]
        uploaded: f64,
        /// The response's head was received.
        #[schemars(extend("x-unit" = "s"))]
        head: f64,
        /// First byte of the response's body.
        #[schemars(extend("x-unit" = "s"))]
        byte: f64,
        /// First well-formed event of the API's stream.
        #[schemars(extend("x-unit" = "s"))]
        event: f64,
        /// First generated token: the time to first token.
        #[schemars(extend("x-unit" = "s"))]
        token: f64,
        /// First token that a person would see.
        #[schemars(extend("x-unit" = "s"))]
        visible: f64,
        /// Last generated token.
        #[schemars(extend("x-unit" = "s"))]
        last: f64,
        /// The body ended, failed, or was given up by either side.
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
        /// Whether a connection was used again that was there; then nothing is known of the last three times.
        reused: bool,
    }
    known {
        /// Waiting for a connection that another exchange was making, or on an idle one that turned out closed.
        #[schemars(extend("x-unit" = "s"))]
        wait: f64,
        /// Looking up the name.
        #[schemars(extend("x-unit" = "s"))]
        dns: f64,
        /// Connecting.
        #[schemars(extend("x-unit" = "s"))]
        tcp: f64,
        /// The TLS handshake.
        #[schemars(extend("x-unit" = "s"))]
        tls: f64,
    }
}

part! {
    Network
    always {}
    known {
        /// Of the client's connection.
        client: TcpFacts,
        /// Of the upstream's connection.
        upstream: TcpFacts,
    }
}

part! {
    TcpFacts
    always {
        /// Segments sent again since an exchange last told of the connection, or since it began.
        #[schemars(extend("x-unit" = "{segment}"))]
        retransmits: u32,
    }
    known {
        /// The smoothed round-trip time.
        #[schemars(extend("x-unit" = "s"))]
        rtt: f64,
        /// The least round-trip time of late.
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
        /// Whether frames could not be followed to the end.
        lost: bool,
        /// Whether messages were compressed, so that they were not read.
        compressed: bool,
    }
    known {
        /// Who sent the first closing frame: `client` or `upstream`.
        closed_by: &'static str,
        /// Its code, where it had one.
        close_code: u16,
        /// Whose side of the connection ended first.
        left_by: &'static str,
    }
}
