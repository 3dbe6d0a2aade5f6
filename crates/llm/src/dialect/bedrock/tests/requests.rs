//! Facts of requests.

use super::*;
use crate::dialect::testing::asked;
use tokengauge_types::label::Name;

fn invoked(body: &str) -> RequestFacts {
    asked(Api::BedrockInvoke, body)
}

#[test]
fn reads_all_facts_of_converse() {
    let facts = asked(
        Api::BedrockConverse,
        r#"{"messages":[{"role":"user","content":[{"text":"12"},{"image":{"format":"png","source":{"bytes":"AAAA"}}},
              {"toolResult":{"toolUseId":"t","content":[{"text":"34"},{"json":{"text":"no"}}]}},
              {"guardContent":{"text":{"text":"56","qualifiers":["query"]}}}]}],
            "system":[{"text":"789"},{"cachePoint":{"type":"default"}}],
            "inferenceConfig":{"maxTokens":512,"temperature":0.5,"topP":0.9,"stopSequences":["a","b"]},
            "toolConfig":{"tools":[{"toolSpec":{"name":"f","inputSchema":{"json":{"type":"object"}}}}],"toolChoice":{"auto":{}}},
            "additionalModelRequestFields":{"thinking":{"type":"enabled","budget_tokens":1024},"top_k":40,"output_config":{"effort":"low"}},
            "serviceTier":{"type":"priority"},"performanceConfig":{"latency":"optimized"}}"#,
    );
    let expected = RequestFacts {
        max_tokens: Some(512),
        temperature: Some(0.5),
        top_p: Some(0.9),
        top_k: Some(40),
        stop_sequences: Some(2),
        reasoning_level: Name::new("low"),
        service_tier: Name::new("priority"),
        prompt_bytes: 9,
        tools: true,
        ..RequestFacts::default()
    };
    assert_eq!(facts, expected);
}

#[test]
fn reads_the_keys_of_each_model() {
    let drawn = RequestFacts {
        max_tokens: Some(10),
        temperature: Some(0.5),
        top_p: Some(0.25),
        stop_sequences: Some(1),
        prompt_bytes: 2,
        ..RequestFacts::default()
    };
    let chat = Some(Api::BedrockInvoke);
    let text = Some(Api::BedrockInvokeText);
    for (body, api, top_k) in [
        (
            r#"{"anthropic_version":"bedrock-2023-05-31","messages":[{"role":"user","content":"Hi"}],"max_tokens":10,"temperature":0.5,"top_p":0.25,"top_k":7,"stop_sequences":["a"]}"#,
            chat,
            Some(7),
        ),
        (
            r#"{"prompt":"Hi","max_tokens_to_sample":10,"temperature":0.5,"top_p":0.25,"top_k":7,"stop_sequences":["a"]}"#,
            text,
            Some(7),
        ),
        (
            r#"{"schemaVersion":"messages-v1","messages":[{"role":"user","content":[{"text":"Hi"}]}],"inferenceConfig":{"max_new_tokens":10,"temperature":0.5,"topP":0.25,"topK":7,"stopSequences":["a"]}}"#,
            chat,
            Some(7),
        ),
        (
            r#"{"inputText":"Hi","textGenerationConfig":{"maxTokenCount":10,"temperature":0.5,"topP":0.25,"stopSequences":["a"]}}"#,
            text,
            None,
        ),
        (
            r#"{"prompt":"Hi","max_tokens":10,"temperature":0.5,"top_p":0.25,"top_k":7,"stop":["a"]}"#,
            text,
            Some(7),
        ),
        (
            r#"{"prompt":"Hi","max_tokens":10,"temperature":0.5,"p":0.25,"k":7,"stop_sequences":["a"],"num_generations":1}"#,
            text,
            Some(7),
        ),
        (
            r#"{"prompt":"Hi","maxTokens":10,"temperature":0.5,"topP":0.25,"stopSequences":["a"],"numResults":1}"#,
            text,
            None,
        ),
        (
            r#"{"message":"i","chat_history":[{"role":"USER","message":"H"}],"max_tokens":10,"temperature":0.5,"p":0.25,"k":7,"stop_sequences":["a"]}"#,
            chat,
            Some(7),
        ),
    ] {
        let expected = RequestFacts { api, top_k, ..drawn.clone() };
        assert_eq!(invoked(body), expected, "{body}");
    }
}

#[test]
fn reads_keys_of_single_models() {
    let llama = invoked(r#"{"prompt":"Hi","max_gen_len":512,"temperature":0.5,"top_p":0.9}"#);
    assert_eq!((llama.api, llama.max_tokens), (Some(Api::BedrockInvokeText), Some(512)));
    let jurassic = invoked(
        r#"{"prompt":"Hi","frequencyPenalty":{"scale":0.5},"presencePenalty":{"scale":1},"numResults":3}"#,
    );
    let penalties = (jurassic.frequency_penalty, jurassic.presence_penalty);
    assert_eq!((penalties, jurassic.choices), ((Some(0.5), Some(1.0)), Some(3)));
}

#[test]
fn reads_names_of_openai() {
    let openai = invoked(
        r#"{"messages":[{"role":"user","content":"Hi"}],"max_tokens":1,"max_completion_tokens":2,"n":2,"seed":7,"frequency_penalty":0.5,"presence_penalty":-0.5,"reasoning_effort":"high","service_tier":"flex","response_format":{"type":"json_object"},"stop":"a","stream":true,"tools":[{"type":"function"}]}"#,
    );
    let expected = RequestFacts {
        api: Some(Api::BedrockInvoke),
        max_tokens: Some(2),
        choices: Some(2),
        seed: Some(7),
        frequency_penalty: Some(0.5),
        presence_penalty: Some(-0.5),
        reasoning_level: Name::new("high"),
        service_tier: Name::new("flex"),
        output_type: Some("json"),
        stop_sequences: Some(1),
        stream: Some(true),
        tools: true,
        prompt_bytes: 2,
        ..RequestFacts::default()
    };
    assert_eq!(openai, expected);
}

#[test]
fn detects_other_operations_by_the_body() {
    let api = |body: &str| invoked(body).api;
    for (body, expected) in [
        (r#"{"inputText":"Hi"}"#, Api::BedrockInvokeText),
        (r#"{"inputText":"Hi","dimensions":256,"normalize":true}"#, Api::BedrockEmbeddings),
        (r#"{"dimensions":256,"inputText":"Hi"}"#, Api::BedrockEmbeddings),
        (r#"{"texts":["a","b"],"input_type":"search_document"}"#, Api::BedrockEmbeddings),
        (r#"{"taskType":"SINGLE_EMBEDDING","singleEmbeddingParams":{}}"#, Api::BedrockEmbeddings),
        (r#"{"query":"a","documents":["b"],"top_n":1,"api_version":2}"#, Api::BedrockRerank),
        (r#"{"taskType":"TEXT_IMAGE","textToImageParams":{"text":"a"}}"#, Api::BedrockImages),
        (r#"{"aspect_ratio":"1:1","prompt":"a"}"#, Api::BedrockImages),
        ("{}", Api::BedrockInvoke),
    ] {
        assert_eq!(api(body), Some(expected), "{body}");
    }
    assert_eq!(api("AAAA"), None);
    let cohere = invoked(
        r#"{"texts":["ab","c"],"input_type":"search_query","embedding_types":["int8","float"],"output_dimension":256}"#,
    );
    assert_eq!(cohere.encoding_format, Name::new("int8"));
    assert_eq!((cohere.dimensions, cohere.prompt_bytes), (Some(256), 3));
}

#[test]
fn detects_language_models_of_sagemaker() {
    let of = |body: &str| asked(Api::SageMakerInvocations, body);
    let tgi = of(
        r#"{"inputs":"Hi","parameters":{"max_new_tokens":10,"temperature":0.5,"top_p":0.25,"top_k":7,"seed":1,"stop":["a","b"],"details":true},"stream":true}"#,
    );
    let expected = RequestFacts {
        api: Some(Api::SageMakerInvocations),
        stream: Some(true),
        max_tokens: Some(10),
        temperature: Some(0.5),
        top_p: Some(0.25),
        top_k: Some(7),
        seed: Some(1),
        stop_sequences: Some(2),
        prompt_bytes: 2,
        ..RequestFacts::default()
    };
    assert_eq!(tgi, expected);
    let chat = of(r#"{"messages":[{"role":"user","content":"Hi"}],"model":"m"}"#);
    assert_eq!(chat.api, Some(Api::SageMakerChat));
    assert_eq!(chat.model, Name::new("m"));
    let list = of(r#"{"inputs":["Hi","Ho"]}"#);
    assert_eq!((list.api, list.prompt_bytes), (Some(Api::SageMakerInvocations), 4));
    for body in ["1,2,3", r#"{"instances":[1]}"#, r#"{"inputs":[[1,2]]}"#] {
        assert_eq!(of(body).api, None, "{body}");
    }
}
