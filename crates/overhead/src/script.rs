//! A script describes a request and its response, so that load generator and backend know every byte in advance.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail};

/// The header that carries the script to the backend. All proxies forward it.
pub const HEADER: &str = "x-script";

/// Limits of the numbers in a script. They bound the memory of both programs: a response has at most 25 MB.
const MAX_TOKENS: u32 = 100_000;
const MAX_PROMPT_BYTES: u32 = 8_000_000;
const MAX_GAP_US: u64 = 60_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Chat completion as server-sent events, one event per token.
    Stream,
    /// Chat completion as one JSON document.
    Json,
    /// Embeddings in base64, as OpenAI's clients request them; one input per token of the script.
    Embeddings,
}

/// What the backend answers. The text form is `kind=stream,model=gpt-4o,tokens=100,gap-us=20000,prompt-bytes=200,gzip=no`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Script {
    pub kind: Kind,
    /// A model with a known tokenizer gives a proxy that counts tokens the work of a real deployment.
    pub model: String,
    pub tokens: u32,
    /// Time between two chunks. With 0, the backend writes as fast as the connection accepts.
    pub gap_us: u64,
    /// Approximate size of the prompt's text.
    pub prompt_bytes: u32,
    /// Compresses a stream, with a flush after each event.
    pub gzip: bool,
}

impl Script {
    pub fn path(&self) -> &'static str {
        match self.kind {
            Kind::Stream | Kind::Json => "/v1/chat/completions",
            Kind::Embeddings => "/v1/embeddings",
        }
    }

    /// Returns the time between the first and the last chunk.
    pub fn duration_us(&self) -> u64 {
        self.gap_us * u64::from(self.tokens)
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Stream => "stream",
            Kind::Json => "json",
            Kind::Embeddings => "embeddings",
        };
        let gzip = if self.gzip { "yes" } else { "no" };
        let Self { model, tokens, gap_us, prompt_bytes, .. } = self;
        write!(
            f,
            "kind={kind},model={model},tokens={tokens},gap-us={gap_us},prompt-bytes={prompt_bytes},gzip={gzip}"
        )
    }
}

impl FromStr for Script {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut script = Self {
            kind: Kind::Stream,
            model: "gpt-4o".to_owned(),
            tokens: 100,
            gap_us: 0,
            prompt_bytes: 200,
            gzip: false,
        };
        for setting in text.split(',').filter(|it| !it.is_empty()) {
            let (key, value) = setting
                .split_once('=')
                .with_context(|| format!("script: \"{setting}\" is not KEY=VALUE"))?;
            script.set(key, value)?;
        }
        if script.gzip && script.kind != Kind::Stream {
            bail!("script: gzip=yes needs kind=stream");
        }
        Ok(script)
    }
}

impl Script {
    fn set(&mut self, key: &str, value: &str) -> anyhow::Result<()> {
        match key {
            "kind" => {
                self.kind = match value {
                    "stream" => Kind::Stream,
                    "json" => Kind::Json,
                    "embeddings" => Kind::Embeddings,
                    _ => {
                        bail!("script: unknown kind \"{value}\"; allowed: stream, json, embeddings")
                    }
                }
            }
            "model" if is_model(value) => self.model = value.to_owned(),
            "model" => {
                bail!("script: model is \"{value}\"; allowed: letters, digits, \"-\" and \".\"")
            }
            "tokens" => self.tokens = number(key, value, 1, MAX_TOKENS)?,
            "gap-us" => self.gap_us = number(key, value, 0, MAX_GAP_US)?,
            "prompt-bytes" => self.prompt_bytes = number(key, value, 0, MAX_PROMPT_BYTES)?,
            "gzip" => {
                self.gzip = match value {
                    "yes" => true,
                    "no" => false,
                    _ => bail!("script: gzip is \"{value}\"; allowed: yes, no"),
                }
            }
            _ => bail!(
                "script: unknown key \"{key}\"; allowed: kind, model, tokens, gap-us, prompt-bytes, gzip"
            ),
        }
        Ok(())
    }
}

fn is_model(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'.'))
}

fn number<N>(key: &str, value: &str, least: N, most: N) -> anyhow::Result<N>
where
    N: FromStr + PartialOrd + fmt::Display + Copy,
{
    match value.parse() {
        Ok(number) if number >= least && number <= most => Ok(number),
        _ => bail!("script: {key} is \"{value}\"; allowed: {least} to {most}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_script_reads_as_the_same_script() {
        for text in [
            "kind=stream,model=gpt-4o,tokens=100,gap-us=20000,prompt-bytes=200,gzip=yes",
            "kind=json,model=gpt-4,tokens=1,gap-us=0,prompt-bytes=300000,gzip=no",
            "kind=embeddings,model=text-embedding-3-small,tokens=16,gap-us=0,prompt-bytes=0,gzip=no",
        ] {
            assert_eq!(text.parse::<Script>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn errors_name_key_value_and_what_is_allowed() {
        for (text, expected) in [
            ("tokens=0", "script: tokens is \"0\"; allowed: 1 to 100000"),
            ("kind=text", "script: unknown kind \"text\"; allowed: stream, json, embeddings"),
            (
                "token=1",
                "script: unknown key \"token\"; allowed: kind, model, tokens, gap-us, prompt-bytes, gzip",
            ),
            ("model=a\"b", "script: model is \"a\"b\"; allowed: letters, digits, \"-\" and \".\""),
            ("gzip", "script: \"gzip\" is not KEY=VALUE"),
            ("kind=json,gzip=yes", "script: gzip=yes needs kind=stream"),
        ] {
            assert_eq!(text.parse::<Script>().unwrap_err().to_string(), expected);
        }
    }
}
