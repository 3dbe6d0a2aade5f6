//! Encodes spans directly as protobuf, and combines them into OTLP export requests.
//!
//! A span is encoded once, when its request ends, and is then queued and sent as bytes. The SDK would build, group,
//! clone and convert a `SpanData`, which costs 11 times as much (ADR 6). Field numbers are those of
//! `opentelemetry/proto/trace/v1/trace.proto`. Tests decode the result with the generated types.

use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource as ProtoResource;
use opentelemetry_proto::tonic::trace::v1::span::Event;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::Resource;
use prost::Message;
use prost::encoding::{WireType, encode_varint, encoded_len_varint};
use tokengauge_types::clock::WallTime;

use crate::catalog::{self, Attribute, SCOPE};
use crate::span::attributes::AttributeWriter;

/// Initial capacity of the buffer for one span, in bytes. Most CLIENT spans of a call fit. Unused capacity is released.
const TYPICAL_SPAN_BYTES: usize = 2_048;

/// Encoded length in bytes of a field number below 16. All nested fields have such numbers.
const TAG_LENGTH: usize = 1;

/// One span, encoded as protobuf.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EncodedSpan(Box<[u8]>);

impl EncodedSpan {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The fields of a span except its name, attributes and events.
#[derive(Debug)]
pub(super) struct SpanHeader<'a> {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    /// W3C `tracestate`.
    pub state: Option<&'a str>,
    pub parent: Option<[u8; 8]>,
    /// Whether the parent span belongs to another process.
    pub remote_parent: bool,
    /// One of OTLP's `SPAN_KIND_…` values.
    pub kind: u64,
    pub start: WallTime,
    pub end: WallTime,
    /// Status message if the span failed.
    pub error: Option<&'a str>,
}

/// Encodes one span, field by field.
#[derive(Debug)]
pub(super) struct SpanEncoder {
    buffer: Vec<u8>,
    max_value_chars: Option<usize>,
}

impl SpanEncoder {
    pub fn new(header: &SpanHeader<'_>, name: &[&str], max_value_chars: Option<usize>) -> Self {
        let buffer = Vec::with_capacity(TYPICAL_SPAN_BYTES);
        let mut encoder = Self { buffer, max_value_chars };
        encoder.bytes(1, &header.trace);
        encoder.bytes(2, &header.span);
        if let Some(state) = header.state {
            encoder.bytes(3, state.as_bytes());
        }
        if let Some(parent) = &header.parent {
            encoder.bytes(4, parent);
        }
        encoder.concatenated(5, name);
        encoder.varint(6, header.kind);
        encoder.fixed64(7, header.start.unix_nanos());
        encoder.fixed64(8, header.end.unix_nanos());
        if let Some(error) = header.error {
            const STATUS_CODE_ERROR: u64 = 2;
            prefix(&mut encoder.buffer, 15, field_length(error.len()) + TAG_LENGTH + 1);
            encoder.bytes(2, error.as_bytes());
            encoder.varint(3, STATUS_CODE_ERROR);
        } else {
            prefix(&mut encoder.buffer, 15, 0);
        }
        // Span flags: sampled, the origin of the parent is known, and the parent is remote.
        let flags: u32 = 0x001 | 0x100 | if header.remote_parent { 0x200 } else { 0 };
        // The tag 16 is the only one that takes two bytes.
        encode_varint(16 << 3 | WireType::ThirtyTwoBit as u64, &mut encoder.buffer);
        encoder.buffer.extend_from_slice(&flags.to_le_bytes());
        encoder
    }

    pub fn finish(self) -> EncodedSpan {
        EncodedSpan(self.buffer.into_boxed_slice())
    }

    pub fn event(&mut self, name: &str, at: WallTime) {
        prefix(&mut self.buffer, 11, TAG_LENGTH + size_of::<u64>() + field_length(name.len()));
        self.fixed64(1, at.unix_nanos());
        self.bytes(2, name.as_bytes());
    }

    /// Writes an event with attributes. Such events are rare, so the slower generated types encode them.
    pub fn event_with(&mut self, event: &Event) {
        self.bytes(11, &event.encode_to_vec());
    }

    /// Writes the key of an attribute, which has two parts, and the prefix of its value. The caller must then write the value, which has
    /// `length` bytes.
    fn attribute(&mut self, key: (&str, &str), length: usize) {
        let (namespace, name) = key;
        let key_length = namespace.len() + name.len();
        prefix(&mut self.buffer, 9, field_length(key_length) + field_length(length));
        prefix(&mut self.buffer, 1, key_length);
        self.buffer.extend_from_slice(namespace.as_bytes());
        self.buffer.extend_from_slice(name.as_bytes());
        prefix(&mut self.buffer, 2, length);
    }

    /// Writes a text field whose text consists of several parts.
    fn concatenated(&mut self, tag: u8, parts: &[&str]) {
        prefix(&mut self.buffer, tag, parts.iter().map(|part| part.len()).sum());
        for part in parts {
            self.buffer.extend_from_slice(part.as_bytes());
        }
    }

    fn bytes(&mut self, tag: u8, value: &[u8]) {
        prefix(&mut self.buffer, tag, value.len());
        self.buffer.extend_from_slice(value);
    }

    fn varint(&mut self, tag: u8, value: u64) {
        self.buffer.push(key(tag, WireType::Varint));
        encode_varint(value, &mut self.buffer);
    }

    fn fixed64(&mut self, tag: u8, value: u64) {
        self.buffer.push(key(tag, WireType::SixtyFourBit));
        self.buffer.extend_from_slice(&value.to_le_bytes());
    }

    fn truncated<'a>(&self, text: &'a str) -> &'a str {
        let end = self.max_value_chars.and_then(|most| text.char_indices().nth(most));
        end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
    }
}

impl AttributeWriter for SpanEncoder {
    fn text_under(&mut self, namespace: &str, name: &str, value: &str) {
        let value = self.truncated(value);
        self.attribute((namespace, name), field_length(value.len()));
        self.bytes(1, value.as_bytes());
    }

    fn texts(&mut self, attribute: Attribute, values: &[&str]) {
        let one = |text: &&str| field_length(field_length(self.truncated(text).len()));
        let all = values.iter().map(one).sum();
        self.attribute((attribute.key, ""), field_length(all));
        prefix(&mut self.buffer, 5, all);
        for text in values {
            let text = self.truncated(text);
            prefix(&mut self.buffer, 1, field_length(text.len()));
            self.bytes(1, text.as_bytes());
        }
    }

    fn flag(&mut self, attribute: Attribute, value: bool) {
        self.attribute((attribute.key, ""), TAG_LENGTH + 1);
        self.varint(2, value.into());
    }

    fn int(&mut self, attribute: Attribute, value: i64) {
        let value = value.cast_unsigned();
        self.attribute((attribute.key, ""), TAG_LENGTH + encoded_len_varint(value));
        self.varint(3, value);
    }

    fn double(&mut self, attribute: Attribute, value: f64) {
        self.attribute((attribute.key, ""), TAG_LENGTH + size_of::<f64>());
        self.fixed64(4, value.to_bits());
    }
}

/// Encodes export requests for spans. Resource and scope are encoded only once.
#[derive(Debug)]
pub struct TraceRequestEncoder {
    resource: Vec<u8>,
    /// Empty if the resource has no schema.
    resource_schema: String,
    scope: Vec<u8>,
}

impl TraceRequestEncoder {
    pub fn new(resource: &Resource) -> Self {
        let resource_schema = resource.schema_url().unwrap_or_default().to_owned();
        let encoded = ProtoResource {
            attributes: ResourceAttributesWithSchema::from(resource).attributes.0,
            ..ProtoResource::default()
        };
        let scope = InstrumentationScope {
            name: SCOPE.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        Self { resource: encoded.encode_to_vec(), resource_schema, scope: scope.encode_to_vec() }
    }

    /// Encodes spans as an `ExportTraceServiceRequest`.
    pub fn request(&self, spans: &[EncodedSpan]) -> Vec<u8> {
        let all: usize = spans.iter().map(|span| field_length(span.len())).sum();
        let scope_spans =
            field_length(self.scope.len()) + all + field_length(catalog::SCHEMA_URL.len());
        let resource_spans = field_length(self.resource.len())
            + field_length(scope_spans)
            + field_length(self.resource_schema.len());
        let mut request = Vec::with_capacity(field_length(resource_spans));
        prefix(&mut request, 1, resource_spans);
        prefix(&mut request, 1, self.resource.len());
        request.extend_from_slice(&self.resource);
        prefix(&mut request, 2, scope_spans);
        prefix(&mut request, 1, self.scope.len());
        request.extend_from_slice(&self.scope);
        for EncodedSpan(span) in spans {
            prefix(&mut request, 2, span.len());
            request.extend_from_slice(span);
        }
        for schema in [catalog::SCHEMA_URL, &self.resource_schema] {
            prefix(&mut request, 3, schema.len());
            request.extend_from_slice(schema.as_bytes());
        }
        request
    }
}

/// Writes the tag and the length of a field with `length` bytes. `tag` is below 16.
#[inline]
fn prefix(buffer: &mut Vec<u8>, tag: u8, length: usize) {
    let key = key(tag, WireType::LengthDelimited);
    match u8::try_from(length) {
        // Nearly all lengths in a span take one byte. Both bytes are written at once.
        Ok(length) if length < 0x80 => buffer.extend_from_slice(&[key, length]),
        Ok(_) | Err(_) => {
            buffer.push(key);
            encode_varint(length as u64, buffer);
        }
    }
}

/// Returns the key of a field, which takes one byte because `tag` is below 16.
const fn key(tag: u8, wire_type: WireType) -> u8 {
    tag << 3 | wire_type as u8
}

/// Returns the length in bytes of a field with `length` bytes of content, including its tag and length prefix.
const fn field_length(length: usize) -> usize {
    TAG_LENGTH + encoded_len_varint(length as u64) + length
}

#[cfg(test)]
impl EncodedSpan {
    pub fn decode(&self) -> opentelemetry_proto::tonic::trace::v1::Span {
        Message::decode(&*self.0).expect("the encoder writes valid spans")
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;

    use super::*;
    use crate::sampling::SamplingDecision;
    use crate::span::encode_spans;
    use crate::testing;
    use tokengauge_measure::record::{ChoiceStatus, FinishedChoice};

    #[test]
    fn encodes_as_the_generated_types_do() {
        let mut record = testing::streamed();
        let call = record.call.as_mut().unwrap();
        call.choices.push(FinishedChoice {
            reason: testing::name(&"x".repeat(200)),
            status: ChoiceStatus::Complete,
        });
        call.response_id = testing::name(&"é".repeat(100));
        record.error_type = testing::name("truncated");
        let encoded = encode_spans(&record, None, SamplingDecision::default());
        for span in &encoded {
            // The order of fields can differ, so the test encodes the decoded span again. Equal lengths show that no
            // field is lost and that all lengths are correct.
            let again = span.decode().encode_to_vec();
            assert_eq!(again.len(), span.0.len());
        }
        let resource = Resource::builder_empty().with_schema_url([], catalog::RESOURCE_SCHEMA_URL);
        let envelope = TraceRequestEncoder::new(&resource.build());
        let request = envelope.request(&encoded);
        let request = ExportTraceServiceRequest::decode(&*request).unwrap();
        let [of] = request.resource_spans.as_slice() else { panic!("{request:?}") };
        let decoded: Vec<_> = encoded.iter().map(EncodedSpan::decode).collect();
        assert_eq!(of.scope_spans[0].spans, decoded);
        assert_eq!(of.scope_spans[0].schema_url, catalog::SCHEMA_URL);
        assert_eq!(of.schema_url, catalog::RESOURCE_SCHEMA_URL);
        assert_eq!(envelope.request(&encoded).capacity(), envelope.request(&encoded).len());
    }
}
