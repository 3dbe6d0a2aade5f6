//! A split pattern as a flat transition table.
//!
//! regex-automata builds the automaton. It is designed for searching and reports a match one byte late. Token counts
//! need the match as soon as the last byte of a piece arrives, so this module rewrites the automaton. Each step states
//! whether the text read is a piece and whether it is a piece if the text ends here. It also states whether further
//! text can change that result. States and classes of bytes that are then equal are merged, because the table of an
//! encoding is read for every byte of text and should fit into the cache.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::error::Error;

use regex_automata::Anchored;
use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;

use crate::layout::{ROW_STEPS, Step};
use crate::patterns::DROPS_LAST;

pub struct Automaton {
    /// The class of each byte. Bytes that every state treats alike share a class.
    pub classes: Vec<u8>,
    /// One row per state, one step per class. Rows are padded to [`ROW_STEPS`].
    pub steps: Vec<Step>,
}

/// The rows of the table, one per state.
type Rows = Vec<Vec<Step>>;

pub fn build(patterns: &[String; 3]) -> Result<Automaton, Box<dyn Error>> {
    let dfa = dense::Builder::new()
        .configure(
            dense::Config::new().start_kind(StartKind::Anchored).accelerate(false).minimize(true),
        )
        .build_many(patterns)?;
    let classes: Vec<u8> = (0..=u8::MAX).map(|byte| dfa.byte_classes().get(byte)).collect();
    let rows = Explored::from(&dfa, &representatives(&classes))?.rows()?;
    let (classes, mut rows) = merge_equal_classes(&classes, &merge_equal_states(rows)?)?;
    for row in &mut rows {
        if row.len() > ROW_STEPS {
            return Err(format!("{} classes of bytes", row.len()).into());
        }
        row.resize(ROW_STEPS, DEAD);
    }
    Ok(Automaton { classes, steps: rows.concat() })
}

/// Merges states with equal rows, until all rows differ. The steps to a state contain all else that is known of it.
fn merge_equal_states(mut rows: Rows) -> Result<Rows, Box<dyn Error>> {
    loop {
        let (numbers, distinct) = number_distinct(&rows);
        if distinct.len() == rows.len() {
            return Ok(rows);
        }
        rows = distinct;
        for step in rows.iter_mut().flatten() {
            let number = numbers.get(usize::from(step.state())).ok_or("a step into nowhere")?;
            *step = step.with_state(u16::try_from(*number)?);
        }
    }
}

/// Merges classes of bytes that have the same step in every state.
fn merge_equal_classes(
    classes: &[u8],
    rows: &[Vec<Step>],
) -> Result<(Vec<u8>, Rows), Box<dyn Error>> {
    let (numbers, distinct) = number_distinct(&transposed(rows));
    let number = |class: &u8| {
        let number = numbers.get(usize::from(*class)).ok_or("a byte without a class")?;
        Ok::<_, Box<dyn Error>>(u8::try_from(*number)?)
    };
    Ok((classes.iter().map(number).collect::<Result<_, _>>()?, transposed(&distinct)))
}

/// Returns the index of each line among the distinct lines, and the distinct lines in their order of occurrence.
fn number_distinct(lines: &[Vec<Step>]) -> (Vec<usize>, Rows) {
    let (mut known, mut distinct) = (HashMap::new(), Vec::new());
    let number = |line: &Vec<Step>| {
        *known.entry(line.clone()).or_insert_with(|| {
            distinct.push(line.clone());
            distinct.len() - 1
        })
    };
    (lines.iter().map(number).collect(), distinct)
}

fn transposed(lines: &[Vec<Step>]) -> Rows {
    let width = lines.first().map_or(0, Vec::len);
    let column = |index: usize| lines.iter().filter_map(|line| line.get(index).copied()).collect();
    (0..width).map(column).collect()
}

/// Returns one byte of each class, in the order of the classes.
fn representatives(classes: &[u8]) -> Vec<u8> {
    let bytes: BTreeMap<u8, u8> = classes.iter().copied().zip(0..=u8::MAX).collect();
    bytes.into_values().collect()
}

/// A state of the regex-automata automaton: its transitions, and the match that regex-automata reports one byte late.
struct State {
    next: Vec<usize>,
    /// The pattern that the text up to this state matches.
    matched: Option<usize>,
    /// The pattern that the text matches if it ends here.
    matched_at_end: Option<usize>,
}

/// All reachable states, numbered in the order of discovery.
struct Explored(Vec<State>);

impl Explored {
    fn from(dfa: &dense::DFA<Vec<u32>>, bytes: &[u8]) -> Result<Self, Box<dyn Error>> {
        let start = dfa.start_state(&start::Config::new().anchored(Anchored::Yes))?;
        let pattern = |state: StateID| {
            dfa.is_match_state(state).then(|| dfa.match_pattern(state, 0).as_usize())
        };
        let mut numbers = HashMap::from([(start, 0)]);
        let mut queue = VecDeque::from([start]);
        let mut states = Vec::new();
        while let Some(state) = queue.pop_front() {
            let targets: Vec<StateID> = bytes.iter().map(|b| dfa.next_state(state, *b)).collect();
            let matched = targets.first().and_then(|target| pattern(*target));
            if targets.iter().any(|target| pattern(*target) != matched) {
                return Err("what a state matches depends on the next byte".into());
            }
            let mut next = Vec::with_capacity(targets.len());
            for target in targets {
                let new = numbers.len();
                next.push(*numbers.entry(target).or_insert_with(|| {
                    queue.push_back(target);
                    new
                }));
            }
            states.push(State {
                next,
                matched,
                matched_at_end: pattern(dfa.next_eoi_state(state)),
            });
        }
        Ok(Self(states))
    }

    /// Returns, for each state, whether it can still lead to a match.
    fn living(&self) -> Vec<bool> {
        let mut living: Vec<bool> = self
            .0
            .iter()
            .map(|state| state.matched.is_some() || state.matched_at_end.is_some())
            .collect();
        loop {
            let now: Vec<bool> = self
                .0
                .iter()
                .zip(&living)
                .map(|(state, alive)| *alive || state.leads_to(&living))
                .collect();
            if now == living {
                return living;
            }
            living = now;
        }
    }

    /// Returns the row of the dead state, which leads to itself, followed by the rows of the living states.
    fn rows(&self) -> Result<Rows, Box<dyn Error>> {
        let living = self.living();
        let mut arrivals = Vec::with_capacity(living.len());
        let mut number = 0;
        for (state, alive) in self.0.iter().zip(&living) {
            number += u16::from(*alive);
            arrivals.push(if *alive { Step::new(number, state.verdict(&living)?) } else { DEAD });
        }
        if number >= Step::MAX_STATES {
            return Err(format!("{number} states").into());
        }
        let width = self.0.first().map_or(0, |state| state.next.len());
        let mut rows = vec![vec![DEAD; width]];
        for (state, _) in self.0.iter().zip(&living).filter(|(_, alive)| **alive) {
            let arrival = |target: &usize| arrivals.get(*target).copied();
            let row: Option<Vec<Step>> = state.next.iter().map(arrival).collect();
            rows.push(row.ok_or("a step into nowhere")?);
        }
        Ok(rows)
    }
}

const DEAD: Step = Step::new(0, Step::IS_FINAL);

impl State {
    fn leads_to(&self, set: &[bool]) -> bool {
        self.next.iter().any(|next| set.get(*next) == Some(&true))
    }

    /// Returns the flags of a step that leads to this state.
    fn verdict(&self, living: &[bool]) -> Result<u16, Box<dyn Error>> {
        if self.matched_at_end == Some(DROPS_LAST) {
            return Err("white space at the end is not one piece".into());
        }
        let verdicts = [
            (self.matched.is_some(), Step::ACCEPTS),
            (self.matched == Some(DROPS_LAST), Step::DROPS_LAST),
            (!self.leads_to(living) && self.matched == self.matched_at_end, Step::IS_FINAL),
            (self.matched_at_end.is_some(), Step::ACCEPTS_AT_END),
        ];
        Ok(verdicts.iter().filter(|(holds, _)| *holds).fold(0, |all, (_, verdict)| all | verdict))
    }
}
