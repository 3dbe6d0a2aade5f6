//! A split pattern as a flat transition table.
//!
//! regex-automata builds the automaton. It is designed for searching and reports a match one byte late. Token counts
//! need the match as soon as the last byte of a piece arrives, so this module rewrites the automaton. Each step states
//! whether the text read is a piece and whether it is a piece if the text ends here. It also states whether further
//! text can change that result.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::error::Error;

use regex_automata::Anchored;
use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;

use crate::layout::Step;
use crate::patterns::DROPS_LAST;

pub struct Automaton {
    /// The class of each byte. Bytes that every state treats alike share a class.
    pub classes: Vec<u8>,
    /// One row per state, one step per class.
    pub steps: Vec<Step>,
}

pub fn build(patterns: &[String; 3]) -> Result<Automaton, Box<dyn Error>> {
    let dfa = dense::Builder::new()
        .configure(dense::Config::new().start_kind(StartKind::Anchored).accelerate(false))
        .build_many(patterns)?;
    let classes: Vec<u8> = (0..=u8::MAX).map(|byte| dfa.byte_classes().get(byte)).collect();
    let explored = Explored::from(&dfa, &representatives(&classes))?;
    Ok(Automaton { classes, steps: explored.steps()? })
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
    fn steps(&self) -> Result<Vec<Step>, Box<dyn Error>> {
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
        let mut steps = vec![DEAD; width];
        for (state, _) in self.0.iter().zip(&living).filter(|(_, alive)| **alive) {
            for target in &state.next {
                steps.push(*arrivals.get(*target).ok_or("a step into nowhere")?);
            }
        }
        Ok(steps)
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
