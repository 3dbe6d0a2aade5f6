//! Describes how a simulated model behaves: latency, speed, usage reports and faults.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Latency, speed and faults of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    pub name: String,
    /// Fixed part of the time to the first token. Each prompt token adds `prefill_per_token`.
    pub prefill: Duration,
    pub prefill_per_token: Duration,
    /// Fixed part of the time of a decode step. Each response in generation adds `step_per_stream`.
    pub step: Duration,
    pub step_per_stream: Duration,
    /// Maximum random deviation of the time of a decode step, as a ratio. For example, 0.1 means up to ±10 %.
    pub jitter: f64,
    /// Response length in tokens. A limit in the request can shorten the response.
    pub tokens: RangeInclusive<u32>,
    pub tokens_per_chunk: u32,
    pub reasoning: Reasoning,
    /// Whether the model calls a tool whenever the request offers one. If false, the model calls a tool only if the
    /// request requires this.
    pub tool_calls: bool,
    pub usage: UsagePolicy,
    /// Whether a stream starts with a chunk that contains only the role.
    pub role_chunk: bool,
    /// Interval of keep-alive comments (`: ping`) in a stream while no other data is sent.
    pub ping: Option<Duration>,
    /// Maximum number of responses that are generated at the same time. Other requests wait in order of arrival.
    pub slots: Option<u32>,
    /// Part of each prompt that is in the prefix cache, as a ratio from 0 to 1. This part takes no prefill time.
    pub prefix_hits: f64,
    /// Maximum number of requests per minute, for all clients together. Other requests get status 429.
    pub requests_per_minute: Option<u32>,
    pub faults: Faults,
}

/// Whether a model generates reasoning before the response text, and whether the response contains this reasoning.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Reasoning {
    #[default]
    None,
    /// Reasoning takes time and counts as output, but is not sent. The range is its length in tokens.
    Hidden(RangeInclusive<u32>),
    /// Reasoning is sent in the field `reasoning_content`. The range is its length in tokens.
    Streamed(RangeInclusive<u32>),
}

/// When a stream reports usage in its last chunk. A response without streaming reports usage for every policy except
/// `Never`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum UsagePolicy {
    Never,
    /// Only if the request sets `stream_options.include_usage`, like OpenAI.
    #[default]
    OnRequest,
    Always,
}

/// Probabilities and settings of injected faults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// Probability that a stream pauses, as a ratio from 0 to 1.
    pub stall: f64,
    /// Number of tokens before the pause.
    pub stall_after: u32,
    pub stall_length: Duration,
    /// Probability that a request gets an error status instead of a response.
    pub failure: f64,
    pub status: u16,
    /// Probability that the connection breaks during the response.
    pub cut: f64,
    /// Number of tokens before the connection breaks.
    pub cut_after: u32,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            stall: 0.0,
            stall_after: 0,
            stall_length: Duration::ZERO,
            failure: 0.0,
            status: 500,
            cut: 0.0,
            cut_after: 0,
        }
    }
}

/// Name of a predefined model, and a function that changes the profile of a typical model into that of this model.
type Preset = (&'static str, fn(&mut Profile));

const PRESETS: [Preset; 4] = [
    ("sim-typical", |_| ()),
    ("sim-fast", |it| {
        it.prefill /= 2;
        it.step = Duration::from_millis(4);
        it.step_per_stream = Duration::from_micros(300);
        it.tokens_per_chunk = 3;
        it.usage = UsagePolicy::Always;
    }),
    ("sim-slow", |it| {
        it.prefill *= 20;
        it.step = Duration::from_millis(60);
        it.usage = UsagePolicy::Never;
        it.ping = Some(Duration::from_millis(100));
    }),
    ("sim-reasoning", |it| {
        it.reasoning = Reasoning::Streamed(40..=120);
    }),
];

impl Profile {
    /// Returns the profile of an 8-billion-parameter model in bf16 on one NVIDIA H200 GPU. The figures were measured
    /// with a plain decode loop, not with a tuned serving engine.
    ///
    /// A decode step takes 7.5 ms plus 1.37 ms per stream, within 4 % of the measurements. A single stream generates
    /// 113 tokens per second, and the GPU saturates near 700 tokens per second. Prefill time is linear from 128 to
    /// 8,192 prompt tokens, within 14 ms.
    pub fn typical(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            prefill: Duration::from_millis(12),
            prefill_per_token: Duration::from_nanos(29_600),
            step: Duration::from_micros(7_500),
            step_per_stream: Duration::from_micros(1_370),
            jitter: 0.02,
            tokens: 60..=240,
            tokens_per_chunk: 1,
            reasoning: Reasoning::None,
            tool_calls: false,
            usage: UsagePolicy::OnRequest,
            role_chunk: true,
            ping: None,
            slots: None,
            prefix_hits: 0.0,
            requests_per_minute: None,
            faults: Faults::default(),
        }
    }

    /// Returns the predefined model with this name. For another name, returns the typical profile with this name.
    pub fn named(name: &str) -> Self {
        let mut profile = Self::typical(name);
        if let Some((_, adjust)) = PRESETS.iter().find(|(preset, _)| *preset == name) {
            adjust(&mut profile);
        }
        profile
    }

    /// Returns the default models: `sim-typical`, `sim-fast`, `sim-slow`, `sim-reasoning`.
    pub fn defaults() -> Vec<Self> {
        PRESETS.iter().map(|(name, _)| Self::named(name)).collect()
    }

    /// Sets one option. Returns false if the key is unknown. The error lists the valid values.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, &'static str> {
        match key {
            "prefill-ms" => self.prefill = millis(value)?,
            "prefill-us-per-token" => self.prefill_per_token = micros(value)?,
            "step-ms" => self.step = millis(value)?,
            "batch-ms" => self.step_per_stream = millis(value)?,
            "jitter" => self.jitter = ratio(value)?,
            "tokens" => self.tokens = range(value)?,
            "chunk-tokens" => self.tokens_per_chunk = parsed(value)?,
            "hidden" => self.reasoning = Reasoning::Hidden(range(value)?),
            "reasoning" => self.reasoning = Reasoning::Streamed(range(value)?),
            "tools" => self.tool_calls = parsed(value)?,
            "role-chunk" => self.role_chunk = parsed(value)?,
            "usage" => self.usage = parsed(value)?,
            "ping-ms" => self.ping = Some(millis(value)?).filter(|every| !every.is_zero()),
            "slots" => self.slots = Some(positive(value)?),
            "prefix-hits" => self.prefix_hits = ratio(value)?,
            "requests-per-minute" => self.requests_per_minute = Some(positive(value)?),
            "stall" => self.faults.stall = ratio(value)?,
            "stall-after" => self.faults.stall_after = parsed(value)?,
            "stall-ms" => self.faults.stall_length = millis(value)?,
            "fail" => self.faults.failure = ratio(value)?,
            "status" => {
                self.faults.status = within(value, 400..=599, "a status between 400 and 599")?
            }
            "cut" => self.faults.cut = ratio(value)?,
            "cut-after" => self.faults.cut_after = parsed(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Option keys that [`Profile::from_str`] accepts, for help texts.
pub const KEYS: &str = "prefill-ms, prefill-us-per-token, step-ms, batch-ms, jitter, tokens, chunk-tokens, hidden, \
                        reasoning, tools, role-chunk, usage, ping-ms, slots, prefix-hits, requests-per-minute, stall, stall-after, stall-ms, fail, status, cut, \
                        cut-after";

/// Parses `NAME` or `NAME:key=value,key=value…`. The options change the predefined model with this name.
impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        // A name such as `llama3:8b` can contain a colon, too. Options start after the last colon and contain an equals
        // sign.
        let options = text.rsplit_once(':').filter(|(_, options)| options.contains('='));
        let (name, options) = options.unwrap_or((text, ""));
        if name.is_empty() {
            return Err(ProfileError::NoName);
        }
        let mut profile = Self::named(name);
        for option in options.split(',').filter(|option| !option.is_empty()) {
            let (key, value) =
                option.split_once('=').ok_or_else(|| ProfileError::NoValue(option.to_owned()))?;
            let (key, value) = (key.trim(), value.trim());
            let is_known = profile.set(key, value).map_err(|wanted| ProfileError::BadValue {
                key: key.to_owned(),
                value: value.to_owned(),
                wanted,
            })?;
            if !is_known {
                return Err(ProfileError::UnknownKey(key.to_owned()));
            }
        }
        Ok(profile)
    }
}

#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ProfileError {
    #[error("missing model name; write NAME[:key=value,…]")]
    NoName,
    #[error("`{0}` has no value; write key=value")]
    NoValue(String),
    #[error("unknown key `{0}`; expected one of {KEYS}")]
    UnknownKey(String),
    #[error("`{key}={value}` is not {wanted}")]
    BadValue { key: String, value: String, wanted: &'static str },
}

fn parsed<T: FromStr>(value: &str) -> Result<T, &'static str> {
    let wanted = "a valid value (a whole number, true or false, or never, on-request or always)";
    value.parse().map_err(|_| wanted)
}

fn within<T: FromStr + PartialOrd>(
    value: &str,
    allowed: RangeInclusive<T>,
    wanted: &'static str,
) -> Result<T, &'static str> {
    value.parse().ok().filter(|number| allowed.contains(number)).ok_or(wanted)
}

fn positive(value: &str) -> Result<u32, &'static str> {
    within(value, 1..=u32::MAX, "a whole number from 1")
}

fn ratio(value: &str) -> Result<f64, &'static str> {
    within(value, 0.0..=1.0, "a ratio between 0 and 1")
}

/// Parses a number of milliseconds. A time of more than an hour is probably a typing error and is rejected.
fn millis(value: &str) -> Result<Duration, &'static str> {
    let millis = within(value, 0.0..=3.6e6, "a number of milliseconds up to 3600000")?;
    Ok(Duration::from_secs_f64(millis / 1e3))
}

fn micros(value: &str) -> Result<Duration, &'static str> {
    let micros = within(value, 0.0..=1e6, "a number of microseconds up to 1000000")?;
    Ok(Duration::from_secs_f64(micros / 1e6))
}

/// Parses a number or a range, such as `50` or `50-200`.
fn range(value: &str) -> Result<RangeInclusive<u32>, &'static str> {
    let (from, to) = value.split_once('-').unwrap_or((value, value));
    let range = from.trim().parse().ok().zip(to.trim().parse().ok());
    let range = range.filter(|(from, to)| from <= to).map(|(from, to)| from..=to);
    range.ok_or("a number or a range such as 50-200")
}

impl FromStr for UsagePolicy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "never" => Ok(Self::Never),
            "on-request" => Ok(Self::OnRequest),
            "always" => Ok(Self::Always),
            _ => Err(()),
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, prefill, prefill_per_token, step, step_per_stream, tokens, .. } = self;
        let (from, to) = (tokens.start(), tokens.end());
        write!(
            f,
            "{name}: prefill {prefill:?} + {prefill_per_token:?} per prompt token, step {step:?} + \
             {step_per_stream:?} per stream, {from} to {to} tokens"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typical_model_matches_the_measurements() {
        let typical = Profile::typical("t");
        let step =
            |batch: u32| (typical.step + typical.step_per_stream * batch).as_secs_f64() * 1e3;
        for (batch, measured) in
            [(1, 8.9), (4, 13.2), (8, 19.0), (16, 30.2), (32, 52.0), (64, 95.6), (128, 182.8)]
        {
            assert!((step(batch) / measured - 1.0).abs() < 0.04, "batch {batch}");
        }
        let prefill = |tokens: u32| {
            (typical.prefill + typical.prefill_per_token * tokens).as_secs_f64() * 1e3
        };
        for (tokens, measured) in [(128, 21.7), (512, 20.4), (2_048, 59.6), (8_192, 254.7)] {
            assert!((prefill(tokens) - measured).abs() < 14.0, "{tokens} tokens");
        }
    }

    #[test]
    fn options_override_the_default_of_that_name() {
        let profile: Profile =
            "sim-fast:step-ms=2.5,tokens=10-20,usage=never,fail=0.25,status=429,ping-ms=0"
                .parse()
                .unwrap();
        assert_eq!(profile.step, Duration::from_micros(2_500));
        assert_eq!(profile.tokens, 10..=20);
        assert_eq!(profile.usage, UsagePolicy::Never);
        assert_eq!((profile.faults.failure, profile.faults.status), (0.25, 429));
        assert_eq!(profile.tokens_per_chunk, 3, "the default of sim-fast");
        assert_eq!(profile.ping, None);
    }

    #[test]
    fn a_name_may_contain_a_colon() {
        assert_eq!("llama3:8b".parse::<Profile>().unwrap().name, "llama3:8b");
        let profile: Profile = "llama3:8b:step-ms=1".parse().unwrap();
        assert_eq!((profile.name.as_str(), profile.step), ("llama3:8b", Duration::from_millis(1)));
    }

    #[test]
    fn errors_name_the_problem() {
        let error = |text: &str| text.parse::<Profile>().unwrap_err().to_string();
        assert!(error("m:speed=3").contains("unknown key `speed`"));
        assert!(error("m:jitter=2").contains("`jitter=2` is not a ratio"));
        assert!(error("m:slots=0").contains("whole number from 1"));
        assert!(error("m:status=200").contains("between 400 and 599"));
        assert!(error("m:tokens=9-3").contains("range"));
        assert!(error(":tokens=9").contains("name"));
    }

    #[test]
    fn accepts_every_key_of_the_help_text() {
        for key in KEYS.split(", ") {
            let known = |value| Profile::typical("m").set(key, value) != Ok(false);
            assert!(known("1"), "{key}");
        }
    }
}
