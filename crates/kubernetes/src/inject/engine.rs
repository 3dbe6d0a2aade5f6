//! Which engine a container runs, guessed from its image and its command.

use serde_json::Value;

/// What is looked for, and the provider that telemetry then names. The first that fits wins: NIM and others have vLLM or
/// TensorRT-LLM inside, and say so in arguments.
const SIGNS: &[(&str, &str)] = &[
    ("nvcr.io/nim/", "nim"),
    ("tensorrt-llm", "tensorrt_llm"),
    ("tensorrt_llm", "tensorrt_llm"),
    ("trtllm-serve", "tensorrt_llm"),
    ("tritonserver", "triton"),
    ("text-generation-inference", "tgi"),
    ("text-generation-launcher", "tgi"),
    ("sglang", "sglang"),
    ("vllm", "vllm"),
    ("llama.cpp", "llama_cpp"),
    ("llama-server", "llama_cpp"),
    ("ollama", "ollama"),
];

pub(super) fn provider(container: &Value) -> Option<&'static str> {
    let texts = |key: &str| match container.get(key) {
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(text)) => vec![text.as_str()],
        Some(_) | None => Vec::new(),
    };
    // The image says most, then what is started in it.
    ["image", "command", "args"].into_iter().find_map(|key| {
        let texts: Vec<&str> = texts(key);
        let found = SIGNS.iter().find(|(sign, _)| texts.iter().any(|text| text.contains(sign)));
        found.map(|(_, provider)| *provider)
    })
}
