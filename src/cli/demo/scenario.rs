//! What the demo's clients ask for: a modest mix of everything that happens to a proxy.

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
    /// How often it is chosen, relative to the others.
    weight: u32,
    /// Tokens asked for at most.
    most_tokens: u32,
    /// How the backend is to treat it.
    pub treatment: &'static [(&'static str, &'static str)],
    /// The client hangs up after so many pieces of text.
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
    /// Asks for usage in the stream.
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
    most_tokens: 120,
    treatment: &[],
    leaves_after: None,
    feature: Feature::None,
};

/// Every one of them takes place at least once in a run of some seconds: clients begin with the first ones in turn.
pub const SCENARIOS: [Scenario; 15] = [
    Scenario { weight: 24, feature: Feature::Usage, ..STREAM },
    Scenario { name: "fast", weight: 30, model: "sim-fast", ..STREAM },
    Scenario { name: "slow", weight: 4, model: "sim-slow", most_tokens: 40, ..STREAM },
    Scenario { name: "reasoning", weight: 12, model: "sim-reasoning", ..STREAM },
    Scenario { name: "hidden", weight: 4, model: "sim-hidden", feature: Feature::Usage, ..STREAM },
    Scenario { name: "whole", weight: 18, stream: false, ..STREAM },
    Scenario { name: "tool", weight: 6, feature: Feature::Tool, most_tokens: 60, ..STREAM },
    Scenario {
        name: "choices",
        weight: 6,
        feature: Feature::TwoChoices,
        most_tokens: 60,
        ..STREAM
    },
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
        treatment: &[("x-simulate-stall-after", "20"), ("x-simulate-stall-ms", "2500")],
        ..STREAM
    },
    Scenario {
        name: "truncated",
        weight: 2,
        treatment: &[("x-simulate-cut-after", "15")],
        ..STREAM
    },
    Scenario { name: "limited", weight: 2, treatment: &[("x-simulate-status", "429")], ..STREAM },
    Scenario {
        name: "failed",
        weight: 1,
        treatment: &[("x-simulate-status", "503")],
        stream: false,
        ..STREAM
    },
];

/// The models that the scenarios ask for.
pub fn models() -> Vec<Profile> {
    let mut models = Profile::defaults();
    models.extend("sim-hidden:hidden=20-60".parse::<Profile>());
    models
}

impl Scenario {
    /// The `nth` request of a client: the first ones go through all scenarios in turn, later ones are drawn.
    pub fn choose(nth: usize, random: &mut Rng) -> Self {
        if let Some(scenario) = SCENARIOS.get(nth) {
            return *scenario;
        }
        let total: u32 = SCENARIOS.iter().map(|it| it.weight).sum();
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

    /// The request's body; `nth` makes its prompt, and so its answer, differ from all others.
    pub fn body(&self, nth: usize) -> String {
        let prompt = format!("Question {nth}: what goes through here?");
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
        set("max_tokens", json!(self.most_tokens));
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
    fn every_scenario_has_its_turn_and_then_its_share() {
        let mut random = Rng::with_seed(1);
        let first: Vec<_> =
            (0..SCENARIOS.len()).map(|nth| Scenario::choose(nth, &mut random).name).collect();
        assert_eq!(first, SCENARIOS.map(|it| it.name));
        let drawn: Vec<_> =
            (100..3_000).map(|nth| Scenario::choose(nth, &mut random).name).collect();
        let share = |name| drawn.iter().filter(|it| **it == name).count();
        assert!(SCENARIOS.iter().all(|it| share(it.name) > 0));
        assert!(share("fast") > 3 * share("slow"));
        let faults = share("limited") + share("failed") + share("truncated");
        assert!(faults < drawn.len() / 15, "most of the load goes well");
    }

    #[test]
    fn every_model_asked_for_is_served() {
        let models = models();
        for scenario in SCENARIOS {
            assert!(models.iter().any(|model| model.name == scenario.model), "{}", scenario.name);
        }
    }
}
