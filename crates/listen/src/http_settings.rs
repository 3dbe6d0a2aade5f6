//! Settings of HTTP/1 and HTTP/2 connections.

use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper_util::rt::TokioTimer;

use super::active_exchanges::MAX_UNWRITTEN;
use super::header_limits::HeaderLimits;
use super::stream_task::StreamExecutor;

/// Minimum of hyper's maximum buffer size, in bytes.
const MIN_BUFFER: usize = 8 << 10;

/// Interval of HTTP/2 keep-alive pings, which detect dead clients. HTTP/1 has no pings.
const HTTP2_PING: Duration = Duration::from_secs(30);

/// Maximum number of concurrent streams per HTTP/2 connection: the least that RFC 9113 recommends, and the default of
/// Apache. A client opens another connection for more. Each stream to an HTTP/1 upstream takes about 27 KiB, so that the
/// number of streams decides how much memory one client can take with few connections.
const MAX_STREAMS: u32 = 100;

/// Returns the settings of HTTP/1 connections. `headers` are the limits of the parser.
pub(super) fn http1(headers: HeaderLimits) -> http1::Builder {
    let mut http1 = http1::Builder::new();
    // hyper has one timeout for idle connections and request headers. `WaitTimer` has two.
    http1
        .header_read_timeout(None)
        .max_headers(headers.max_lines)
        .max_header_size(headers.http1_bytes())
        // hyper also limits unwritten response data by this number. `CountedBody` has a lower limit.
        .max_buf_size(headers.http1_bytes().max(MIN_BUFFER))
        .preserve_header_case(true)
        .auto_date_header(false);
    http1
}

/// Returns the settings of one HTTP/2 connection, whose streams `executor` runs. `max_requests` is the request limit of
/// the listener, and `headers` are the limits of the parser.
pub(super) fn http2(
    executor: StreamExecutor,
    max_requests: usize,
    headers: HeaderLimits,
) -> http2::Builder<StreamExecutor> {
    let streams = u32::try_from(max_requests).unwrap_or(MAX_STREAMS).min(MAX_STREAMS);
    let mut http2 = http2::Builder::new(executor);
    http2
        .timer(TokioTimer::new())
        .keep_alive_interval(HTTP2_PING)
        .max_concurrent_streams(streams)
        .max_send_buf_size(MAX_UNWRITTEN)
        .max_header_list_size(headers.http2_list_size())
        .auto_date_header(false);
    http2
}
