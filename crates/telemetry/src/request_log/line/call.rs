//! The fields of a call.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

part! {
    Call<'a>
    always {
        /// What it is told apart by in metrics.
        series: Series<'a>,
        /// What was asked for.
        request: Request<'a>,
        /// What came.
        response: Response<'a>,
        /// What was computed of the two.
        rates: Rates,
        /// Whether what was counted is all there was: `true`, `cut` or `unobserved`.
        complete: &'static str,
        /// Queue depth when the exchange was admitted.
        #[schemars(extend("x-unit" = "{request}"))]
        queue_depth: u32,
    }
    known {
        /// Tokens as the provider reported them, cached ones in the input and reasoning in the output.
        usage: Usage,
        /// N, and what it was made of; absent where nothing is generated.
        output: Output<'a>,
        /// Phases by the backend's own clock.
        backend: Backend,
        /// What the provider says is left of the caller's limits.
        quota: Quota,
        /// How it found its backend when it was admitted, where that is asked: `cold`, `warming` or `warm`.
        warm: &'static str,
        /// When it brought no token for longer than its route allows; absent where it always did.
        stalls: Stalls,
        /// How long prompt and answer are, in bands of tokens: `<128`, `128-512`, `512-2k`, `2k-8k`, `8k-32k`, `>=32k`.
        bands: Bands,
        /// What it cost; absent where it has no price.
        cost: Cost<'a>,
        /// Choices by what became of them: `complete`, `empty`, `refused`, `filtered`, `tool_json_invalid`, `unfinished`.
        choices: BTreeMap<&'static str, u64>,
        /// What each objective says: its name, and `good`, `bad` or `excluded`.
        objectives: BTreeMap<&'a str, &'static str>,
    }
}

part! {
    Cost<'a>
    always {
        /// By the table of prices.
        #[schemars(extend("x-unit" = "{currency}"))]
        amount: f64,
        /// Three letters of ISO 4217.
        currency: &'a str,
        /// Whether the provider `reported` its tokens, or they were `estimated`.
        source: &'static str,
    }
    known {}
}

part! {
    Bands
    always {}
    known {
        /// Of the input reported, else estimated from the prompt's texts.
        input: &'static str,
        /// Of N.
        output: &'static str,
    }
}

part! {
    Stalls
    always {
        /// How many there were.
        #[schemars(extend("x-unit" = "{stall}"))]
        count: u32,
        /// How long they lasted together.
        #[schemars(extend("x-unit" = "s"))]
        total: f64,
        /// The first 16 of them.
        first: Vec<Stall>,
    }
    known {}
}

part! {
    Stall
    always {
        /// What was awaited: `first_token` or `next_token`.
        awaited: &'static str,
        /// What came instead: `silent` (nothing) or `pinging`.
        silence: &'static str,
        /// When the silence began, since accept.
        #[schemars(extend("x-unit" = "s"))]
        begun: f64,
        /// When it had lasted as long as the route allows, since accept.
        #[schemars(extend("x-unit" = "s"))]
        raised: f64,
    }
    known {
        /// How long it lasted, without what was not the backend's time.
        #[schemars(extend("x-unit" = "s"))]
        lasted: f64,
    }
}

part! {
    Series<'a>
    always {
        /// What kind of call it is.
        operation: &'static str,
        /// Whose API it is.
        provider: &'a str,
        /// The model's label: `other` where it has none of its own, `unknown` where none was named.
        model: &'a str,
        /// Whether it is a streamed generation.
        stream: bool,
        /// The route's name.
        route: &'a str,
        /// Where this proxy stands.
        vantage: &'static str,
        /// The upstream's host.
        server_address: &'a str,
        /// The upstream's port.
        server_port: u16,
    }
    known {
        /// The tenant's label.
        tenant: &'a str,
        /// The variant's label.
        variant: &'a str,
    }
}

part! {
    Request<'a>
    always {
        /// All texts of the prompt.
        #[schemars(extend("x-unit" = "By"))]
        prompt_bytes: u64,
        /// Whether it offers tools.
        tools: bool,
    }
    known {
        /// The API that the body's shape shows, where the path fits several.
        api: &'static str,
        /// As the request says it.
        model: &'a str,
        /// Whether a streamed answer was asked for.
        stream: bool,
        /// As the request says, like all below.
        #[schemars(extend("x-unit" = "{token}"))]
        max_tokens: i64,
        /// Sampling temperature.
        temperature: f64,
        /// Nucleus sampling.
        top_p: f64,
        /// Sampling from so many.
        top_k: i64,
        /// Frequency penalty.
        frequency_penalty: f64,
        /// Presence penalty.
        presence_penalty: f64,
        /// Seed.
        seed: i64,
        /// How many choices, where not 1.
        choices: i64,
        /// How many stop sequences; their text is not logged.
        stop_sequences: usize,
        /// The response that the request goes on from.
        previous_response: &'a str,
        /// The conversation that the request, or the caller's baggage, says it belongs to.
        conversation: &'a str,
        /// The word that the request uses.
        reasoning_level: &'a str,
        /// `true` where the request switches reasoning on without naming a level.
        reasoning: bool,
        /// The tier asked for.
        service_tier: &'a str,
        /// `text`, `json`, `image` or `speech`.
        output_type: &'static str,
        /// Of embeddings.
        dimensions: i64,
        /// Of embeddings.
        encoding_format: &'a str,
        /// Whether the prompt is asked for again, at the head of the generated text.
        echo: bool,
    }
}

part! {
    Response<'a>
    always {
        /// Whether the answer came as a stream.
        streamed: bool,
        /// The provider's words, one per choice in order; `error` where one was owed and never came.
        finish_reasons: Vec<&'a str>,
    }
    known {
        /// The answer's id; of a session its own.
        id: &'a str,
        /// The model that answered.
        model: &'a str,
        /// The tier that answered.
        service_tier: &'a str,
        /// As the response says.
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
        /// The input by what it stands for: `text`, `image`, `audio`, `video`, `document`.
        #[schemars(extend("x-unit" = "{token}"))]
        input_by: BTreeMap<&'static str, u64>,
        /// The output by what it stands for.
        #[schemars(extend("x-unit" = "{token}"))]
        output_by: BTreeMap<&'static str, u64>,
    }
}

part! {
    Output<'a>
    always {
        /// N: reported − hidden where usage came, else counted or estimated.
        #[schemars(extend("x-unit" = "{token}"))]
        tokens: f64,
        /// Our count of everything generated.
        #[schemars(extend("x-unit" = "{token}"))]
        counted: u64,
        /// Our count of the first token-bearing chunk.
        #[schemars(extend("x-unit" = "{token}"))]
        counted_first: u64,
        /// The same text in o200k_base.
        #[schemars(extend("x-unit" = "{token}"))]
        standard: u64,
        /// max(0, reported reasoning − counted streamed reasoning).
        #[schemars(extend("x-unit" = "{token}"))]
        hidden: u64,
        /// `counted` by `text`, `reasoning`, `tool`, `refusal` and `transcript`; kinds that did not occur are left out.
        #[schemars(extend("x-unit" = "{token}"))]
        by_kind: BTreeMap<&'static str, u64>,
    }
    known {
        /// Where N comes from: `reported`, `counted` or `estimated`.
        source: &'static str,
        /// `counted` in the model's own encoding, or `estimated` in another.
        counted_source: &'static str,
        /// The name of the encoding that was counted in.
        tokenizer: &'a str,
    }
}

part! {
    Rates
    always {}
    known {
        /// Output TPS: (N − n₁) ÷ (last − token − blocked).
        #[schemars(extend("x-unit" = "{token}/s"))]
        output: f64,
        /// Why a stream has none: `no_token`, `few_tokens`, `short_decode` or `unobserved`.
        unrated: &'static str,
        /// Total TPS: N ÷ end.
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
        /// Waiting before the work began.
        #[schemars(extend("x-unit" = "s"))]
        queue: f64,
        /// Loading the model.
        #[schemars(extend("x-unit" = "s"))]
        load: f64,
        /// Reading the prompt.
        #[schemars(extend("x-unit" = "s"))]
        prefill: f64,
        /// Generating.
        #[schemars(extend("x-unit" = "s"))]
        decode: f64,
        /// All of it.
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
        /// Input tokens, where they are limited apart.
        input_tokens: Allowance,
        /// Output tokens, where they are limited apart.
        output_tokens: Allowance,
    }
}

part! {
    Allowance
    always {}
    known {
        /// How many there are in a window.
        limit: u64,
        /// How many are left.
        remaining: u64,
        /// From the head's arrival until all of it is there again.
        #[schemars(extend("x-unit" = "s"))]
        reset: f64,
    }
}
