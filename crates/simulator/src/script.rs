//! Generates the whole content of a response, divided into chunks, before the first byte is sent.
//!
//! The content depends only on the request, the model and a seed. The script also tracks how much of the text was
//! sent.

use fastrand::Rng;

use crate::ledger::Usage;
use crate::profile::{Profile, Reasoning, UsagePolicy};
use crate::request::{Api, Overrides, Request};
use crate::sentences::Sentences;
use crate::tokens;

/// Maximum length of a response in tokens, which is the context length of a 128k model.
pub const MAX_RESPONSE_TOKENS: u32 = 131_072;

/// The content of a whole response, and the order in which it is sent.
#[derive(Debug, Default)]
pub struct Script {
    pub choices: u32,
    pub parts: Vec<Part>,
    pub writes: Vec<ScriptedWrite>,
    pub finish: &'static str,
    pub tool: Option<String>,
    /// Number of decode steps for hidden reasoning, which the model generates but does not send.
    pub hidden: u32,
    pub prompt_tokens: u64,
}

/// All text of one kind in one choice.
#[derive(Debug)]
pub struct Part {
    pub choice: u32,
    pub kind: PartKind,
    pub text: String,
    pub sent: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PartKind {
    Text,
    Reasoning,
    Tool,
}

/// One write to the connection. The number in `Role`, `ToolCallStart` and `Finish` is the number of the choice.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ScriptedWrite {
    Role(u32),
    ToolCallStart(u32),
    /// Sends the text of the part with the index `part`, from the end of its last chunk to byte `end`. The text takes
    /// `steps` decode steps.
    Chunk {
        part: u32,
        end: u32,
        steps: u32,
    },
    Finish(u32),
    Usage,
    Done,
}

impl Script {
    pub fn generate(
        profile: &Profile,
        request: &Request,
        (api, overrides): (Api, &Overrides),
        random: &mut Rng,
    ) -> Self {
        let mut script =
            Self { choices: request.choices(), finish: "stop", ..Self::prompt_only(request) };
        let most = request.max_tokens_limit().unwrap_or(MAX_RESPONSE_TOKENS);
        let mut most = most.min(MAX_RESPONSE_TOKENS);
        if api == Api::Chat {
            script.tool = request.tool_to_call(profile.tool_calls).map(str::to_owned);
            if let Reasoning::Hidden(range) = &profile.reasoning {
                script.hidden = random.u32(range.clone()).min(most / 2);
                most -= script.hidden;
            }
        }
        let mut writer =
            ScriptWriter { profile, api, overrides, most, random, script: &mut script };
        let lines = (0..writer.script.choices).map(|choice| writer.choice(choice)).collect();
        if profile.role_chunk && api == Api::Chat {
            script.writes.extend((0..script.choices).map(ScriptedWrite::Role));
        }
        script.interleave(lines);
        let reports_usage = match profile.usage {
            UsagePolicy::Never => false,
            UsagePolicy::OnRequest => request.wants_usage(),
            UsagePolicy::Always => true,
        };
        script.writes.extend(reports_usage.then_some(ScriptedWrite::Usage));
        script.writes.push(ScriptedWrite::Done);
        script
    }

    /// Returns a script without generated text, for example for an embeddings request.
    pub fn prompt_only(request: &Request) -> Self {
        Self { prompt_tokens: tokens::count_prompt(&request.prompt_text()), ..Self::default() }
    }

    /// Merges the writes of all choices: one write of each choice in turn. An engine decodes all choices in one batch.
    /// Therefore, only the steps of the first choice take time.
    fn interleave(&mut self, lines: Vec<Vec<ScriptedWrite>>) {
        let mut lines: Vec<_> = lines.into_iter().map(Vec::into_iter).collect();
        loop {
            let mut round: Vec<ScriptedWrite> =
                lines.iter_mut().filter_map(Iterator::next).collect();
            if round.is_empty() {
                return;
            }
            for steps in round.iter_mut().filter_map(ScriptedWrite::steps_mut).skip(1) {
                *steps = 0;
            }
            self.writes.append(&mut round);
        }
    }

    /// Returns the text of one kind, such as reasoning, in one choice.
    pub fn text(&self, choice: u32, kind: PartKind) -> Option<&Part> {
        self.parts.iter().find(|part| part.choice == choice && part.kind == kind)
    }

    /// Returns the number of decode steps for all text that is sent.
    pub fn shown_steps(&self) -> u32 {
        let steps = |write: &ScriptedWrite| {
            if let ScriptedWrite::Chunk { steps, .. } = write { *steps } else { 0 }
        };
        self.writes.iter().map(steps).sum()
    }

    /// Returns the token usage of the whole response. The tokens are counted with the encoding of the model.
    pub fn usage(&self) -> Usage {
        let count = |part: &Part| (part.kind, tokens::count(&part.text));
        let counts: Vec<_> = self.parts.iter().map(count).collect();
        let shown: u64 = counts.iter().map(|(_, tokens)| tokens).sum();
        let reasoning = counts.iter().filter(|(kind, _)| *kind == PartKind::Reasoning);
        let hidden = u64::from(self.hidden);
        Usage {
            input: self.prompt_tokens,
            output: shown + hidden,
            reasoning: reasoning.map(|(_, tokens)| tokens).sum::<u64>() + hidden,
        }
    }

    /// Returns the number of tokens in the text that was already sent.
    pub fn sent_tokens(&self) -> u64 {
        let sent = self.parts.iter().map(|part| part.text.get(..part.sent).unwrap_or_default());
        sent.map(tokens::count).sum()
    }

    /// Marks all text as sent, for a response without streaming.
    pub fn send_all(&mut self) {
        for part in &mut self.parts {
            part.sent = part.text.len();
        }
    }
}

impl Part {
    /// Marks the text up to byte `end` as sent. Returns the part of the text that was not sent before.
    pub fn take(&mut self, end: u32) -> &str {
        let from = std::mem::replace(&mut self.sent, end as usize);
        self.text.get(from..self.sent).unwrap_or_default()
    }
}

impl ScriptedWrite {
    /// Returns the number of decode steps of a chunk. Returns `None` for other writes, which take no time.
    const fn steps_mut(&mut self) -> Option<&mut u32> {
        if let Self::Chunk { steps, .. } = self { Some(steps) } else { None }
    }
}

/// Generates the choices of a script.
struct ScriptWriter<'a> {
    profile: &'a Profile,
    api: Api,
    overrides: &'a Overrides,
    /// Number of tokens that a choice may still use.
    most: u32,
    random: &'a mut Rng,
    script: &'a mut Script,
}

impl ScriptWriter<'_> {
    /// Generates the text of one choice. Returns the writes that send this text.
    fn choice(&mut self, choice: u32) -> Vec<ScriptedWrite> {
        let mut writes = Vec::new();
        let mut left = self.most;
        if let (Reasoning::Streamed(range), Api::Chat) = (&self.profile.reasoning, self.api) {
            let length = self.random.u32(range.clone()).min(left / 2);
            left -= length;
            let reasoning = Sentences::write(self.random, length);
            writes.extend(self.part(choice, PartKind::Reasoning, reasoning));
        }
        let drawn = self.random.u32(self.profile.tokens.clone());
        let length = self.overrides.tokens.unwrap_or(drawn);
        if length > left {
            self.script.finish = "length";
        }
        let sentences = Sentences::write(self.random, length.min(left));
        if self.script.tool.is_some() {
            self.script.finish = "tool_calls";
            writes.push(ScriptedWrite::ToolCallStart(choice));
            writes.extend(self.part(choice, PartKind::Tool, sentences.as_arguments()));
        } else {
            writes.extend(self.part(choice, PartKind::Text, sentences));
        }
        writes.push(ScriptedWrite::Finish(choice));
        writes
    }

    fn part(&mut self, choice: u32, kind: PartKind, sentences: Sentences) -> Vec<ScriptedWrite> {
        let part = small(self.script.parts.len());
        self.script.parts.push(Part { choice, kind, text: sentences.text, sent: 0 });
        let per_chunk = self.overrides.chunk_tokens;
        let per_chunk = per_chunk.unwrap_or(self.profile.tokens_per_chunk).max(1) as usize;
        let piece = |ends: &[usize]| {
            let (end, steps) = (small(*ends.last()?), small(ends.len()));
            Some(ScriptedWrite::Chunk { part, end, steps })
        };
        sentences.ends.chunks(per_chunk).filter_map(piece).collect()
    }
}

/// Converts an index or a length to 32 bits. This cannot overflow, because a response is much shorter than 2³² bytes.
fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(profile: &str, request: &str) -> Script {
        let profile: Profile = profile.parse().unwrap();
        let request = Request::parse(request.as_bytes()).unwrap();
        let settings = (Api::Chat, &Overrides::default());
        Script::generate(&profile, &request, settings, &mut Rng::with_seed(1))
    }

    /// Performs the writes, and returns the texts that a client would receive.
    fn render(script: &mut Script) -> Vec<String> {
        let mut texts = vec![String::new(); script.parts.len()];
        for write in script.writes.clone() {
            if let ScriptedWrite::Chunk { part, end, .. } = write {
                texts[part as usize].push_str(script.parts[part as usize].take(end));
            }
        }
        texts
    }

    #[test]
    fn what_is_sent_in_pieces_is_the_whole_text() {
        for model in [
            "m:tokens=50,chunk-tokens=3",
            "m:tokens=31,reasoning=20,usage=always",
            "m:tools=true,tokens=9",
        ] {
            let mut script = script(model, r#"{"n":2,"tools":[{"function":{"name":"f"}}]}"#);
            assert_eq!(script.sent_tokens(), 0);
            let texts = render(&mut script);
            let whole: Vec<_> = script.parts.iter().map(|part| part.text.clone()).collect();
            assert_eq!(texts, whole);
            assert_eq!(script.sent_tokens(), script.usage().output);
        }
    }

    #[test]
    fn respects_and_reports_token_limits() {
        let limited = script("m:tokens=50", r#"{"max_tokens":7}"#);
        assert_eq!(limited.finish, "length");
        assert!(limited.usage().output <= 7);
        let reasoning = script("m:tokens=50,reasoning=100", r#"{"max_completion_tokens":40}"#);
        assert!(reasoning.usage().output <= 40);
        assert!((10..=20).contains(&reasoning.usage().reasoning));
        assert_eq!(script("m:tokens=50", r#"{"max_tokens":50}"#).finish, "stop");
    }

    #[test]
    fn hidden_reasoning_is_billed_but_not_sent() {
        let mut script = script("m:tokens=20,hidden=30", "{}");
        let texts = render(&mut script);
        assert_eq!(texts.len(), 1);
        assert_eq!(script.shown_steps() + script.hidden, 50);
        assert_eq!(script.usage().reasoning, 30);
        assert_eq!(script.usage().output, script.sent_tokens() + 30);
    }

    #[test]
    fn choices_alternate_and_are_decoded_together() {
        let script = script("m:tokens=4", r#"{"n":2}"#);
        assert_eq!(script.shown_steps(), 4, "not 8");
        let order: Vec<_> = script
            .writes
            .iter()
            .filter(|write| matches!(write, ScriptedWrite::Chunk { .. }))
            .map(|write| matches!(write, ScriptedWrite::Chunk { part: 1, .. }))
            .collect();
        assert_eq!(order, [false, true].repeat(4));
    }

    #[test]
    fn usage_follows_the_policy() {
        let tells = |policy: &str, options: &str| {
            let request = format!(r#"{{"stream":true{options}}}"#);
            script(&format!("m:usage={policy}"), &request).writes.contains(&ScriptedWrite::Usage)
        };
        let asked = r#","stream_options":{"include_usage":true}"#;
        assert_eq!(
            [tells("never", asked), tells("on-request", asked), tells("always", asked)],
            [false, true, true]
        );
        assert_eq!(
            [tells("never", ""), tells("on-request", ""), tells("always", "")],
            [false, false, true]
        );
    }

    #[test]
    fn tool_arguments_are_json() {
        let script = script(
            "m:tokens=12",
            r#"{"tools":[{"function":{"name":"find"}}],"tool_choice":"required"}"#,
        );
        let arguments = &script.text(0, PartKind::Tool).unwrap().text;
        let parsed: serde_json::Value = serde_json::from_str(arguments).unwrap();
        assert!(parsed.get("query").unwrap().is_string());
        assert_eq!((script.finish, script.tool.as_deref()), ("tool_calls", Some("find")));
    }
}
