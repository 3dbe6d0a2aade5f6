//! The messages of Envoy's `ext_proc` and access log services, reduced to the fields that are read here. `prost` skips
//! all other fields.
//!
//! Names and numbers are those of `envoy/service/ext_proc/v3/external_processor.proto`,
//! `envoy/service/accesslog/v3/als.proto` and `envoy/data/accesslog/v3/accesslog.proto`. The stage `envoy` compares them
//! with the descriptors of these files. The generated code of all of Envoy's messages would take longer to compile than
//! the rest of this package.

use std::collections::HashMap;

use bytes::Bytes;
use prost_types::value::Kind;
use prost_types::{Any, Duration, Struct};

/// `envoy.service.ext_proc.v3.ProcessingRequest`: one step of a request or its response.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessingRequest {
    #[prost(oneof = "Part", tags = "2, 3, 4, 5, 6, 7")]
    pub part: Option<Part>,
    #[prost(message, optional, tag = "8")]
    pub metadata_context: Option<Metadata>,
    /// Attributes by filter name. Envoy sends each group with the headers of its direction only.
    #[prost(map = "string, message", tag = "9")]
    pub attributes: HashMap<String, Struct>,
    #[prost(bool, tag = "10")]
    pub observability_mode: bool,
    #[prost(message, optional, tag = "11")]
    pub protocol_config: Option<ProtocolConfiguration>,
}

/// The step that a [`ProcessingRequest`] carries.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Part {
    #[prost(message, tag = "2")]
    RequestHeaders(HttpHeaders),
    #[prost(message, tag = "3")]
    ResponseHeaders(HttpHeaders),
    #[prost(message, tag = "4")]
    RequestBody(HttpBody),
    #[prost(message, tag = "5")]
    ResponseBody(HttpBody),
    #[prost(message, tag = "6")]
    RequestTrailers(HttpTrailers),
    #[prost(message, tag = "7")]
    ResponseTrailers(HttpTrailers),
}

impl Part {
    /// Returns the number of the field of `ProcessingResponse` that answers this part.
    pub const fn answer_field(&self) -> u8 {
        match self {
            Self::RequestHeaders(_) => 1,
            Self::ResponseHeaders(_) => 2,
            Self::RequestBody(_) => 3,
            Self::ResponseBody(_) => 4,
            Self::RequestTrailers(_) => 5,
            Self::ResponseTrailers(_) => 6,
        }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpHeaders {
    #[prost(message, optional, tag = "1")]
    pub headers: Option<HeaderMap>,
    #[prost(bool, tag = "3")]
    pub end_of_stream: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpBody {
    #[prost(bytes = "bytes", tag = "1")]
    pub body: Bytes,
    #[prost(bool, tag = "2")]
    pub end_of_stream: bool,
    #[prost(bool, tag = "3")]
    pub end_of_stream_without_message: bool,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct HttpTrailers {}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ProtocolConfiguration {
    #[prost(int32, tag = "1")]
    pub request_body_mode: i32,
    #[prost(int32, tag = "2")]
    pub response_body_mode: i32,
}

impl ProtocolConfiguration {
    /// `FULL_DUPLEX_STREAMED` and `GRPC`: Envoy forwards only the body that the service sends back.
    const RETURNED_BODY_MODES: [i32; 2] = [4, 5];

    /// Returns whether Envoy expects the service to send the body back.
    pub fn wants_body(self) -> bool {
        let modes = [self.request_body_mode, self.response_body_mode];
        modes.iter().any(|mode| Self::RETURNED_BODY_MODES.contains(mode))
    }
}

/// `envoy.config.core.v3.HeaderMap`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderMap {
    #[prost(message, repeated, tag = "1")]
    pub headers: Vec<HeaderValue>,
}

/// `envoy.config.core.v3.HeaderValue`. Either `value` or `raw_value` is set.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub raw_value: Bytes,
}

impl HeaderValue {
    pub fn bytes(&self) -> &[u8] {
        if self.raw_value.is_empty() { self.value.as_bytes() } else { &self.raw_value }
    }
}

/// `envoy.config.core.v3.Metadata`: dynamic metadata by namespace.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Metadata {
    #[prost(map = "string, message", tag = "1")]
    pub filter_metadata: HashMap<String, Struct>,
    #[prost(map = "string, message", tag = "2")]
    pub typed_filter_metadata: HashMap<String, Any>,
}

/// `envoy.service.accesslog.v3.StreamAccessLogsMessage`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StreamAccessLogsMessage {
    #[prost(message, optional, tag = "2")]
    pub http_logs: Option<HttpAccessLogEntries>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpAccessLogEntries {
    #[prost(message, repeated, tag = "1")]
    pub log_entry: Vec<HttpAccessLogEntry>,
}

/// `envoy.data.accesslog.v3.HTTPAccessLogEntry`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpAccessLogEntry {
    #[prost(message, optional, tag = "1")]
    pub common_properties: Option<AccessLogCommon>,
    #[prost(message, optional, tag = "3")]
    pub request: Option<HttpRequestProperties>,
    #[prost(message, optional, tag = "4")]
    pub response: Option<HttpResponseProperties>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AccessLogCommon {
    /// The encoded message `ResponseFlags`. See [`flags_of_log`](crate::flags::flags_of_log).
    #[prost(bytes = "bytes", tag = "16")]
    pub response_flags: Bytes,
    /// Time from the first byte of the request to the end of the response.
    #[prost(message, optional, tag = "23")]
    pub duration: Option<Duration>,
    /// Whether the request goes on, and a later entry follows.
    #[prost(bool, tag = "27")]
    pub intermediate_log_entry: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpRequestProperties {
    #[prost(string, tag = "9")]
    pub request_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpResponseProperties {
    #[prost(string, tag = "6")]
    pub response_code_details: String,
}

/// Returns the text of `field`. `None` if the field is absent, empty or not a text.
pub fn text<'a>(values: &'a Struct, field: &str) -> Option<&'a str> {
    match values.fields.get(field)?.kind.as_ref()? {
        Kind::StringValue(text) => Some(text.as_str()).filter(|text| !text.is_empty()),
        Kind::NullValue(_)
        | Kind::NumberValue(_)
        | Kind::BoolValue(_)
        | Kind::StructValue(_)
        | Kind::ListValue(_) => None,
    }
}

/// Returns the number in `field`. `None` if the field is absent, not a number, or not a whole number from 0 to 2⁵³.
pub fn whole_number(values: &Struct, field: &str) -> Option<u64> {
    match values.fields.get(field)?.kind.as_ref()? {
        Kind::NumberValue(number) => to_whole(*number),
        Kind::NullValue(_)
        | Kind::StringValue(_)
        | Kind::BoolValue(_)
        | Kind::StructValue(_)
        | Kind::ListValue(_) => None,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "the range and the fraction are checked"
)]
fn to_whole(number: f64) -> Option<u64> {
    const MAX: f64 = 9_007_199_254_740_992.0;
    ((0.0..=MAX).contains(&number) && number.trunc() == number).then_some(number as u64)
}
