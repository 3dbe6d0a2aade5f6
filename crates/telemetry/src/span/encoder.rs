//! OTLP spans written straight into protobuf, and the request that carries them.
//!
//! A span is encoded once, where its record is at hand, and waits and travels as bytes. Making the SDK's `SpanData`,
//! grouping, cloning and transforming it on the way took five times as long and most of the telemetry thread. What tags
//! mean is in `opentelemetry/proto/trace/v1/trace.proto`; tests decode with the generated types.

use std::net::IpAddr;

use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource as ProtoResource;
use opentelemetry_proto::tonic::trace::v1::span::Event;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::Resource;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use crate::catalog::{Attribute, SCOPE};
use tokengauge_types::clock::WallTime;
use tokengauge_types::label::Name;

/// What most CLIENT spans of a call need; the rest is given back.
const USUAL_LENGTH: usize = 2_048;

/// Of every tag that is counted with its field: all are below 16.
const TAG_LENGTH: usize = 1;

/// One span in protobuf.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EncodedSpan(Box<[u8]>);

impl EncodedSpan {
    /// In bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// Everything of a span but its attributes and events.
#[derive(Debug)]
pub struct SpanHeader<'a> {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    /// W3C's `tracestate`.
    pub state: Option<&'a str>,
    pub parent: Option<[u8; 8]>,
    /// Whether the parent is another process's.
    pub remote_parent: bool,
    /// `SPAN_KIND_…`
    pub kind: u64,
    pub start: WallTime,
    pub end: WallTime,
    /// What went wrong, on a span that failed.
    pub error: Option<&'a str>,
}

/// A span that is being written. What is unknown is left out.
#[derive(Debug)]
pub struct SpanEncoder {
    buffer: Vec<u8>,
    longest: Option<usize>,
}

impl SpanEncoder {
    /// `longest`: the longest text of an attribute, in characters.
    pub fn new(frame: &SpanHeader<'_>, name: &[&str], longest: Option<usize>) -> Self {
        let mut writer = Self { buffer: Vec::with_capacity(USUAL_LENGTH), longest };
        writer.bytes(1, &frame.trace);
        writer.bytes(2, &frame.span);
        if let Some(state) = frame.state {
            writer.bytes(3, state.as_bytes());
        }
        if let Some(parent) = &frame.parent {
            writer.bytes(4, parent);
        }
        writer.texts(5, name);
        writer.varint(6, frame.kind);
        writer.fixed64(7, frame.start.unix_nanos());
        writer.fixed64(8, frame.end.unix_nanos());
        if let Some(error) = frame.error {
            const STATUS_CODE_ERROR: u64 = 2;
            writer.head(15, field(error.len()) + TAG_LENGTH + 1);
            writer.bytes(2, error.as_bytes());
            writer.varint(3, STATUS_CODE_ERROR);
        } else {
            writer.head(15, 0);
        }
        // W3C flags, whether the parent is known to be remote or not, and whether it is.
        let flags: u32 = 0x001 | 0x100 | if frame.remote_parent { 0x200 } else { 0 };
        encode_key(16, WireType::ThirtyTwoBit, &mut writer.buffer);
        writer.buffer.extend_from_slice(&flags.to_le_bytes());
        writer
    }

    pub fn finish(self) -> EncodedSpan {
        EncodedSpan(self.buffer.into_boxed_slice())
    }

    pub fn event(&mut self, name: &str, at: WallTime) {
        self.head(11, TAG_LENGTH + size_of::<u64>() + field(name.len()));
        self.fixed64(1, at.unix_nanos());
        self.bytes(2, name.as_bytes());
    }

    /// An event that has attributes: rare enough for the generated types.
    pub fn event_with(&mut self, event: &Event) {
        self.bytes(11, &event.encode_to_vec());
    }

    pub fn text(&mut self, attribute: Attribute, value: &str) {
        self.text_under(&[attribute.key], value);
    }

    /// An attribute whose key comes in parts.
    pub fn text_under(&mut self, key: &[&str], value: &str) {
        let value = self.cut(value);
        self.attribute(key, field(value.len()));
        self.bytes(1, value.as_bytes());
    }

    pub fn name(&mut self, attribute: Attribute, value: Option<&Name>) {
        if let Some(value) = value {
            self.text(attribute, value.as_str());
        }
    }

    pub fn names(&mut self, attribute: Attribute, values: &[Name]) {
        let one = |name: &Name| field(field(self.cut(name.as_str()).len()));
        let all = values.iter().map(one).sum();
        self.attribute(&[attribute.key], field(all));
        self.head(5, all);
        for name in values {
            let text = self.cut(name.as_str());
            self.head(1, field(text.len()));
            self.bytes(1, text.as_bytes());
        }
    }

    pub fn address(&mut self, attribute: Attribute, value: Option<IpAddr>) {
        if let Some(value) = value {
            self.text(attribute, &value.to_string());
        }
    }

    pub fn truth(&mut self, attribute: Attribute, value: bool) {
        self.attribute(&[attribute.key], TAG_LENGTH + 1);
        self.varint(2, value.into());
    }

    pub fn integer(&mut self, attribute: Attribute, value: Option<impl Into<i64>>) {
        if let Some(value) = value {
            let value = value.into().cast_unsigned();
            self.attribute(&[attribute.key], TAG_LENGTH + encoded_len_varint(value));
            self.varint(3, value);
        }
    }

    pub fn count(&mut self, attribute: Attribute, value: Option<u64>) {
        self.integer(attribute, value.map(|count| i64::try_from(count).unwrap_or(i64::MAX)));
    }

    pub fn number(&mut self, attribute: Attribute, value: Option<f64>) {
        if let Some(value) = value {
            self.attribute(&[attribute.key], TAG_LENGTH + size_of::<f64>());
            self.fixed64(4, value.to_bits());
        }
    }

    /// The head of an attribute whose value, written next, takes `length` bytes.
    fn attribute(&mut self, key: &[&str], length: usize) {
        let key_length = key.iter().map(|part| part.len()).sum();
        self.head(9, field(key_length) + field(length));
        self.texts(1, key);
        self.head(2, length);
    }

    /// A text in parts.
    fn texts(&mut self, tag: u32, parts: &[&str]) {
        self.head(tag, parts.iter().map(|part| part.len()).sum());
        for part in parts {
            self.buffer.extend_from_slice(part.as_bytes());
        }
    }

    fn bytes(&mut self, tag: u32, value: &[u8]) {
        self.head(tag, value.len());
        self.buffer.extend_from_slice(value);
    }

    fn head(&mut self, tag: u32, length: usize) {
        head(&mut self.buffer, tag, length);
    }

    fn varint(&mut self, tag: u32, value: u64) {
        encode_key(tag, WireType::Varint, &mut self.buffer);
        encode_varint(value, &mut self.buffer);
    }

    fn fixed64(&mut self, tag: u32, value: u64) {
        encode_key(tag, WireType::SixtyFourBit, &mut self.buffer);
        self.buffer.extend_from_slice(&value.to_le_bytes());
    }

    fn cut<'a>(&self, text: &'a str) -> &'a str {
        let end = self.longest.and_then(|longest| text.char_indices().nth(longest));
        end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
    }
}

/// What stands around the spans of every request: the resource and the scope, encoded once.
#[derive(Debug)]
pub struct TraceRequestEncoder {
    resource: Vec<u8>,
    scope: Vec<u8>,
}

impl TraceRequestEncoder {
    pub fn new(resource: &Resource) -> Self {
        let resource = ProtoResource {
            attributes: ResourceAttributesWithSchema::from(resource).attributes.0,
            ..ProtoResource::default()
        };
        let scope = InstrumentationScope {
            name: SCOPE.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        Self { resource: resource.encode_to_vec(), scope: scope.encode_to_vec() }
    }

    /// An `ExportTraceServiceRequest`.
    pub fn request(&self, spans: &[EncodedSpan]) -> Vec<u8> {
        let all: usize = spans.iter().map(|EncodedSpan(span)| field(span.len())).sum();
        let scope_spans = field(self.scope.len()) + all;
        let resource_spans = field(self.resource.len()) + field(scope_spans);
        let mut request = Vec::with_capacity(field(resource_spans));
        head(&mut request, 1, resource_spans);
        head(&mut request, 1, self.resource.len());
        request.extend_from_slice(&self.resource);
        head(&mut request, 2, scope_spans);
        head(&mut request, 1, self.scope.len());
        request.extend_from_slice(&self.scope);
        for EncodedSpan(span) in spans {
            head(&mut request, 2, span.len());
            request.extend_from_slice(span);
        }
        request
    }
}

/// The tag and the length that stand before `length` bytes.
fn head(buffer: &mut Vec<u8>, tag: u32, length: usize) {
    encode_key(tag, WireType::LengthDelimited, buffer);
    encode_varint(length as u64, buffer);
}

/// How long a field of `length` bytes is with what stands before it.
const fn field(length: usize) -> usize {
    TAG_LENGTH + encoded_len_varint(length as u64) + length
}

#[cfg(test)]
impl EncodedSpan {
    pub fn decode(&self) -> opentelemetry_proto::tonic::trace::v1::Span {
        Message::decode(&*self.0).expect("a span is written")
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;

    use super::*;
    use crate::sampling::SamplingDecision;
    use crate::span::{SpanLimits, encode_spans};
    use crate::testing;

    #[test]
    fn what_is_written_is_what_the_generated_types_write() {
        let mut record = testing::streamed();
        let call = record.call.as_mut().unwrap();
        call.finish_reasons.extend(testing::name(&"x".repeat(200)));
        call.response_id = testing::name(&"é".repeat(100));
        record.error_type = testing::name("truncated");
        let encoded = encode_spans(&record, &SpanLimits::new(None), SamplingDecision::default());
        for span in &encoded {
            // Field by field the order may differ; decoded and encoded again nothing is lost and no length is wrong.
            let again = span.decode().encode_to_vec();
            assert_eq!(again.len(), span.0.len());
        }
        let envelope = TraceRequestEncoder::new(&Resource::builder_empty().build());
        let request = envelope.request(&encoded);
        let request = ExportTraceServiceRequest::decode(&*request).unwrap();
        let [of] = request.resource_spans.as_slice() else { panic!("{request:?}") };
        let decoded: Vec<_> = encoded.iter().map(EncodedSpan::decode).collect();
        assert_eq!(of.scope_spans[0].spans, decoded);
        assert_eq!(envelope.request(&encoded).capacity(), envelope.request(&encoded).len());
    }
}
