//! Reads response headers in which some backends report token counts, durations and errors.
//!
//! Values in the body overwrite the values of headers, field by field.

use std::time::Duration;

use super::emit::{emit_timings, emit_usage};
use super::event::ticks_of_usd;
use super::json::identifier;
use super::token_count::parse_token_count;
use super::usage::UncachedUsage;
use super::{Event, EventSink, Timings, Usage};
use tokengauge_types::event::Headers;

/// Headers with the duration of the call in milliseconds, from TGI, OpenAI and Bedrock.
const TOTAL_TIME_HEADERS: [&str; 3] =
    ["x-total-time", "openai-processing-ms", "x-amzn-bedrock-invocation-latency"];

/// Emits the counts, durations and errors in the headers. `whole`: the response is not a stream. Durations of a stream
/// are ignored, because they end when the headers are sent.
pub fn read(headers: &Headers, failed: bool, whole: bool, out: &mut impl EventSink) {
    if failed {
        // AWS sends the name of the exception. A colon and a namespace can follow.
        let kind = headers.get("x-amzn-errortype");
        let kind = kind.and_then(|kind| kind.split(':').next());
        if let Some(kind) = kind.and_then(identifier) {
            out(Event::Failed { kind: Some(kind) });
        }
        return;
    }
    let count = |name| parse_token_count(headers.get(name)?);
    let counts = UncachedUsage {
        input: count("x-amzn-bedrock-input-token-count").or(count("x-prompt-tokens")),
        output: count("x-amzn-bedrock-output-token-count").or(count("x-generated-tokens")),
        cache_read: count("x-amzn-bedrock-cache-read-input-token-count"),
        cache_write: count("x-amzn-bedrock-cache-write-input-token-count"),
        ..UncachedUsage::default()
    };
    // LiteLLM. The cost of a stream is not known yet.
    let cost = headers.get("x-litellm-response-cost").filter(|_| whole);
    let cost_ticks = cost.and_then(|cost| cost.trim().parse().ok()).map(ticks_of_usd);
    emit_usage(Usage { cost_ticks, ..counts.usage() }, out);
    let time = |name| milliseconds(headers.get(name)?);
    let total = TOTAL_TIME_HEADERS.into_iter().find_map(time).filter(|_| whole);
    emit_timings(Timings { queue: time("x-queue-time"), total, ..Timings::default() }, out);
}

fn milliseconds(text: &str) -> Option<Duration> {
    let milliseconds: f64 = text.trim().parse().ok()?;
    Duration::try_from_secs_f64(milliseconds / 1e3).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::ParseError;
    use tokengauge_types::label::Name;

    fn headers(pairs: &[(&'static str, &str)]) -> Headers {
        let named = |(name, value): &(&'static str, &str)| Some((*name, Name::new(value)?));
        pairs.iter().filter_map(named).collect()
    }

    fn events(pairs: &[(&'static str, &str)], failed: bool, whole: bool) -> Vec<String> {
        let mut lines = Vec::new();
        read(&headers(pairs), failed, whole, &mut |event| lines.push(format!("{event:?}")));
        lines
    }

    #[test]
    fn reads_counts_and_durations_of_bedrock_tgi_and_openai() {
        let usage = |input, output| {
            format!("{:?}", Event::Usage(&Usage { input, output, ..Usage::default() }))
        };
        let bedrock = [
            ("x-amzn-bedrock-input-token-count", "12"),
            ("x-amzn-bedrock-output-token-count", "34"),
        ];
        assert_eq!(events(&bedrock, false, true), [usage(Some(12), Some(34))]);
        let cached = [
            ("x-amzn-bedrock-input-token-count", "12"),
            ("x-amzn-bedrock-cache-read-input-token-count", "5"),
            ("x-amzn-bedrock-cache-write-input-token-count", "1"),
        ];
        let parts = Usage {
            input: Some(18),
            cache_read: Some(5),
            cache_write: Some(1),
            ..Usage::default()
        };
        let expected = format!("{:?}", Event::Usage(&parts));
        assert_eq!(events(&cached, false, true), [expected]);
        let timings = |queue, total| {
            let milliseconds = |time: Option<u64>| time.map(Duration::from_millis);
            format!(
                "{:?}",
                Event::Timings(&Timings {
                    queue: milliseconds(queue),
                    total: milliseconds(total),
                    ..Timings::default()
                })
            )
        };
        let tgi = [("x-prompt-tokens", "5"), ("x-queue-time", "3"), ("x-total-time", "250")];
        let expected = [usage(Some(5), None), timings(Some(3), Some(250))];
        assert_eq!(events(&tgi, false, true), expected);
        let openai = [("openai-processing-ms", "1500")];
        assert_eq!(events(&openai, false, true), [timings(None, Some(1500))]);
        assert_eq!(events(&openai, false, false), [""; 0], "durations of a stream are ignored");
        let took = [("x-amzn-bedrock-invocation-latency", "433")];
        assert_eq!(events(&took, false, true), [timings(None, Some(433))]);
        let nonsense = [("openai-processing-ms", "-1"), ("x-prompt-tokens", "many")];
        assert_eq!(events(&nonsense, false, true), [""; 0]);
    }

    #[test]
    fn reads_errors_of_aws() {
        let throttled = [("x-amzn-errortype", "ThrottlingException:http://internal.example/")];
        let expected = format!("{:?}", Event::Failed { kind: Some("ThrottlingException") });
        assert_eq!(events(&throttled, true, true), [expected]);
        assert_eq!(events(&throttled, false, true), [""; 0]);
        let sentence = [("x-amzn-errortype", "something went wrong")];
        assert_eq!(
            events(&sentence, true, true),
            [""; 0],
            "error messages are not reported, because they are content"
        );
    }

    #[test]
    fn reads_the_cost_of_a_whole_response() {
        let cost = |text, whole| events(&[("x-litellm-response-cost", text)], false, whole);
        let dollars = |ticks| Usage { cost_ticks: Some(ticks), ..Usage::default() };
        assert_eq!(cost("3.45e-05", true), [format!("{:?}", Event::Usage(&dollars(345_000)))]);
        assert_eq!(cost("3.45e-05", false), [""; 0], "the cost of a stream is not known yet");
        assert_eq!(cost("None", true), [""; 0]);
        assert_eq!(cost("-1", true), [format!("{:?}", Event::ParseError(ParseError::BadCount))]);
    }
}
