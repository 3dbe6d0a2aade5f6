//! Service level objectives from the file, from a preset, or the defaults.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Count, check_length, check_name, route};
use crate::config::errors::{ErrorCollector, NodeId, suggestion};
use crate::config::spanned::{List, Spanned};
use crate::config::value::{DurationValue, FilePath, Ratio, ThresholdValue};
use tokengauge_llm::dialect::Operation;
use tokengauge_measure::slo::{
    CountingRules, Exclusion, Objective, Preset, PresetObjective, Scope, Sli, SliKind,
};
use tokengauge_telemetry::MAX_CONFIGURED;
use tokengauge_types::bounded::{Bounded, DAY, HOUR, Time};
use tokengauge_types::label::Label;

/// The range that the calculation of error budgets supports. The default is 30 days, because the usual burn rates of
/// alerts (14.4, 6, 3, 1) assume this length.
pub type BudgetWindow = Time<HOUR, { 90 * DAY }, { 30 * DAY }>;

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Slo {
    /// Several SLOs for one use case: `chat`, `voice`, `code`, `batch` or `agent`; see
    /// [presets](../how-to/slos.md#presets). `name`, `target`, `window`, `warmup`, `exclude` and `scope` apply to all
    /// of them. Flag `--slos` replaces the whole list by one preset.
    pub preset: Option<Preset>,
    /// Name in metrics and alerts; must be unique. At most 512 SLOs. Required except for a preset, whose SLO names
    /// start with it (`chat-ttft`).
    pub name: Option<String>,
    /// SLI: `availability`, `ttft`, `first_visible`, `output_rate`, `total_rate`, `stall_free`, `inter_token`,
    /// `duration`, `tokens_above_rate` or `system_rate`; see [SLIs](../how-to/slos.md#indicators). Required except for
    /// a preset.
    pub sli: Option<SliKind>,
    /// Maximum time for `ttft`, `first_visible`, `inter_token` and `duration`; minimum rate for the four rates.
    /// Required for these SLIs, rejected for `availability` and `stall_free`.
    pub threshold: Option<ThresholdValue>,
    /// Only for `system_rate`, which requires it: a minute counts if at least this many streams are in flight.
    pub min_streams: Option<Count>,
    /// For `output_rate`, `total_rate`, `inter_token` and `tokens_above_rate`: requests with fewer output tokens are
    /// excluded.
    pub min_output_tokens: Option<Count>,
    /// Ratio of good requests: `99.5%` or `0.995`. Required except for a preset.
    pub target: Option<Ratio>,
    /// Rolling window of the error budget.
    pub window: BudgetWindow,
    /// Requests that start within this time after the start of the process are excluded.
    // A backend that is not warm after a day does not become warm.
    pub warmup: Time<0, DAY>,
    /// Failure classes to ignore: `rate_limited` (the upstream responded 429), `overload` (this proxy's limits),
    /// `shutdown` (this proxy stopped). Default: all are bad. `warming` excludes all requests to a backend that is not
    /// [warm](engine-metrics.md#cold-warming-warm).
    pub exclude: List<Exclusion>,
    /// Which requests count. Without this key, all requests count.
    pub scope: WrittenScope,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Scope")]
pub struct WrittenScope {
    /// Only requests of this route.
    pub route: Option<String>,
    /// Only requests with this model; `*` matches any text.
    pub model: Option<String>,
    /// Only requests of this tenant, as reported by `identity.tenant` (hashed if configured); `*` matches any text.
    pub tenant: Option<String>,
    /// Only calls of this kind, a value of `gen_ai.operation.name` such as `chat`, `text_completion` or `embeddings`.
    pub operation: Option<String>,
    /// `true`: only streams; `false`: only non-streaming calls.
    pub stream: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["path"]))]
pub struct SloState {
    /// File that keeps error budgets across restarts ([details](../how-to/slos.md#restart-reload-fleets)); one per
    /// process.
    pub path: Option<FilePath>,
}

/// The routes and features that scopes may refer to.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    pub routes: &'a [String],
    /// Whether requests carry a tenant.
    pub has_tenants: bool,
}

/// Resolves the SLOs. If `flag` names a preset, it replaces the SLOs of the file. The file is checked anyway. Presets
/// and defaults are written to `written` as single SLOs.
pub fn resolve(
    written: &mut Option<List<Slo>>,
    flag: Option<Preset>,
    known: Known<'_>,
    errors: &mut ErrorCollector,
) -> Vec<Objective> {
    let from_file = match written {
        Some(list) => {
            let objectives = from_list(list, known, errors);
            let at = (NodeId::ROOT, "slos");
            check_length(objectives.len(), MAX_CONFIGURED, "SLOs", at, errors);
            objectives
        }
        None => defaults(),
    };
    let objectives = flag.map_or(from_file, |preset| from_preset(preset, None, None));
    *written = Some(objectives.iter().map(Slo::from).collect());
    objectives
}

impl From<&Objective> for Slo {
    fn from(objective: &Objective) -> Self {
        let Objective { name, indicator, target, window, scope, counting } = objective;
        let time = indicator.longest().map(|time| ThresholdValue(DurationValue(time).to_string()));
        let rate = indicator.lowest().map(|rate| ThresholdValue(rate.to_string()));
        let mut min_streams = None;
        if let Sli::SystemRate { min_streams: streams, .. } = *indicator {
            min_streams = Some(Bounded::within(streams));
        }
        Self {
            preset: None,
            name: Some(name.to_string()),
            sli: Some(indicator.kind()),
            threshold: time.or(rate),
            min_streams,
            min_output_tokens: counting.min_output_tokens.map(Bounded::within),
            target: Some(Ratio(*target)),
            window: Bounded::within(DurationValue(*window)),
            warmup: Bounded::within(DurationValue(counting.warmup)),
            exclude: counting.exclude.iter().copied().collect(),
            scope: WrittenScope {
                route: scope.route.as_ref().map(ToString::to_string),
                model: scope.model.clone(),
                tenant: scope.tenant.clone(),
                operation: scope.operation.map(|operation| operation.as_str().to_owned()),
                stream: scope.stream,
            },
        }
    }
}

impl SloState {
    pub(in crate::config) fn check(&self, errors: &mut ErrorCollector) {
        let (node, key) = (NodeId::ROOT, "slo_state.path");
        let path = errors.required(&self.path, (node, key), "write the path of a file");
        if path.is_some_and(|path| path.0.file_name().is_none()) {
            errors.add_key(node, key, "not the path of a file; add a file name");
        }
    }
}

/// Returns the default objectives for chat. They are loose enough to be useful before anything was measured.
///
/// - Availability 99.5 %: 3 h 36 min of full outage in 30 days, enough for one bad afternoon of a provider.
/// - First token within 2 s for 95 % of requests: models and prompts are not known yet. A chat that should feel
///   immediate needs 500 ms.
/// - At least 15 tokens per second for 95 % of requests: three times as fast as people read.
/// - Complete within 60 s for 95 % of requests: the time after which nginx and common load balancers abort a response
///   that is not streamed.
fn defaults() -> Vec<Objective> {
    let objectives = [
        ("availability", Sli::Availability, 0.995),
        ("ttft", Sli::Ttft(Duration::from_secs(2)), 0.95),
        ("output_rate", Sli::OutputRate(15.0), 0.95),
        ("duration", Sli::Duration(Duration::from_secs(60)), 0.95),
    ];
    let objective =
        |(name, indicator, target)| with_defaults(Label::from_trusted(name), indicator, target);
    objectives.map(objective).into()
}

/// Creates an objective for all requests, with the default window.
fn with_defaults(name: Label, indicator: Sli, target: f64) -> Objective {
    let (scope, counting) = (Scope::default(), CountingRules::default());
    Objective { name, indicator, target, window: BudgetWindow::default().get(), scope, counting }
}

fn from_preset(preset: Preset, prefix: Option<&str>, target: Option<f64>) -> Vec<Objective> {
    let prefix = prefix.unwrap_or(preset.as_str());
    let objective = |promise: &PresetObjective| {
        let name = Label::from_trusted(&format!("{prefix}-{}", promise.name));
        with_defaults(name, promise.indicator, target.unwrap_or(promise.target))
    };
    preset.objectives().iter().map(objective).collect()
}

fn from_list(list: &List<Slo>, known: Known<'_>, errors: &mut ErrorCollector) -> Vec<Objective> {
    let mut used_names: Vec<Label> = Vec::new();
    let mut objectives = Vec::new();
    for Spanned { value, node } in list.iter() {
        let entry = from_entry(value, *node, known, errors);
        let mut names: Vec<Label> = entry.iter().map(|one| one.name.clone()).collect();
        if let Some(name) = &value.name {
            check_name(name, (*node, "name"), errors);
            if names.is_empty() {
                names.push(Label::from_trusted(name));
            }
        }
        if let Some(name) = names.iter().find(|name| used_names.contains(name)) {
            let key = if value.name.is_some() { "name" } else { "" };
            let message = format!("duplicate SLO name \"{name}\"; use another name");
            errors.add_key(*node, key, message);
        }
        used_names.extend(names);
        objectives.extend(entry);
    }
    objectives
}

/// Returns the objectives of one list entry: those of its preset, or a single one.
fn from_entry(
    value: &Slo,
    node: NodeId,
    known: Known<'_>,
    errors: &mut ErrorCollector,
) -> Vec<Objective> {
    let mut objectives = match value.preset {
        Some(preset) => {
            reject_own_indicator(value, node, errors);
            from_preset(preset, value.name.as_deref(), value.target.map(|target| target.0))
        }
        None if errors.is_invalid(node, "preset") => Vec::new(),
        None => from_keys(value, node, errors).into_iter().collect(),
    };
    let scope = scope(&value.scope, node, known, errors);
    // Equal settings have equal fingerprints.
    let mut exclude: Vec<_> = value.exclude.iter().map(|exclusion| exclusion.value).collect();
    exclude.sort_unstable();
    exclude.dedup();
    for objective in &mut objectives {
        objective.window = value.window.get();
        objective.scope = scope.clone();
        objective.counting.warmup = value.warmup.get();
        objective.counting.exclude.clone_from(&exclude);
    }
    objectives
}

/// Returns the objective of an entry without a preset.
fn from_keys(written: &Slo, node: NodeId, errors: &mut ErrorCollector) -> Option<Objective> {
    let name = errors.required(&written.name, (node, "name"), "add one, such as chat-ttft");
    let hint = "write the ratio of good exchanges, such as 99.5%";
    let target = errors.required(&written.target, (node, "target"), hint);
    let hint =
        format!("write one of {}; or a preset", SliKind::ALL.map(SliKind::as_str).join(", "));
    let kind = *errors.required(&written.sli, (node, "sli"), &hint)?;
    let indicator = Indicator { written, node, errors }.resolve(kind);
    let min_output_tokens = written.min_output_tokens;
    if let (Some(_), Some(false)) = (min_output_tokens, indicator.map(Sli::is_rate)) {
        let message = "this SLI does not rate single exchanges; remove this key";
        errors.add_key(node, "min_output_tokens", message);
    }
    let mut objective = with_defaults(Label::from_trusted(name?), indicator?, target?.0);
    objective.counting.min_output_tokens = min_output_tokens.map(Bounded::get);
    Some(objective)
}

fn scope(
    written: &WrittenScope,
    slo: NodeId,
    known: Known<'_>,
    errors: &mut ErrorCollector,
) -> Scope {
    if written.tenant.is_some() && !known.has_tenants {
        let message = "requests carry no tenant; configure identity.tenant, or remove this key";
        errors.add_key(slo, "scope.tenant", message);
    }
    for (pattern, key, what) in [
        (&written.model, "scope.model", "a model name"),
        (&written.tenant, "scope.tenant", "a tenant"),
    ] {
        if pattern.as_ref().is_some_and(String::is_empty) {
            let message =
                format!("empty pattern; write {what}, with * for any text, or remove this key");
            errors.add_key(slo, key, message);
        }
    }
    let operation = written.operation.as_ref().and_then(|name| {
        let operation = Operation::ALL.into_iter().find(|operation| operation.as_str() == name);
        if operation.is_none() {
            let hint = suggestion(name, Operation::ALL.into_iter().map(Operation::as_str));
            let message = format!("unknown operation \"{name}\"; {hint}");
            errors.add_key(slo, "scope.operation", message);
        }
        operation
    });
    Scope {
        route: route(&written.route, (slo, "scope.route"), known.routes, errors),
        model: written.model.clone(),
        tenant: written.tenant.clone(),
        operation,
        stream: written.stream,
    }
}

/// Reports keys that define an indicator, such as `threshold`. A preset has its own indicators.
fn reject_own_indicator(written: &Slo, node: NodeId, errors: &mut ErrorCollector) {
    for (key, is_set) in [
        ("sli", written.sli.is_some()),
        ("threshold", written.threshold.is_some()),
        ("min_streams", written.min_streams.is_some()),
        ("min_output_tokens", written.min_output_tokens.is_some()),
    ] {
        if is_set {
            let hint = "remove this key, or replace the preset by SLOs of your own";
            errors.add_key(node, key, format!("a preset defines this; {hint}"));
        }
    }
}

/// Resolves the indicator of an entry.
struct Indicator<'a> {
    written: &'a Slo,
    node: NodeId,
    errors: &'a mut ErrorCollector,
}

impl Indicator<'_> {
    fn resolve(mut self, kind: SliKind) -> Option<Sli> {
        let min_streams = self.min_streams(kind);
        Some(match kind {
            SliKind::Availability => self.without_threshold(Sli::Availability),
            SliKind::StallFree => self.without_threshold(Sli::StallFree),
            SliKind::Ttft => Sli::Ttft(self.longest()?),
            SliKind::FirstVisible => Sli::FirstVisible(self.longest()?),
            SliKind::InterToken => Sli::InterToken(self.longest()?),
            SliKind::Duration => Sli::Duration(self.longest()?),
            SliKind::OutputRate => Sli::OutputRate(self.lowest()?),
            SliKind::TotalRate => Sli::TotalRate(self.lowest()?),
            SliKind::TokensAboveRate => Sli::TokensAboveRate(self.lowest()?),
            SliKind::SystemRate => Sli::SystemRate { floor: self.lowest()?, min_streams },
        })
    }

    fn without_threshold(&mut self, sli: Sli) -> Sli {
        if self.written.threshold.is_some() {
            let message = format!("{} has no threshold; remove this key", sli.as_str());
            self.errors.add_key(self.node, "threshold", message);
        }
        sli
    }

    /// Returns the minimum number of streams for `system_rate`, and 0 for all other indicators.
    fn min_streams(&mut self, kind: SliKind) -> u32 {
        let (written, key) = (&self.written.min_streams, (self.node, "min_streams"));
        if kind == SliKind::SystemRate {
            let hint = "write how many streams must be in flight for a minute to count, such as 8";
            self.errors.required(written, key, hint);
        } else if written.is_some() {
            let message = "only system_rate uses the number of streams; remove this key";
            self.errors.add_key(key.0, key.1, message);
        }
        written.map_or(0, Bounded::get)
    }

    /// Returns the maximum good time.
    fn longest(&mut self) -> Option<Duration> {
        self.threshold("write the longest good time, such as 2s", |text| {
            let DurationValue(time) = text.parse().ok()?;
            (!time.is_zero()).then_some(time)
        })
    }

    /// Returns the minimum good rate.
    fn lowest(&mut self) -> Option<f64> {
        self.threshold("write the lowest good rate in tokens per second, such as 15", |text| {
            text.parse().ok().filter(|rate: &f64| *rate > 0.0 && rate.is_finite())
        })
    }

    fn threshold<T>(&mut self, hint: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let key = (self.node, "threshold");
        let ThresholdValue(text) = self.errors.required(&self.written.threshold, key, hint)?;
        let threshold = parse(text);
        if threshold.is_none() {
            let message = format!("\"{text}\" is not a threshold of this indicator; {hint}");
            self.errors.add_key(key.0, key.1, message);
        }
        threshold
    }
}
