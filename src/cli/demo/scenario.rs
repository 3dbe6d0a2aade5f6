//! Defines the requests of the demo's clients: different APIs, models, streams, stalls and failures, and an incident.

use std::time::Duration;

use fastrand::Rng;
use serde_json::json;

use tokengauge_simulator::Profile;

/// One kind of request.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub model: &'static str,
    pub api: Api,
    pub stream: bool,
    /// Relative frequency among all scenarios.
    weight: u32,
    /// `max_tokens` of the request.
    max_tokens: u32,
    /// Headers that control the simulated backend.
    simulator_headers: &'static [(&'static str, &'static str)],
    /// Number of text chunks after which the client disconnects.
    pub leaves_after: Option<u32>,
    feature: Feature,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Api {
    Chat,
    Completion,
    Embeddings,
}

impl Api {
    pub const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completion => "/v1/completions",
            Self::Embeddings => "/v1/embeddings",
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Feature {
    None,
    /// Asks for the token usage at the end of the stream.
    Usage,
    Tool,
    TwoChoices,
}

const STREAM: Scenario = Scenario {
    name: "stream",
    model: "sim-typical",
    api: Api::Chat,
    stream: true,
    weight: 1,
    max_tokens: 120,
    simulator_headers: &[],
    leaves_after: None,
    feature: Feature::None,
};

/// All scenarios. The first requests use each scenario once, so that all occur within a few seconds.
pub const SCENARIOS: [Scenario; 15] = [
    Scenario { weight: 24, feature: Feature::Usage, ..STREAM },
    Scenario { name: "fast", weight: 30, model: "sim-fast", ..STREAM },
    Scenario { name: "slow", weight: 4, model: "sim-slow", max_tokens: 40, ..STREAM },
    Scenario { name: "reasoning", weight: 12, model: "sim-reasoning", ..STREAM },
    Scenario { name: "hidden", weight: 4, model: "sim-hidden", feature: Feature::Usage, ..STREAM },
    Scenario { name: "whole", weight: 18, stream: false, ..STREAM },
    Scenario { name: "tool", weight: 6, feature: Feature::Tool, max_tokens: 60, ..STREAM },
    Scenario { name: "choices", weight: 6, feature: Feature::TwoChoices, max_tokens: 60, ..STREAM },
    Scenario { name: "completion", weight: 6, api: Api::Completion, ..STREAM },
    Scenario {
        name: "embeddings",
        weight: 6,
        model: "sim-fast",
        api: Api::Embeddings,
        stream: false,
        ..STREAM
    },
    Scenario { name: "left", weight: 6, leaves_after: Some(12), ..STREAM },
    Scenario {
        name: "stalled",
        weight: 3,
        model: "sim-fast",
        simulator_headers: &[("x-simulate-stall-after", "20"), ("x-simulate-stall-ms", "2500")],
        ..STREAM
    },
    Scenario {
        name: "truncated",
        weight: 2,
        simulator_headers: &[("x-simulate-cut-after", "15")],
        ..STREAM
    },
    Scenario {
        name: "limited",
        weight: 2,
        simulator_headers: &[("x-simulate-status", "429")],
        ..STREAM
    },
    Scenario {
        name: "failed",
        weight: 1,
        simulator_headers: &[("x-simulate-status", "503")],
        stream: false,
        ..STREAM
    },
];

/// The incident: one model needs seconds for the prefill of each prompt. It lasts long enough for percentiles and burn
/// rates to show it, and short enough to see its end.
const INCIDENT_MODEL: &str = "sim-typical";
const INCIDENT_START: Duration = Duration::from_secs(20);
const INCIDENT_LENGTH: Duration = Duration::from_secs(60);

/// The incident occurs again after this time, so that a late viewer sees it, too.
const INCIDENT_PERIOD: Duration = Duration::from_secs(5 * 60);

/// The header that delays the first token by 5 s. The objective of the SLO `ttft` is 2 s.
const INCIDENT_HEADER: (&str, &str) = ("x-simulate-ttft-us", "5000000");

/// Returns whether the incident happens at this time after the start of the demo.
fn is_incident(elapsed: Duration) -> bool {
    let since_first = elapsed.checked_sub(INCIDENT_START);
    let in_period = since_first.map(|since| since.as_secs() % INCIDENT_PERIOD.as_secs());
    in_period.is_some_and(|seconds| seconds < INCIDENT_LENGTH.as_secs())
}

/// Returns the models that the scenarios request.
pub fn models() -> Vec<Profile> {
    let mut models = Profile::defaults();
    models.extend("sim-hidden:hidden=20-60".parse::<Profile>());
    models
}

impl Scenario {
    /// Returns the scenario of request number `nth`. The first requests use each scenario once, in order. Later
    /// requests use a random scenario.
    pub fn choose(nth: usize, random: &mut Rng) -> Self {
        if let Some(scenario) = SCENARIOS.get(nth) {
            return *scenario;
        }
        let total: u32 = SCENARIOS.iter().map(|scenario| scenario.weight).sum();
        let mut drawn = random.u32(0..total);
        let mut chosen = STREAM;
        for scenario in SCENARIOS {
            chosen = scenario;
            if drawn < scenario.weight {
                break;
            }
            drawn -= scenario.weight;
        }
        chosen
    }

    /// Returns the headers that control the simulated backend, for a request at this time after the start of the demo.
    pub fn headers(
        &self,
        elapsed: Duration,
    ) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        // Requests without a first token have no prefill to delay.
        let is_slow = self.model == INCIDENT_MODEL && self.simulator_headers.is_empty();
        let incident = (is_slow && is_incident(elapsed)).then_some(INCIDENT_HEADER);
        self.simulator_headers.iter().copied().chain(incident)
    }

    /// Returns the request body. `nth` makes the prompt and the response unique.
    pub fn body(&self, nth: usize) -> String {
        let prompt = format!("Question {nth}: what does a proxy see?");
        let mut body = match self.api {
            Api::Chat => json!({"messages": [{"role": "user", "content": prompt}]}),
            Api::Completion => json!({"prompt": prompt}),
            Api::Embeddings => return json!({"model": self.model, "input": prompt}).to_string(),
        };
        let mut set = |key: &str, value| {
            if let Some(fields) = body.as_object_mut() {
                fields.insert(key.to_owned(), value);
            }
        };
        set("model", json!(self.model));
        set("stream", json!(self.stream));
        set("max_tokens", json!(self.max_tokens));
        match self.feature {
            Feature::None => {}
            Feature::Usage => set("stream_options", json!({"include_usage": true})),
            Feature::TwoChoices => set("n", json!(2)),
            Feature::Tool => {
                set(
                    "tools",
                    json!([{"type": "function", "function": {"name": "search", "parameters": {}}}]),
                );
                set("tool_choice", json!("required"));
            }
        }
        body.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_every_scenario_and_then_its_weight() {
        let mut random = Rng::with_seed(1);
        let first: Vec<_> =
            (0..SCENARIOS.len()).map(|nth| Scenario::choose(nth, &mut random).name).collect();
        assert_eq!(first, SCENARIOS.map(|scenario| scenario.name));
        let drawn: Vec<_> =
            (100..3_000).map(|nth| Scenario::choose(nth, &mut random).name).collect();
        let share = |name| drawn.iter().filter(|drawn_name| **drawn_name == name).count();
        assert!(SCENARIOS.iter().all(|scenario| share(scenario.name) > 0));
        assert!(share("fast") > 3 * share("slow"));
        let faults = share("limited") + share("failed") + share("truncated");
        assert!(faults < drawn.len() / 15, "most requests succeed");
    }

    #[test]
    fn the_incident_delays_one_model_for_a_minute() {
        let slow = |model: &'static str, seconds| {
            let scenario = Scenario { model, ..STREAM };
            scenario.headers(Duration::from_secs(seconds)).any(|header| header == INCIDENT_HEADER)
        };
        let at =
            [0, 19, 20, 79, 80, 319, 320, 379, 380].map(|seconds| slow(INCIDENT_MODEL, seconds));
        assert_eq!(at, [false, false, true, true, false, false, true, true, false]);
        assert!(!slow("sim-fast", 30));
        let failing = Scenario { simulator_headers: &[("x-simulate-status", "503")], ..STREAM };
        assert_eq!(failing.headers(Duration::from_secs(30)).count(), 1);
    }

    #[test]
    fn every_model_exists() {
        let models = models();
        for scenario in SCENARIOS {
            assert!(models.iter().any(|model| model.name == scenario.model), "{}", scenario.name);
        }
    }
}
