//! Service level objectives: those of the file, of a preset, or the defaults.

use std::path::PathBuf;
use std::time::Duration;

use super::{check_name, check_route};
use crate::config::deserialize::{Field, Spanned};
use crate::config::errors::{ErrorCollector, NodeId, suggestion};
use crate::config::raw;
use crate::config::value::{DurationValue, ThresholdValue};
use tokengauge_llm::dialect::Operation;
use tokengauge_measure::slo::{
    CountingRules, Exclusion, Objective, Preset, PresetObjective, Scope, Sli,
};
use tokengauge_types::label::Label;

/// A month of 30 days, for which the usual burn-rate factors (14.4, 6, 3, 1) are made.
pub(super) const DEFAULT_WINDOW: Duration = Duration::from_secs(30 * 86_400);

/// The values of the key `indicator`.
const INDICATORS: &str = "availability, ttft, first_visible, output_rate, total_rate, stall_free, inter_token, \
                          duration, tokens_above_rate, system_rate";

/// What scopes may refer to.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) routes: &'a [String],
    /// Whether requests carry a tenant.
    pub(super) has_tenants: bool,
}

/// The preset of the flag replaces the objectives of the file, which are checked nevertheless.
pub(super) fn resolve(
    written: Field<Vec<Field<raw::Objective>>>,
    flag: Option<Preset>,
    known: Known<'_>,
    errors: &mut ErrorCollector,
) -> Vec<Objective> {
    let from_file = match written {
        Field::Present(list) => from_list(list.value, known, errors),
        Field::Absent | Field::Invalid => defaults(),
    };
    flag.map_or(from_file, |preset| Common::default().preset(preset, None, None))
}

/// The file that stores error budgets across restarts.
pub(super) fn state(written: Field<raw::SloState>, errors: &mut ErrorCollector) -> Option<PathBuf> {
    let Spanned { value, node } = written.spanned()?;
    let path = value.path.required(errors, node, "path", "write the path of a file")?;
    if path.value.file_name().is_none() {
        errors.add(path.node, "not the path of a file; add a file name");
    }
    Some(path.value)
}

/// Default objectives for chat, loose enough to mean something before anything has been measured.
///
/// - Availability 99.5 %: 3 h 36 min of full outage in 30 days, enough for one bad afternoon of a provider.
/// - First token within 2 s for 95 %: models and prompts are not known yet. A chat that should feel immediate needs
///   500 ms.
/// - At least 15 tokens per second for 95 %: three times as fast as people read.
/// - Complete within 60 s for 95 %: where nginx and common load balancers abort a response that is not streamed.
fn defaults() -> Vec<Objective> {
    let objectives = [
        ("availability", Sli::Availability, 0.995),
        ("ttft", Sli::TimeToFirstToken(Duration::from_secs(2)), 0.95),
        ("output_rate", Sli::OutputRate(15.0), 0.95),
        ("duration", Sli::Duration(Duration::from_secs(60)), 0.95),
    ];
    let common = Common::default();
    let objective =
        |(name, indicator, target)| common.objective(Label::known(name), indicator, target, None);
    objectives.map(objective).into()
}

fn from_list(
    written: Vec<Field<raw::Objective>>,
    known: Known<'_>,
    errors: &mut ErrorCollector,
) -> Vec<Objective> {
    let mut used_names: Vec<String> = Vec::new();
    let mut objectives = Vec::new();
    for written in written.into_iter().filter_map(Field::spanned) {
        let node = match &written.value.name {
            Field::Present(name) => {
                check_name(&name.value, name.node, errors);
                name.node
            }
            Field::Absent | Field::Invalid => written.node,
        };
        let names = names(&written.value);
        if let Some(name) = names.iter().find(|name| used_names.contains(name)) {
            errors.add(node, format!("duplicate objective name \"{name}\"; use another name"));
        }
        used_names.extend(names);
        objectives.extend(from_entry(written, known, errors));
    }
    objectives
}

/// The names of the objectives of one entry, if they are known.
fn names(written: &raw::Objective) -> Vec<String> {
    let name = written.name.clone().value();
    match written.preset.clone().value() {
        Some(preset) => {
            let prefix = name.as_deref().unwrap_or(preset.as_str());
            preset.promises().iter().map(|promise| preset_name(prefix, promise)).collect()
        }
        None => name.into_iter().collect(),
    }
}

fn preset_name(prefix: &str, promise: &PresetObjective) -> String {
    format!("{prefix}-{}", promise.name)
}

/// The objectives of one entry: those of its preset, or one.
fn from_entry(
    written: Spanned<raw::Objective>,
    known: Known<'_>,
    errors: &mut ErrorCollector,
) -> Vec<Objective> {
    let Spanned { value, node } = written;
    let common = Common {
        window: value.window.duration().unwrap_or(DEFAULT_WINDOW),
        scope: scope(value.scope, known, errors),
        warmup: value.warmup.duration().unwrap_or_default(),
        exclude: exclusions(value.exclude),
    };
    let own = OwnIndicator {
        indicator: value.indicator,
        threshold: value.threshold,
        min_streams: value.min_streams,
        min_output_tokens: value.min_output_tokens,
    };
    match value.preset {
        Field::Present(preset) => {
            own.reject_all(errors);
            let target = value.target.value().map(|target| target.0);
            common.preset(preset.value, value.name.value().as_deref(), target)
        }
        Field::Invalid => Vec::new(),
        Field::Absent => {
            let name = value.name.required(errors, node, "name", "add one, such as chat-ttft");
            let hint = "write the ratio of good exchanges, such as 99.5%";
            let target = value.target.required(errors, node, "target", hint);
            let indicator = own.resolve(node, errors);
            let objective = || {
                let (indicator, min_output_tokens) = indicator?;
                let name = Label::known(&name?.value);
                Some(common.objective(name, indicator, target?.value.0, min_output_tokens))
            };
            objective().into_iter().collect()
        }
    }
}

/// Settings that apply to every objective of an entry.
struct Common {
    window: Duration,
    scope: Scope,
    warmup: Duration,
    exclude: Vec<Exclusion>,
}

impl Default for Common {
    fn default() -> Self {
        let window = DEFAULT_WINDOW;
        Self { window, scope: Scope::default(), warmup: Duration::ZERO, exclude: Vec::new() }
    }
}

impl Common {
    fn objective(
        &self,
        name: Label,
        indicator: Sli,
        target: f64,
        min_output_tokens: Option<u32>,
    ) -> Objective {
        let Self { window, scope, warmup, exclude } = self;
        let exclude = exclude.clone();
        Objective {
            name,
            indicator,
            target,
            window: *window,
            scope: scope.clone(),
            counting: CountingRules { warmup: *warmup, min_output_tokens, exclude },
        }
    }

    fn preset(&self, preset: Preset, name: Option<&str>, target: Option<f64>) -> Vec<Objective> {
        let prefix = name.unwrap_or(preset.as_str());
        let objective = |promise: &PresetObjective| {
            let name = Label::known(&preset_name(prefix, promise));
            self.objective(name, promise.indicator, target.unwrap_or(promise.target), None)
        };
        preset.promises().iter().map(objective).collect()
    }
}

/// Sorted and without duplicates, so that equal settings have equal fingerprints.
fn exclusions(written: Field<Vec<Field<Exclusion>>>) -> Vec<Exclusion> {
    let mut exclude: Vec<_> = written.or_default().into_iter().filter_map(Field::value).collect();
    exclude.sort_unstable();
    exclude.dedup();
    exclude
}

fn scope(written: Field<raw::Scope>, known: Known<'_>, errors: &mut ErrorCollector) -> Scope {
    let written = written.or_default();
    let route = written.route.spanned().map(|route| {
        check_route(&route, known.routes, errors);
        Label::known(&route.value)
    });
    if let Field::Present(tenant) = &written.tenant
        && !known.has_tenants
    {
        let message = "requests carry no tenant; configure identity.tenant, or remove this key";
        errors.add(tenant.node, message);
    }
    Scope {
        route,
        model: pattern(written.model, "a model name", errors),
        tenant: pattern(written.tenant, "a tenant", errors),
        operation: operation(written.operation, errors),
        stream: written.stream.value(),
    }
}

fn pattern(written: Field<String>, what: &str, errors: &mut ErrorCollector) -> Option<String> {
    let Spanned { value, node } = written.spanned()?;
    if value.is_empty() {
        let message =
            format!("empty pattern; write {what}, with * for any text, or remove this key");
        errors.add(node, message);
    }
    Some(value)
}

fn operation(written: Field<String>, errors: &mut ErrorCollector) -> Option<Operation> {
    let Spanned { value, node } = written.spanned()?;
    let operation = Operation::ALL.into_iter().find(|operation| operation.as_str() == value);
    if operation.is_none() {
        let hint = suggestion(&value, Operation::ALL.into_iter().map(Operation::as_str));
        errors.add(node, format!("unknown operation \"{value}\"; {hint}"));
    }
    operation
}

/// The keys that define an indicator. A preset does not allow them.
struct OwnIndicator {
    indicator: Field<raw::Indicator>,
    threshold: Field<ThresholdValue>,
    min_streams: Field<raw::Count>,
    min_output_tokens: Field<raw::Count>,
}

/// How an indicator uses its threshold.
enum ThresholdKind {
    None(Sli),
    /// The longest good time.
    Time(fn(Duration) -> Sli),
    /// The lowest good rate.
    Rate(fn(f64) -> Sli),
    /// The lowest good rate, with a minimum number of streams.
    SystemRate,
}

impl OwnIndicator {
    fn reject_all(self, errors: &mut ErrorCollector) {
        let nodes = [
            self.indicator.spanned().map(|field| field.node),
            self.threshold.spanned().map(|field| field.node),
            self.min_streams.spanned().map(|field| field.node),
            self.min_output_tokens.spanned().map(|field| field.node),
        ];
        for node in nodes.into_iter().flatten() {
            let hint = "remove this key, or replace the preset by an objective of your own";
            errors.add(node, format!("a preset defines this; {hint}"));
        }
    }

    /// The indicator, and the minimum number of output tokens of a rated exchange.
    fn resolve(self, objective: NodeId, errors: &mut ErrorCollector) -> Option<(Sli, Option<u32>)> {
        let hint = format!("write one of {INDICATORS}; or a preset");
        let kind = self.indicator.required(errors, objective, "indicator", &hint)?.value;
        let min_streams = min_streams(kind, self.min_streams, objective, errors);
        let indicator = indicator(kind, self.threshold, min_streams, objective, errors);
        let min_output_tokens = self.min_output_tokens.spanned();
        if let (Some(field), Some(false)) = (min_output_tokens, indicator.map(Sli::is_rate)) {
            let message = "this indicator does not rate single exchanges; remove this key";
            errors.add(field.node, message);
        }
        Some((indicator?, min_output_tokens.map(|field| field.value.get())))
    }
}

fn min_streams(
    kind: raw::Indicator,
    written: Field<raw::Count>,
    objective: NodeId,
    errors: &mut ErrorCollector,
) -> Option<u32> {
    if kind == raw::Indicator::SystemRate {
        let hint = "write how many streams must be in flight for a minute to count, such as 8";
        let field = written.required(errors, objective, "min_streams", hint)?;
        return Some(field.value.get());
    }
    if let Some(Spanned { node, .. }) = written.spanned() {
        errors.add(node, "only system_rate uses the number of streams; remove this key");
    }
    None
}

const fn threshold_kind(kind: raw::Indicator) -> ThresholdKind {
    match kind {
        raw::Indicator::Availability => ThresholdKind::None(Sli::Availability),
        raw::Indicator::StallFree => ThresholdKind::None(Sli::StallFree),
        raw::Indicator::Ttft => ThresholdKind::Time(Sli::TimeToFirstToken),
        raw::Indicator::FirstVisible => ThresholdKind::Time(Sli::FirstVisible),
        raw::Indicator::InterToken => ThresholdKind::Time(Sli::InterToken),
        raw::Indicator::Duration => ThresholdKind::Time(Sli::Duration),
        raw::Indicator::OutputRate => ThresholdKind::Rate(Sli::OutputRate),
        raw::Indicator::TotalRate => ThresholdKind::Rate(Sli::TotalRate),
        raw::Indicator::TokensAboveRate => ThresholdKind::Rate(Sli::TokensAboveRate),
        raw::Indicator::SystemRate => ThresholdKind::SystemRate,
    }
}

fn indicator(
    kind: raw::Indicator,
    threshold: Field<ThresholdValue>,
    min_streams: Option<u32>,
    objective: NodeId,
    errors: &mut ErrorCollector,
) -> Option<Sli> {
    let kind = threshold_kind(kind);
    let hint = match &kind {
        ThresholdKind::None(indicator) => {
            if let Field::Present(threshold) = threshold {
                let message = format!("{} has no threshold; remove this key", indicator.as_str());
                errors.add(threshold.node, message);
            }
            return Some(*indicator);
        }
        ThresholdKind::Time(_) => "write the longest good time, such as 2s",
        ThresholdKind::Rate(_) | ThresholdKind::SystemRate => {
            "write the lowest good rate in tokens per second, such as 15"
        }
    };
    let threshold = threshold.required(errors, objective, "threshold", hint)?;
    let Spanned { value: ThresholdValue(text), node } = threshold;
    let indicator = match kind {
        ThresholdKind::None(indicator) => Some(indicator),
        ThresholdKind::Time(of) => parse_time(&text).map(of),
        ThresholdKind::Rate(of) => parse_rate(&text).map(of),
        // A missing number of streams has been reported; any number will do to check the rate.
        ThresholdKind::SystemRate => parse_rate(&text)
            .map(|floor| Sli::SystemRate { floor, min_streams: min_streams.unwrap_or_default() }),
    };
    if indicator.is_none() {
        errors.add(node, format!("\"{text}\" is not a threshold of this indicator; {hint}"));
    }
    indicator
}

fn parse_time(text: &str) -> Option<Duration> {
    let DurationValue(time) = text.parse().ok()?;
    (!time.is_zero()).then_some(time)
}

fn parse_rate(text: &str) -> Option<f64> {
    let rate: f64 = text.parse().ok()?;
    (rate > 0.0 && rate.is_finite()).then_some(rate)
}
