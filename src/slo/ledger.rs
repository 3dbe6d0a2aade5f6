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
