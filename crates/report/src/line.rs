//! Parses the log fields that the evaluation reads. Other fields are skipped.
//!
//! [The request log page](../../../docs/reference/request-log.md) describes each field.

use std::borrow::Cow;
use std::ops::Deref;

use serde::Deserialize;

use crate::row::{NumericField, Outcome, Quality, QualitySet, Row};
use crate::time;

/// A string that is borrowed from the log line if it contains no escapes. serde always copies an `Option<Cow<str>>`,
/// but can borrow an `Option` of this type.
#[derive(Debug, Deserialize)]
pub struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct Line<'a> {
    time: Text<'a>,
    pub outcome: Text<'a>,
    pub error_type: Option<Text<'a>>,
    #[serde(default)]
    times: Times,
    route: Option<Route<'a>>,
    pub identity: Option<Identity<'a>>,
    pub agent: Option<Agent<'a>>,
    #[serde(default)]
    attempts: Attempts,
    pub call: Option<Call<'a>>,
    pub config: Option<Config<'a>>,
}

#[derive(Debug, Default, Deserialize)]
struct Times {
    first_token: Option<f64>,
    last_token: Option<f64>,
    end: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Route<'a> {
    name: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct Identity<'a> {
    pub tenant: Option<Text<'a>>,
    pub session: Option<Text<'a>>,
    pub sub_agent: Option<Text<'a>>,
    pub variant: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct Agent<'a> {
    pub name: Option<Text<'a>>,
}

#[derive(Debug, Default, Deserialize)]
struct Attempts {
    resend_count: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct Config<'a> {
    pub hash: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct Call<'a> {
    labels: Option<Labels<'a>>,
    request: Option<Request<'a>>,
    response: Option<Response<'a>>,
    length_buckets: Option<LengthBuckets<'a>>,
    pub cost: Option<Cost<'a>>,
    #[serde(default)]
    rates: Rates,
    #[serde(default)]
    usage: Usage,
    #[serde(default)]
    output: Output,
    choices: Option<Choices>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct Labels<'a> {
    pub model: Option<Text<'a>>,
    pub provider: Option<Text<'a>>,
    pub operation: Option<Text<'a>>,
    pub server_address: Option<Text<'a>>,
    pub stream: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Request<'a> {
    conversation: Option<Text<'a>>,
    prompt_bytes: Option<f64>,
    #[serde(default)]
    background: bool,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Response<'a> {
    finish_reasons: Option<Vec<Option<Text<'a>>>>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct LengthBuckets<'a> {
    input: Option<Text<'a>>,
    output: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct Cost<'a> {
    amount: f64,
    pub currency: Text<'a>,
    source: Option<Text<'a>>,
    parts: Option<CostParts>,
}

/// Cost of each kind of token, and of the request. A part without a cost is absent.
#[derive(Debug, Default, Deserialize)]
pub struct CostParts {
    pub input: Option<f64>,
    pub cache_read: Option<f64>,
    pub cache_write: Option<f64>,
    pub cache_write_1h: Option<f64>,
    pub output: Option<f64>,
    pub reasoning: Option<f64>,
    pub request: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
struct Rates {
    output: Option<f64>,
    time_per_output_token: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
struct Usage {
    input: Option<f64>,
    output: Option<f64>,
    reasoning: Option<f64>,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
    cache_write_1h: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
struct Output {
    tokens: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Choices {
    complete: u64,
    empty: u64,
    refused: u64,
    filtered: u64,
    tool_json_invalid: u64,
    unfinished: u64,
}

impl Choices {
    /// Returns the counts in the order of [`Quality::ALL`].
    const fn counts(&self) -> [u64; Quality::ALL.len()] {
        [
            self.complete,
            self.empty,
            self.refused,
            self.filtered,
            self.tool_json_invalid,
            self.unfinished,
        ]
    }
}

impl<'a> Line<'a> {
    /// Parses one line. Returns `None` if `text` is not JSON or not a line of a request log.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// Returns the day on which the request started, such as `2026-10-31`. Times of a log are in UTC.
    pub fn day(&self) -> Option<&str> {
        self.time.get(..10)
    }

    /// Returns the hour in which the request started, such as `2026-10-31T23`.
    pub fn hour(&self) -> Option<&str> {
        self.time.get(..13)
    }

    /// Returns the cost of each kind of token. Lines of older versions have only the whole cost.
    pub fn cost_parts(&self) -> Option<&CostParts> {
        self.call.as_ref()?.cost.as_ref()?.parts.as_ref()
    }

    /// Returns the month in which the request started, such as `2026-10`.
    pub fn month(&self) -> Option<&str> {
        self.time.get(..7)
    }

    pub fn labels(&self) -> Option<&Labels<'a>> {
        self.call.as_ref()?.labels.as_ref()
    }

    pub fn route(&self) -> Option<&str> {
        self.route.as_ref()?.name.as_deref()
    }

    pub fn conversation(&self) -> Option<&str> {
        self.call.as_ref()?.request.as_ref()?.conversation.as_deref()
    }

    /// Returns the finish reason of the first choice.
    pub fn finish_reason(&self) -> Option<&str> {
        let reasons = self.call.as_ref()?.response.as_ref()?.finish_reasons.as_ref()?;
        reasons.first()?.as_deref()
    }

    /// Returns the length bucket of the prompt, such as `512-2k`. Uses the bucket in the log or computes it from the
    /// number of input tokens.
    pub fn input_bucket(&self) -> Option<&str> {
        let call = self.call.as_ref()?;
        let logged = call.length_buckets.as_ref().and_then(|buckets| buckets.input.as_deref());
        logged.or_else(|| call.usage.input.map(length_bucket))
    }

    /// Returns the length bucket of the response. Uses the bucket in the log or computes it from the number of output
    /// tokens.
    pub fn output_bucket(&self) -> Option<&str> {
        let call = self.call.as_ref()?;
        let logged = call.length_buckets.as_ref().and_then(|buckets| buckets.output.as_deref());
        logged.or_else(|| call.output.tokens.map(length_bucket))
    }

    /// Sets the tokens and the cost of the row, and which of them are estimates.
    ///
    /// The rule is that of the proxy's cost: if the provider reports no output, tokengauge's count replaces it. If the
    /// provider reports no input for a call that has output, the size of the prompt in bytes ÷ 4 replaces it. A
    /// response that is generated in the background is not estimated, because a later call fetches its usage.
    fn set_usage(row: &mut Row, call: &Call<'_>) {
        let usage = &call.usage;
        let generated = call.output.tokens.filter(|tokens| *tokens > 0.0);
        // A reported output of 0 beside generated text is a placeholder.
        let reported = usage.output.filter(|output| *output > 0.0 || generated.is_none());
        let request = call.request.as_ref();
        let in_background = request.is_some_and(|request| request.background);
        let is_estimated = !in_background || usage.input.is_some() || reported.is_some();
        let generated = generated.filter(|_| is_estimated);
        let prompt = request.and_then(|request| request.prompt_bytes);
        let prompt = prompt.map(|bytes| (bytes / BYTES_PER_TOKEN).ceil());
        let prompt = prompt.filter(|_| reported.is_some() || generated.is_some());
        row.set_or_estimate(NumericField::Input, usage.input, prompt);
        row.set_or_estimate(NumericField::Output, reported, generated);
        row.set(NumericField::Generated, call.output.tokens);
        row.set(NumericField::Reasoning, usage.reasoning);
        row.set(NumericField::Cached, usage.cache_read);
        row.set(NumericField::CacheWritten, usage.cache_write);
        row.set(NumericField::CacheWrittenHour, usage.cache_write_1h);
        let cost = call.cost.as_ref();
        let amount = cost.map(|cost| cost.amount);
        let is_reported = cost.and_then(|cost| cost.source.as_deref()) == Some("reported");
        let (known, estimate) = if is_reported { (amount, None) } else { (None, amount) };
        row.set_or_estimate(NumericField::Cost, known, estimate);
    }

    /// Returns a row with the numbers of the line. Returns `None` if the time or the outcome is invalid, or if the
    /// line is not an API call.
    pub fn row(&self) -> Option<Row> {
        let call = self.call.as_ref()?;
        let mut row = Row::new(time::parse(&self.time)?, Outcome::parse(&self.outcome)?);
        let streams = call.labels.as_ref().is_some_and(|labels| labels.stream == Some(true));
        let Times { first_token, last_token, end } = self.times;
        row.set(NumericField::OutputTps, call.rates.output);
        row.set(NumericField::Ttft, first_token.filter(|_| streams));
        row.set(NumericField::Itl, call.rates.time_per_output_token);
        row.set(NumericField::Duration, end);
        row.set(NumericField::First, first_token);
        row.set(NumericField::Last, last_token);
        row.is_resent = self.attempts.resend_count.map(|count| count > 0);
        Self::set_usage(&mut row, call);
        if let Some(choices) = &call.choices {
            row.qualities = QualitySet::from_counts(choices.counts());
        }
        Some(row)
    }
}

/// Bytes of prompt text per estimated input token, as in the cost that the proxy computes.
const BYTES_PER_TOKEN: f64 = 4.0;

/// Length buckets: the upper bound in tokens (exclusive), and the name. Each bound is four times the previous bound,
/// so that requests in one bucket take similar times for prefill and decode.
const BUCKETS: [(f64, &str); 5] = [
    (128.0, "<128"),
    (512.0, "128-512"),
    (2_048.0, "512-2k"),
    (8_192.0, "2k-8k"),
    (32_768.0, "8k-32k"),
];

/// Returns the length bucket of a token count. A count that equals a bound belongs to the larger bucket.
pub fn length_bucket(tokens: f64) -> &'static str {
    let found = BUCKETS.iter().find(|(above, _)| tokens < *above);
    found.map_or(">=32k", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"{"time":"2026-01-02T03:04:05.000000006Z","outcome":"ok","unknown":{"deep":[1,{"a":null}]},
        "times":{"first_token":0.5,"last_token":2.5,"end":3},"route":{"name":"main","position":"gateway"},
        "identity":{"variant":"b","session":"s\u0041"},"config":{"hash":"abc"},
        "call":{"labels":{"model":"m","stream":true},"rates":{"output":40.5,"time_per_output_token":0.025},
        "usage":{"input":100,"output":90,"reasoning":10,"cache_read":7},"output":{"tokens":81.0},
        "response":{"streamed":true,"finish_reasons":["stop","length"]},
        "choices":{"complete":1,"empty":1},"cost":{"amount":0.25,"currency":"USD","source":"reported"},"length_buckets":{"output":"1k-4k"}}}"#;

    #[test]
    fn reads_numbers_and_strings() {
        let line = Line::parse(FULL.as_bytes()).unwrap();
        let row = line.row().unwrap();
        let numbers = [
            (NumericField::OutputTps, 40.5),
            (NumericField::Ttft, 0.5),
            (NumericField::Itl, 0.025),
            (NumericField::Duration, 3.0),
            (NumericField::Generated, 81.0),
            (NumericField::Input, 100.0),
            (NumericField::Output, 90.0),
            (NumericField::Reasoning, 10.0),
            (NumericField::Cached, 7.0),
            (NumericField::Cost, 0.25),
        ];
        for (number, expected) in numbers {
            assert_eq!(row.value(number), Some(expected), "{number:?}");
        }
        let estimated = [NumericField::Input, NumericField::Output, NumericField::Cost];
        assert_eq!(estimated.map(|number| row.is_estimated(number)), [false; 3]);
        assert_eq!(row.start % 1_000_000_000, 6);
        assert_eq!(row.qualities.contains(Quality::Empty), Some(true));
        assert_eq!(row.qualities.contains(Quality::Complete), Some(false));
        assert_eq!((line.finish_reason(), line.route()), (Some("stop"), Some("main")));
        assert_eq!((line.input_bucket(), line.output_bucket()), (Some("<128"), Some("1k-4k")));
        assert_eq!(line.identity.unwrap().session.as_deref(), Some("sA"));
    }

    #[test]
    fn missing_fields_are_undefined() {
        let old = r#"{"time":"2026-01-02T03:04:05Z","outcome":"error","times":{"end":3},"call":{"labels":{"model":"m","stream":false}}}"#;
        let line = Line::parse(old.as_bytes()).unwrap();
        let row = line.row().unwrap();
        assert_eq!(row.value(NumericField::Ttft), None);
        assert_eq!(row.value(NumericField::Cost), None);
        assert_eq!(row.qualities.contains(Quality::Empty), None);
        assert_eq!((line.finish_reason(), line.output_bucket()), (None, None));
        let plain = r#"{"time":"2026-01-02T03:04:05Z","outcome":"ok","times":{"end":3}}"#;
        assert!(Line::parse(plain.as_bytes()).unwrap().row().is_none());
    }

    /// The cases are those of `BilledTokens` in the package `measure`, which computes the logged cost.
    #[test]
    fn estimates_tokens_by_the_rule_of_the_cost() {
        let of = |call: &str| {
            let text = format!(
                r#"{{"time":"2026-01-02T03:04:05Z","outcome":"cancelled","call":{{{call}}}}}"#
            );
            let row = Line::parse(text.as_bytes()).unwrap().row().unwrap();
            [NumericField::Input, NumericField::Output]
                .map(|number| (row.value(number), row.is_estimated(number)))
        };
        let estimated = |tokens| (Some(tokens), true);
        let (reported, none) = (|tokens| (Some(tokens), false), (None, false));
        let prompt = r#""request":{"prompt_bytes":4001}"#;
        let output = r#""output":{"tokens":50,"counted":50}"#;
        assert_eq!(of(&format!("{prompt},{output}")), [estimated(1_001.0), estimated(50.0)]);
        assert_eq!(of(prompt), [none, none], "nothing was used");
        let usage = r#""usage":{"input":7,"output":0}"#;
        assert_eq!(of(&format!("{prompt},{output},{usage}")), [reported(7.0), estimated(50.0)]);
        assert_eq!(of(&format!("{prompt},{usage}")), [reported(7.0), reported(0.0)]);
        let usage = r#""usage":{"output":9}"#;
        assert_eq!(of(&format!("{prompt},{usage}")), [estimated(1_001.0), reported(9.0)]);
        let background = r#""request":{"prompt_bytes":4001,"background":true}"#;
        assert_eq!(of(&format!("{background},{output}")), [none, none]);
    }

    #[test]
    fn a_non_streaming_response_has_no_time_to_first_token() {
        let text = FULL.replace("\"stream\":true", "\"stream\":false");
        let row = Line::parse(text.as_bytes()).unwrap().row().unwrap();
        assert_eq!(row.value(NumericField::Ttft), None);
        assert_eq!(row.value(NumericField::First), Some(0.5));
    }

    #[test]
    fn rejects_other_lines() {
        for text in [
            "",
            "nonsense",
            "[]",
            "{}",
            "{\"time\":5,\"outcome\":\"ok\"}",
            "\u{0}",
            "{\"time\":\"\"",
        ] {
            assert!(Line::parse(text.as_bytes()).is_none(), "{text}");
        }
        assert!(Line::parse(&[0xff, 0xfe]).is_none());
    }

    #[test]
    fn a_bound_belongs_to_the_bucket_above() {
        for (tokens, bucket) in [
            (0.0, "<128"),
            (127.0, "<128"),
            (128.0, "128-512"),
            (512.0, "512-2k"),
            (2_047.9, "512-2k"),
            (8_192.0, "8k-32k"),
            (32_768.0, ">=32k"),
            (1e9, ">=32k"),
        ] {
            assert_eq!(length_bucket(tokens), bucket, "{tokens}");
        }
    }
}
