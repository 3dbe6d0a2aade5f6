//! Settings of the observer.

use crate::in_flight::{InFlightRequests, TrackedRequest};
use tokengauge_llm::content::CapturePolicies;
use tokengauge_llm::count::Tokenizers;
use tokengauge_measure::cost::Costs;
use tokengauge_measure::drift;
use tokengauge_measure::engine::Backend;
use tokengauge_measure::load::RouteKey;
use tokengauge_measure::slo::Objective;
use tokengauge_types::clock::MonotonicInstant;

/// Settings of the observer. A reload replaces them all at once, except `memory`. Requests that are open keep their
/// tokenizers and their capture.
#[derive(Clone, Debug)]
pub struct ObserverSettings {
    /// Limit in bytes for the memory of all parsers. Read only at the start.
    pub memory: usize,
    /// Unchanged objectives keep their history.
    pub objectives: Vec<Objective>,
    /// The routes whose metrics report 0 before their first request, instead of being absent.
    pub routes: Vec<RouteKey>,
    pub tokenizers: Tokenizers,
    /// Selects the routes whose content is captured.
    pub contents: CapturePolicies,
    /// The engines behind the routes.
    pub backends: Vec<Backend>,
    /// Prices and budgets.
    pub costs: Costs,
    pub workload_drift: drift::DriftConfig,
}

impl ObserverSettings {
    /// Default limit in bytes for the memory of all parsers, enough for 1,000 concurrent gzip streams.
    pub const DEFAULT_MEMORY: usize = 48 << 20;

    /// Default settings with these objectives.
    pub fn with_objectives(objectives: Vec<Objective>) -> Self {
        Self { objectives, ..Self::default() }
    }
}

impl Default for ObserverSettings {
    fn default() -> Self {
        Self {
            memory: Self::DEFAULT_MEMORY,
            objectives: Vec::new(),
            routes: Vec::new(),
            tokenizers: Tokenizers::default(),
            contents: CapturePolicies::default(),
            backends: Vec::new(),
            costs: Costs::default(),
            workload_drift: drift::DriftConfig::default(),
        }
    }
}

impl InFlightRequests {
    /// Replaces the settings.
    pub fn apply_settings(&mut self, at: MonotonicInstant, settings: ObserverSettings) {
        let ObserverSettings {
            memory: _,
            objectives,
            routes,
            tokenizers,
            contents,
            backends,
            costs,
            workload_drift,
        } = settings;
        let consumers = &mut self.consumers;
        consumers.slos.replace(at, objectives);
        routes.iter().for_each(|route| consumers.load.register(route));
        consumers.backends.replace(backends);
        consumers.set_costs(costs);
        consumers.drift.replace(workload_drift);
        (self.tokenizers, self.contents) = (tokenizers, contents);
        for TrackedRequest { request, .. } in self.requests.values_mut() {
            request.slices = None;
            request.deadlines.reset();
        }
        self.make_checks_due();
    }
}
