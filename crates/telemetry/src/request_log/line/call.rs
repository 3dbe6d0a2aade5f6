//! The fields of a call.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::request_log::line::values::{
    by_modality, finite, given, positive, seconds, some, tally, text,
};
use tokengauge_llm::count::Source;
use tokengauge_llm::dialect::{self, Api, RateLimit, RateLimits, RequestFacts, TextKind, Timings};
use tokengauge_measure::record;
use tokengauge_measure::timing::{self, rates};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::label::{Label, Name};

part! {
    Call<'a>
    from record::Call {
        series, request, streamed, compacted, response_id, response_model, service_tier, system_fingerprint, choices,
        length_buckets, usage, timings, quota, output, tokenizer, rates, complete, queue_depth, warm, stalls, cost,
        verdicts, content: _, fetched_usage: _,
    } (accept: MonotonicInstant)
    always {
        /// Labels of the call in metrics.
        labels: Labels<'a> = Labels::new(series),
        /// Facts of the request.
        request: Request<'a> = Request::new(request),
        /// Facts of the response.
        response: Response<'a> = Response {
            streamed: *streamed,
            finish_reasons: choices.iter().filter_map(|choice| choice.reason.as_ref()).map(Name::as_str).collect(),
            id: text(response_id.as_ref()),
            model: text(response_model.as_ref()),
            service_tier: text(service_tier.as_ref()),
            system_fingerprint: text(system_fingerprint.as_ref()),
            compacted: compacted.then_some(true),
        },
        /// Computed rates.
        rates: Rates = Rates::new(rates),
        /// Whether the count covers the whole response: `true`, `cut` or `unobserved`.
        complete: &'static str = complete.as_str(),
        /// Queue depth when the request was admitted.
        queue_depth["{request}"]: u32 = *queue_depth,
    }
    known {
        /// Tokens as reported by the provider. Input includes cached tokens, output includes reasoning.
        usage: Usage = usage.as_ref().map(Usage::new),
        /// Output tokens (N) and their sources. Absent if nothing is generated.
        output: Output<'a> = output.as_ref().map(|output| Output::new(output, tokenizer.as_ref())),
        /// Phases as the backend reports them.
        backend: Backend = timings.as_ref().map(Backend::new),
        /// Rate limits as the provider reports them.
        rate_limits: RateLimitsReported = quota.as_ref().map(RateLimitsReported::new),
        /// Warm-up state of the backend when the request was admitted, if tracked: `cold`, `warming` or `warm`.
        warmup_state: &'static str = warm.map(record::WarmupState::as_str),
        /// Stalls of the stream. Absent without one.
        stalls: Stalls = (!stalls.is_empty()).then(|| Stalls::new(stalls, accept)),
        /// Length of prompt and response in ranges of tokens: `<128`, `128-512`, `512-2k`, `2k-8k`, `8k-32k`, `>=32k`.
        length_buckets: LengthBuckets = given(length_buckets, LengthBuckets::new),
        /// Cost of the call. Absent without a price.
        cost: Cost<'a> = cost.as_ref().map(Cost::new),
        /// Cost of the call as the provider or a gateway reports it.
        reported_cost["USD"]: f64 = usage.as_ref().and_then(dialect::Usage::cost_in_usd),
        /// Number of choices by result: `complete`, `empty`, `refused`, `filtered`, `tool_json_invalid`, `unfinished`.
        choices: BTreeMap<&'static str, u64> = tally(choices.iter().map(|choice| (choice.status.as_str(), 1))),
        /// Result of each SLO by name: `good`, `bad` or `excluded`.
        slos: BTreeMap<&'a str, &'static str> =
            some(verdicts.iter().map(|(name, verdict)| (name.as_str(), verdict.as_str()))),
    }
}

part! {
    Cost<'a>
    from record::Cost { amount, currency, source, parts }
    always {
        /// Amount by the price table.
        amount["{currency}"]: f64 = *amount,
        /// ISO 4217 code.
        currency: &'a str = currency.as_str(),
        /// Whether the tokens were `reported` by the provider, or `estimated`.
        source: &'static str = source.as_str(),
        /// Parts of the amount. Parts that are 0 are omitted.
        parts: CostParts = CostParts::new(parts),
    }
}

part! {
    CostParts
    from record::CostParts { input, cache_read, cache_write, cache_write_1h, output, reasoning, request }
    known {
        /// Input that was not read from or written to a cache.
        input["{currency}"]: f64 = positive(*input),
        /// Input read from a cache.
        cache_read["{currency}"]: f64 = positive(*cache_read),
        /// Input written to a cache, except for an hour.
        cache_write["{currency}"]: f64 = positive(*cache_write),
        /// Input written to a cache for an hour.
        cache_write_1h["{currency}"]: f64 = positive(*cache_write_1h),
        /// Output without reasoning.
        output["{currency}"]: f64 = positive(*output),
        /// Reasoning.
        reasoning["{currency}"]: f64 = positive(*reasoning),
        /// Fixed price of the request.
        request["{currency}"]: f64 = positive(*request),
    }
}

part! {
    LengthBuckets
    from record::LengthBuckets { input, output }
    known {
        /// Reported input, else an estimate from the prompt's texts.
        input: &'static str = input.map(record::LengthBucket::as_str),
        /// Range of N.
        output: &'static str = output.map(record::LengthBucket::as_str),
    }
}

part! {
    Stalls
    from timing::Stalls { count, total, first } (accept: MonotonicInstant)
    always {
        /// Number of stalls.
        count["{stall}"]: u32 = *count,
        /// Total length of all stalls.
        total_duration["s"]: f64 = total.as_secs_f64(),
        /// The first 16 stalls.
        details: Vec<Stall> = first.iter().map(|stall| Stall::new(stall, accept)).collect(),
    }
}

part! {
    Stall
    from timing::Stall { phase, kind, begun, raised, lasted } (accept: MonotonicInstant)
    always {
        /// Missing token: `first_token` or `next_token`.
        phase: &'static str = phase.as_str(),
        /// What arrived instead: `silent` (nothing) or `keep_alive_only` (only keep-alives).
        kind: &'static str = kind.as_str(),
        /// Start of the stall, since accept.
        start["s"]: f64 = begun.since(accept).as_secs_f64(),
        /// When the stall threshold was crossed, since accept.
        detected["s"]: f64 = raised.since(accept).as_secs_f64(),
    }
    known {
        /// Length of the stall, excluding time that is not the backend's.
        duration["s"]: f64 = seconds(*lasted),
    }
}

part! {
    Labels<'a>
    from record::MetricLabels {
        operation, provider, model, stream, route, position, server_address, server_port, tenant, variant,
    }
    always {
        /// Kind of call.
        operation: &'static str = operation.as_str(),
        /// Provider of the API.
        provider: &'a str = provider.as_str(),
        /// Model label: `other` beyond the limit of models, `unknown` if the request names none.
        model: &'a str = model.as_str(),
        /// Whether the call is a streamed generation.
        stream: bool = *stream,
        /// Name of the route.
        route: &'a str = route.as_str(),
        /// Position of this proxy.
        position: &'static str = position.as_str(),
        /// Host of the upstream.
        server_address: &'a str = server_address.as_str(),
        /// Port of the upstream.
        server_port: u16 = *server_port,
    }
    known {
        /// Tenant label.
        tenant: &'a str = tenant.as_ref().map(Label::as_str),
        /// Variant label.
        variant: &'a str = variant.as_ref().map(Label::as_str),
    }
}

part! {
    Request<'a>
    from RequestFacts {
        api, model, stream, max_tokens, temperature, top_p, top_k, frequency_penalty, presence_penalty, seed, choices,
        stop_sequences, previous_response, reasoning_level, conversation, reasoning, service_tier, output_type, dimensions,
        encoding_format, prompt_bytes, tools, echo, background, prompt_name, prompt_version, bad_counts: _, session: _,
        // Part of the response's `compacted`.
        compacted: _,
    }
    always {
        /// Size of all texts of the prompt.
        prompt_bytes["By"]: u64 = *prompt_bytes,
        /// Whether the request offers tools.
        tools: bool = *tools,
    }
    known {
        /// API of the request. Present if several APIs use the same path, so that the request body decides.
        api: &'static str = api.map(Api::as_str),
        /// Model in the request.
        model: &'a str = text(model.as_ref()),
        /// Whether the request asks for a stream.
        stream: bool = *stream,
        /// From the request, like all fields below.
        max_tokens["{token}"]: i64 = *max_tokens,
        /// Sampling temperature.
        temperature: f64 = finite(*temperature),
        /// Nucleus sampling.
        top_p: f64 = finite(*top_p),
        /// Top-k sampling.
        top_k: i64 = *top_k,
        /// Frequency penalty.
        frequency_penalty: f64 = finite(*frequency_penalty),
        /// Presence penalty.
        presence_penalty: f64 = finite(*presence_penalty),
        /// Seed.
        seed: i64 = *seed,
        /// Number of choices, if not 1.
        choices: i64 = *choices,
        /// Number of stop sequences. Their text is not logged.
        stop_sequences: usize = *stop_sequences,
        /// Id of the stored prompt template.
        prompt_name: &'a str = text(prompt_name.as_ref()),
        /// Version of that template.
        prompt_version: &'a str = text(prompt_version.as_ref()),
        /// Response that the request continues.
        previous_response: &'a str = text(previous_response.as_ref()),
        /// `true` if the provider generates the response in the background.
        background: bool = background.then_some(true),
        /// Conversation in the request, or in the client's baggage.
        conversation: &'a str = text(conversation.as_ref()),
        /// Reasoning level, as written in the request.
        reasoning_level: &'a str = text(reasoning_level.as_ref()),
        /// `true` if the request enables reasoning without a level.
        reasoning: bool = reasoning.then_some(true),
        /// Service tier in the request.
        service_tier: &'a str = text(service_tier.as_ref()),
        /// `text`, `json`, `image` or `speech`.
        output_type: &'static str = *output_type,
        /// Of embeddings.
        dimensions: i64 = *dimensions,
        /// Of embeddings.
        encoding_format: &'a str = text(encoding_format.as_ref()),
        /// Whether the request asks for the prompt to be repeated before the generated text.
        echo: bool = *echo,
    }
}

part! {
    Response<'a>
    always {
        /// Whether the response was streamed.
        streamed: bool,
        /// Finish reasons that the provider reports, in the order of the choices.
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
        /// `true` if the context of the call is a compacted conversation.
        compacted: bool,
    }
}

part! {
    Usage
    from dialect::Usage {
        input, output, cache_read, cache_write, cache_write_5m, cache_write_1h, reasoning, compaction, unlisted, input_by, cache_read_by,
        output_by, output_in_doubt,
        // Logged beside the cost by the price table.
        cost_ticks: _,
    }
    known {
        /// All input.
        input["{token}"]: u64 = *input,
        /// All output.
        output["{token}"]: u64 = *output,
        /// Part of the input.
        cache_read["{token}"]: u64 = *cache_read,
        /// Part of the input.
        cache_write["{token}"]: u64 = *cache_write,
        /// Part of the cache writes: for 5 minutes.
        cache_write_5m["{token}"]: u64 = *cache_write_5m,
        /// Part of the cache writes: for an hour.
        cache_write_1h["{token}"]: u64 = *cache_write_1h,
        /// Part of the output.
        reasoning["{token}"]: u64 = *reasoning,
        /// Part of the output: tokens of Anthropic's compaction.
        compaction["{token}"]: u64 = *compaction,
        /// Part of the output that only the reported total shows.
        unlisted["{token}"]: u64 = *unlisted,
        /// `true` if other numbers of the report contradict `output`.
        output_in_doubt: bool = output_in_doubt.then_some(true),
        /// Input by modality: `text`, `image`, `audio`, `video`, `document`.
        input_by["{token}"]: BTreeMap<&'static str, u64> = by_modality(input_by),
        /// Cache reads by modality.
        cache_read_by["{token}"]: BTreeMap<&'static str, u64> = by_modality(cache_read_by),
        /// Output by modality.
        output_by["{token}"]: BTreeMap<&'static str, u64> = by_modality(output_by),
    }
}

part! {
    Output<'a>
    from record::Output {
        tokens, source, counted, counted_source, counted_first, standard, hidden, by_kind,
    } (tokenizer: Option<&'a Label>)
    always {
        /// N: reported − hidden if usage was reported, else counted or estimated.
        tokens["{token}"]: f64 = *tokens,
        /// Tokens counted by this proxy.
        counted["{token}"]: u64 = *counted,
        /// Tokens counted in the first chunk with a token.
        counted_in_first_chunk["{token}"]: u64 = *counted_first,
        /// The same text in o200k_base.
        normalized["{token}"]: u64 = *standard,
        /// max(0, reported reasoning and unlisted output − counted streamed reasoning) + compaction.
        hidden_reasoning["{token}"]: u64 = *hidden,
        /// `counted` by `text`, `reasoning`, `tool`, `refusal` and `transcript`; absent kinds are omitted.
        by_kind["{token}"]: BTreeMap<&'static str, u64> = TextKind::ALL
            .into_iter()
            .zip(by_kind)
            .filter(|(_, tokens)| **tokens > 0)
            .map(|(kind, tokens)| (kind.as_str(), *tokens))
            .collect(),
    }
    known {
        /// Source of N: `reported`, `counted` or `estimated`.
        source: &'static str = source.map(Source::as_str),
        /// `counted` in the model's own encoding, or `estimated` in another.
        counted_source: &'static str = counted_source.map(Source::as_str),
        /// Name of the tokenizer.
        tokenizer: &'a str = tokenizer.map(Label::as_str),
    }
}

part! {
    Rates
    from rates::Rates { output, unrated, total, time_per_output_token }
    known {
        /// Output tokens per second, excluding prefill: (N − n₁) ÷ (last − token − blocked).
        output["{token}/s"]: f64 = finite(*output),
        /// Why a stream has no output rate: `no_token`, `few_tokens`, `short_decode` or `unobserved`.
        unrated_reason: &'static str = unrated.map(rates::Unrated::as_str),
        /// Output tokens per second, including prefill: N ÷ end.
        total["{token}/s"]: f64 = finite(*total),
        /// (last − token − blocked) ÷ (N − 1).
        time_per_output_token["s"]: f64 = seconds(*time_per_output_token),
    }
}

part! {
    Backend
    from Timings { queue, load, prefill, decode, total }
    known {
        /// Time in the queue of the backend.
        queue["s"]: f64 = seconds(*queue),
        /// Time to load the model.
        load["s"]: f64 = seconds(*load),
        /// Time to read the prompt.
        prefill["s"]: f64 = seconds(*prefill),
        /// Time to generate.
        decode["s"]: f64 = seconds(*decode),
        /// Total time.
        total["s"]: f64 = seconds(*total),
    }
}

part! {
    RateLimitsReported
    from RateLimits { requests, tokens, input_tokens, output_tokens }
    known {
        /// Requests.
        requests: Allowance = given(requests, Allowance::new),
        /// Tokens.
        tokens: Allowance = given(tokens, Allowance::new),
        /// Input tokens, if limited separately.
        input_tokens: Allowance = given(input_tokens, Allowance::new),
        /// Output tokens, if limited separately.
        output_tokens: Allowance = given(output_tokens, Allowance::new),
    }
}

part! {
    Allowance
    from RateLimit { limit, remaining, reset }
    known {
        /// Limit per window.
        limit: u64 = *limit,
        /// Remaining amount.
        remaining: u64 = *remaining,
        /// Time from the response headers until the limit is fully restored.
        reset["s"]: f64 = seconds(*reset),
    }
}
