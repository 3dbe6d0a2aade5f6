//! The book of all objectives: what was good, what was bad, and what is left.

use crate::clock::Moment;
use crate::record::{Call, Record, Verdict};
use crate::slo::budget::{Counts, Course, Window};
use crate::slo::scope::Filter;
use crate::slo::{BURN_WINDOWS, Objective, Reading};

/// All objectives, each with its history.
#[derive(Debug)]
pub struct Ledger {
    accounts: Vec<Account>,
}

impl Ledger {
    /// With objectives that are observed since the process began.
    pub fn new(objectives: Vec<Objective>) -> Self {
        let open = |objective| Account::open(objective, Moment::ZERO);
        Self {
            accounts: objectives.into_iter().map(open).collect(),
        }
    }

    /// Takes over the objectives of a new configuration. One that did not change keeps its history; of one that did, and
    /// of a new one, nothing is known before `at`. Totals go on by name all the same: counters only rise.
    pub fn replace(&mut self, at: Moment, objectives: Vec<Objective>) {
        let mut former = std::mem::take(&mut self.accounts);
        let take_over = |objective: Objective| {
            let same = former
                .iter()
                .position(|known| known.objective.name == objective.name);
            match same.map(|index| former.swap_remove(index)) {
                Some(known) if known.objective == objective => known,
                Some(known) => Account {
                    total: known.total,
                    ..Account::open(objective, at)
                },
                None => Account::open(objective, at),
            }
        };
        self.accounts = objectives.into_iter().map(take_over).collect();
    }

    pub fn objective(&self, index: usize) -> Option<&Objective> {
        Some(&self.accounts.get(index)?.objective)
    }

    /// What the objectives in whose scope the exchange is say of it, by their index. Plain HTTP is in no scope.
    pub fn judge(&self, record: &Record) -> impl Iterator<Item = (usize, Verdict)> {
        let judge = move |(index, account): (usize, &Account)| {
            let call = record.call.as_ref()?;
            Some((index, account.judge(record, call)?))
        };
        self.accounts.iter().enumerate().filter_map(judge)
    }

    /// Enters a verdict in the book. What is excluded leaves no trace there.
    pub fn note(&mut self, at: Moment, index: usize, verdict: Verdict) {
        let Some(account) = self.accounts.get_mut(index) else {
            return;
        };
        match verdict {
            Verdict::Good => account.note(at, Counts { good: 1, bad: 0 }),
            Verdict::Bad => account.note(at, Counts { good: 0, bad: 1 }),
            Verdict::Excluded => {}
        }
    }

    /// Every objective at this moment, in the configuration's order.
    pub fn reading(&self, at: Moment) -> Vec<Reading> {
        let accounts = self.accounts.iter();
        accounts.map(|account| account.reading(at)).collect()
    }
}

/// One objective and its history: eight windows, 16 KiB.
#[derive(Debug)]
struct Account {
    objective: Objective,
    filter: Filter,
    since: Moment,
    total: Counts,
    budget: Window,
    burn: [Window; BURN_WINDOWS.len()],
}

impl Account {
    fn open(objective: Objective, since: Moment) -> Self {
        Self {
            filter: Filter::new(&objective.scope),
            budget: Window::new(objective.window),
            burn: BURN_WINDOWS.map(|(_, length)| Window::new(length)),
            total: Counts::default(),
            since,
            objective,
        }
    }

    fn judge(&self, record: &Record, call: &Call) -> Option<Verdict> {
        if !self.filter.matches(record, call) {
            return None;
        }
        self.objective.indicator.judge(record, call)
    }

    fn note(&mut self, at: Moment, counts: Counts) {
        self.total.good += counts.good;
        self.total.bad += counts.bad;
        self.budget.note(at, counts);
        for window in &mut self.burn {
            window.note(at, counts);
        }
    }

    fn reading(&self, at: Moment) -> Reading {
        let target = self.objective.target;
        let observed = at.since(self.since);
        let covered = observed.min(self.objective.window);
        let budget = self.budget.counts(at).budget(target);
        let burn = |window: &Window| window.counts(at).burn(target);
        let [_, _, last_hour, ..] = &self.burn;
        let course = || {
            Some(Course {
                budget: budget?,
                burn: burn(last_hour)?,
                window: self.objective.window,
                covered,
            })
        };
        Reading {
            objective: self.objective.clone(),
            good: self.total.good,
            bad: self.total.bad,
            budget,
            burn: self.burn.each_ref().map(|window| {
                let is_covered = observed >= window.length();
                is_covered.then(|| burn(window)).flatten()
            }),
            covered,
            exhaustion: course().and_then(Course::exhaustion),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::label::Label;
    use crate::slo::example::stream;
    use crate::slo::{Indicator, Scope};

    const HOUR: Duration = Duration::from_secs(3_600);

    fn objective(name: &str) -> Objective {
        Objective {
            name: Label::known(name),
            indicator: Indicator::Availability,
            target: 0.99,
            window: 24 * HOUR,
            scope: Scope::default(),
        }
    }

    fn one(ledger: &Ledger, at: Moment) -> Reading {
        let [reading] = <[Reading; 1]>::try_from(ledger.reading(at)).unwrap();
        reading
    }

    fn note(ledger: &mut Ledger, at: Moment, good: u64, bad: u64) {
        for _ in 0..good {
            ledger.note(at, 0, Verdict::Good);
        }
        for _ in 0..bad {
            ledger.note(at, 0, Verdict::Bad);
        }
    }

    fn near(told: Option<f64>, exact: f64) {
        let error = told.map(|told| (told - exact).abs());
        assert!(error.is_some_and(|e| e < 1e-9), "{told:?} for {exact}");
    }

    #[test]
    fn only_objectives_in_whose_scope_it_is_judge_an_exchange() {
        let scoped = |name, model: &str| Objective {
            scope: Scope {
                route: None,
                model: Some(model.to_owned()),
            },
            ..objective(name)
        };
        let slow = Objective {
            indicator: Indicator::OutputRate(100.0),
            ..objective("voice")
        };
        let ledger = Ledger::new(vec![scoped("a", "claude*"), scoped("b", "gpt*"), slow]);
        let mut record = stream();
        let verdicts: Vec<_> = ledger.judge(&record).collect();
        assert_eq!(verdicts, [(1, Verdict::Good), (2, Verdict::Bad)]);
        assert_eq!(ledger.objective(1).unwrap().name.as_str(), "b");
        record.call = None;
        assert_eq!(ledger.judge(&record).count(), 0, "plain HTTP");
    }

    #[test]
    fn what_is_excluded_leaves_no_trace() {
        let mut ledger = Ledger::new(vec![objective("a")]);
        let at = Moment::from_secs(7_200);
        ledger.note(at, 0, Verdict::Excluded);
        let reading = one(&ledger, at);
        assert_eq!((reading.good, reading.bad), (0, 0));
        assert_eq!((reading.budget, reading.exhaustion), (None, None));
        assert_eq!(reading.burn, [None; BURN_WINDOWS.len()]);
    }

    #[test]
    fn a_burn_is_told_from_the_moment_its_window_is_covered() {
        let mut ledger = Ledger::new(vec![objective("a")]);
        for (index, (name, length)) in BURN_WINDOWS.into_iter().enumerate() {
            let covered = Moment::ZERO + length;
            note(&mut ledger, covered, 98, 2);
            let before = one(&ledger, Moment::from_nanos(covered.nanos() - 1));
            assert_eq!(before.burn[index], None, "{name}");
            let reading = one(&ledger, covered);
            near(reading.burn[index], 2.0);
            assert_eq!(reading.burn.iter().flatten().count(), index + 1);
        }
    }

    #[test]
    fn a_budget_is_that_of_what_is_covered() {
        let mut ledger = Ledger::new(vec![objective("a")]);
        let at = Moment::from_secs(1_800);
        note(&mut ledger, at, 399, 1);
        let reading = one(&ledger, at);
        near(reading.budget, 0.75);
        assert_eq!(reading.covered, HOUR / 2);
        assert_eq!(reading.exhaustion, None, "a quarter of what it may burn");
        note(&mut ledger, at, 0, 2);
        assert!(one(&ledger, at).budget.unwrap() > 0.25 && one(&ledger, at).exhaustion.is_none());
        assert_eq!(one(&ledger, Moment::from_secs(999_999)).covered, 24 * HOUR);
    }

    #[test]
    fn a_budget_that_burns_faster_than_it_is_earned_has_an_end() {
        let mut ledger = Ledger::new(vec![objective("a")]);
        for hour in 0..23 {
            note(&mut ledger, Moment::from_secs(hour * 3_600), 1_000, 0);
        }
        let at = Moment::from_secs(24 * 3_600);
        note(&mut ledger, at.saturating_sub(HOUR * 3 / 4), 980, 20);
        let reading = one(&ledger, at);
        near(reading.budget, 1.0 - 20.0 / 240.0);
        let seconds = (1.0 - 20.0 / 240.0) * 24.0 * 3_600.0 / 2.0;
        let foretold = reading.exhaustion.unwrap().as_secs_f64();
        assert!((foretold - seconds).abs() < 1e-3, "{foretold}");
    }

    #[test]
    fn an_objective_that_did_not_change_keeps_its_history() {
        let mut ledger = Ledger::new(vec![objective("a"), objective("b")]);
        let at = Moment::from_secs(4_000);
        note(&mut ledger, at, 9, 1);
        ledger.note(at, 1, Verdict::Bad);
        let changed = Objective {
            target: 0.9,
            ..objective("a")
        };
        ledger.replace(at, vec![objective("c"), objective("b"), changed]);
        let readings = ledger.reading(at);
        let told = |index: usize| {
            let reading: &Reading = &readings[index];
            (
                reading.good,
                reading.bad,
                reading.budget.is_some(),
                reading.covered,
            )
        };
        assert_eq!(told(0), (0, 0, false, Duration::ZERO), "new");
        assert_eq!(
            told(1),
            (0, 1, true, Duration::from_secs(4_000)),
            "the same"
        );
        assert_eq!(
            told(2),
            (9, 1, false, Duration::ZERO),
            "changed: totals go on, windows do not"
        );
        let burning = |at| ledger.reading(at)[0].burn.iter().flatten().count();
        assert_eq!(
            burning(at + Duration::from_secs(300)),
            0,
            "covered, yet without events"
        );
    }

    #[test]
    fn a_window_of_a_new_objective_is_covered_from_when_it_came() {
        let mut ledger = Ledger::new(vec![]);
        let came = Moment::from_secs(50_000);
        ledger.replace(came, vec![objective("a")]);
        let at = came + Duration::from_secs(299);
        note(&mut ledger, at, 1, 0);
        assert_eq!(one(&ledger, at).burn[0], None);
        assert_eq!(
            one(&ledger, came + Duration::from_secs(300)).burn[0],
            Some(0.0)
        );
    }

    #[test]
    fn an_index_that_is_no_more_is_ignored() {
        let mut ledger = Ledger::new(vec![]);
        ledger.note(Moment::ZERO, 3, Verdict::Bad);
        assert!(ledger.reading(Moment::ZERO).is_empty() && ledger.objective(0).is_none());
    }

    proptest! {
        /// Events and readings stand on the grid of the widest slots (3 d ÷ 120 = 36 min), which every other grid here
        /// divides: so the windows are exact.
        #[test]
        fn a_reading_equals_what_the_list_of_events_gives(
            events in prop::collection::vec((0_u64..300, 0_u32..5), 0..120),
            read in 0_u64..300,
            days in prop::sample::select(vec![1_u64, 3]),
            target in prop::sample::select(vec![0.9, 0.99, 0.999]),
        ) {
            const STEP: u64 = 2_160;
            let mut events = events;
            events.retain(|(step, _)| *step <= read);
            events.sort_unstable();
            let window = Duration::from_secs(days * 86_400);
            let mut ledger = Ledger::new(vec![Objective { target, window, ..objective("a") }]);
            for &(step, kind) in &events {
                let verdict = match kind {
                    0 => Verdict::Bad,
                    1 => Verdict::Excluded,
                    _ => Verdict::Good,
                };
                ledger.note(Moment::from_secs(step * STEP), 0, verdict);
            }
            let now = read * STEP;
            let share = |window: Duration| {
                let oldest = now.saturating_sub(window.as_secs());
                let kept = || events.iter().filter(|(step, kind)| step * STEP >= oldest && *kind != 1);
                let bad = kept().filter(|(_, kind)| *kind == 0).count();
                (kept().count() > 0).then(|| bad as f64 / kept().count() as f64 / (1.0 - target))
            };
            let reading = one(&ledger, Moment::from_secs(now));
            prop_assert_eq!(reading.budget, share(window).map(|burn| 1.0 - burn));
            for (told, (_, length)) in reading.burn.into_iter().zip(BURN_WINDOWS) {
                let covered = now >= length.as_secs();
                prop_assert_eq!(told, if covered { share(length) } else { None });
            }
        }
    }
}
