//! What the head of an answer says of the call, before any of its body: counts, timings and errors that some backends
//! put into headers, and marks by which a provider is known.
//!
//! The body comes later and its word replaces the head's, field by field.

use std::time::Duration;

use super::failure::identifier;
use super::tally::Tally;
use super::{Event, Timings};
use tokengauge_types::event::Headers;

/// Headers that only one provider or engine sends, whatever their value.
const MARKS: [(&str, &str); 5] = [
    ("x-groq-region", "groq"),
    ("x-ds-trace-id", "deepseek"),
    ("x-ms-deployment-name", "azure.ai.openai"),
    ("azureml-model-session", "azure.ai.openai"),
    ("x-compute-type", "tgi"),
];

/// How long the call took, in milliseconds, in the words of TGI, OpenAI and Bedrock.
const TOTALS: [&str; 3] =
    ["x-total-time", "openai-processing-ms", "x-amzn-bedrock-invocation-latency"];

/// `Server` headers that only one engine sends. Most engines are served by a general web server, which says nothing.
const SERVERS: [(&str, &str); 1] = [("llama.cpp", "llama_cpp")];

/// Calls `out` for everything that the head of an answer says. `whole`: the answer comes in one piece, so that a time
/// up to the head is the time of all the work; of a stream it would be some part of it that nobody defines.
pub fn read(headers: &Headers, failed: bool, whole: bool, out: &mut impl FnMut(Event<'_>)) {
    if failed {
        // AWS: the exception's name, sometimes with a colon and a namespace after it.
        let kind = headers.get("x-amzn-errortype");
        let kind = kind.and_then(|kind| kind.split(':').next());
        if let Some(kind) = kind.and_then(identifier) {
            out(Event::Failed { kind: Some(kind) });
        }
        return;
    }
    let count = |name| headers.get(name)?.parse().ok();
    // Bedrock leaves the cache out of the input here, too.
    let tally = Tally {
        input: count("x-amzn-bedrock-input-token-count").or(count("x-prompt-tokens")),
        output: count("x-amzn-bedrock-output-token-count").or(count("x-generated-tokens")),
        cache_read: count("x-amzn-bedrock-cache-read-input-token-count"),
        cache_write: count("x-amzn-bedrock-cache-write-input-token-count"),
        reasoning: None,
    };
    if let Some(usage) = tally.usage() {
        out(Event::Usage(usage));
    }
    let time = |name| milliseconds(headers.get(name)?);
    let timings = Timings {
        queue: time("x-queue-time"),
        total: TOTALS.into_iter().find_map(time).filter(|_| whole),
        ..Timings::default()
    };
    if timings != Timings::default() {
        out(Event::Timings(timings));
    }
}

/// The provider or engine that the head of an answer gives away.
pub fn provider(headers: &Headers) -> Option<&'static str> {
    let marked = MARKS.iter().find(|(name, _)| headers.get(name).is_some());
    let served = || {
        let server = headers.get("server")?;
        SERVERS.iter().find(|(known, _)| server.eq_ignore_ascii_case(known))
    };
    marked.or_else(served).map(|(_, provider)| *provider)
}

fn milliseconds(text: &str) -> Option<Duration> {
    let milliseconds: f64 = text.trim().parse().ok()?;
    Duration::try_from_secs_f64(milliseconds / 1e3).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Usage;
    use tokengauge_types::label::Name;

    fn headers(pairs: &[(&'static str, &str)]) -> Headers {
        let named = |(name, value): &(&'static str, &str)| Some((*name, Name::new(value)?));
        pairs.iter().filter_map(named).collect()
    }

    fn said(pairs: &[(&'static str, &str)], failed: bool, whole: bool) -> Vec<String> {
        let mut lines = Vec::new();
        read(&headers(pairs), failed, whole, &mut |event| lines.push(format!("{event:?}")));
        lines
    }

    #[test]
    fn counts_and_times_of_bedrock_tgi_and_openai() {
        let usage = |input, output| {
            format!("{:?}", Event::Usage(Usage { input, output, ..Usage::default() }))
        };
        let bedrock = [
            ("x-amzn-bedrock-input-token-count", "12"),
            ("x-amzn-bedrock-output-token-count", "34"),
        ];
        assert_eq!(said(&bedrock, false, true), [usage(Some(12), Some(34))]);
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
        let expected = format!("{:?}", Event::Usage(parts));
        assert_eq!(said(&cached, false, true), [expected]);
        let timings = |queue, total| {
            let milliseconds = |time: Option<u64>| time.map(Duration::from_millis);
            format!(
                "{:?}",
                Event::Timings(Timings {
                    queue: milliseconds(queue),
                    total: milliseconds(total),
                    ..Timings::default()
                })
            )
        };
        let tgi = [("x-prompt-tokens", "5"), ("x-queue-time", "3"), ("x-total-time", "250")];
        let expected = [usage(Some(5), None), timings(Some(3), Some(250))];
        assert_eq!(said(&tgi, false, true), expected);
        let openai = [("openai-processing-ms", "1500")];
        assert_eq!(said(&openai, false, true), [timings(None, Some(1500))]);
        assert_eq!(said(&openai, false, false), [""; 0], "not of a stream");
        let took = [("x-amzn-bedrock-invocation-latency", "433")];
        assert_eq!(said(&took, false, true), [timings(None, Some(433))]);
        let nonsense = [("openai-processing-ms", "-1"), ("x-prompt-tokens", "many")];
        assert_eq!(said(&nonsense, false, true), [""; 0]);
    }

    #[test]
    fn errors_of_aws() {
        let throttled = [("x-amzn-errortype", "ThrottlingException:http://internal.example/")];
        let expected = format!("{:?}", Event::Failed { kind: Some("ThrottlingException") });
        assert_eq!(said(&throttled, true, true), [expected]);
        assert_eq!(said(&throttled, false, true), [""; 0]);
        let sentence = [("x-amzn-errortype", "something went wrong")];
        assert_eq!(said(&sentence, true, true), [""; 0], "messages are content");
    }

    #[test]
    fn providers_that_give_themselves_away() {
        let of = |pairs: &[(&'static str, &str)]| provider(&headers(pairs));
        assert_eq!(of(&[("server", "llama.cpp")]), Some("llama_cpp"));
        assert_eq!(of(&[("server", "uvicorn")]), None);
        assert_eq!(of(&[("x-groq-region", "us-west-1")]), Some("groq"));
        assert_eq!(of(&[("x-compute-type", "1-a10g"), ("server", "x")]), Some("tgi"));
        assert_eq!(of(&[]), None);
    }
}
