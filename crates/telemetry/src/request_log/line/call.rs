//! The fields of a call.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

part! {
    Call<'a>
    always {
        /// Labels of the call in metrics.
        series: Series<'a>,
        /// Facts of the request.
        request: Request<'a>,
        /// Facts of the response.
        response: Response<'a>,
        /// Computed rates.
        rates: Rates,
        /// Whether the count covers the whole response: `true`, `cut` or `unobserved`.
        complete: &'static str,
        /// Queue depth when the request was admitted.
        #[schemars(extend("x-unit" = "{request}"))]
        queue_depth: u32,
    }
    known {
        /// Tokens as reported by the provider. Input includes cached tokens, output includes reasoning.
        usage: Usage,
        /// Output tokens (N) and their sources. Absent if nothing is generated.
        output: Output<'a>,
        /// Phases as the backend reports them.
        backend: Backend,
        /// Rate limits as the provider reports them.
        quota: Quota,
        /// Warm-up state of the backend when the request was admitted, if tracked: `cold`, `warming` or `warm`.
        warm: &'static str,
        /// Stalls of the stream. Absent without one.
        stalls: Stalls,
        /// Length of prompt and response in ranges of tokens: `<128`, `128-512`, `512-2k`, `2k-8k`, `8k-32k`, `>=32k`.
        bands: Bands,
        /// Cost of the call. Absent without a price.
        cost: Cost<'a>,
        /// Number of choices by result: `complete`, `empty`, `refused`, `filtered`, `tool_json_invalid`, `unfinished`.
        choices: BTreeMap<&'static str, u64>,
        /// Result of each objective by name: `good`, `bad` or `excluded`.
        objectives: BTreeMap<&'a str, &'static str>,
    }
}

part! {
    Cost<'a>
    always {
        /// Amount by the price table.
        #[schemars(extend("x-unit" = "{currency}"))]
        amount: f64,
        /// ISO 4217 code.
        currency: &'a str,
        /// Whether the tokens were `reported` by the provider, or `estimated`.
        source: &'static str,
    }
    known {}
}

part! {
    Bands
    always {}
    known {
        /// Reported input, else an estimate from the prompt's texts.
        input: &'static str,
        /// Range of N.
        output: &'static str,
    }
}

part! {
    Stalls
    always {
        /// Number of stalls.
        #[schemars(extend("x-unit" = "{stall}"))]
        count: u32,
        /// Total length of all stalls.
        #[schemars(extend("x-unit" = "s"))]
        total: f64,
        /// The first 16 stalls.
        first: Vec<Stall>,
    }
    known {}
}

part! {
    Stall
    always {
        /// Missing token: `first_token` or `next_token`.
        awaited: &'static str,
        /// What arrived instead: `silent` (nothing) or `pinging` (only keep-alives).
        silence: &'static str,
        /// Start of the stall, since accept.
        #[schemars(extend("x-unit" = "s"))]
        begun: f64,
        /// When the stall threshold was crossed, since accept.
        #[schemars(extend("x-unit" = "s"))]
        raised: f64,
    }
    known {
        /// Length of the stall, excluding time that is not the backend's.
        #[schemars(extend("x-unit" = "s"))]
        lasted: f64,
    }
}

part! {
    Series<'a>
    always {
        /// Kind of call.
        operation: &'static str,
        /// Provider of the API.
        provider: &'a str,
        /// Model label: `other` beyond the limit of models, `unknown` if the request names none.
        model: &'a str,
        /// Whether the call is a streamed generation.
        stream: bool,
        /// Name of the route.
        route: &'a str,
        /// Position of this proxy.
        vantage: &'static str,
        /// Host of the upstream.
        server_address: &'a str,
        /// Port of the upstream.
        server_port: u16,
    }
    known {
        /// Tenant label.
        tenant: &'a str,
        /// Variant label.
        variant: &'a str,
    }
}

part! {
    Request<'a>
    always {
        /// Size of all texts of the prompt.
        #[schemars(extend("x-unit" = "By"))]
        prompt_bytes: u64,
        /// Whether the request offers tools.
        tools: bool,
    }
    known {
        /// API detected from the request body, if the path matches several.
        api: &'static str,
        /// Model in the request.
        model: &'a str,
        /// Whether the request asks for a stream.
        stream: bool,
        /// From the request, like all fields below.
        #[schemars(extend("x-unit" = "{token}"))]
        max_tokens: i64,
        /// Sampling temperature.
        temperature: f64,
        /// Nucleus sampling.
        top_p: f64,
        /// Top-k sampling.
        top_k: i64,
        /// Frequency penalty.
        frequency_penalty: f64,
        /// Presence penalty.
        presence_penalty: f64,
        /// Seed.
        seed: i64,
        /// Number of choices, if not 1.
        choices: i64,
        /// Number of stop sequences. Their text is not logged.
        stop_sequences: usize,
        /// Response that the request continues.
        previous_response: &'a str,
        /// Conversation in the request, or in the client's baggage.
        conversation: &'a str,
        /// Reasoning level, as written in the request.
        reasoning_level: &'a str,
        /// `true` if the request enables reasoning without a level.
        reasoning: bool,
        /// Service tier in the request.
        service_tier: &'a str,
        /// `text`, `json`, `image` or `speech`.
        output_type: &'static str,
        /// Of embeddings.
        dimensions: i64,
        /// Of embeddings.
        encoding_format: &'a str,
        /// Whether the request asks for the prompt to be repeated before the generated text.
        echo: bool,
    }
}

part! {
    Response<'a>
    always {
        /// Whether the response was streamed.
        streamed: bool,
        /// Finish reasons as the provider reports them, one per choice in order. `error`: an expected reason never arrived.
        finish_reasons: Vec<&'a str>,
    }
    known {
        /// Id of the response, or of the session.
        id: &'a str,
        /// Model in the response.
        model: &'a str,
        /// Service tier in the response.
        service_tier: &'a str,
        /// From the response.
        system_fingerprint: &'a str,
    }
}

part! {
    Usage
    always {}
    known {
        /// All input.
        #[schemars(extend("x-unit" = "{token}"))]
        input: u64,
        /// All output.
        #[schemars(extend("x-unit" = "{token}"))]
        output: u64,
        /// Part of the input.
        #[schemars(extend("x-unit" = "{token}"))]
        cache_read: u64,
        /// Part of the input.
        #[schemars(extend("x-unit" = "{token}"))]
        cache_write: u64,
        /// Part of the output.
        #[schemars(extend("x-unit" = "{token}"))]
        reasoning: u64,
        /// Input by modality: `text`, `image`, `audio`, `video`, `document`.
        #[schemars(extend("x-unit" = "{token}"))]
        input_by: BTreeMap<&'static str, u64>,
        /// Output by modality.
        #[schemars(extend("x-unit" = "{token}"))]
        output_by: BTreeMap<&'static str, u64>,
    }
}

part! {
    Output<'a>
    always {
        /// N: reported − hidden if usage was reported, else counted or estimated.
        #[schemars(extend("x-unit" = "{token}"))]
        tokens: f64,
        /// Tokens counted by this proxy.
        #[schemars(extend("x-unit" = "{token}"))]
        counted: u64,
        /// Tokens counted in the first chunk with a token.
        #[schemars(extend("x-unit" = "{token}"))]
        counted_first: u64,
        /// The same text in o200k_base.
        #[schemars(extend("x-unit" = "{token}"))]
        standard: u64,
        /// max(0, reported reasoning − counted streamed reasoning).
        #[schemars(extend("x-unit" = "{token}"))]
        hidden: u64,
        /// `counted` by `text`, `reasoning`, `tool`, `refusal` and `transcript`; absent kinds are omitted.
        #[schemars(extend("x-unit" = "{token}"))]
        by_kind: BTreeMap<&'static str, u64>,
    }
    known {
        /// Source of N: `reported`, `counted` or `estimated`.
        source: &'static str,
        /// `counted` in the model's own encoding, or `estimated` in another.
        counted_source: &'static str,
        /// Name of the tokenizer.
        tokenizer: &'a str,
    }
}

part! {
    Rates
    always {}
    known {
        /// Output tokens per second, excluding prefill: (N − n₁) ÷ (last − token − blocked).
        #[schemars(extend("x-unit" = "{token}/s"))]
        output: f64,
        /// Why a stream has no output rate: `no_token`, `few_tokens`, `short_decode` or `unobserved`.
        unrated: &'static str,
        /// Output tokens per second, including prefill: N ÷ end.
        #[schemars(extend("x-unit" = "{token}/s"))]
        total: f64,
        /// (last − token − blocked) ÷ (N − 1).
        #[schemars(extend("x-unit" = "s"))]
        time_per_output_token: f64,
    }
}

part! {
    Backend
    always {}
    known {
        /// Time in the queue of the backend.
        #[schemars(extend("x-unit" = "s"))]
        queue: f64,
        /// Time to load the model.
        #[schemars(extend("x-unit" = "s"))]
        load: f64,
        /// Time to read the prompt.
        #[schemars(extend("x-unit" = "s"))]
        prefill: f64,
        /// Time to generate.
        #[schemars(extend("x-unit" = "s"))]
        decode: f64,
        /// Total time.
        #[schemars(extend("x-unit" = "s"))]
        total: f64,
    }
}

part! {
    Quota
    always {}
    known {
        /// Requests.
        requests: Allowance,
        /// Tokens.
        tokens: Allowance,
        /// Input tokens, if limited separately.
        input_tokens: Allowance,
        /// Output tokens, if limited separately.
        output_tokens: Allowance,
    }
}

part! {
    Allowance
    always {}
    known {
        /// Limit per window.
        limit: u64,
        /// Remaining amount.
        remaining: u64,
        /// Time from the response headers until the limit is fully restored.
        #[schemars(extend("x-unit" = "s"))]
        reset: f64,
    }
}
