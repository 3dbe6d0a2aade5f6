//! Objectives: those of the file, or the defaults.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::{check_name, indicator, length_within};
use crate::config::deserialize::{Field, Spanned};
use crate::config::errors::{ErrorCollector, suggestion};
use crate::config::raw;
use tokengauge_llm::dialect::Operation;
use tokengauge_measure::slo::{Counting, Exclusion, Indicator, Objective, Preset, Promise, Scope};
use tokengauge_types::label::Label;

/// What the arithmetic of budgets covers.
const WINDOWS: RangeInclusive<Duration> =
    Duration::from_secs(3_600)..=Duration::from_secs(90 * 86_400);

/// A month less its odd days: the window that the usual burn-rate factors (14.4, 6, 3, 1) are made for.
const WINDOW: Duration = Duration::from_secs(30 * 86_400);

/// A backend that is not warm after a day does not get warm.
const WARM_UPS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(86_400);

/// Promises for chat that mean something on the first day; who knows better writes their own.
///
/// - Availability 99.5 %: 3 h 36 min of full outage in 30 days, room enough for one bad afternoon of a vendor.
/// - First token within 2 s for 95 %: loose on purpose, since nothing is known yet of models and prompts; a chat that is
///   meant to feel immediate wants 500 ms.
/// - 15 tokens per second and more for 95 %: three times as fast as people read, so that nobody waits for the text.
/// - Over within 60 s for 95 %: where nginx and common load balancers give up on an answer that is not streamed.
pub(super) fn defaults() -> Vec<Objective> {
    let promises = [
        ("availability", Indicator::Availability, 0.995),
        ("ttft", Indicator::TimeToFirstToken(Duration::from_secs(2)), 0.95),
        ("output_rate", Indicator::OutputRate(15.0), 0.95),
        ("duration", Indicator::Duration(Duration::from_secs(60)), 0.95),
    ];
    let objective = |(name, indicator, target)| Objective {
        name: Label::known(name),
        indicator,
        target,
        window: WINDOW,
        scope: Scope::default(),
        counting: Counting::default(),
    };
    promises.map(objective).into()
}

/// What scopes may name.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) routes: &'a [String],
    /// Whether requests name their tenants.
    pub(super) tenants: bool,
}

/// `flag` stands over the file, whose objectives are checked all the same.
pub(super) fn resolve(
    written: Field<Vec<Field<raw::Objective>>>,
    flag: Option<Preset>,
    known: Known<'_>,
    errors: &mut ErrorCollector,
) -> Vec<Objective> {
    let written = match written {
        Field::Present(written) => of_file(written, known, errors),
        Field::Absent | Field::Invalid => defaults(),
    };
    flag.map_or(written, |preset| preset_objectives(preset, None, None, &Common::default()))
}

fn of_file(
    written: Spanned<Vec<Field<raw::Objective>>>,
    known: Known<'_>,
    errors: &mut ErrorCollector,
) -> Vec<Objective> {
    let mut taken: Vec<String> = Vec::new();
    let mut objectives = Vec::new();
    for written in written.value.into_iter().filter_map(Field::spanned) {
        let node = match &written.value.name {
            Field::Present(name) => {
                check_name(&name.value, name.node, errors);
                name.node
            }
            Field::Absent | Field::Invalid => written.node,
        };
        let names = names(&written.value);
        if let Some(twice) = names.iter().find(|name| taken.contains(name)) {
            let message =
                format!("a second objective is called \"{twice}\"; give this one another name");
            errors.at(node, message);
        }
        taken.extend(names);
        objectives.extend(entry(written, known, errors));
    }
    objectives
}

/// How the objectives of one entry are called, as far as that is known.
fn names(written: &raw::Objective) -> Vec<String> {
    let name = written.name.clone().value();
    match written.preset.clone().value() {
        Some(written) => {
            let preset = preset(written);
            let first = name.as_deref().unwrap_or(preset.as_str());
            let promises = preset.promises().iter();
            promises.map(|promise| of_preset(first, promise)).collect()
        }
        None => name.into_iter().collect(),
    }
}

fn of_preset(first: &str, promise: &Promise) -> String {
    format!("{first}-{}", promise.name)
}

/// Where budgets are kept over a restart.
pub(super) fn state(written: Field<raw::SloState>, errors: &mut ErrorCollector) -> Option<PathBuf> {
    let Spanned { value, node } = written.spanned()?;
    let path = value.path.required(errors, node, "path", "write the path of a file")?;
    if path.value.file_name().is_none() {
        errors.at(path.node, "this is no path of a file; write one");
    }
    Some(path.value)
}

/// What one entry of the list amounts to.
fn entry(
    written: Spanned<raw::Objective>,
    known: Known<'_>,
    errors: &mut ErrorCollector,
) -> Vec<Objective> {
    let Spanned { value, node } = written;
    let common = Common {
        window: length_within(value.window, WINDOWS, errors).unwrap_or(WINDOW),
        scope: scope(value.scope, known, errors),
        warmup: length_within(value.warmup, WARM_UPS, errors).unwrap_or_default(),
        exclude: exclusions(value.exclude),
    };
    let own = indicator::Written {
        indicator: value.indicator,
        threshold: value.threshold,
        min_streams: value.min_streams,
        min_output_tokens: value.min_output_tokens,
    };
    match value.preset {
        Field::Present(preset) => {
            own.refuse(errors);
            let name = value.name.value();
            let target = value.target.value().map(|target| target.0);
            preset_objectives(self::preset(preset.value), name.as_deref(), target, &common)
        }
        // What it would have been is not known.
        Field::Invalid => Vec::new(),
        Field::Absent => {
            let remedy = "give it one, such as chat-ttft";
            let name = value.name.required(errors, node, "name", remedy);
            let remedy = "write the share that shall be good, such as 99.5%";
            let target = value.target.required(errors, node, "target", remedy);
            let one = own.resolve(node, errors);
            let objective = || {
                let (indicator, min_output_tokens) = one?;
                let name = Label::known(&name?.value);
                Some(common.objective(name, indicator, target?.value.0, min_output_tokens))
            };
            objective().into_iter().collect()
        }
    }
}

/// What every objective may say, and those of a preset all at once.
struct Common {
    window: Duration,
    scope: Scope,
    warmup: Duration,
    exclude: Vec<Exclusion>,
}

impl Default for Common {
    fn default() -> Self {
        Self {
            window: WINDOW,
            scope: Scope::default(),
            warmup: Duration::ZERO,
            exclude: Vec::new(),
        }
    }
}

impl Common {
    fn objective(
        &self,
        name: Label,
        indicator: Indicator,
        target: f64,
        min_output_tokens: Option<u32>,
    ) -> Objective {
        Objective {
            name,
            indicator,
            target,
            window: self.window,
            scope: self.scope.clone(),
            counting: Counting {
                warmup: self.warmup,
                min_output_tokens,
                exclude: self.exclude.clone(),
            },
        }
    }
}

fn preset_objectives(
    preset: Preset,
    name: Option<&str>,
    target: Option<f64>,
    common: &Common,
) -> Vec<Objective> {
    let first = name.unwrap_or(preset.as_str());
    let objective = |promise: &Promise| {
        let name = Label::known(&of_preset(first, promise));
        let target = target.unwrap_or(promise.target);
        common.objective(name, promise.indicator, target, None)
    };
    preset.promises().iter().map(objective).collect()
}

const fn preset(written: raw::Preset) -> Preset {
    match written {
        raw::Preset::Chat => Preset::Chat,
        raw::Preset::Voice => Preset::Voice,
        raw::Preset::Code => Preset::Code,
        raw::Preset::Batch => Preset::Batch,
        raw::Preset::Agent => Preset::Agent,
    }
}

/// Each once, in the order of the enum: what is written twice, or otherwise round, is the same objective.
fn exclusions(written: Field<Vec<Field<raw::Exclusion>>>) -> Vec<Exclusion> {
    let written = written.value().unwrap_or_default().into_iter();
    let mut exclude: Vec<_> = written
        .filter_map(Field::value)
        .map(|exclusion| match exclusion {
            raw::Exclusion::RateLimited => Exclusion::RateLimited,
            raw::Exclusion::Overload => Exclusion::Overload,
            raw::Exclusion::Shutdown => Exclusion::Shutdown,
            raw::Exclusion::Warming => Exclusion::Warming,
        })
        .collect();
    exclude.sort_unstable();
    exclude.dedup();
    exclude
}

fn scope(written: Field<raw::Scope>, known: Known<'_>, errors: &mut ErrorCollector) -> Scope {
    let written = written.value().unwrap_or_default();
    let route = written.route.spanned().map(|Spanned { value, node }| {
        if !known.routes.contains(&value) {
            let near = suggestion(&value, known.routes.iter().map(String::as_str));
            errors.at(node, format!("there is no route \"{value}\"; {near}"));
        }
        Label::known(&value)
    });
    if let Field::Present(tenant) = &written.tenant
        && !known.tenants
    {
        let message = "nothing says whose a request is; write identity.tenant, or remove the key";
        errors.at(tenant.node, message);
    }
    let tenant = pattern(written.tenant, "a tenant", errors);
    Scope {
        route,
        model: pattern(written.model, "a model's name", errors),
        tenant,
        operation: operation(written.operation, errors),
        stream: written.stream.value(),
    }
}

fn pattern(written: Field<String>, what: &str, errors: &mut ErrorCollector) -> Option<String> {
    let Spanned { value, node } = written.spanned()?;
    if value.is_empty() {
        let message =
            format!("this is no pattern; write {what}, with * for any text, or remove the key");
        errors.at(node, message);
    }
    Some(value)
}

fn operation(written: Field<String>, errors: &mut ErrorCollector) -> Option<Operation> {
    let Spanned { value, node } = written.spanned()?;
    let words = || Operation::ALL.into_iter();
    let known = words().find(|operation| operation.as_str() == value);
    if known.is_none() {
        let near = suggestion(&value, words().map(Operation::as_str));
        errors.at(node, format!("there is no operation \"{value}\"; {near}"));
    }
    known
}
