//! Default SLOs by use case, for operators who have no measurements yet.

use std::time::Duration;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::slo::Sli;
use crate::timing::rates;
use tokengauge_types::label_enum;

label_enum! {
    /// A kind of use, each with its own objectives.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize, ValueEnum)]
    #[serde(rename_all = "snake_case")]
    pub enum Preset {
        /// People who read while it is written.
        Chat = "chat",
        /// Answers that are spoken while they are written.
        Voice = "voice",
        /// Assistants in an editor.
        Code = "code",
        /// Jobs that nobody waits for.
        Batch = "batch",
        /// Programs that make many calls, each of which waits for the previous one.
        Agent = "agent",
    }
}

/// One SLO of a preset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PresetObjective {
    /// Suffix of the SLO's name. The name of the preset precedes it.
    pub name: &'static str,
    pub indicator: Sli,
    pub target: f64,
}

/// Target for availability. The target allows 3 h 36 min of full outage in 30 days, enough for one bad afternoon of a
/// provider.
const AVAILABILITY_TARGET: f64 = 0.995;

/// Target for latencies: one request in twenty may be slow. Prompt lengths differ by a factor of a thousand, so a
/// stricter target would depend on the longest prompts only.
const LATENCY_TARGET: f64 = 0.95;

/// Target for stalls: one stream in a hundred may stall. A stall is rarer and worse than a slow request, because users
/// abandon the stream.
const STALL_FREE_TARGET: f64 = 0.99;

impl Preset {
    pub const fn objectives(self) -> &'static [PresetObjective] {
        match self {
            Self::Chat => CHAT,
            Self::Voice => VOICE,
            Self::Code => CODE,
            Self::Batch => BATCH,
            Self::Agent => AGENT,
        }
    }
}

const fn objective(name: &'static str, indicator: Sli, target: f64) -> PresetObjective {
    PresetObjective { name, indicator, target }
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const CHAT: &[PresetObjective] = &[
    objective("availability", Sli::Availability, AVAILABILITY_TARGET),
    // Time to first token of 500 ms: half a second feels immediate, and from one second on, attention drifts.
    objective("ttft", Sli::Ttft(millis(500)), LATENCY_TARGET),
    // 30 tokens per second, enough for skimming: six times the reading speed of 240 words, or about 320 tokens, a
    // minute.
    objective("output_rate", Sli::OutputRate(30.0), LATENCY_TARGET),
    objective("stall_free", Sli::StallFree, STALL_FREE_TARGET),
];

const VOICE: &[PresetObjective] = &[
    objective("availability", Sli::Availability, AVAILABILITY_TARGET),
    // Time to first visible token of 300 ms. Turns in a conversation are 200 ms apart, and speech recognition and
    // synthesis take part of the tolerable delay. The SLI uses the first visible token because reasoning is not spoken.
    objective("first_visible", Sli::FirstVisible(millis(300)), LATENCY_TARGET),
    // Synthesis works on whole sentences. At this rate a sentence of 25 tokens is complete in a quarter of a second.
    objective("output_rate", Sli::OutputRate(rates::VOICE_RATE), LATENCY_TARGET),
    // A stall causes dead air.
    objective("stall_free", Sli::StallFree, STALL_FREE_TARGET),
];

const CODE: &[PresetObjective] = &[
    objective("availability", Sli::Availability, AVAILABILITY_TARGET),
    // Time to first token of 1 s, the time for which users hold a thought while they wait. Prompts that contain files
    // take longer to process than chat prompts.
    objective("ttft", Sli::Ttft(millis(1_000)), LATENCY_TARGET),
    // Code is not read word by word: 60 lines, about 600 tokens, are complete in ten seconds.
    objective("output_rate", Sli::OutputRate(60.0), LATENCY_TARGET),
    objective("stall_free", Sli::StallFree, STALL_FREE_TARGET),
];

const BATCH: &[PresetObjective] = &[
    // Jobs are retried. One failure in a hundred costs time that no user notices.
    objective("availability", Sli::Availability, 0.99),
    // Duration limit of 600 s, the default timeout of the OpenAI and Anthropic clients.
    objective("duration", Sli::Duration(Duration::from_secs(600)), LATENCY_TARGET),
    // At 10 tokens per second, a long job response of 4,096 tokens takes 7 of the 10 min. The SLI uses the total rate,
    // because queueing and prefill cost a job as much as decoding.
    objective("total_rate", Sli::TotalRate(10.0), LATENCY_TARGET),
];

const AGENT: &[PresetObjective] = &[
    // At a target of 99.9 %, one in fifty agent runs with 20 steps fails. At 99.5 %, one in ten would fail.
    objective("availability", Sli::Availability, 0.999),
    // With 500 ms per step, a run of 20 steps waits at most 10 s for first tokens.
    objective("ttft", Sli::Ttft(millis(500)), LATENCY_TARGET),
    // At 30 tokens per second, a tool call of about 150 tokens is complete in 5 s.
    objective("output_rate", Sli::OutputRate(30.0), LATENCY_TARGET),
    // At a target of 99.5 %, one in ten runs with 20 steps stalls. At 99 %, one in five would stall.
    objective("stall_free", Sli::StallFree, 0.995),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables in `docs/how-to/slos.md` list the same presets as this file.
    #[test]
    fn the_page_lists_exactly_these_presets() {
        let page = std::fs::read_to_string(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/how-to/slos.md"
        ));
        let page = page.unwrap();
        let rows: Vec<Vec<&str>> = page
            .lines()
            .filter(|line| line.starts_with("| `"))
            .map(|line| line.split('|').map(str::trim).collect())
            .filter(|row: &Vec<_>| row.len() == 7)
            .collect();
        let shown: Vec<_> = rows.iter().map(|row| row[1..5].join(" ")).collect();
        let promised = Preset::ALL.into_iter().flat_map(|preset| {
            preset.objectives().iter().map(move |objective| {
                let bound = match (objective.indicator.longest(), objective.indicator.lowest()) {
                    (Some(longest), _) => format!("{longest:?}"),
                    (_, Some(lowest)) => format!("{lowest} tokens/s"),
                    (None, None) => "–".to_owned(),
                };
                let target = (objective.target * 1_000.0).round() / 10.0;
                format!("`{}` `{}` {bound} {target} %", preset.as_str(), objective.name)
            })
        });
        assert_eq!(shown, promised.collect::<Vec<_>>());
    }

    #[test]
    fn every_preset_has_availability_and_only_batch_has_no_first_token_objective() {
        for preset in Preset::ALL {
            let objectives = preset.objectives();
            let has = |word: &str| objectives.iter().any(|it| it.indicator.as_str() == word);
            assert!(has("availability"), "{preset:?}");
            let waits = !has("ttft") && !has("first_visible");
            assert_eq!(waits, preset == Preset::Batch, "{preset:?}");
        }
    }
}
