//! Builds embedding responses. Equal input texts get equal vectors.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fastrand::Rng;
use serde_json::{Value, json};

use crate::request::Request;

/// Number of dimensions of OpenAI's small embedding model.
const DIMENSIONS: usize = 1_536;

/// Maximum number of dimensions of a vector. The largest known model has 4,096.
const MAX_DIMENSIONS: usize = 4_096;

/// Maximum number of inputs per request. OpenAI has the same limit.
const MAX_INPUTS: usize = 2_048;

/// Returns the body of an embeddings response.
pub fn response(request: &Request, model: &str, prompt_tokens: u64) -> Bytes {
    let dimensions = request.dimensions.unwrap_or(DIMENSIONS).clamp(1, MAX_DIMENSIONS);
    let encoded = request.encoding_format.as_deref() == Some("base64");
    let data: Vec<Value> = inputs(request.input.as_ref())
        .into_iter()
        .take(MAX_INPUTS)
        .enumerate()
        .map(|(index, text)| {
            let vector = vector(&text, dimensions);
            let embedding = if encoded {
                let bytes: Vec<u8> = vector.iter().flat_map(|it| it.to_le_bytes()).collect();
                Value::String(STANDARD.encode(&bytes))
            } else {
                json!(vector)
            };
            json!({"object": "embedding", "index": index, "embedding": embedding})
        })
        .collect();
    let usage = json!({"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens});
    Bytes::from(json!({"object": "list", "data": data, "model": model, "usage": usage}).to_string())
}

/// Returns the inputs of a request. The field `input` is a string, a list of strings, a list of token ids, or a list
/// of lists of token ids.
fn inputs(input: Option<&Value>) -> Vec<String> {
    match input {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) if items.iter().all(|it| it.is_string() || it.is_array()) => {
            items.iter().map(Value::to_string).collect()
        }
        Some(other) => vec![other.to_string()],
        None => Vec::new(),
    }
}

/// Returns a vector of Euclidean length 1. Equal texts get equal vectors.
fn vector(text: &str, dimensions: usize) -> Vec<f32> {
    let mut random = Rng::with_seed(super::hash(0, text.as_bytes()));
    let raw: Vec<f32> = (0..dimensions).map(|_| random.f32() - 0.5).collect();
    let length = raw.iter().map(|it| it * it).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    raw.into_iter().map(|it| it / length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn embed(text: &str) -> Value {
        let request = Request::parse(text.as_bytes()).unwrap();
        serde_json::from_slice(&response(&request, "m", 3)).unwrap()
    }

    #[test]
    fn base64_holds_the_same_numbers() {
        let numbers = embed(r#"{"input":"one","dimensions":2}"#);
        let encoded = embed(r#"{"input":"one","encoding_format":"base64","dimensions":2}"#);
        let bytes = STANDARD.decode(encoded["data"][0]["embedding"].as_str().unwrap()).unwrap();
        for (four, number) in
            bytes.chunks(4).zip(numbers["data"][0]["embedding"].as_array().unwrap())
        {
            let decoded = f32::from_le_bytes(four.try_into().unwrap());
            assert!((f64::from(decoded) - number.as_f64().unwrap()).abs() < 1e-6);
        }
        assert_eq!(bytes.len(), 8);
    }

    #[test]
    fn vectors_depend_on_the_text_and_have_length_one() {
        let both = embed(r#"{"input":["one","two","one"],"dimensions":16}"#);
        let vector = |index: usize| both["data"][index]["embedding"].as_array().unwrap().clone();
        assert_eq!(vector(0), vector(2));
        assert_ne!(vector(0), vector(1));
        let length: f64 = vector(0).iter().map(|it| it.as_f64().unwrap().powi(2)).sum();
        assert!((length - 1.0).abs() < 1e-5);
        assert_eq!(vector(0).len(), 16);
    }

    #[test]
    fn encodes_base64_and_reads_token_ids() {
        let encoded = embed(r#"{"input":[1,2,3],"encoding_format":"base64","dimensions":4}"#);
        assert_eq!(encoded["data"].as_array().unwrap().len(), 1);
        assert_eq!(encoded["data"][0]["embedding"].as_str().unwrap().len(), 24);
    }
}
