//! Converts a call to the fields of its line, with all fields destructured as in `convert.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::request_log::line::{
    Allowance, Backend, Bands, Call, Cost, Output, Quota, Rates, Request, Response, Series, Stall,
    Stalls, Usage,
};
use tokengauge_llm::count::Source;
use tokengauge_llm::dialect::{
    Api, ByModality, RateLimit as Allowed, RateLimits as Quotas, RequestFacts, TextKind, Timings,
    Usage as Reported,
};
use tokengauge_measure::record;
use tokengauge_measure::timing::{self, rates};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::label::{Label, Name};

pub(super) fn call(call: &record::Call, accept: MonotonicInstant) -> Call<'_> {
    let record::Call {
        series,
        request,
        streamed,
        response_id,
        response_model,
        service_tier,
        system_fingerprint,
        finish_reasons,
        choices,
        bands,
        usage,
        timings,
        quota,
        output,
        tokenizer,
        rates,
        complete,
        queue_depth,
        warm,
        stalls,
        cost,
        verdicts,
        content: _,
    } = call;
    let objectives = verdicts.iter().map(|(name, verdict)| (name.as_str(), verdict.as_str()));
    let mut results = BTreeMap::new();
    for choice in choices {
        *results.entry(choice.as_str()).or_default() += 1;
    }
    Call {
        series: self::series(series),
        request: self::request(request),
        response: Response {
            streamed: *streamed,
            finish_reasons: finish_reasons.iter().map(Name::as_str).collect(),
            id: text(response_id.as_ref()),
            model: text(response_model.as_ref()),
            service_tier: text(service_tier.as_ref()),
            system_fingerprint: text(system_fingerprint.as_ref()),
        },
        rates: self::rates(rates),
        complete: complete.as_str(),
        queue_depth: *queue_depth,
        warm: warm.map(record::WarmupState::as_str),
        usage: usage.as_ref().map(self::usage),
        output: output.as_ref().map(|output| self::output(output, tokenizer.as_ref())),
        backend: timings.as_ref().map(backend),
        quota: quota.as_ref().map(self::quota),
        stalls: (!stalls.is_empty()).then(|| self::stalls(stalls, accept)),
        objectives: some(objectives.collect()),
        choices: some(results),
        cost: cost.as_ref().map(self::cost),
        bands: (*bands != record::LengthBuckets::default()).then(|| self::bands(*bands)),
    }
}

fn cost(cost: &record::Cost) -> Cost<'_> {
    let record::Cost { amount, currency, source } = cost;
    Cost { amount: *amount, currency: currency.as_str(), source: source.as_str() }
}

fn bands(bands: record::LengthBuckets) -> Bands {
    let record::LengthBuckets { input, output } = bands;
    Bands {
        input: input.map(record::LengthBucket::as_str),
        output: output.map(record::LengthBucket::as_str),
    }
}

fn stalls(stalls: &timing::Stalls, accept: MonotonicInstant) -> Stalls {
    let timing::Stalls { count, total, first } = stalls;
    let since = |at: &MonotonicInstant| at.since(accept).as_secs_f64();
    let one = |stall: &timing::Stall| {
        let timing::Stall { awaited, silence, begun, raised, lasted } = stall;
        Stall {
            awaited: awaited.as_str(),
            silence: silence.as_str(),
            begun: since(begun),
            raised: since(raised),
            lasted: seconds(*lasted),
        }
    };
    Stalls { count: *count, total: total.as_secs_f64(), first: first.iter().map(one).collect() }
}

fn series(series: &record::MetricLabels) -> Series<'_> {
    let record::MetricLabels {
        operation,
        provider,
        model,
        stream,
        route,
        vantage,
        server_address,
        server_port,
        tenant,
        variant,
    } = series;
    Series {
        operation: operation.as_str(),
        provider: provider.as_str(),
        model: model.as_str(),
        stream: *stream,
        route: route.as_str(),
        vantage: vantage.as_str(),
        server_address: server_address.as_str(),
        server_port: *server_port,
        tenant: tenant.as_ref().map(Label::as_str),
        variant: variant.as_ref().map(Label::as_str),
    }
}

fn request(facts: &RequestFacts) -> Request<'_> {
    let RequestFacts {
        api,
        model,
        stream,
        max_tokens,
        temperature,
        top_p,
        top_k,
        frequency_penalty,
        presence_penalty,
        seed,
        choices,
        stop_sequences,
        previous_response,
        reasoning_level,
        conversation,
        reasoning,
        service_tier,
        output_type,
        dimensions,
        encoding_format,
        prompt_bytes,
        tools,
        echo,
    } = facts;
    Request {
        prompt_bytes: *prompt_bytes,
        tools: *tools,
        api: api.map(Api::as_str),
        model: text(model.as_ref()),
        stream: *stream,
        max_tokens: *max_tokens,
        temperature: finite(*temperature),
        top_p: finite(*top_p),
        top_k: *top_k,
        frequency_penalty: finite(*frequency_penalty),
        presence_penalty: finite(*presence_penalty),
        seed: *seed,
        choices: *choices,
        stop_sequences: *stop_sequences,
        previous_response: text(previous_response.as_ref()),
        conversation: text(conversation.as_ref()),
        reasoning_level: text(reasoning_level.as_ref()),
        reasoning: reasoning.then_some(true),
        service_tier: text(service_tier.as_ref()),
        output_type: *output_type,
        dimensions: *dimensions,
        encoding_format: text(encoding_format.as_ref()),
        echo: *echo,
    }
}

fn usage(usage: &Reported) -> Usage {
    let Reported { input, output, cache_read, cache_write, reasoning, input_by, output_by } = usage;
    Usage {
        input: *input,
        output: *output,
        cache_read: *cache_read,
        cache_write: *cache_write,
        reasoning: *reasoning,
        input_by: some(by_modality(input_by)),
        output_by: some(by_modality(output_by)),
    }
}

fn by_modality(tokens: &ByModality) -> BTreeMap<&'static str, u64> {
    let ByModality { text, image, audio, video, document } = tokens;
    [("text", text), ("image", image), ("audio", audio), ("video", video), ("document", document)]
        .into_iter()
        .filter_map(|(name, tokens)| Some((name, (*tokens)?)))
        .collect()
}

fn output<'a>(output: &record::Output, tokenizer: Option<&'a Label>) -> Output<'a> {
    let record::Output {
        tokens,
        source,
        counted,
        counted_source,
        counted_first,
        standard,
        hidden,
        by_kind,
    } = output;
    Output {
        tokens: *tokens,
        counted: *counted,
        counted_first: *counted_first,
        standard: *standard,
        hidden: *hidden,
        by_kind: TextKind::ALL
            .into_iter()
            .zip(by_kind)
            .filter(|(_, tokens)| **tokens > 0)
            .map(|(kind, tokens)| (kind.as_str(), *tokens))
            .collect(),
        source: source.map(Source::as_str),
        counted_source: counted_source.map(Source::as_str),
        tokenizer: tokenizer.map(Label::as_str),
    }
}

fn rates(rates: &rates::Rates) -> Rates {
    let rates::Rates { output, unrated, total, time_per_output_token } = rates;
    Rates {
        output: finite(*output),
        unrated: unrated.map(rates::Unrated::as_str),
        total: finite(*total),
        time_per_output_token: seconds(*time_per_output_token),
    }
}

fn backend(timings: &Timings) -> Backend {
    let Timings { queue, load, prefill, decode, total } = timings;
    Backend {
        queue: seconds(*queue),
        load: seconds(*load),
        prefill: seconds(*prefill),
        decode: seconds(*decode),
        total: seconds(*total),
    }
}

fn quota(quota: &Quotas) -> Quota {
    let Quotas { requests, tokens, input_tokens, output_tokens } = quota;
    Quota {
        requests: allowance(requests),
        tokens: allowance(tokens),
        input_tokens: allowance(input_tokens),
        output_tokens: allowance(output_tokens),
    }
}

fn allowance(allowance: &Allowed) -> Option<Allowance> {
    let Allowed { limit, remaining, reset } = allowance;
    (*allowance != Allowed::default()).then(|| Allowance {
        limit: *limit,
        remaining: *remaining,
        reset: seconds(*reset),
    })
}

pub(super) fn text(name: Option<&Name>) -> Option<&str> {
    name.map(Name::as_str)
}

pub(super) fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}

/// Returns finite numbers only, because JSON cannot represent infinity or NaN.
pub(super) fn finite(number: Option<f64>) -> Option<f64> {
    number.filter(|number| number.is_finite())
}

pub(super) fn some<K, V>(map: BTreeMap<K, V>) -> Option<BTreeMap<K, V>> {
    (!map.is_empty()).then_some(map)
}
