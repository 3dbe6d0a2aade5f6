//! The token count that Envoy's AI filter (`ai_protocol_manager`) publishes as metadata at the end of a response.

use prost::Message as _;

use crate::proto::{Metadata, whole_number};
use tokengauge_types::event::GatewayUsage;

/// Default namespace of the filter.
const NAMESPACE: &str = "envoy.ai.token_usage";

/// `envoy.data.ai.v3.TokenUsage`, as of Envoy 1.40. The filter is alpha, so that later releases may change the message.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct TokenUsage {
    #[prost(message, optional, tag = "3")]
    input_tokens: Option<u64>,
    #[prost(message, optional, tag = "4")]
    output_tokens: Option<u64>,
}

/// Returns the token count in the typed metadata, or else in the untyped metadata, which later releases publish as well.
pub fn usage(metadata: &Metadata) -> Option<GatewayUsage> {
    let typed = metadata.typed_filter_metadata.get(NAMESPACE);
    let typed = typed.and_then(|any| TokenUsage::decode(any.value.as_slice()).ok());
    let untyped = metadata.filter_metadata.get(NAMESPACE);
    let number = |name| whole_number(untyped?, name);
    let usage = match typed {
        Some(TokenUsage { input_tokens, output_tokens }) => {
            GatewayUsage { input: input_tokens, output: output_tokens }
        }
        None => GatewayUsage { input: number("input_tokens"), output: number("output_tokens") },
    };
    (usage != GatewayUsage::default()).then_some(usage)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use prost_types::value::Kind;
    use prost_types::{Any, Struct, Value};

    use super::*;

    fn typed(value: &[u8]) -> Metadata {
        let any = Any { type_url: String::new(), value: value.to_vec() };
        Metadata {
            typed_filter_metadata: HashMap::from([(NAMESPACE.to_owned(), any)]),
            ..Metadata::default()
        }
    }

    /// The bytes that Envoy 1.40 sent for 19 input tokens and 10 output tokens.
    #[test]
    fn reads_what_envoy_sends() {
        let sent = b"\x08\x01\x12\x06gpt-4o\x1a\x02\x08\x13\x22\x02\x08\x0a*\x02\x08\x1dB\x02\x08\x1dH\x01";
        let expected = GatewayUsage { input: Some(19), output: Some(10) };
        assert_eq!(usage(&typed(sent)), Some(expected));
    }

    #[test]
    fn reads_untyped_metadata() {
        let number = Value { kind: Some(Kind::NumberValue(7.0)) };
        let fields = [("output_tokens".to_owned(), number)].into_iter().collect();
        let metadata = Metadata {
            filter_metadata: HashMap::from([(NAMESPACE.to_owned(), Struct { fields })]),
            ..Metadata::default()
        };
        assert_eq!(usage(&metadata), Some(GatewayUsage { input: None, output: Some(7) }));
    }

    #[test]
    fn a_record_without_counts_is_no_usage() {
        for value in [&b"\x08\x01"[..], b"", b"\x1a"] {
            assert_eq!(usage(&typed(value)), None);
        }
        assert_eq!(usage(&Metadata::default()), None);
    }
}
