//! What consumed the error budgets, and what they exclude.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::document::{Consumed, Excluded, Text};
use tokengauge_measure::record::{Call, Outcome, Record, Verdict};
use tokengauge_measure::slo::SloTracker;
use tokengauge_types::label::{Label, OTHER};

/// Maximum number of combinations of model and error per SLO. Few errors of few models consume most of a budget. Further
/// combinations count as model and error `other`.
const MAX_COMBINATIONS: usize = 50;

/// Bad and excluded calls of each SLO since the start of the process. The configuration limits the number of SLOs.
#[derive(Debug, Default)]
pub struct BudgetConsumption(FxHashMap<Label, Calls>);

#[derive(Debug, Default)]
struct Calls {
    bad: FxHashMap<Combination, u64>,
    /// Excluded calls by reason. There are fewer than ten reasons.
    excluded: BTreeMap<&'static str, u64>,
}

/// A model, and the error of its bad calls. The error is `None` if the calls succeeded.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Combination {
    model: Label,
    error_type: Option<Text>,
}

impl BudgetConsumption {
    /// Records the verdicts of a finished call.
    pub fn record(&mut self, record: &Record, call: &Call, slos: &SloTracker) {
        for (slo, verdict) in &call.verdicts {
            match verdict {
                Verdict::Good => {}
                Verdict::Bad => {
                    let error = record.error_type.as_ref();
                    let error = error.filter(|_| record.outcome != Outcome::Ok);
                    self.0.entry(slo.clone()).or_default().add_bad(Combination {
                        model: call.series.model.clone(),
                        error_type: error.map(|name| name.as_str().into()),
                    });
                }
                Verdict::Excluded => {
                    let Some(reason) = slos.exclusion_reason(slo, record) else { continue };
                    let calls = self.0.entry(slo.clone()).or_default();
                    *calls.excluded.entry(reason).or_default() += 1;
                }
            }
        }
    }

    /// Returns what consumed the budget of an SLO, most first.
    pub fn consumed_by(&self, slo: &Label) -> Vec<Consumed> {
        let bad = self.0.get(slo).into_iter().flat_map(|calls| &calls.bad);
        let consumed = |(combination, bad): (&Combination, &u64)| Consumed {
            model: combination.model.shared(),
            error_type: combination.error_type.clone(),
            bad: *bad,
        };
        let mut all: Vec<_> = bad.map(consumed).collect();
        all.sort_by(|a, b| {
            let names = |it: &Consumed| (it.model.clone(), it.error_type.clone());
            b.bad.cmp(&a.bad).then_with(|| names(a).cmp(&names(b)))
        });
        all
    }

    /// Returns the excluded calls of an SLO by reason.
    pub fn excluded_by(&self, slo: &Label) -> Vec<Excluded> {
        let excluded = self.0.get(slo).into_iter().flat_map(|calls| &calls.excluded);
        excluded
            .map(|(reason, count)| Excluded { reason: (*reason).into(), count: *count })
            .collect()
    }
}

impl Calls {
    fn add_bad(&mut self, combination: Combination) {
        let is_known = self.bad.contains_key(&combination);
        let key = if is_known || self.bad.len() < MAX_COMBINATIONS {
            combination
        } else {
            Combination { model: Label::from_trusted(OTHER), error_type: Some(OTHER.into()) }
        };
        *self.bad.entry(key).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_are_bounded_and_sorted() {
        let mut calls = Calls::default();
        let combination = |model: u64| Combination {
            model: Label::from_trusted(&model.to_string()),
            error_type: None,
        };
        for model in 0..200 {
            calls.add_bad(combination(model));
        }
        calls.add_bad(combination(7));
        assert_eq!(calls.bad.len(), MAX_COMBINATIONS + 1);
        let slo = Label::from_trusted("a");
        let all = BudgetConsumption(FxHashMap::from_iter([(slo.clone(), calls)]));
        let consumed = all.consumed_by(&slo);
        let row = |place: usize| (&*consumed[place].model, consumed[place].bad);
        assert_eq!([row(0), row(1), row(2)], [("other", 150), ("7", 2), ("0", 1)]);
    }
}
