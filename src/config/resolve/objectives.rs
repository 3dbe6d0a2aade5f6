//! Resolves service level objectives from the file, from a preset, or from the defaults.

use std::path::PathBuf;
use std::time::Duration;

use super::{check_length, check_name, route};
use crate::config::bounded::Bounded;
use crate::config::deserialize::{Field, Spanned};
use crate::config::errors::{ErrorCollector, NodeId, suggestion};
use crate::config::raw;
use crate::config::value::{DurationValue, Ratio, ThresholdValue};
use tokengauge_llm::dialect::Operation;
use tokengauge_measure::slo::{
    CountingRules, Exclusion, Objective, Preset, PresetObjective, Scope, Sli,
};
use tokengauge_telemetry::MAX_CONFIGURED;
use tokengauge_types::label::Label;

/// Default window of SLOs: 30 days. The usual burn rates of alerts (14.4, 6, 3, 1) assume this length.
pub(super) const DEFAULT_WINDOW: Duration = Duration::from_secs(30 * 86_400);

/// The values of the key `sli`.
const SLIS: &str = "availability, ttft, first_visible, output_rate, total_rate, stall_free, inter_token, \
                          duration, tokens_above_rate, system_rate";

/// The routes and features that scopes may refer to.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) routes: &'a [String],
    /// Whether requests carry a tenant.
    pub(super) has_tenants: bool,
}

/// Resolves the SLOs. If `flag` names a preset, it replaces the SLOs of the file. The file is checked anyway. Presets
/// and defaults are written to `written` as single SLOs.
pub(super) fn resolve(
    written: &mut Field<Vec<Field<raw::Slo>>>,
    flag: Option<Preset>,
    known: Known<'_>,
    errors: &mut ErrorCollector,
) -> Vec<Objective> {
    let from_file = match written.as_ref().map(|list| list.node) {
        Some(node) => {
            let objectives = from_list(written, known, errors);
            check_length((objectives.len(), node), MAX_CONFIGURED, "SLOs", errors);
            objectives
        }
        None => defaults(),
    };
    let objectives = flag.map_or(from_file, |preset| from_preset(preset, None, None));
    *written = objectives.iter().map(to_raw).collect();
    objectives
}

fn to_raw(objective: &Objective) -> raw::Slo {
    let Objective { name, indicator, target, window, scope, counting } = objective;
    let time = indicator.longest().map(|time| ThresholdValue(DurationValue(time).to_string()));
    let rate = indicator.lowest().map(|rate| ThresholdValue(rate.to_string()));
    let (indicator, min_streams) = match *indicator {
        Sli::Availability => (raw::Sli::Availability, None),
        Sli::Ttft(_) => (raw::Sli::Ttft, None),
        Sli::FirstVisible(_) => (raw::Sli::FirstVisible, None),
        Sli::OutputRate(_) => (raw::Sli::OutputRate, None),
        Sli::TotalRate(_) => (raw::Sli::TotalRate, None),
        Sli::StallFree => (raw::Sli::StallFree, None),
        Sli::InterToken(_) => (raw::Sli::InterToken, None),
        Sli::Duration(_) => (raw::Sli::Duration, None),
        Sli::TokensAboveRate(_) => (raw::Sli::TokensAboveRate, None),
        Sli::SystemRate { min_streams, .. } => (raw::Sli::SystemRate, Some(min_streams)),
    };
    let raw_scope = (*scope != Scope::default()).then(|| raw::Scope {
        route: scope.route.as_ref().map(ToString::to_string).into(),
        model: scope.model.clone().into(),
        tenant: scope.tenant.clone().into(),
        operation: scope.operation.map(|operation| operation.as_str().to_owned()).into(),
        stream: scope.stream.into(),
    });
    raw::Slo {
        preset: Field::Absent,
        name: Field::from_value(name.to_string()),
        sli: Field::from_value(indicator),
        threshold: time.or(rate).into(),
        min_streams: min_streams.map(Bounded::within).into(),
        min_output_tokens: counting.min_output_tokens.map(Bounded::within).into(),
        target: Field::from_value(Ratio(*target)),
        window: Field::from_value(Bounded::within(DurationValue(*window))),
        warmup: Field::from_value(Bounded::within(DurationValue(counting.warmup))),
        exclude: counting.exclude.iter().copied().collect(),
        scope: raw_scope.into(),
    }
}

/// Returns the path of the file that keeps error budgets across restarts.
pub(super) fn state(
    written: &Field<raw::SloState>,
    errors: &mut ErrorCollector,
) -> Option<PathBuf> {
    let Spanned { value, node } = written.as_ref()?;
    let path = value.path.required(errors, *node, "path", "write the path of a file")?;
    if path.value.file_name().is_none() {
        errors.add(path.node, "not the path of a file; add a file name");
    }
    Some(path.value.clone())
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
    Objective { name, indicator, target, window: DEFAULT_WINDOW, scope, counting }
}

fn from_preset(preset: Preset, prefix: Option<&str>, target: Option<f64>) -> Vec<Objective> {
    let prefix = prefix.unwrap_or(preset.as_str());
    let objective = |promise: &PresetObjective| {
        let name = Label::from_trusted(&format!("{prefix}-{}", promise.name));
        with_defaults(name, promise.indicator, target.unwrap_or(promise.target))
    };
    preset.objectives().iter().map(objective).collect()
}

fn from_list(
    written: &mut Field<Vec<Field<raw::Slo>>>,
    known: Known<'_>,
    errors: &mut ErrorCollector,
) -> Vec<Objective> {
    let mut used_names: Vec<Label> = Vec::new();
    let mut objectives = Vec::new();
    for written in written.entries() {
        let entry = from_entry(written, known, errors);
        let mut names: Vec<Label> = entry.iter().map(|one| one.name.clone()).collect();
        let mut node = written.node;
        if let Some(name) = written.value.name.as_ref() {
            check_name(&name.value, name.node, errors);
            node = name.node;
            if names.is_empty() {
                names.push(Label::from_trusted(&name.value));
            }
        }
        if let Some(name) = names.iter().find(|name| used_names.contains(name)) {
            errors.add(node, format!("duplicate SLO name \"{name}\"; use another name"));
        }
        used_names.extend(names);
        objectives.extend(entry);
    }
    objectives
}

/// Returns the objectives of one list entry: those of its preset, or a single one.
fn from_entry(
    written: &mut Spanned<raw::Slo>,
    known: Known<'_>,
    errors: &mut ErrorCollector,
) -> Vec<Objective> {
    let Spanned { value, node } = written;
    let mut objectives = match value.preset {
        Field::Present(preset) => {
            reject_own_indicator(value, errors);
            let target = value.target.value().map(|target| target.0);
            from_preset(preset.value, value.name.get().map(String::as_str), target)
        }
        Field::Invalid => Vec::new(),
        Field::Absent => from_keys(value, *node, errors).into_iter().collect(),
    };
    let window = value.window.or_time(DEFAULT_WINDOW);
    let scope = value.scope.get().map(|written| scope(written, known, errors)).unwrap_or_default();
    let warmup = value.warmup.or_time(Duration::ZERO);
    let exclude = exclusions(&mut value.exclude);
    for objective in &mut objectives {
        objective.window = window;
        objective.scope = scope.clone();
        objective.counting.warmup = warmup;
        objective.counting.exclude.clone_from(&exclude);
    }
    objectives
}

/// Returns the objective of an entry without a preset.
fn from_keys(written: &raw::Slo, node: NodeId, errors: &mut ErrorCollector) -> Option<Objective> {
    let name = written.name.required(errors, node, "name", "add one, such as chat-ttft");
    let hint = "write the ratio of good exchanges, such as 99.5%";
    let target = written.target.required(errors, node, "target", hint);
    let (indicator, min_output_tokens) = indicator(written, node, errors)?;
    let mut objective =
        with_defaults(Label::from_trusted(&name?.value), indicator, target?.value.0);
    objective.counting.min_output_tokens = min_output_tokens;
    Some(objective)
}

/// Returns the exclusions, sorted and without duplicates. Equal settings then have equal fingerprints.
fn exclusions(written: &mut Field<Vec<Field<Exclusion>>>) -> Vec<Exclusion> {
    let mut exclude: Vec<_> = written.entries().map(|exclusion| exclusion.value).collect();
    exclude.sort_unstable();
    exclude.dedup();
    exclude
}

fn scope(written: &raw::Scope, known: Known<'_>, errors: &mut ErrorCollector) -> Scope {
    if let Field::Present(tenant) = &written.tenant
        && !known.has_tenants
    {
        let message = "requests carry no tenant; configure identity.tenant, or remove this key";
        errors.add(tenant.node, message);
    }
    Scope {
        route: route(&written.route, known.routes, errors),
        model: pattern(&written.model, "a model name", errors),
        tenant: pattern(&written.tenant, "a tenant", errors),
        operation: operation(&written.operation, errors),
        stream: written.stream.value(),
    }
}

fn pattern(written: &Field<String>, what: &str, errors: &mut ErrorCollector) -> Option<String> {
    let Spanned { value, node } = written.as_ref()?;
    if value.is_empty() {
        let message =
            format!("empty pattern; write {what}, with * for any text, or remove this key");
        errors.add(*node, message);
    }
    Some(value.clone())
}

fn operation(written: &Field<String>, errors: &mut ErrorCollector) -> Option<Operation> {
    let Spanned { value, node } = written.as_ref()?;
    let operation = Operation::ALL.into_iter().find(|operation| operation.as_str() == value);
    if operation.is_none() {
        let hint = suggestion(value, Operation::ALL.into_iter().map(Operation::as_str));
        errors.add(*node, format!("unknown operation \"{value}\"; {hint}"));
    }
    operation
}

/// Reports keys that define an indicator, such as `threshold`. A preset has its own indicators.
fn reject_own_indicator(written: &raw::Slo, errors: &mut ErrorCollector) {
    let nodes = [
        written.sli.as_ref().map(|field| field.node),
        written.threshold.as_ref().map(|field| field.node),
        written.min_streams.as_ref().map(|field| field.node),
        written.min_output_tokens.as_ref().map(|field| field.node),
    ];
    for node in nodes.into_iter().flatten() {
        let hint = "remove this key, or replace the preset by SLOs of your own";
        errors.add(node, format!("a preset defines this; {hint}"));
    }
}

/// Returns the indicator, and the minimum number of output tokens of a request that counts.
fn indicator(
    written: &raw::Slo,
    objective: NodeId,
    errors: &mut ErrorCollector,
) -> Option<(Sli, Option<u32>)> {
    let hint = format!("write one of {SLIS}; or a preset");
    let kind = written.sli.required(errors, objective, "sli", &hint)?.value;
    let indicator = with_threshold(kind, written, objective, errors);
    let min_output_tokens = written.min_output_tokens.spanned();
    if let (Some(field), Some(false)) = (min_output_tokens, indicator.map(Sli::is_rate)) {
        let message = "this SLI does not rate single exchanges; remove this key";
        errors.add(field.node, message);
    }
    Some((indicator?, min_output_tokens.map(|field| field.value.get())))
}

fn with_threshold(
    kind: raw::Sli,
    written: &raw::Slo,
    objective: NodeId,
    errors: &mut ErrorCollector,
) -> Option<Sli> {
    use raw::Sli as Kind;
    let min_streams = min_streams(kind, written.min_streams, objective, errors);
    let threshold = &written.threshold;
    let indicator = match kind {
        Kind::Availability => Sli::Availability,
        Kind::StallFree => Sli::StallFree,
        Kind::Ttft => Sli::Ttft(longest(threshold, objective, errors)?),
        Kind::FirstVisible => Sli::FirstVisible(longest(threshold, objective, errors)?),
        Kind::InterToken => Sli::InterToken(longest(threshold, objective, errors)?),
        Kind::Duration => Sli::Duration(longest(threshold, objective, errors)?),
        Kind::OutputRate => Sli::OutputRate(lowest(threshold, objective, errors)?),
        Kind::TotalRate => Sli::TotalRate(lowest(threshold, objective, errors)?),
        Kind::TokensAboveRate => Sli::TokensAboveRate(lowest(threshold, objective, errors)?),
        Kind::SystemRate => {
            Sli::SystemRate { floor: lowest(threshold, objective, errors)?, min_streams }
        }
    };
    if let (Sli::Availability | Sli::StallFree, Some(threshold)) = (indicator, threshold.as_ref()) {
        let message = format!("{} has no threshold; remove this key", indicator.as_str());
        errors.add(threshold.node, message);
    }
    Some(indicator)
}

/// Returns the minimum number of streams for `system_rate`, and 0 for all other indicators.
fn min_streams(
    kind: raw::Sli,
    written: Field<raw::Count>,
    objective: NodeId,
    errors: &mut ErrorCollector,
) -> u32 {
    if kind == raw::Sli::SystemRate {
        let hint = "write how many streams must be in flight for a minute to count, such as 8";
        written.required(errors, objective, "min_streams", hint);
    } else if let Some(Spanned { node, .. }) = written.spanned() {
        errors.add(node, "only system_rate uses the number of streams; remove this key");
    }
    written.value().map_or(0, Bounded::get)
}

/// Returns the maximum good time.
fn longest(
    written: &Field<ThresholdValue>,
    objective: NodeId,
    errors: &mut ErrorCollector,
) -> Option<Duration> {
    let hint = "write the longest good time, such as 2s";
    threshold(written, objective, hint, errors, |text| {
        let DurationValue(time) = text.parse().ok()?;
        (!time.is_zero()).then_some(time)
    })
}

/// Returns the minimum good rate.
fn lowest(
    written: &Field<ThresholdValue>,
    objective: NodeId,
    errors: &mut ErrorCollector,
) -> Option<f64> {
    let hint = "write the lowest good rate in tokens per second, such as 15";
    threshold(written, objective, hint, errors, |text| {
        text.parse().ok().filter(|rate: &f64| *rate > 0.0 && rate.is_finite())
    })
}

fn threshold<T>(
    written: &Field<ThresholdValue>,
    objective: NodeId,
    hint: &str,
    errors: &mut ErrorCollector,
    parse: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let Spanned { value: ThresholdValue(text), node } =
        written.required(errors, objective, "threshold", hint)?;
    let threshold = parse(text);
    if threshold.is_none() {
        errors.add(*node, format!("\"{text}\" is not a threshold of this indicator; {hint}"));
    }
    threshold
}
