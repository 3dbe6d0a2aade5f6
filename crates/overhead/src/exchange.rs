//! The bytes of a request and of its response, both determined by the [`Script`].

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::script::{Kind, Script};

/// Digits of a timestamp. The expected bytes have zeros in their place.
pub const STAMP_DIGITS: usize = 20;
/// Values of one embedding, as OpenAI's `text-embedding-3-small` returns.
const EMBEDDING_VALUES: usize = 1_536;
/// Approximate size of one message of a long prompt: coding agents send many messages of source code and tool output.
const MESSAGE_BYTES: usize = 4_000;
const SENTENCE: &str =
    "The proxy forwards each chunk of a stream, and a copy of the chunk reaches the observer. ";
const CODE: &str =
    "fn total(values: &[u64]) -> u64 {\n    values.iter().map(|it| it * 2).sum() // \"sum\"\n}\n";

/// A request and its response.
#[derive(Debug)]
pub struct Exchange {
    pub script: Script,
    pub request: Bytes,
    pub response: Bytes,
    /// The pieces that the backend writes, in order. The end of the last one is the end of the response.
    pub chunks: Vec<Chunk>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub end: usize,
    /// Offset in the response where the backend writes the time of the write.
    pub stamp: Option<usize>,
}

impl Exchange {
    pub fn new(script: Script) -> anyhow::Result<Self> {
        let request = serde_json::to_vec(&request(&script))?.into();
        let (response, chunks) = match script.kind {
            Kind::Stream if script.gzip => compress(&stream(&script))?,
            Kind::Stream => join(&stream(&script)),
            Kind::Json => whole(serde_json::to_vec(&completion(&script))?),
            Kind::Embeddings => whole(serde_json::to_vec(&embeddings(&script))?),
        };
        Ok(Self { script, request, response: response.into(), chunks })
    }
}

fn request(script: &Script) -> Value {
    let size = usize::try_from(script.prompt_bytes).unwrap_or(usize::MAX);
    match script.kind {
        Kind::Embeddings => {
            let inputs: Vec<_> =
                (0..script.tokens).map(|it| format!("{it}: {}", prompt(size, it))).collect();
            json!({"model": script.model, "input": inputs, "encoding_format": "base64"})
        }
        Kind::Json => {
            json!({"model": script.model, "messages": messages(size), "temperature": 0.2})
        }
        Kind::Stream => json!({
            "model": script.model, "messages": messages(size), "temperature": 0.2, "stream": true,
            "stream_options": {"include_usage": true},
        }),
    }
}

fn messages(size: usize) -> Vec<Value> {
    let mut messages = vec![json!({"role": "system", "content": "You are a helpful assistant."})];
    let mut left = size;
    for number in 0_u32.. {
        let part = left.min(MESSAGE_BYTES);
        let role = if number % 2 == 0 { "user" } else { "assistant" };
        messages.push(json!({"role": role, "content": prompt(part, number)}));
        left -= part;
        if left == 0 {
            break;
        }
    }
    messages
}

/// Returns `size` bytes of prose or source code.
fn prompt(size: usize, number: u32) -> String {
    let unit = if number % 3 == 1 { CODE } else { SENTENCE };
    unit.chars().cycle().take(size).collect()
}

/// Returns the word of token `number`. The text has as many different words as a short answer.
fn word(number: u32) -> &'static str {
    const WORDS: [&str; 16] = [
        "The", " answer", " depends", " on", " the", " number", " of", " tokens", ",", " because",
        " each", " request", " has", " its", " own", " cost",
    ];
    let index = usize::try_from(number).unwrap_or_default() % WORDS.len();
    WORDS.get(index).copied().unwrap_or_default()
}

fn usage(script: &Script) -> Value {
    let prompt = script.prompt_bytes / 4 + 1;
    json!({"prompt_tokens": prompt, "completion_tokens": script.tokens, "total_tokens": prompt + script.tokens})
}

/// An event of a stream, and the offset of its timestamp.
struct StreamEvent {
    text: String,
    stamp: Option<usize>,
}

fn stream(script: &Script) -> Vec<StreamEvent> {
    let mut events: Vec<_> = (0..script.tokens)
        .map(|number| {
            let role = if number == 0 { r#""role":"assistant","# } else { "" };
            let delta = format!(r#"{{{role}"content":"{}"}}"#, word(number));
            event(script, &format!(r#"[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":null}}],"usage":null"#))
        })
        .collect();
    events.push(event(
        script,
        r#"[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null"#,
    ));
    events.push(event(script, &format!(r#"[],"usage":{}"#, usage(script))));
    events.push(StreamEvent { text: "data: [DONE]\n\n".to_owned(), stamp: None });
    events
}

fn event(script: &Script, choices: &str) -> StreamEvent {
    const START: &str = r#"data: {"id":"chatcmpl-"#;
    const FIELDS: &str =
        r#""object":"chat.completion.chunk","created":1760000000,"system_fingerprint":"fp_1""#;
    let stamp = "0".repeat(STAMP_DIGITS);
    let text = format!(
        "{START}{stamp}\",{FIELDS},\"model\":\"{}\",\"choices\":{choices}}}\n\n",
        script.model
    );
    StreamEvent { text, stamp: Some(START.len()) }
}

fn join(events: &[StreamEvent]) -> (Vec<u8>, Vec<Chunk>) {
    let mut response = Vec::new();
    let mut chunks = Vec::with_capacity(events.len());
    for event in events {
        let stamp = event.stamp.map(|it| response.len() + it);
        response.extend_from_slice(event.text.as_bytes());
        chunks.push(Chunk { end: response.len(), stamp });
    }
    (response, chunks)
}

/// Compressed bytes depend on all bytes before them, so a compressed response has no timestamps.
fn compress(events: &[StreamEvent]) -> anyhow::Result<(Vec<u8>, Vec<Chunk>)> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let mut chunks = Vec::with_capacity(events.len());
    for event in events {
        encoder.write_all(event.text.as_bytes())?;
        encoder.flush()?;
        chunks.push(Chunk { end: encoder.get_ref().len(), stamp: None });
    }
    let response = encoder.finish()?;
    if let Some(last) = chunks.last_mut() {
        last.end = response.len();
    }
    Ok((response, chunks))
}

fn whole(response: Vec<u8>) -> (Vec<u8>, Vec<Chunk>) {
    let chunk = Chunk { end: response.len(), stamp: None };
    (response, vec![chunk])
}

fn completion(script: &Script) -> Value {
    let content: String = (0..script.tokens).map(word).collect();
    json!({
        "id": "chatcmpl-0", "object": "chat.completion", "created": 1_760_000_000, "model": script.model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "logprobs": null, "finish_reason": "stop"}],
        "usage": usage(script), "system_fingerprint": "fp_1",
    })
}

fn embeddings(script: &Script) -> Value {
    let mut random = fastrand::Rng::with_seed(1);
    let data: Vec<_> = (0..script.tokens)
        .map(|index| {
            let values: Vec<u8> =
                (0..EMBEDDING_VALUES).flat_map(|_| (random.f32() - 0.5).to_le_bytes()).collect();
            json!({"object": "embedding", "index": index, "embedding": STANDARD.encode(values)})
        })
        .collect();
    let tokens = script.prompt_bytes / 4 + 1;
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    json!({"object": "list", "data": data, "model": script.model, "usage": usage})
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn exchange(script: &str) -> Exchange {
        Exchange::new(script.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_stream_has_one_chunk_per_event() {
        let exchange = exchange("tokens=5");
        assert_eq!(exchange.chunks.len(), 5 + 3);
        let mut start = 0;
        for chunk in &exchange.chunks {
            let event = &exchange.response[start..chunk.end];
            assert!(event.starts_with(b"data: ") && event.ends_with(b"\n\n"));
            if let Some(stamp) = chunk.stamp {
                assert_eq!(&exchange.response[stamp..stamp + STAMP_DIGITS], [b'0'; STAMP_DIGITS]);
                let json = &event["data: ".len()..];
                serde_json::from_slice::<Value>(json).unwrap();
            }
            start = chunk.end;
        }
        assert_eq!(start, exchange.response.len());
    }

    #[test]
    fn a_compressed_stream_inflates_to_the_plain_one() {
        let compressed = exchange("tokens=5,gzip=yes");
        let mut inflated = Vec::new();
        flate2::read::GzDecoder::new(&*compressed.response).read_to_end(&mut inflated).unwrap();
        assert_eq!(inflated, exchange("tokens=5").response);
        assert_eq!(compressed.chunks.last().unwrap().end, compressed.response.len());
    }

    #[test]
    fn prompts_have_the_size_of_the_script() {
        for size in [20_000_usize, 300_000] {
            let request = exchange(&format!("kind=json,prompt-bytes={size}")).request;
            assert!(request.len() >= size && request.len() < size + size / 5, "{}", request.len());
        }
    }

    #[test]
    fn embeddings_have_one_vector_per_input() {
        let exchange = exchange("kind=embeddings,tokens=3");
        let request: Value = serde_json::from_slice(&exchange.request).unwrap();
        let response: Value = serde_json::from_slice(&exchange.response).unwrap();
        assert_eq!(request["input"].as_array().unwrap().len(), 3);
        let vectors = response["data"].as_array().unwrap();
        assert_eq!(vectors.len(), 3);
        assert_eq!(
            STANDARD.decode(vectors[2]["embedding"].as_str().unwrap()).unwrap().len(),
            4 * EMBEDDING_VALUES
        );
    }
}
