//! SLOs: events, remaining error budgets and burn rates.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Reachable;
use crate::document;
use crate::text::Text;

#[derive(Clone, Debug, Serialize)]
pub struct Slo {
    pub name: Text,
    pub sli: Option<Text>,
    pub threshold: Option<f64>,
    pub threshold_unit: Option<Text>,
    pub target: Option<f64>,
    pub window_seconds: Option<f64>,
    pub good: u64,
    pub bad: u64,
    pub excluded: u64,
    pub error_budget_remaining: Option<Budget>,
    /// The highest burn rate of a process, per window.
    pub burn_rate: BTreeMap<Text, BurnRate>,
    /// The shortest covered part of the window.
    pub window_covered_seconds: Option<f64>,
    /// The shortest time of a process until its budget is spent.
    pub time_to_exhaustion_seconds: Option<f64>,
    /// What caused most bad events.
    pub consumed_by: Option<Text>,
}

/// A remaining error budget as a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Budget {
    pub remaining: f64,
    /// Whether the value is the lowest budget of a process, because the events of the window cannot be added up.
    pub is_lowest: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BurnRate {
    pub process: Text,
    pub burn_rate: f64,
}

/// An SLO in one process.
type InProcess<'a> = (&'a Text, &'a document::Slo);

/// Merges SLOs with the same name, in the order of the first process that has them.
pub(super) fn merge(processes: &[Reachable<'_>]) -> Vec<Slo> {
    let mut names: Vec<&Text> = Vec::new();
    let mut merged: BTreeMap<&Text, Vec<InProcess<'_>>> = BTreeMap::new();
    for process in processes {
        for slo in &process.snapshot.slos {
            let same = merged.entry(&slo.name).or_insert_with(|| {
                names.push(&slo.name);
                Vec::new()
            });
            same.push((process.name, slo));
        }
    }
    names.iter().filter_map(|name| merged.get(name)).filter_map(|it| Slo::merge(it)).collect()
}

impl Slo {
    fn merge(slos: &[InProcess<'_>]) -> Option<Self> {
        let (_, first) = slos.first()?;
        let each = || slos.iter().map(|(_, slo)| *slo);
        let add = |value: fn(&document::Slo) -> u64| {
            each().fold(0, |sum: u64, slo| sum.saturating_add(value(slo)))
        };
        let lowest = |value: fn(&document::Slo) -> Option<f64>| {
            each().filter_map(value).min_by(f64::total_cmp)
        };
        Some(Self {
            name: first.name.clone(),
            sli: first.sli.clone(),
            threshold: first.threshold.as_ref().and_then(|it| it.value),
            threshold_unit: first.threshold.as_ref().map(|it| it.unit.clone()),
            target: first.target,
            window_seconds: first.window_seconds,
            good: add(|slo| slo.good),
            bad: add(|slo| slo.bad),
            excluded: add(|slo| slo.excluded),
            error_budget_remaining: budget(slos),
            burn_rate: burn_rates(slos),
            window_covered_seconds: lowest(|slo| slo.window_covered_seconds),
            time_to_exhaustion_seconds: lowest(|slo| slo.time_to_exhaustion_seconds),
            consumed_by: largest_consumer(slos),
        })
    }
}

/// Two budgets are the same if they differ by less than this. Processes round to four digits.
const ROUNDING: f64 = 1e-3;

/// Returns the budget of all processes together. It follows from the sums of good and bad events if the events since
/// the start explain the budget of each process. They do not after a restart with a saved state, or when the process is
/// older than the window. The lowest budget of a process is then returned.
fn budget(slos: &[InProcess<'_>]) -> Option<Budget> {
    let each = || slos.iter().map(|(_, slo)| *slo);
    let remaining = |good: u64, bad: u64, target: f64| {
        let all = good.saturating_add(bad);
        (all > 0).then(|| 1.0 - bad as f64 / all as f64 / (1.0 - target))
    };
    let is_explained = |slo: &document::Slo| {
        let from_events = slo.target.and_then(|target| remaining(slo.good, slo.bad, target));
        match (from_events, slo.error_budget_remaining) {
            (Some(a), Some(b)) => (a - b).abs() <= ROUNDING * a.abs().max(1.0),
            (a, b) => a.is_none() && b.is_none(),
        }
    };
    let target = each().next().and_then(|slo| slo.target);
    let same_target = each().all(|slo| slo.target == target);
    if slos.len() > 1 && same_target && each().all(is_explained) {
        let (good, bad) = each().fold((0_u64, 0_u64), |(good, bad), slo| {
            (good.saturating_add(slo.good), bad.saturating_add(slo.bad))
        });
        let remaining = target.and_then(|target| remaining(good, bad, target))?;
        return Some(Budget { remaining, is_lowest: false });
    }
    let lowest = each().filter_map(|slo| slo.error_budget_remaining).min_by(f64::total_cmp)?;
    Some(Budget { remaining: lowest, is_lowest: slos.len() > 1 })
}

fn burn_rates(slos: &[InProcess<'_>]) -> BTreeMap<Text, BurnRate> {
    let mut highest: BTreeMap<Text, BurnRate> = BTreeMap::new();
    for (process, slo) in slos {
        for (window, rate) in &slo.burn_rate {
            let Some(rate) = *rate else { continue };
            if highest.get(window).is_none_or(|highest| highest.burn_rate < rate) {
                let rate = BurnRate { process: (*process).clone(), burn_rate: rate };
                highest.insert(window.clone(), rate);
            }
        }
    }
    highest
}

fn largest_consumer(slos: &[InProcess<'_>]) -> Option<Text> {
    let mut causes: BTreeMap<(&Option<Text>, &Option<Text>), u64> = BTreeMap::new();
    for consumer in slos.iter().flat_map(|(_, slo)| &slo.consumed_by) {
        let bad = causes.entry((&consumer.model, &consumer.error_type)).or_default();
        *bad = bad.saturating_add(consumer.bad);
    }
    let ((model, error), bad) = causes.into_iter().max_by_key(|(_, bad)| *bad)?;
    let words: Vec<&str> = [model, error].into_iter().flatten().map(Text::as_str).collect();
    Some(Text::new(&format!("{} × {bad}", words.join(" "))))
}
