//! What one answer will say and in which order: decided before its first byte, from the request, the model and a seed.

use fastrand::Rng;

use crate::ledger::Usage;
use crate::profile::{Profile, Reasoning, UsagePolicy};
use crate::request::{Api, Request};
use crate::{text, tokens};

/// No answer is longer, whatever is asked: as many tokens as a model of 128 k context could give.
pub const LONGEST_ANSWER: u32 = 131_072;

/// A whole answer, in the order in which it is sent.
#[derive(Debug, Default)]
pub struct Script {
    pub choices: u32,
    pub parts: Vec<Part>,
    pub beats: Vec<Beat>,
    pub finish: &'static str,
    pub tool: Option<String>,
    /// Decode steps of reasoning that is not shown.
    pub hidden: u32,
    pub prompt_tokens: u64,
}

/// One text: everything of one kind in one choice.
#[derive(Debug)]
pub struct Part {
    pub choice: u32,
    pub kind: Kind,
    pub text: String,
    /// How much of it has been handed out.
    pub sent: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Text,
    Reasoning,
    Tool,
}

/// One write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Beat {
    Role {
        choice: u32,
    },
    ToolHead {
        choice: u32,
    },
    /// `part` up to byte `end`, which took `steps` decode steps.
    Piece {
        part: u32,
        end: u32,
        steps: u32,
    },
    Finish {
        choice: u32,
    },
    Usage,
    Done,
}

/// What of the request shapes the script, headers included.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    pub api: Api,
    /// Exactly so many tokens of text.
    pub tokens: Option<u32>,
    pub tokens_per_chunk: Option<u32>,
}

impl Script {
    pub fn write(profile: &Profile, request: &Request, wish: Wish, random: &mut Rng) -> Self {
        let mut script =
            Self { choices: request.choices(), finish: "stop", ..Self::prompt_only(request) };
        let most = request.most_tokens().unwrap_or(LONGEST_ANSWER);
        let mut most = most.min(LONGEST_ANSWER);
        if wish.api == Api::Chat {
            script.tool = request.tool_to_call(profile.tool_calls).map(str::to_owned);
            if let Reasoning::Hidden(range) = &profile.reasoning {
                script.hidden = random.u32(range.clone()).min(most / 2);
                most -= script.hidden;
            }
        }
        let mut author = Author { profile, wish, most, random, script: &mut script };
        let lines = (0..author.script.choices).map(|choice| author.choice(choice)).collect();
        if profile.role_chunk && wish.api == Api::Chat {
            let roles = (0..script.choices).map(|choice| Beat::Role { choice });
            script.beats.extend(roles);
        }
        script.interleave(lines);
        let tells = match profile.usage {
            UsagePolicy::Never => false,
            UsagePolicy::OnRequest => request.wants_usage(),
            UsagePolicy::Always => true,
        };
        script.beats.extend(tells.then_some(Beat::Usage));
        script.beats.push(Beat::Done);
        script
    }

    /// Of a call that generates nothing.
    pub fn prompt_only(request: &Request) -> Self {
        Self { prompt_tokens: tokens::count_prompt(&request.prompt_text()), ..Self::default() }
    }

    /// All choices are decoded in one batch: one chunk of each in turn, and only the first one's steps take time.
    fn interleave(&mut self, lines: Vec<Vec<Beat>>) {
        let mut lines: Vec<_> = lines.into_iter().map(Vec::into_iter).collect();
        loop {
            let mut round: Vec<Beat> = lines.iter_mut().filter_map(Iterator::next).collect();
            if round.is_empty() {
                return;
            }
            for beat in round.iter_mut().filter(|it| it.is_timed()).skip(1) {
                beat.take_no_time();
            }
            self.beats.append(&mut round);
        }
    }

    /// The text of one kind in one choice.
    pub fn text(&self, choice: u32, kind: Kind) -> Option<&Part> {
        self.parts.iter().find(|part| part.choice == choice && part.kind == kind)
    }

    /// Decode steps of everything that is shown.
    pub fn shown_steps(&self) -> u32 {
        let steps = self.beats.iter().map(|beat| match beat {
            Beat::Piece { steps, .. } => *steps,
            Beat::Role { .. }
            | Beat::ToolHead { .. }
            | Beat::Finish { .. }
            | Beat::Usage
            | Beat::Done => 0,
        });
        steps.sum()
    }

    /// Usage of the whole answer, by the encoder.
    pub fn usage(&self) -> Usage {
        let count = |part: &Part| (part.kind, tokens::count(&part.text));
        let counts: Vec<_> = self.parts.iter().map(count).collect();
        let shown: u64 = counts.iter().map(|(_, tokens)| tokens).sum();
        let reasoning = counts.iter().filter(|(kind, _)| *kind == Kind::Reasoning);
        let hidden = u64::from(self.hidden);
        Usage {
            input: self.prompt_tokens,
            output: shown + hidden,
            reasoning: reasoning.map(|(_, tokens)| tokens).sum::<u64>() + hidden,
        }
    }

    /// Tokens of what has been handed out so far.
    pub fn sent_tokens(&self) -> u64 {
        let sent = self.parts.iter().map(|part| part.text.get(..part.sent).unwrap_or_default());
        sent.map(tokens::count).sum()
    }

    /// Hands out everything: a whole answer goes in one piece.
    pub fn send_all(&mut self) {
        for part in &mut self.parts {
            part.sent = part.text.len();
        }
    }
}

impl Part {
    /// Takes the text up to byte `end`.
    pub fn take(&mut self, end: u32) -> &str {
        let from = std::mem::replace(&mut self.sent, end as usize);
        self.text.get(from..self.sent).unwrap_or_default()
    }
}

impl Beat {
    const fn is_timed(&self) -> bool {
        matches!(self, Self::Piece { .. })
    }

    const fn take_no_time(&mut self) {
        if let Self::Piece { steps, .. } = self {
            *steps = 0;
        }
    }
}

/// Writes the choices of one script.
struct Author<'a> {
    profile: &'a Profile,
    wish: Wish,
    /// Tokens that each choice may have.
    most: u32,
    random: &'a mut Rng,
    script: &'a mut Script,
}

impl Author<'_> {
    /// Writes the parts of one choice and says in which chunks they go out.
    fn choice(&mut self, choice: u32) -> Vec<Beat> {
        let mut beats = Vec::new();
        let mut left = self.most;
        if let (Reasoning::Streamed(range), Api::Chat) = (&self.profile.reasoning, self.wish.api) {
            let length = self.random.u32(range.clone()).min(left / 2);
            left -= length;
            let thoughts = Sentences::write(self.random, length);
            beats.extend(self.part(choice, Kind::Reasoning, thoughts));
        }
        let drawn = self.random.u32(self.profile.tokens.clone());
        let length = self.wish.tokens.unwrap_or(drawn);
        if length > left {
            self.script.finish = "length";
        }
        let sentences = Sentences::write(self.random, length.min(left));
        if self.script.tool.is_some() {
            self.script.finish = "tool_calls";
            beats.push(Beat::ToolHead { choice });
            beats.extend(self.part(choice, Kind::Tool, sentences.as_arguments()));
        } else {
            beats.extend(self.part(choice, Kind::Text, sentences));
        }
        beats.push(Beat::Finish { choice });
        beats
    }

    fn part(&mut self, choice: u32, kind: Kind, sentences: Sentences) -> Vec<Beat> {
        let part = small(self.script.parts.len());
        self.script.parts.push(Part { choice, kind, text: sentences.text, sent: 0 });
        let per_chunk = self.wish.tokens_per_chunk;
        let per_chunk = per_chunk.unwrap_or(self.profile.tokens_per_chunk).max(1) as usize;
        let piece = |chunk: &[usize]| {
            Some(Beat::Piece { part, end: small(*chunk.last()?), steps: small(chunk.len()) })
        };
        sentences.ends.chunks(per_chunk).filter_map(piece).collect()
    }
}

/// A text, and where each of its pieces ends.
struct Sentences {
    text: String,
    ends: Vec<usize>,
}

impl Sentences {
    fn write(random: &mut Rng, length: u32) -> Self {
        let mut text = String::new();
        let ends = text::write(random, length as usize, &mut text);
        Self { text, ends }
    }

    /// As the arguments of a tool call: `{"query":"…"}`, with the frame as pieces of its own.
    fn as_arguments(&self) -> Self {
        const HEAD: &str = "{\"query\":\"";
        let text = format!("{HEAD}{}\"}}", self.text);
        let mut ends = vec![HEAD.len()];
        ends.extend(self.ends.iter().map(|end| end + HEAD.len()));
        ends.push(text.len());
        Self { text, ends }
    }
}

/// Answers are bounded by [`LONGEST_ANSWER`] pieces of a few bytes, so nothing here comes near 2^32.
fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(profile: &str, request: &str) -> Script {
        let profile: Profile = profile.parse().unwrap();
        let request = Request::parse(request.as_bytes()).unwrap();
        let wish = Wish { api: Api::Chat, tokens: None, tokens_per_chunk: None };
        Script::write(&profile, &request, wish, &mut Rng::with_seed(1))
    }

    /// Plays the beats and says what a client would have put together.
    fn play(script: &mut Script) -> Vec<String> {
        let mut texts = vec![String::new(); script.parts.len()];
        for beat in script.beats.clone() {
            if let Beat::Piece { part, end, .. } = beat {
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
            let texts = play(&mut script);
            let whole: Vec<_> = script.parts.iter().map(|part| part.text.clone()).collect();
            assert_eq!(texts, whole);
            assert_eq!(script.sent_tokens(), script.usage().output);
        }
    }

    #[test]
    fn limits_are_kept_and_said() {
        let limited = script("m:tokens=50", r#"{"max_tokens":7}"#);
        assert_eq!(limited.finish, "length");
        assert!(limited.usage().output <= 7);
        let reasoning = script("m:tokens=50,reasoning=100", r#"{"max_completion_tokens":40}"#);
        assert!(reasoning.usage().output <= 40);
        assert!((10..=20).contains(&reasoning.usage().reasoning));
        assert_eq!(script("m:tokens=50", r#"{"max_tokens":50}"#).finish, "stop");
    }

    #[test]
    fn hidden_reasoning_takes_steps_and_is_billed_but_not_sent() {
        let mut script = script("m:tokens=20,hidden=30", "{}");
        let texts = play(&mut script);
        assert_eq!(texts.len(), 1);
        assert_eq!(script.shown_steps() + script.hidden, 50);
        assert_eq!(script.usage().reasoning, 30);
        assert_eq!(script.usage().output, script.sent_tokens() + 30);
    }

    #[test]
    fn choices_take_turns_and_are_decoded_together() {
        let script = script("m:tokens=4", r#"{"n":2}"#);
        assert_eq!(script.shown_steps(), 4, "not 8");
        let order: Vec<_> = script
            .beats
            .iter()
            .filter(|beat| beat.is_timed())
            .map(|beat| matches!(beat, Beat::Piece { part: 1, .. }))
            .collect();
        assert_eq!(order, [false, true].repeat(4));
    }

    #[test]
    fn usage_is_told_as_the_policy_says() {
        let tells = |policy: &str, options: &str| {
            let request = format!(r#"{{"stream":true{options}}}"#);
            script(&format!("m:usage={policy}"), &request).beats.contains(&Beat::Usage)
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
        let arguments = &script.text(0, Kind::Tool).unwrap().text;
        let parsed: serde_json::Value = serde_json::from_str(arguments).unwrap();
        assert!(parsed.get("query").unwrap().is_string());
        assert_eq!((script.finish, script.tool.as_deref()), ("tool_calls", Some("find")));
    }
}
